"""A raw editor: the real agent over real pipes, every line kept, every wait bounded.

The other side of the agent, the model's endpoint, is `FakeLlm`. What is received is timed, so that
a test can say what an editor had seen at a moment.
"""

from collections.abc import Callable, Sequence
import json
import os
from pathlib import Path
import subprocess
import sys
import threading
import time
from typing import Any

from dsh_acp.llm.fake import FakeLlm
from dsh_acp.snapshot.agents import agent_env
from dsh_acp.snapshot.calls import Line
from dsh_acp.snapshot.conformity import schema_folder, violations

PROJECT = Path(__file__).resolve().parents[2]
WAIT_S = 30.0
"""Longer than anything takes on a busy machine; a test that waits so long has failed."""

Frame = dict[str, Any]


def tool(id: str, name: str, /, **arguments: Any) -> Frame:
    """One tool call of a scripted answer."""
    return {"id": id, "name": name, "arguments": arguments}


def bash(id: str, command: str) -> Frame:
    """A command of a scripted answer."""
    return tool(id, "bash", command=command, description="Run it")


def script(*entries: Any) -> Callable[[Any], Any]:
    """A script that side requests (titles) do not consume: they get a title."""
    waiting = list(entries)

    def choose(record: Any) -> Any:
        if not record.json.get("tools"):
            return {"text": "A title"}
        return waiting.pop(0) if waiting else "success"

    return choose


def bodies(fake: FakeLlm) -> list[Frame]:
    """The bodies of the conversation's requests, titles aside."""
    return [request.json for request in list(fake.requests) if request.json.get("tools")]


class Agent:
    """One agent process. `stop` it at the end; `fixture agent` does."""

    def __init__(
        self,
        home: Path,
        fake: FakeLlm | str | None = None,
        *,
        argv: Sequence[str] = (),
        cwd: Path | None = None,
        command: Sequence[str] = (),
        new_group: bool = False,
        **env: str,
    ) -> None:
        self.home = home
        self.cwd = cwd or home
        self.lines: list[Line] = []
        self.frames: list[Frame] = []
        self.times: list[float] = []
        """When each frame came, on the monotonic clock."""
        self.garbage: list[bytes] = []
        self.stderr = b""
        self.permission: str | None = "allow_once"
        """The kind of option that questions are answered with; `None` leaves them open."""
        self.is_judged = True
        self.wait_s = WAIT_S
        self.reading = threading.Event()
        """Clear it, and nobody reads the agent's stdout."""
        self.reading.set()
        self._next_id = 0
        self._news = threading.Condition()
        self._ended = False
        url = fake.url if isinstance(fake, FakeLlm) else fake or "http://127.0.0.1:9/v1"
        self.it = subprocess.Popen(
            [*(command or (sys.executable, "-m", "dsh_acp")), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.cwd,
            start_new_session=new_group,
            env=environment(home, url, **env),
        )
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # ------------------------------------------------------------ receiving

    def _read(self) -> None:
        assert self.it.stdout is not None
        while self.reading.wait(WAIT_S) and (line := self.it.stdout.readline()):
            self._receive(line)
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _receive(self, line: bytes) -> None:
        now = time.monotonic()
        try:
            frame = json.loads(line)
        except ValueError:
            frame = None
        whole = line.endswith(b"\n") and not line.endswith(b"\r\n")
        with self._news:
            if isinstance(frame, dict) and whole:
                self.lines.append(Line(False, line[:-1]))
                self.frames.append(frame)
                self.times.append(now)
            else:
                self.garbage.append(line)
            self._news.notify_all()
        if isinstance(frame, dict) and frame.get("method") == "session/request_permission":
            self._answer(frame)

    def _answer(self, frame: Frame) -> None:
        if self.permission is None:
            return
        option = next(o for o in frame["params"]["options"] if o["kind"] == self.permission)
        outcome = {"outcome": "selected", "optionId": option["optionId"]}
        self.reply(frame, {"outcome": outcome})

    def _read_stderr(self) -> None:
        assert self.it.stderr is not None
        for line in self.it.stderr:
            self.stderr += line

    def until(self, matches: Callable[[Frame], Any], since: int = 0) -> Frame:
        """The first frame at or after `since` that matches; waits for it."""
        at = since
        deadline = time.monotonic() + self.wait_s
        with self._news:
            while True:
                while at < len(self.frames):
                    at += 1
                    if matches(self.frames[at - 1]):
                        return self.frames[at - 1]
                assert not self._ended, f"the agent ended; it said: {self.stderr.decode()}"
                assert self._news.wait(deadline - time.monotonic()), "no such frame"

    def until_count(self, count: int, timeout: float = WAIT_S) -> bool:
        """Wait for so many frames; `False` when the agent ended or time is up."""
        with self._news:
            done = self._news.wait_for(lambda: self._ended or len(self.frames) >= count, timeout)
            return done and not self._ended

    def until_update(self, since: int = 0, **fields: Any) -> Frame:
        """The first update at or after `since` with all `fields`."""

        def matches(frame: Frame) -> bool:
            update = frame.get("params", {}).get("update", {})
            return all(update.get(key) == value for key, value in fields.items())

        return self.until(lambda f: f.get("method") == "session/update" and matches(f), since)

    def response(self, id: Any) -> Frame:
        """The response to a call, result or error."""
        return self.until(lambda f: "method" not in f and f.get("id") == id)

    def updates(self, kind: str | None = None, since: int = 0) -> list[Frame]:
        """The updates received so far."""
        found = [f["params"]["update"] for f in self.frames[since:] if is_update(f)]
        return [u for u in found if kind in (None, u["sessionUpdate"])]

    def said(self, kind: str = "agent_message_chunk", since: int = 0) -> str:
        """The text of all chunks of a kind."""
        return "".join(u["content"].get("text", "") for u in self.updates(kind, since))

    def asked(self, method: str = "session/request_permission") -> list[Frame]:
        """The agent's requests for a method so far."""
        return [f for f in self.frames if f.get("method") == method and "id" in f]

    # ------------------------------------------------------------ sending

    def send(self, *frames: Any) -> None:
        """Send JSON values, one line each, in one write."""
        self.send_raw(*(json.dumps(frame).encode() for frame in frames))

    def send_raw(self, *lines: bytes, end: bytes = b"\n") -> None:
        """Send lines as they are."""
        assert self.it.stdin is not None
        self.lines += [Line(True, line) for line in lines]
        self.it.stdin.write(b"".join(line + end for line in lines))
        self.it.stdin.flush()

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def reply(self, frame: Frame, result: Any) -> None:
        """Answer a request of the agent's."""
        self.send({"jsonrpc": "2.0", "id": frame["id"], "result": result})

    def start(self, method: str, **params: Any) -> int:
        """Send a call; its id."""
        id, self._next_id = self._next_id, self._next_id + 1
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def call(self, method: str, **params: Any) -> Frame:
        """Call and wait for the response."""
        return self.response(self.start(method, **params))

    # ------------------------------------------------------------ the usual calls

    def initialize(self, **capabilities: Any) -> Frame:
        """Shake hands; the result."""
        params = {"protocolVersion": 1, "clientCapabilities": capabilities}
        return self.call("initialize", **params)["result"]

    def new(self, cwd: Path | None = None) -> str:
        """A new session's id."""
        frame = self.call("session/new", cwd=str(cwd or self.cwd), mcpServers=[])
        return frame["result"]["sessionId"]

    def open(self, **capabilities: Any) -> str:
        """Shake hands and start a session; its id."""
        self.initialize(**capabilities)
        return self.new()

    def load(self, session: str) -> Frame:
        """Load a session; the response."""
        return self.call("session/load", sessionId=session, cwd=str(self.cwd), mcpServers=[])

    def start_prompt(self, session: str, text: str = "hello") -> int:
        """Send a prompt; the id of the call."""
        blocks = [{"type": "text", "text": text}]
        return self.start("session/prompt", sessionId=session, prompt=blocks)

    def prompt(self, session: str, text: str = "hello") -> Frame:
        """Prompt and wait for the response."""
        return self.response(self.start_prompt(session, text))

    # ------------------------------------------------------------ the end

    def kill(self) -> float:
        """kill -9; the moment, on the monotonic clock."""
        self.it.kill()
        moment = time.monotonic()
        self._gone()
        return moment

    def close(self) -> int:
        """Close stdin and wait for the exit; the exit code."""
        assert self.it.stdin is not None
        self.it.stdin.close()
        return self._gone()

    def exit(self) -> int:
        """Wait for the exit; the exit code."""
        return self._gone()

    def _gone(self) -> int:
        code = self.it.wait(WAIT_S)
        for thread in self._threads:
            thread.join(WAIT_S)
        return code

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self.it.poll() is None:
            self.it.kill()
        self._gone()
        for stream in (self.it.stdin, self.it.stdout, self.it.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue

    def faults(self) -> list[str]:
        """What is wrong with the agent's output, whatever was tested."""
        if not self.is_judged:
            return [repr(line[:200]) for line in self.garbage]
        folder = schema_folder(PROJECT / "README.md")
        return [repr(line[:200]) for line in self.garbage] + violations(self.lines, folder)


def is_update(frame: Frame) -> bool:
    """Whether a frame is a `session/update`."""
    return frame.get("method") == "session/update"


def environment(home: Path, url: str, **more: str) -> dict[str, str]:
    """The environment of an agent with a private home and the model at `url`."""
    env = agent_env(home, "openai/m", OPENAI_BASE_URL=url, OPENAI_API_KEY="sk-e2e-secret")
    path = os.pathsep.join(filter(None, (more.pop("PYTHONPATH", ""), env["PYTHONPATH"])))
    return {**env, "PYTHONPATH": path, **more}


def install_plugin(site: Path, module: Path) -> Path:
    """Put a copy of `module`, whose `install` is the plugin, into `site` as a package would."""
    name = module.stem
    info = site / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[dsh_acp.plugins]\n{name} = {name}:install\n", "utf-8")
    (site / module.name).write_bytes(module.read_bytes())
    return site


def log_of(home: Path, session: str) -> Path:
    """The log file of a session."""
    found = [
        p for p in home.glob(".dsh-acp/sessions/*/*/session.jsonl") if p.parent.name == session
    ]
    assert len(found) == 1, f"{len(found)} logs of {session}"
    return found[0]


def events_of(data: bytes) -> list[Frame]:
    """The rows of a log, its header aside; a torn tail is dropped."""
    return [json.loads(line) for line in data.split(b"\n")[1:-1]]
