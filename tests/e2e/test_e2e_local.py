"""The real local model, through the real process: streaming, stopping, and what its cache kept.

`make e2e-local` runs it. The cache is in the model's own process, which lives as long as the
agent's, so that resuming is tried in the same process and in another.
"""

from collections.abc import Callable
import json
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

from e2e_agent import Agent, Frame, environment, events_of, install_plugin, log_of
import pytest

from dsh_acp.llm import local

pytestmark = [
    pytest.mark.local_model,
    pytest.mark.skipif(
        not ("DSH_ACP_TEST_LOCAL" in os.environ and local.is_installed()),
        reason="needs the extra [local] and DSH_ACP_TEST_LOCAL=1: it loads a model",
    ),
]

Start = Callable[..., Agent]
PATIENCE_S = 150.0
"""A busy machine takes its time to load a model and to read a prompt."""

ANSWERED = ({"stopReason": "end_turn"}, {"stopReason": "max_tokens"})


@pytest.fixture
def begin(start: Start, tmp_path: Path) -> Callable[[], Agent]:
    """Starts agents whose answers are short and whose requests can be framed."""
    site = install_plugin(tmp_path / "site", Path(__file__).with_name("framer.py"))
    config = tmp_path / "config.toml"
    config.write_text("max_tokens = 60\n", "utf-8")
    env = {
        "DSH_ACP_CONFIG": str(config),
        "DSH_ACP_MODEL": "local",
        "DSH_ACP_LOCAL": "1",
        "FRAMER_WHILE": str(tmp_path / "framed"),
        "PYTHONPATH": str(site),
    }

    def begin() -> Agent:
        agent = start(**env)
        agent.wait_s = PATIENCE_S
        return agent

    return begin


def messages(path: Path) -> list[Frame]:
    """What the model said, as a log has it."""
    rows = events_of(path.read_bytes())
    return [row["data"] for row in rows if row["type"] == "assistant/message"]


def answers(path: Path) -> list[Frame]:
    """The usage of each answer in a log, `cached` being what was read from the cache."""
    rows = [
        row["data"] for row in events_of(path.read_bytes()) if row["type"] == "assistant/message"
    ]
    usages = [row["usage"] for row in rows if "usage" in row]
    return [{**u, "cached": u.get("cacheReadTokens", 0)} for u in usages]


def headers(path: Path) -> list[str]:
    """Why each header of a log was written."""
    rows = events_of(path.read_bytes())
    return [row["data"]["reason"] for row in rows if row["type"] == "request/header"]


def ask(agent: Agent, session: str, text: str) -> None:
    since = len(agent.frames)
    frame = agent.prompt(session, text)
    assert frame.get("result") in ANSWERED, frame
    assert agent.said(since=since).strip()


def reopen(agent: Agent, session: str) -> None:
    agent.call("session/close", sessionId=session)
    assert "result" in agent.load(session)


def run(agent: Agent, *words: str) -> str:
    """A command over the agent's sessions; what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "dsh_acp", *words],
        env=environment(agent.home, "http://127.0.0.1:9/v1"),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.decode()


def test_the_cache_is_read_until_the_header_changes_and_after_a_resume(
    begin: Callable[[], Agent], tmp_path: Path
) -> None:
    agent = begin()
    session = agent.open()
    ask(agent, session, "What is the capital of France?")
    ask(agent, session, "And that of Italy?")
    path = log_of(agent.home, session)
    first, second = answers(path)
    assert second["cached"] > first["cached"] + first["inputTokens"] - 8
    assert agent.updates("usage_update")[-1]["_meta"]["dsh-acp"]["usage"]["cacheReadTokens"] > 0

    (tmp_path / "framed").touch()
    ask(agent, session, "And that of Spain?")
    assert headers(path) == ["initial", "change"]
    third = answers(path)[-1]
    assert third["cached"] < second["cached"]

    reopen(agent, session)
    ask(agent, session, "And that of Norway?")
    assert headers(path) == ["initial", "change", "resume"]
    fourth = answers(path)[-1]
    assert fourth["cached"] > third["cached"] + third["inputTokens"] - 8
    assert len(agent.updates("agent_message_chunk")) > 4, "it does not stream"
    assert agent.close() == 0
    figures = [f"{u['cached']} of {u['cached'] + u['inputTokens']}" for u in answers(path)]
    sys.stdout.write(f"read from the cache: {', '.join(figures)} tokens\n")
    report: Any = json.loads(run(agent, "audit", session, "--json"))
    assert len(report[0]["requests"]) == 4
    assert "framing before: 1 message" in run(agent, "show", session)


def test_an_answer_is_stopped_in_its_middle_and_another_process_goes_on(
    begin: Callable[[], Agent],
) -> None:
    agent = begin()
    session = agent.open()
    id = agent.start_prompt(session, "Tell me a long story about a lighthouse.")
    agent.until_update(sessionUpdate="agent_message_chunk")
    agent.notify("session/cancel", sessionId=session)
    assert agent.response(id)["result"] == {"stopReason": "cancelled"}
    said = agent.said()
    assert len(said.split()) < 60, "it was not stopped"
    ask(agent, session, "Never mind. What is two and two?")
    assert agent.close() == 0

    again = begin()
    again.initialize()
    assert "result" in again.load(session)
    assert again.said().startswith(said)
    ask(again, session, "And three and three?")
    ask(again, session, "And four and four?")
    path = log_of(again.home, session)
    assert [said.get("interrupted", False) for said in messages(path)] == [
        True,
        False,
        False,
        False,
    ]
    assert answers(path)[-1]["cached"] > 0
    assert again.close() == 0
    run(again, "audit", session)
