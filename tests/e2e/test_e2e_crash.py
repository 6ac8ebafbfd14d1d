"""kill -9 at random moments of a turn, again and again in one session, and what is left each time.

Each life of the session loads what the earlier ones left, compares it with everything that the
editor saw, answers a prompt, and is killed somewhere in the next turn. `DSH_ACP_TEST_KILLS` sets
the number of kills (`make test-crash` does).
"""

from collections.abc import Callable
import json
import os
from pathlib import Path
import random
import subprocess
import sys
from typing import Any

from e2e_agent import Agent, bash, bodies, environment, log_of
import psutil
import pytest
from shown import (
    Shown,
    assert_facts_are_logged,
    assert_history_is_valid,
    live,
    replayed,
    words_of,
)

from dsh_acp.llm.fake import FakeLlm, Recorded

Start = Callable[..., Agent]

KILLS = int(os.environ.get("DSH_ACP_TEST_KILLS", "20"))
LIVES = 10
LOST_S = 0.1
"""What the editor saw so shortly before the kill may be gone."""

GAP_S = 0.025
"""A longer silence between two frames is the machine's, not the agent's."""


def answer(record: Recorded) -> Any:
    """The endpoint: a ping is answered at once, work takes two rounds of tools and much text."""
    messages = record.json["messages"]
    if not record.json.get("tools"):
        return {"text": "A title"}
    asked = [
        m for m in messages if m["role"] == "user" and words_of(m).startswith(("ping", "work"))
    ]
    words = words_of(asked[-1])
    if words.startswith("ping"):
        return {"text": f"pong {words}"}
    rounds = sum(m["role"] == "tool" for m in messages[messages.index(asked[-1]) :]) // 2
    pace = {"chunk_delay_ms": 2, "chunk_size": 6}
    number = words.split()[1]
    if rounds == 2:
        return {"text": f"The end of {words}: " + "and so on, " * 30, **pace}
    calls = [
        bash(
            f"c{number}-{rounds}-{k}", f"echo c{number}-{rounds}-{k} >> effects; printf '%0500d' 7"
        )
        for k in (1, 2)
    ]
    return {
        "reasoning": f"I think about {words}. " * 4,
        "text": f"Round {rounds} of {words}. " * 6,
        "tool_calls": calls,
        **pace,
    }


# ---------------------------------------------------------------- what was seen, and what is owed


def settled(agent: Agent, since: int, killed: float) -> int:
    """Up to which frame everything is older than what may be lost."""
    age, later = 0.0, killed
    for index in range(len(agent.frames) - 1, since - 1, -1):
        age += min(later - agent.times[index], GAP_S)
        later = agent.times[index]
        if age > LOST_S:
            return index + 1
    return since


class Killed:
    """A turn that was cut short, as the editor saw it."""

    def __init__(self, agent: Agent, words: str, since: int, moment: float) -> None:
        self.words = words
        self.saw_anything = len(agent.frames) > since
        self.all = live(agent, since, len(agent.frames))
        self.sure = live(agent, since, settled(agent, since, moment))

    def compare(self, turns: dict[str, Shown]) -> None:
        """Everything that is owed is in the replay, and nothing contradicts it."""
        if self.words not in turns:
            assert not self.saw_anything, f"the prompt {self.words!r} is lost"
            return
        shown = turns[self.words]
        for kind, text in shown.texts.items():
            seen, owed = self.all.texts[kind], self.sure.texts[kind]
            assert text.startswith(owed), f"{kind}: {len(owed)} characters are owed: {text!r}"
            assert text.startswith(seen) or seen.startswith(text)
        for id, call in self.all.calls.items():
            if id in self.sure.calls or call.get("status") in ("completed", "failed"):
                assert id in shown.calls, f"the call {id} is lost"
                assert shown.calls[id]["title"] == call["title"]
            if call.get("status") == "completed":
                assert shown.calls[id]["status"] == "completed", f"the result of {id} is lost"
        assert {call["status"] for call in shown.calls.values()} <= {"completed", "failed"}


class Life:
    """One process: it loads, is compared, answers, and works until it is killed."""

    def __init__(self, agent: Agent, number: int) -> None:
        self.agent = agent
        self.number = number

    def ping(self, session: str) -> str:
        words = f"ping {self.number}"
        frame = self.agent.prompt(session, words)
        assert frame.get("result") == {"stopReason": "end_turn"}, frame
        return words

    def work_until(self, session: str, seconds: float) -> Killed:
        words = f"work {self.number} "
        since = len(self.agent.frames)
        self.agent.start_prompt(session, words)
        self.agent.until_count(10**9, seconds)
        return Killed(self.agent, words, since, self.agent.kill())


@pytest.mark.parametrize("seed", range(-(-KILLS // LIVES)))
def test_whatever_moment_it_is_killed_at_nothing_finished_is_lost(
    start: Start, fake: FakeLlm, tmp_path: Path, seed: int
) -> None:
    fake.use(answer)
    chance = random.Random(seed)
    project = tmp_path / "project"
    project.mkdir()
    options: dict[str, Any] = {"cwd": project}
    if seed % 2:
        options["DSH_ACP_PERMISSION"] = "full-access"

    first = start(**options)
    session = first.open()
    begun = len(first.frames)
    assert first.prompt(session, "work 0 ")["result"] == {"stopReason": "end_turn"}
    whole = first.times[-1] - first.times[begun]
    first.kill()
    path = log_of(first.home, session)

    fixed: dict[str, Shown] = {}
    killed: list[Killed] = []
    for number in range(1, LIVES + 1):
        left = path.read_bytes()
        agent = start(**options)
        agent.is_judged = False  # the last life is; all of them would take their time
        agent.initialize()
        frame = agent.load(session)
        assert "result" in frame, frame
        turns = replayed(agent)
        for each in killed[-1:]:
            each.compare(turns)
        for words, shown in fixed.items():
            assert turns[words].texts == shown.texts and turns[words].calls == shown.calls
        fixed = turns
        assert path.read_bytes().startswith(left[: left.rfind(b"\n") + 1])
        life = Life(agent, number)
        life.ping(session)
        killed.append(life.work_until(session, chance.uniform(0, whole * 1.1)))
        assert_facts_are_logged(path, fake, project / "effects")
    last = start(**options)
    last.initialize()
    last.load(session)
    killed[-1].compare(replayed(last))
    Life(last, LIVES + 1).ping(session)
    assert last.close() == 0
    for body in bodies(fake):
        assert_history_is_valid(body)
    assert_nothing_runs_in(project)
    audited = subprocess.run(
        [sys.executable, "-m", "dsh_acp", "audit", session, "--json"],
        env=environment(last.home, fake.url),
        capture_output=True,
        check=False,
    )
    report = json.loads(audited.stdout)[0]
    assert audited.returncode == 0, report
    assert len(report["requests"]) >= len(bodies(fake))


def assert_nothing_runs_in(folder: Path) -> None:
    """No process has its working directory there."""
    running = [p for p in psutil.process_iter(["cwd", "cmdline"]) if p.info["cwd"] == str(folder)]
    psutil.wait_procs(running, timeout=10)
    assert [p.cmdline() for p in running if p.is_running()] == []
