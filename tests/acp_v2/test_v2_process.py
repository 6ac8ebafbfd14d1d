"""The real process in version 2."""

from collections.abc import Iterator
from contextlib import suppress
import json
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

import acp_bench
import pytest
from v2_bench import INFO, check

from dsh_acp.llm.fake import FakeLlm

PROJECT = Path(__file__).resolve().parents[2]
INIT = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": 2, "info": INFO, "capabilities": {}},
}
INIT_1 = {**INIT, "params": {"protocolVersion": 1, "clientCapabilities": {}}}


class Agent:
    """A process that is spoken to in one version, and every frame of it, validated."""

    def __init__(self, home: Path, url: str, version: int) -> None:
        self.home = home
        self.version = version
        self.seen: list[dict[str, Any]] = []
        self._methods: dict[int, str] = {0: "initialize"}
        self.it = subprocess.Popen(
            [sys.executable, "-m", "dsh_acp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=home,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "PYTHONPATH": str(PROJECT),
                "DSH_ACP_MODEL": "openai/m",
                "OPENAI_BASE_URL": url,
                "OPENAI_API_KEY": "x",
            },
        )

    def send(self, *messages: dict[str, Any]) -> None:
        assert self.it.stdin
        try:
            self.it.stdin.write(b"".join(json.dumps(m).encode() + b"\n" for m in messages))
            self.it.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(self.it.wait(10), self.it.communicate()) from None

    def start(self, id: int, method: str, **params: Any) -> None:
        self._methods[id] = method
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

    def call(self, id: int, method: str, **params: Any) -> dict[str, Any]:
        self.start(id, method, **params)
        return self.response(id)

    def receive(self) -> dict[str, Any]:
        assert self.it.stdout
        line = self.it.stdout.readline()
        assert line.endswith(b"\n"), line
        frame = json.loads(line)
        (check if self.version == 2 else acp_bench.check)(frame, self._methods)
        self.seen.append(frame)
        return frame

    def response(self, id: int) -> dict[str, Any]:
        while True:
            frame = self.receive()
            if frame.get("id") == id and "method" not in frame:
                return frame

    def idle(self) -> dict[str, Any]:
        """The idle state that comes next."""
        while True:
            update = self.receive().get("params", {}).get("update", {})
            if update.get("state") == "idle":
                return update

    def next(self) -> int:
        """An id for a request."""
        return max(self._methods) + 1

    def shake_hands(self) -> None:
        self.send(INIT if self.version == 2 else INIT_1)
        assert self.response(0)["result"]["protocolVersion"] == self.version

    def open(self) -> str:
        self.shake_hands()
        about = {"cwd": str(self.home), "mcpServers": []}
        return self.call(1, "session/new", **about)["result"]["sessionId"]

    def resume(self, session: str) -> dict[str, Any]:
        """Open a stored session, its history told."""
        about = {"sessionId": session, "cwd": str(self.home), "mcpServers": []}
        if self.version == 1:
            return self.call(self.next(), "session/load", **about)
        return self.call(self.next(), "session/resume", **about, replayFrom={"type": "start"})

    def prompt(self, session: str, blocks: list[Any]) -> None:
        """Prompt and wait for the end of the turn."""
        answer = self.call(self.next(), "session/prompt", sessionId=session, prompt=blocks)
        end = answer["result"] if self.version == 1 else self.idle()
        assert end["stopReason"] == "end_turn"

    def texts(self, kind: str) -> list[str]:
        """The texts of the messages told of, by id."""
        found: dict[str, str] = {}
        for frame in self.seen:
            update = frame.get("params", {}).get("update", {})
            if update.get("sessionUpdate") == kind:
                text = "".join(block["text"] for block in update["content"])
                found[update["messageId"]] = text
            if update.get("sessionUpdate") == f"{kind}_chunk":
                before = found.get(update["messageId"], "")
                found[update["messageId"]] = before + update["content"]["text"]
        return list(found.values())

    def stop(self) -> None:
        self.it.kill()
        self.it.wait(10)
        for stream in (self.it.stdin, self.it.stdout, self.it.stderr):
            if stream:
                with suppress(OSError):
                    stream.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    agents: list[Agent] = []

    def started(url: str = "http://127.0.0.1:9/v1", version: int = 2) -> Agent:
        agents.append(Agent(tmp_path, url, version))
        return agents[-1]

    yield started
    for agent in agents:
        agent.stop()


PROMPT = [{"type": "text", "text": "Messgerät 你好 ✓"}]


def test_a_prompt_goes_to_the_model_and_its_turn_ends_idle(start: Any) -> None:
    with FakeLlm(["success"]) as fake:
        agent = start(fake.url)
        session = agent.open()
        agent.start(2, "session/prompt", sessionId=session, prompt=PROMPT)
        assert agent.idle()["stopReason"] == "end_turn"
        (receipt,) = [frame for frame in agent.seen if frame.get("id") == 2]
        assert receipt["result"]["messageId"]
        rest, errors = agent.it.communicate(timeout=20)
    assert agent.it.returncode == 0 and errors == b""
    for line in rest.splitlines():
        json.loads(line)


def test_the_first_line_is_the_answer_whatever_else_is_sent(start: Any) -> None:
    agent = start()
    listing = {"jsonrpc": "2.0", "id": "l", "method": "session/list", "params": {}}
    agent.send(INIT, listing)
    assert agent.receive()["result"]["protocolVersion"] == 2
    assert agent.receive() == {"jsonrpc": "2.0", "id": "l", "result": {"sessions": []}}


def test_a_failed_initialize_leaves_another_try(start: Any) -> None:
    agent = start()
    zero = {"protocolVersion": 0, "info": INFO}
    agent.send({**INIT, "params": zero})
    assert agent.receive()["error"]["data"] == {"requested": 0, "supported": [1, 2]}
    agent.send({**INIT, "id": 1.5})
    assert agent.receive()["error"]["code"] == -32600
    agent.send(INIT)
    assert agent.receive()["result"]["protocolVersion"] == 2


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (2, 2)])
def test_two_processes_of_two_versions_share_what_is_stored(
    start: Any, order: tuple[int, int]
) -> None:
    """Both run at once; what one writes the other resumes, and then the first one again."""
    with FakeLlm(["success"], repeat_last=True) as fake:
        first, second = (start(fake.url, version) for version in order)
        session = first.open()
        first.prompt(session, PROMPT)
        second.shake_hands()
        locked = second.resume(session)
        assert "open" in locked["error"]["message"]
        first.call(first.next(), "session/close", sessionId=session)
        assert "result" in second.resume(session)
        assert second.texts("user_message") == [PROMPT[0]["text"]]
        said = second.texts("agent_message")
        assert said == first.texts("agent_message") and said[0]
        second.prompt(session, [{"type": "text", "text": "And more?"}])
        second.call(second.next(), "session/close", sessionId=session)
        first.seen.clear()
        assert "result" in first.resume(session)
        assert first.texts("user_message") == [PROMPT[0]["text"], "And more?"]
        assert first.texts("agent_message") == said * 2
        (listed,) = second.call(second.next(), "session/list")["result"]["sessions"]
        assert listed["sessionId"] == session
        last = [r for r in fake.requests if r.json.get("tools")][-1].json["messages"]
        asked = [str(m["content"]) for m in last if m["role"] == "user"]
        assert [text for text in asked if not text.startswith("Current runtime context")] == [
            PROMPT[0]["text"],
            "And more?",
        ]


def test_nothing_heavy_is_imported_before_initialize_is_answered() -> None:
    script = (
        "import json, sys\n"
        "from dsh_acp.cli import main\n"
        "from dsh_acp.acp import server\n"
        "from dsh_acp.acp.handshake import early\n"
        "params = {'protocolVersion': 2, 'info': {'name': 'x', 'version': '1'}}\n"
        "line = json.dumps({'id': 0, 'method': 'initialize', 'params': params}).encode()\n"
        "assert early(line).client.version == 2\n"
        "heavy = {'asyncio','anyio','httpx','pydantic','pygls','lsprotocol','mcp','rich'}\n"
        "heavy |= {'dsh_acp.acp.v1', 'dsh_acp.acp.v1_handshake', 'dsh_acp.acp.v2'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)},
    )
    assert found.stdout.strip() == b"[]"
