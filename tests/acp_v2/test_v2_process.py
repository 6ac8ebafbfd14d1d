"""The real process in version 2."""

from collections.abc import Iterator
from contextlib import suppress
import json
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

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


class Agent:
    """A process, and every frame of it, validated."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
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
        self.it.stdin.write(b"".join(json.dumps(m).encode() + b"\n" for m in messages))
        self.it.stdin.flush()

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
        check(frame, self._methods)
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

    def open(self) -> str:
        self.send(INIT)
        self.response(0)
        return self.call(1, "session/new", cwd=str(self.home))["result"]["sessionId"]

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

    def started(url: str = "http://127.0.0.1:9/v1") -> Agent:
        agents.append(Agent(tmp_path, url))
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


def test_two_processes_of_two_versions_share_what_is_stored(start: Any) -> None:
    with FakeLlm(["success", "success"], repeat_last=True) as fake:
        first = start(fake.url)
        session = first.open()
        first.start(2, "session/prompt", sessionId=session, prompt=PROMPT)
        first.idle()
        second = start(fake.url)
        second.send(INIT)
        second.response(0)
        about = {"sessionId": session, "cwd": str(second.home), "replayFrom": {"type": "start"}}
        locked = second.call(1, "session/resume", **about)
        assert "open" in locked["error"]["message"]
        first.call(3, "session/close", sessionId=session)
        assert "result" in second.call(2, "session/resume", **about)
        updates = [f["params"]["update"] for f in second.seen if "method" in f]
        (message,) = [u for u in updates if u["sessionUpdate"] == "user_message"]
        assert message["content"] == PROMPT


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
