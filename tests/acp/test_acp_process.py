"""The real process: what an editor that starts `dsh-acp` sees of it."""

from collections.abc import Iterator
from contextlib import suppress
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
from typing import Any

import pytest

from dsh_acp.llm.fake import FakeLlm

PROJECT = Path(__file__).resolve().parents[2]
INIT = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {}},
}


class Agent:
    def __init__(self, home: Path, url: str = "http://127.0.0.1:9/v1", **env: str) -> None:
        self.home = home
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
                **env,
            },
        )

    def send(self, *messages: dict[str, Any]) -> None:
        assert self.it.stdin
        self.it.stdin.write(b"".join(json.dumps(m).encode() + b"\n" for m in messages))
        self.it.stdin.flush()

    def call(self, id: int, method: str, **params: Any) -> dict[str, Any]:
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return self.response(id)

    def receive(self) -> dict[str, Any]:
        assert self.it.stdout
        line = self.it.stdout.readline()
        assert line.endswith(b"\n"), line
        return json.loads(line)

    def response(self, id: int) -> dict[str, Any]:
        while True:
            frame = self.receive()
            if frame.get("id") == id and "method" not in frame:
                return frame

    def open(self) -> str:
        self.send(INIT)
        self.response(0)
        frame = self.call(1, "session/new", cwd=str(self.home), mcpServers=[])
        return frame["result"]["sessionId"]

    def stop(self) -> None:
        self.it.kill()
        self.it.wait(10)
        for stream in (self.it.stdin, self.it.stdout, self.it.stderr):
            if stream:
                with suppress(OSError):
                    stream.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def started(home: Path) -> Iterator[Any]:
    agents: list[Agent] = []

    def start(**options: str) -> Agent:
        agents.append(Agent(home, **options))
        return agents[-1]

    yield start
    for agent in agents:
        agent.stop()


def test_a_prompt_goes_to_the_model_and_comes_back(started: Any) -> None:
    with FakeLlm(["success"]) as fake:
        agent = started(url=fake.url)
        session = agent.open()
        prompt = [{"type": "text", "text": "Messgerät 你好 ✓"}]
        result = agent.call(2, "session/prompt", sessionId=session, prompt=prompt)
        assert result["result"] == {"stopReason": "end_turn"}
        body = fake.requests[0].json
        assert any("Messgerät 你好 ✓" in str(message) for message in body["messages"])
        rest, errors = agent.it.communicate(timeout=20)
    assert agent.it.returncode == 0 and errors == b""
    for line in rest.splitlines():
        json.loads(line)


def test_the_first_line_is_the_answer_to_initialize_whatever_else_is_sent(started: Any) -> None:
    agent = started()
    new = {"jsonrpc": "2.0", "id": "n", "method": "session/new", "params": {"cwd": "/"}}
    agent.send(INIT, new)
    assert agent.receive()["result"]["protocolVersion"] == 1
    assert agent.receive()["id"] == "n"


def test_calls_before_initialize_are_refused(started: Any) -> None:
    agent = started()
    agent.send({"jsonrpc": "2.0", "id": 8, "method": "session/list"}, INIT)
    frames = {frame["id"]: frame for frame in (agent.receive(), agent.receive())}
    assert frames[8]["error"]["code"] == -32600 and "result" in frames[0]


def test_a_bad_initialize_can_be_repeated(started: Any) -> None:
    agent = started()
    bad = {**INIT, "params": {"protocolVersion": "1"}}
    agent.send(bad)
    assert agent.receive()["error"]["code"] == -32602
    agent.send(INIT)
    assert "result" in agent.receive()


def test_nothing_heavy_is_imported_before_initialize_is_answered() -> None:
    script = (
        "import sys\n"
        "from dsh_acp.cli import main\n"
        "from dsh_acp.acp import server\n"
        "from dsh_acp.acp.handshake import early\n"
        'early(b\'{"id":0,"method":"initialize","params":{"protocolVersion":1}}\')\n'
        "heavy = {'asyncio','anyio','httpx','pydantic','pygls','lsprotocol','mcp','rich'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)},
    )
    assert found.stdout.strip() == "[]"


def test_no_key_is_a_question_of_signing_in(started: Any) -> None:
    agent = started(DSH_ACP_MODEL="", OPENAI_API_KEY="", OPENAI_BASE_URL="", TERM="dumb")
    agent.send(INIT)
    methods = agent.receive()["result"]["authMethods"]
    assert [method.get("type", "agent") for method in methods] == ["agent"]
    frame = agent.call(1, "session/new", cwd=str(agent.home), mcpServers=[])
    assert frame["error"]["code"] == -32000 and "dsh-acp login" in frame["error"]["message"]


def test_end_of_input_ends_the_process_although_a_turn_runs(started: Any) -> None:
    with FakeLlm(["stall"]) as fake:
        agent = started(url=fake.url)
        session = agent.open()
        prompt = [{"type": "text", "text": "hi"}]
        agent.send(
            {
                "jsonrpc": "2.0",
                "id": 2,
                "method": "session/prompt",
                "params": {"sessionId": session, "prompt": prompt},
            }
        )
        assert fake.wait_for_requests(1, 20)
        _, errors = agent.it.communicate(timeout=20)
    assert agent.it.returncode == 0 and errors == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_the_process_cleanly(started: Any, number: signal.Signals) -> None:
    agent = started()
    agent.open()
    agent.it.send_signal(number)
    assert agent.it.wait(20) == 0
    assert agent.it.stderr.read() == b""


def test_no_input_at_all_is_a_clean_end(home: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "dsh_acp"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=home,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)},
        check=False,
        timeout=20,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_a_running_command_dies_with_the_process(started: Any, home: Path) -> None:
    command = "echo $$ > pid; exec sleep 1234"
    call = {"name": "bash", "arguments": {"command": command, "description": "Sleep"}}
    with FakeLlm([{"tool_calls": [call]}, "success"]) as fake:
        agent = started(url=fake.url, DSH_ACP_PERMISSION="full-access")
        os.mkfifo(home / "pid")
        session = agent.open()
        prompt = [{"type": "text", "text": "hi"}]
        agent.send(
            {
                "jsonrpc": "2.0",
                "id": 2,
                "method": "session/prompt",
                "params": {"sessionId": session, "prompt": prompt},
            }
        )
        pid = int((home / "pid").read_text(encoding="utf-8"))
        agent.it.send_signal(signal.SIGTERM)
        assert agent.it.wait(20) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_effort_that_the_model_does_not_have_is_refused_with_those_it_has(started: Any) -> None:
    model = "deepseek/deepseek-v4-flash"
    agent = started(DSH_ACP_MODEL=model, DEEPSEEK_API_KEY="k", DSH_ACP_EFFORT="silly")
    agent.send(INIT)
    agent.response(0)
    frame = agent.call(1, "session/new", cwd=str(agent.home), mcpServers=[])
    assert "not 'silly'" in frame["error"]["message"]


def test_a_read_only_home_still_serves(started: Any, home: Path) -> None:
    with FakeLlm(["success"]) as fake:
        agent = started(url=fake.url, DSH_ACP_HOME="/proc/nowhere")
        session = agent.open()
        told = str(agent.receive()) + str(agent.receive())
        assert "kept in memory only" in told
        prompt = [{"type": "text", "text": "hi"}]
        result = agent.call(2, "session/prompt", sessionId=session, prompt=prompt)
        assert result["result"] == {"stopReason": "end_turn"}
        _, errors = agent.it.communicate(timeout=20)
    assert errors.count(b"\n") == 1 and b"memory only" in errors


def test_a_killed_process_leaves_a_session_that_loads(started: Any, home: Path) -> None:
    with FakeLlm(["success", "success", "stall", "success"]) as fake:
        agent = started(url=fake.url)
        session = agent.open()
        prompt = [{"type": "text", "text": "first"}]
        agent.call(2, "session/prompt", sessionId=session, prompt=prompt)
        agent.send(
            {
                "jsonrpc": "2.0",
                "id": 3,
                "method": "session/prompt",
                "params": {"sessionId": session, "prompt": [{"type": "text", "text": "second"}]},
            }
        )
        assert fake.wait_for_requests(3, 20)  # a title is asked for behind the first turn
        agent.it.kill()
        agent.it.wait(10)
        again = started(url=fake.url)
        again.send(INIT)
        again.response(0)
        load = {"sessionId": session, "cwd": str(home), "mcpServers": []}
        again.send({"jsonrpc": "2.0", "id": 1, "method": "session/load", "params": load})
        said: list[str] = []
        while True:
            frame = again.receive()
            update = frame.get("params", {}).get("update", {})
            if update.get("sessionUpdate") == "user_message_chunk":
                said.append(update["content"]["text"])
            if frame.get("id") == 1:
                break
        assert said == ["first", "second"] and "result" in frame
