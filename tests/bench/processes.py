"""The two ends of a measured agent: a client that stamps what it reads, and a scripted endpoint.

All times are nanoseconds of the monotonic clock, which the processes of one machine share.
"""

from collections.abc import Mapping, Sequence
import contextlib
import json
import os
from pathlib import Path
import select
import subprocess
import sys
import threading
import time
from typing import Any
import urllib.request

import msgspec

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 20.0


class Frame(msgspec.Struct):
    """One received frame: decoded on demand, so that reading a flood stays cheap."""

    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(Frame).decode


def command(kind: str) -> list[str]:
    """How to start the `real` agent or the `floor`."""
    if kind == "floor":
        return [sys.executable, str(Path(__file__).with_name("floor.py"))]
    script = Path(sys.executable).with_name("dsh-acp")
    return [str(script)] if script.exists() else [sys.executable, "-m", "dsh_acp"]


class Agent:
    """An agent process and a client of it; grants every permission."""

    def __init__(self, kind: str, home: Path, url: str) -> None:
        self.home = home
        self.cwd = home / "work"
        self.cwd.mkdir(parents=True, exist_ok=True)
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "DSH_ACP_HOME": str(home / "state"),
            "DSH_ACP_MODEL": "openai/m",
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "x",
            "PYTHONPATH": str(ROOT),
        }
        self.errors = (home / "stderr.txt").open("ab")
        self.started = time.monotonic_ns()
        self.process = subprocess.Popen(
            command(kind),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=self.cwd,
            env=env,
            bufsize=0,
        )
        assert self.process.stdin and self.process.stdout
        self._in = self.process.stdin.fileno()
        self._out = self.process.stdout.fileno()
        self._rest = b""
        self._ready: list[tuple[int, bytes]] = []
        self._next = 0
        self.updates: list[tuple[int, Frame]] = []
        self.initialized = 0

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: object) -> None:
        self.exit()

    def exit(self) -> int:
        """Close stdin and wait for the end; how long that took."""
        start = time.monotonic_ns()
        watchdog = threading.Timer(TIMEOUT_S, self.process.kill)
        watchdog.start()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()
        took = time.monotonic_ns() - start
        watchdog.cancel()
        self.process.stdout.close()
        self.errors.close()
        return took

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    # ---------------------------------------------------------------- frames

    def send(self, method: str, params: Any) -> int:
        """Write a request; its id."""
        id, self._next = self._next, self._next + 1
        self._write({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def notify(self, method: str, params: Any) -> None:
        """Write a notification."""
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def _write(self, frame: Any) -> None:
        data = msgspec.json.encode(frame) + b"\n"
        while data:
            data = data[os.write(self._in, data) :]

    def receive(self) -> tuple[int, Frame]:
        """The next frame and when it was read; updates are kept, permissions are granted.

        Raises:
            TimeoutError, EOFError: none comes.
        """
        while not self._ready:
            readable, _, _ = select.select([self._out], [], [], TIMEOUT_S)
            if not readable:
                raise TimeoutError(f"no frame within {TIMEOUT_S} s")
            data = os.read(self._out, 1 << 20)
            at = time.monotonic_ns()
            if not data:
                raise EOFError((self.home / "stderr.txt").read_text(encoding="utf-8")[-2000:])
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._ready = [(at, line) for line in reversed(lines)]
        at, line = self._ready.pop()
        frame = _decode(line)
        if frame.method == "session/update":
            self.updates.append((at, frame))
        elif frame.method == "session/request_permission":
            options = msgspec.json.decode(frame.params)["options"]
            chosen = next(o["optionId"] for o in options if o["kind"] == "allow_once")
            outcome = {"outcome": {"outcome": "selected", "optionId": chosen}}
            self._write({"jsonrpc": "2.0", "id": frame.id, "result": outcome})
        return at, frame

    def answer(self, id: int) -> tuple[int, Any]:
        """Read up to the answer to `id`: when it came, and the result.

        Raises:
            RuntimeError: it is an error.
        """
        while True:
            at, frame = self.receive()
            if frame.id == id and frame.method is None:
                if bytes(frame.error) != b"null":
                    raise RuntimeError(bytes(frame.error).decode())
                return at, msgspec.json.decode(frame.result)

    def first_chunk(self) -> int:
        """Read up to the next chunk of an answer; when it came."""
        while True:
            at, frame = self.receive()
            if frame.method == "session/update" and b'"agent_message_chunk"' in bytes(frame.params):
                return at

    def initialize(self) -> int:
        """Shake hands; when the answer came."""
        self.initialized, _ = self.answer(
            self.send("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        )
        return self.initialized

    def new_session(self) -> str:
        """A session in the agent's directory."""
        params = {"cwd": str(self.cwd), "mcpServers": []}
        return self.answer(self.send("session/new", params))[1]["sessionId"]

    def start_prompt(self, session: str, text: str) -> int:
        """Send a prompt; the id of its request."""
        prompt = [{"type": "text", "text": text}]
        return self.send("session/prompt", {"sessionId": session, "prompt": prompt})

    def prompt(self, session: str, text: str) -> int:
        """Prompt and read to the end of the turn; when it was sent."""
        sent = time.monotonic_ns()
        self.answer(self.start_prompt(session, text))
        return sent

    def texts(self) -> list[tuple[int, str]]:
        """The received pieces of answers."""
        found = []
        for at, frame in self.updates:
            update = msgspec.json.decode(frame.params)["update"]
            if update["sessionUpdate"] == "agent_message_chunk":
                found.append((at, update["content"]["text"]))
        return found

    def memory(self) -> tuple[float, float]:
        """Resident and proportional memory in MiB (the latter only where Linux tells it)."""
        import psutil

        info = psutil.Process(self.process.pid).memory_info()
        try:
            smaps = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text(encoding="ascii")
            pss = next(int(x.split()[1]) for x in smaps.splitlines() if x.startswith("Pss:")) / 1024
        except (OSError, StopIteration):
            pss = float("nan")
        return info.rss / 1024 / 1024, pss


class Endpoint:
    """The scripted provider, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        script = folder / "script.json"
        script.write_text('["success"]', encoding="utf-8")
        argv = ["-m", "dsh_acp.llm.fake", "--port", "0", "--script", str(script)]
        self.process = subprocess.Popen(
            [sys.executable, *argv],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.process.stdout
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def script(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Answer from `entries` from now on, and forget what was recorded.

        Entries serve only conversations (they carry tools); anything else gets a short answer.
        """
        chosen = [{"when": '"tools"', **entry} for entry in entries]
        self._control("PUT", "_script", [*chosen, {"behavior": "success", "repeat": 0}])
        self._control("DELETE", "_requests")

    def requests(self) -> list[dict[str, Any]]:
        """The recorded conversation requests, in order."""
        return [r for r in self._control("GET", "_requests") if "tools" in (r["body"] or {})]

    def _control(self, method: str, path: str, body: Any = None) -> Any:
        url = self.url.removesuffix("v1") + path
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return json.loads(response.read() or b"null")
