"""Nothing that a session started outlives it, however it or the agent ends.

Sessions of one agent work at the same time at everything that starts processes; some are
cancelled or closed at a random moment, the others end with the agent, which is killed, terminated
or left. `DSH_ACP_TEST_SESSIONS` sets how many sessions there are in all (`make test-orphans` does).
"""

from collections.abc import Callable
import os
from pathlib import Path
import random
import signal
import sys
import time
from typing import Any

from e2e_agent import Agent, Frame, bash, tool
import psutil
import pytest

from dsh_acp.llm.fake import FakeLlm, Recorded

Start = Callable[..., Agent]

SESSIONS = int(os.environ.get("DSH_ACP_TEST_SESSIONS", "16"))
TOGETHER = 4
GONE_S = 15.0
HERE = Path(__file__).parents[1]
UNRULY = HERE / "lsp" / "unruly_server.py"
PLAIN = HERE / "mcp" / "plain_server.py"

WORK: dict[str, list[Frame]] = {
    "a command": [bash("c1", "sleep 300")],
    "a tree of commands": [bash("c1", "(sleep 300; true) | (sleep 300; true) & sh -c 'sleep 300'")],
    "a session of its own": [bash("c1", "setsid sleep 300 & sleep 300")],
    "a daemon": [bash("c1", "setsid sh -c 'sleep 99 & sleep 99' </dev/null >&- 2>&- & sleep 300")],
    "a daemon of a command that ended": [
        bash("c1", "(setsid sleep 300 </dev/null >/dev/null 2>&1 &); true"),
        bash("c2", "sleep 300"),
    ],
    "what ignores the end": [bash("c1", "trap '' TERM HUP INT; nohup sleep 300 & sleep 300")],
    "what is stopped": [bash("c1", "sleep 300 & kill -STOP $!; wait")],
    "a job": [
        tool("c1", "bash", command="sleep 300", description="d", run_in_background=True),
        bash("c2", "sleep 300"),
    ],
    "a daemon of a job": [
        tool(
            "c1",
            "bash",
            command="setsid nohup sleep 300 & trap '' TERM; sleep 300",
            description="d",
            run_in_background=True,
        ),
        tool("c2", "job_output", job_id="job-1", wait=True),
    ],
    "a terminal": [
        tool("c1", "terminal_open"),
        tool(
            "c2",
            "terminal_send",
            sessionId="term-1",
            text="setsid sleep 300 & sleep 300",
            timeout_ms=60_000,
        ),
        bash("c3", "sleep 300"),
    ],
    "a subagent in the background": [
        tool("c1", "subagent", description="d", prompt="sleep", run_in_background=True),
        bash("c2", "sleep 300"),
    ],
    "a subagent": [tool("c1", "subagent", description="d", prompt="sleep")],
    "a language server": [
        tool("c1", "lsp", operation="hover", file_path="a.x", line=1, character=1),
        bash("c2", "sleep 300"),
    ],
    "an MCP server": [tool("c1", "mcp__plain__echo", do="hang")],
}


def answer(record: Recorded) -> Any:
    """The model: what the prompt names, call by call; a subagent sleeps too."""
    if not record.json.get("tools"):
        return {"text": "A title"}
    messages = record.json["messages"]
    asked = [m["content"] for m in messages if m["role"] == "user"][-1]
    words = asked if isinstance(asked, str) else "".join(p.get("text", "") for p in asked)
    calls = WORK.get(words, [bash("s1", "setsid sleep 300 & sleep 300")])
    done = sum(m["role"] == "tool" for m in messages)
    return {"tool_calls": [calls[done]]} if done < len(calls) else {"text": "Done."}


def left_in(folder: Path) -> list[psutil.Process]:
    """Processes that work in a folder or below it."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder) and process.status() != "zombie":
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def assert_something_runs_in(folder: Path) -> None:
    until = time.monotonic() + GONE_S
    while not left_in(folder):
        assert time.monotonic() < until, "nothing was started"


def assert_nothing_is_left(folder: Path) -> None:
    _, alive = psutil.wait_procs(left_in(folder), timeout=GONE_S)
    # One may have been started by another that was on the list.
    _, alive = psutil.wait_procs(left_in(folder), timeout=GONE_S)
    assert [process.cmdline() for process in alive] == []


def settings_of(tmp_path: Path) -> Path:
    config = tmp_path / "config.toml"
    config.write_text(
        f'[lsp.unruly]\ncommand = "{sys.executable}"\n'
        f'args = ["{UNRULY}", "ignores the end"]\nlanguages = {{ ".x" = "x" }}\n',
        encoding="utf-8",
    )
    return config


class Life:
    """One agent and the sessions that work in it."""

    def __init__(self, agent: Agent, chance: random.Random, place: Path) -> None:
        self.agent = agent
        self.chance = chance
        self.place = place
        self.prompts: dict[str, int] = {}

    def begin(self, number: int, work: str) -> None:
        """A session in a folder of its own, at work."""
        folder = self.place / f"{number}"
        folder.mkdir(parents=True)
        (folder / "a.x").write_text("one\n", encoding="utf-8")
        servers: list[Frame] = []
        if "MCP" in work:
            arguments = [str(PLAIN), "--stubborn", "--child", str(folder / "child")]
            servers = [{"name": "plain", "command": sys.executable, "args": arguments, "env": []}]
        frame = self.agent.call("session/new", cwd=str(folder), mcpServers=servers)
        session = frame["result"]["sessionId"]
        since = len(self.agent.frames)
        self.prompts[session] = self.agent.start_prompt(session, work)
        if self.chance.random() < 0.8:  # the others are ended while they begin
            self.agent.until_update(since=since, status="in_progress")

    def leave_some(self) -> None:
        """Cancel and close about half of the sessions; each answers its prompt."""
        for session, prompt in self.prompts.items():
            if self.chance.random() < 0.5:
                self.agent.notify("session/cancel", sessionId=session)
                if self.chance.random() < 0.5:
                    self.agent.response(prompt)
                self.agent.call("session/close", sessionId=session)

    def end(self, how: str) -> None:
        match how:
            case "killed":
                self.agent.kill()
            case "terminated":
                os.kill(self.agent.it.pid, signal.SIGTERM)
                self.agent.exit()
            case _:
                self.agent.close()


@pytest.mark.parametrize("seed", range(-(-SESSIONS // TOGETHER)))
def test_nothing_outlives_its_session(
    start: Start, fake: FakeLlm, tmp_path: Path, seed: int
) -> None:
    fake.use(answer)
    chance = random.Random(seed)
    place = tmp_path / "work"
    place.mkdir()
    agent = start(DSH_ACP_CONFIG=str(settings_of(tmp_path)), DSH_ACP_PERMISSION="full-access")
    agent.is_judged = False
    agent.initialize()
    life = Life(agent, chance, place)
    names = list(WORK)
    for number in range(TOGETHER):
        life.begin(number, names[(seed * TOGETHER + number) % len(names)])
    life.leave_some()
    life.end(chance.choice(("killed", "terminated", "left")))
    assert_nothing_is_left(place)


@pytest.mark.parametrize("work", WORK)
def test_a_closed_session_leaves_nothing_in_an_agent_that_goes_on(
    start: Start, fake: FakeLlm, tmp_path: Path, work: str
) -> None:
    fake.use(answer)
    place = tmp_path / "work"
    place.mkdir()
    agent = start(DSH_ACP_CONFIG=str(settings_of(tmp_path)), DSH_ACP_PERMISSION="full-access")
    agent.is_judged = False
    agent.initialize()
    life = Life(agent, random.Random(1), place)
    life.begin(0, work)
    (session,) = life.prompts
    assert_something_runs_in(place)
    agent.notify("session/cancel", sessionId=session)
    assert agent.response(life.prompts[session])["result"] == {"stopReason": "cancelled"}
    agent.call("session/close", sessionId=session)
    assert_nothing_is_left(place)
    assert agent.it.poll() is None
