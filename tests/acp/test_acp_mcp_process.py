"""MCP servers of the real process: they never outlive it, and never touch its output."""

from collections.abc import Iterator
import json
from pathlib import Path
import signal
import sys
import time
from typing import Any

import psutil
import pytest
from test_acp_process import INIT, Agent

SERVER = Path(__file__).parents[1] / "mcp/plain_server.py"


def entry(record: Path, *args: str) -> dict[str, Any]:
    return {
        "name": "plain",
        "command": sys.executable,
        "args": [str(SERVER), *args],
        "env": [{"name": "RECORD", "value": str(record)}],
    }


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def opened(agent: Agent, *servers: dict[str, Any]) -> str:
    agent.send(INIT)
    agent.response(0)
    params = {"cwd": str(agent.home), "mcpServers": list(servers)}
    return agent.call(1, "session/new", **params)["result"]["sessionId"]


def until(condition: Any) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise TimeoutError


def said(record: Path, text: str) -> bool:
    return record.exists() and text in record.read_text(encoding="utf-8")


def alive(record: Path) -> bool:
    pid = int(record.read_text(encoding="utf-8").split("\n")[0].split()[1])
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("how", "args"),
    [("eof", ("--stubborn",)), (signal.SIGTERM, ()), (signal.SIGKILL, ("--stubborn",))],
)
def test_servers_end_with_the_process(
    agent: Agent, tmp_path: Path, how: str | signal.Signals, args: tuple[str, ...]
) -> None:
    record = tmp_path / "record"
    opened(agent, entry(record, *args))
    until(lambda: said(record, "tools/list"))
    assert alive(record)
    if isinstance(how, signal.Signals):
        agent.it.send_signal(how)
    else:
        assert agent.it.stdin
        agent.it.stdin.close()
    assert agent.it.wait(20) == (-9 if how is signal.SIGKILL else 0)
    if how is signal.SIGKILL:
        until(lambda: not alive(record))
    assert not alive(record)


def test_leaving_while_a_server_is_being_connected_leaves_nothing(
    agent: Agent, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    opened(agent, entry(record, "--silent"))
    until(lambda: said(record, "initialize"))
    assert agent.it.stdin
    agent.it.stdin.close()
    assert agent.it.wait(20) == 0
    assert not alive(record)


def test_noise_and_failures_of_servers_stay_off_the_output(agent: Agent, tmp_path: Path) -> None:
    record = tmp_path / "record"
    missing = {"name": "missing", "command": "/no/such/program", "args": [], "env": []}
    session = opened(agent, missing, 7, entry(record, "--noise", "--flood", "200000"))  # type: ignore[arg-type]
    until(lambda: said(record, "tools/list"))
    agent.call(2, "session/close", sessionId=session)
    until(lambda: not alive(record))
    assert agent.it.stdin
    assert agent.it.stdout
    assert agent.it.stderr
    agent.it.stdin.close()
    for line in agent.it.stdout:
        assert json.loads(line)["jsonrpc"] == "2.0"
    errors = agent.it.stderr.read().decode()
    assert 'dsh-acp: The MCP server "missing" cannot be used: ' in errors
    assert "The MCP server number 2 is left out" in errors
    assert "Traceback" not in errors
