"""How the process ends, what it leaves running (nothing), and big sessions."""

from collections.abc import Callable
import json
import os
from pathlib import Path
import signal
import time
from typing import Any

from e2e_agent import Agent, bash, bodies, log_of, script
import psutil
import pytest
from test_e2e_start import promptly

from dsh_acp.llm.fake import FakeLlm

Start = Callable[..., Agent]
DONE = {"stopReason": "end_turn"}
PROMPTS = 20
TREE = "(sleep 987 & echo $! >> pids; exec sleep 986) & setsid sleep 985 & echo $! >> pids; "


def running_tree(start: Start, fake: FakeLlm, folder: Path, **options: Any) -> Agent:
    """An agent whose tool has children of all kinds."""
    folder.mkdir()
    os.mkfifo(folder / "ready")
    all_there = "while [ $(wc -l < pids) -lt 3 ]; do sleep 0.01; done"
    command = f"echo $$ >> pids; {TREE} {all_there}; echo go > ready; sleep 988"
    fake.use(script({"tool_calls": [bash("c1", command)]}))
    agent = start(cwd=folder, DSH_ACP_PERMISSION="full-access", **options)
    session = agent.open()
    agent.start_prompt(session)
    assert (folder / "ready").read_text("utf-8") == "go\n"
    return agent


def assert_gone(folder: Path) -> None:
    """No process of the tool lives on."""
    pids = [int(line) for line in (folder / "pids").read_text("utf-8").split()]
    assert len(pids) == 3
    alive = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, left = psutil.wait_procs(alive, timeout=5)
    left = [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert [p.cmdline() for p in left] == []
    sleepers = [
        p.info["cmdline"]
        for p in psutil.process_iter(["cwd", "cmdline"])
        if p.info["cwd"] == str(folder)
    ]
    assert sleepers == []


@pytest.mark.parametrize("how", ["EOF", "SIGTERM", "SIGINT", "SIGHUP"])
def test_it_ends_at_once_and_takes_its_children_along(
    start: Start, fake: FakeLlm, tmp_path: Path, how: str
) -> None:
    folders = iter([tmp_path / "a", tmp_path / "b", tmp_path / "c"])

    def attempt() -> float:
        folder = next(folders)
        agent = running_tree(start, fake, folder)
        before = time.monotonic()
        if how == "EOF":
            code = agent.close()
        else:
            agent.it.send_signal(getattr(signal, how))
            code = agent.exit()
        taken = time.monotonic() - before
        assert code == 0
        assert agent.stderr == b""
        assert_gone(folder)
        return taken

    promptly(attempt, 1)


def test_a_killed_agent_leaves_no_orphans(start: Start, fake: FakeLlm, tmp_path: Path) -> None:
    agent = running_tree(start, fake, tmp_path / "a")
    agent.kill()
    assert_gone(tmp_path / "a")


def test_a_turn_that_was_ended_by_the_end_is_whole_in_the_log(
    start: Start, fake: FakeLlm, tmp_path: Path
) -> None:
    agent = running_tree(start, fake, tmp_path / "a")
    session = agent.call("session/list")["result"]["sessions"][0]["sessionId"]
    agent.close()
    again = start(cwd=tmp_path / "a")
    again.initialize()
    assert "result" in again.load(session)
    assert again.prompt(session, "next")["result"] == DONE
    results = [m for m in bodies(fake)[-1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == ["c1"]


def test_an_idle_agent_ends_within_the_blink_of_an_eye(start: Start, fake: FakeLlm) -> None:
    def attempt() -> float:
        agent = start()
        agent.prompt(agent.open())
        before = time.monotonic()
        assert agent.close() == 0
        return time.monotonic() - before

    promptly(attempt, 0.5)


def test_children_are_reaped(agent: Agent, fake: FakeLlm) -> None:
    fake.use(script(*({"tool_calls": [bash(f"c{n}", "exit 3")]} for n in range(12))))
    session = agent.open()
    assert agent.prompt(session)["result"] == DONE
    left = psutil.Process(agent.it.pid).children(recursive=True)
    assert [p for p in left if p.status() == psutil.STATUS_ZOMBIE] == []
    assert len(bodies(fake)) == 13


BREAKING = """
def install(hooks):
    async def tool_execute(use, proceed):
        if "break" in use.arguments:
            raise RuntimeError("a detail")
        return await proceed()

    async def pre_step(payload, proceed):
        if any("explode" in message.text for message in payload.messages):
            raise KeyError("a detail")
        return await proceed()

    hooks.tool_execute.append(tool_execute)
    hooks.pre_step.append(pre_step)
"""


def test_a_bug_ends_a_call_or_a_turn_and_never_the_session(
    start: Start, fake: FakeLlm, tmp_path: Path
) -> None:
    info = tmp_path / "site" / "breaking-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_bytes(b"Metadata-Version: 2.1\nName: breaking\nVersion: 1\n")
    (info / "entry_points.txt").write_bytes(b"[dsh_acp.plugins]\nbreaking = breaking:install\n")
    (tmp_path / "site" / "breaking.py").write_text(BREAKING, "utf-8")
    fake.use(script({"tool_calls": [bash("c1", "echo break")]}, {"text": "I see."}))
    agent = start(PYTHONPATH=str(tmp_path / "site"))
    session = agent.open()
    assert agent.prompt(session, "go")["result"] == DONE
    result = bodies(fake)[1]["messages"][-1]
    assert result["role"] == "tool" and "Traceback" not in json.dumps(result)
    error = agent.prompt(session, "explode")["error"]
    assert error["code"] == -32603 and error["message"] and "KeyError(" not in error["message"]
    assert "Traceback" not in json.dumps(agent.frames)
    assert agent.prompt(session, "again")["result"] == DONE
    assert agent.close() == 0
    assert b"RuntimeError" in agent.stderr and b"KeyError" in agent.stderr


def test_errors_are_sentences_with_their_cause(start: Start, fake: FakeLlm, tmp_path: Path) -> None:
    agent = start(fake="http://127.0.0.1:9/v1")
    agent.initialize()
    wrong = {
        "relative": agent.call("session/new", cwd="relative", mcpServers=[]),
        "nonexistent": agent.call("session/new", cwd="/nonexistent", mcpServers=[]),
        "no-such-id": agent.load("no-such-id"),
    }
    for word, frame in wrong.items():
        message = frame["error"]["message"]
        assert word in message and "\n" not in message and "Error(" not in message
    assert [f["error"]["code"] for f in wrong.values()] == [-32602, -32602, -32002]
    session = agent.new()
    id = agent.start_prompt(session)
    agent.until(lambda f: "127.0.0.1" in json.dumps(f.get("params", "")) or f.get("id") == id)
    agent.notify("session/cancel", sessionId=session)
    agent.response(id)
    everything = json.dumps(agent.frames) + agent.stderr.decode()
    assert "sk-e2e-secret" not in everything


def busy(agent: Agent) -> float:
    """The seconds that the agent has computed so far."""
    times = psutil.Process(agent.it.pid).cpu_times()
    return times.user + times.system


def test_a_big_session_is_resumed_at_once_and_loaded_beside_other_work(
    start: Start, fake: FakeLlm
) -> None:
    answer = {"text": "All work and no play. " * 20_000, "chunk_size": 4000, "burst": 1}
    fake.use(script(*[answer] * PROMPTS))
    writer = start()
    writer.is_judged = False
    session = writer.open()
    for number in range(PROMPTS):
        assert writer.prompt(session, f"prompt {number}")["result"] == DONE
    assert writer.close() == 0

    reader = start()
    reader.is_judged = False
    shaken = reader.initialize()
    assert "resume" in shaken["agentCapabilities"]["sessionCapabilities"]
    params = {"sessionId": session, "cwd": str(reader.cwd), "mcpServers": []}
    before = busy(reader)
    assert "result" in reader.call("session/resume", **params)
    # The processor's time, because others use the machine too.
    assert busy(reader) - before < 1
    assert reader.updates("agent_message_chunk") == []
    assert reader.close() == 0

    reader = start()
    reader.is_judged = False
    reader.initialize()
    load = reader.start("session/load", sessionId=session, cwd=str(reader.cwd), mcpServers=[])
    listed = reader.start("session/list")
    assert "result" in reader.response(load)
    answers = [f["id"] for f in reader.frames if "result" in f]
    assert answers.index(listed) < answers.index(load)
    assert reader.said() == writer.said()
    assert reader.said("user_message_chunk") == "".join(f"prompt {n}" for n in range(PROMPTS))
    assert log_of(reader.home, session).stat().st_size > 20_000_000
