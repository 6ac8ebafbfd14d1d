"""Many turns against an endpoint that fails in every way, in seeded order.

Whatever happens to a request, its prompt is answered, nothing is shown twice without a word about
it, no half of an answer is taken for a whole one, and the log proves what was sent.
`DSH_ACP_TEST_TURNS` sets the number of turns (`make test-chaos` does); the seeds are in the names
of the tests, and each prints what it met.
"""

from collections import Counter
from collections.abc import Callable, Sequence
import json
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

from chaos import RETRIES, STALL_S, Chaos, Plan, Wire, prompt_of
from e2e_agent import WAIT_S, Agent, Frame, bodies, environment, events_of, is_update, log_of
import pytest
from shown import Shown, assert_facts_are_logged, assert_history_is_valid, live, replayed

from dsh_acp.llm.fake import FakeLlm

Start = Callable[..., Agent]

TURNS = int(os.environ.get("DSH_ACP_TEST_TURNS", "60"))
TURNS_EACH = 20
WAYS: Sequence[tuple[Wire, str]] = (("openai", ""), ("anthropic", ""), ("openai", "by-proxy"))
RUNS = [(seed, *WAYS[seed % len(WAYS)]) for seed in range(-(-TURNS // TURNS_EACH))]
"""An endpoint elsewhere is reached through the general HTTP client, this machine through our own;
a proxy makes the endpoint here one elsewhere."""

DISCARDED = "\n\n[Previous model attempt discarded; retrying "
FAILED = "\n\n[Model attempt failed; "

CONFIG = f"""
[providers.WIRE]
idle_timeout_s = {STALL_S}
max_retries = {RETRIES}
retry_delay_s = 0.01
retry_delay_max_s = 0.05
"""


class Segment:
    """What was shown from one notice to the next."""

    def __init__(self) -> None:
        self.said = {"agent_message_chunk": "", "agent_thought_chunk": ""}

    def ends(self, plan: Plan, begins: int) -> set[int]:
        """The rounds that may have been under way at its end, if it began with round `begins`."""
        found: set[int] = set()
        rounds = [(r.text, r.thought) for r in plan.rounds]
        texts = tuple(self.said.values())
        for last in range(begins, len(rounds) + 1):
            whole = rounds[begins:last]
            under_way = rounds[last] if last < len(rounds) else ("", "")
            if all(
                said.startswith(done := "".join(r[k] for r in whole))
                and under_way[k].startswith(said[len(done) :])
                for k, said in enumerate(texts)
            ):
                found.add(last)
        return found

    def is_whole(self, plan: Plan, begins: int) -> bool:
        """Whether it may hold whole rounds only, from round `begins` on."""
        text, thought = self.said.values()
        rounds = plan.rounds[begins:]
        return any(
            text == "".join(r.text for r in rounds[:count])
            and thought == "".join(r.thought for r in rounds[:count])
            for count in range(len(rounds) + 1)
        )


class Turn:
    """One prompt, from its call to its answer."""

    def __init__(self, agent: Agent, session: str, number: int, plan: Plan) -> None:
        self.plan = plan
        self.since = len(agent.frames)
        id = agent.start_prompt(session, prompt_of(number))
        if plan.cancel_after is not None:
            mark = len(agent.frames) + plan.cancel_after
            agent.until(lambda f: f.get("id") == id or len(agent.frames) >= mark, self.since)
            agent.notify("session/cancel", sessionId=session)
        self.answer = agent.response(id)
        self.end = agent.frames.index(self.answer, self.since) + 1
        self.seconds = agent.times[self.end - 1] - agent.times[self.since]
        self.shown = live(agent, self.since, self.end)
        frames = filter(is_update, agent.frames[self.since : self.end])
        self.updates: Sequence[Frame] = [frame["params"]["update"] for frame in frames]

    @property
    def outcome(self) -> str:
        """How it was answered."""
        if "error" in self.answer:
            return "error"
        return str(self.answer["result"]["stopReason"])

    def check(self) -> None:
        """Nothing is shown twice, half or in part without a word; no call is left open."""
        segments, is_failed = [Segment()], False
        for update in self.updates:
            kind = update["sessionUpdate"]
            if kind not in segments[-1].said:
                continue
            text = update["content"]["text"]
            if text.startswith(DISCARDED):
                segments.append(Segment())
            elif text.startswith(FAILED):
                is_failed = True
            else:
                assert not is_failed, f"said after the end: {text!r}"
                segments[-1].said[kind] += text
        states, begins = {0}, {0}
        for segment in segments:
            begins = states
            states = {end for begin in states for end in segment.ends(self.plan, begin)}
            assert states, f"{segment.said} is no part of the plan"
        statuses = {call.get("status") for call in self.shown.calls.values()}
        assert statuses <= {"completed", "failed"}, statuses
        assert set(self.shown.calls) <= set(self.plan.calls)
        match self.outcome:
            case "end_turn":
                assert len(self.plan.rounds) in states, "half an answer was taken for a whole one"
                assert set(self.shown.calls) == set(self.plan.calls)
            case "error":
                error = self.answer["error"]
                assert error["code"] in (-32603, -32000)
                assert error["message"].endswith("."), error["message"]
                assert "\n" not in error["message"] and "Traceback" not in error["message"]
                whole = any(segments[-1].is_whole(self.plan, begin) for begin in begins)
                assert is_failed or whole, "what was shown is discarded without a word"
            case "cancelled":
                assert self.plan.cancel_after is not None
            case other:
                assert other in ("max_tokens", "refusal")


def configured(tmp_path: Path, wire: Wire, way: str, url: str) -> dict[str, Any]:
    """Where and how the agent works."""
    project = tmp_path / "project"
    project.mkdir()
    path = tmp_path / "config.toml"
    path.write_text(CONFIG.replace("WIRE", wire), "utf-8")
    options: dict[str, Any] = {"cwd": project, "DSH_ACP_CONFIG": str(path)}
    if way == "by-proxy":
        options |= {"HTTP_PROXY": url.removesuffix("/v1"), "NO_PROXY": ""}
        url = "http://model.example/v1"
    name = wire.upper()
    options |= {f"{name}_BASE_URL": url, f"{name}_API_KEY": "sk-e2e-secret"}
    return options | {"DSH_ACP_PERMISSION": "full-access", "DSH_ACP_MODEL": f"{wire}/m"}


@pytest.mark.parametrize(
    "seed, wire, way", RUNS, ids=["-".join(filter(None, (f"seed{s}", *ways))) for s, *ways in RUNS]
)
def test_every_prompt_is_answered_whatever_happens_to_its_requests(
    start: Start, fake: FakeLlm, tmp_path: Path, seed: int, wire: Wire, way: str
) -> None:
    chaos = Chaos(seed, wire)
    fake.use(chaos)
    options = configured(tmp_path, wire, way, fake.url)
    agent = start(**options)
    session = agent.open()
    turns: dict[int, Turn] = {}
    lives: dict[str, Shown] = {}
    for number in range(TURNS_EACH):
        if number == TURNS_EACH // 2:
            assert agent.close() == 0
            agent = start(**options)
            agent.initialize()
            assert "result" in agent.load(session)
            assert_shown_again(agent, lives)
        turn = turns[number] = Turn(agent, session, number, Plan(seed, number))
        lives[prompt_of(number)] = turn.shown
        turn.check()
    assert agent.prompt(session, "please do nothing").get("result") == {"stopReason": "end_turn"}
    assert agent.close() == 0
    assert b"Traceback" not in agent.stderr

    last = start(**options)
    last.initialize()
    assert "result" in last.load(session)
    assert_shown_again(last, lives)
    assert last.close() == 0
    assert max(chaos.attempts.values()) == 1 + RETRIES
    assert_logged(log_of(last.home, session), fake, turns, options["cwd"] / "effects")
    audited = subprocess.run(
        [sys.executable, "-m", "dsh_acp", "audit", session, "--json"],
        env=environment(last.home, fake.url, **{k: v for k, v in options.items() if k != "cwd"}),
        capture_output=True,
        check=False,
        timeout=WAIT_S,
    )
    report = json.loads(audited.stdout)[0]
    assert audited.returncode == 0, report
    assert len(report["requests"]) >= len(bodies(fake))
    tell(seed, wire, chaos, fake, turns)


def assert_shown_again(agent: Agent, lives: dict[str, Shown]) -> None:
    """A load shows what was shown live."""
    turns = replayed(agent)
    assert list(turns)[: len(lives)] == list(lives)
    for words, was in lives.items():
        shown = turns[words]
        for each in (shown, was):
            # Why a turn failed is in the answer to its prompt while live, and in the text later.
            texts = each.texts
            texts["agent_message_chunk"] = texts["agent_message_chunk"].partition(FAILED)[0]
        assert shown.texts == was.texts, words
        assert list(shown.calls) == list(was.calls), words
        for id, call in was.calls.items():
            assert shown.calls[id]["status"] == call["status"], (words, id)
            assert shown.calls[id]["title"] == call["title"], (words, id)


def assert_logged(path: Path, fake: FakeLlm, turns: dict[int, Turn], effects: Path) -> None:
    """What left and what was done is in the log, as the model meant it; no call is an orphan."""
    assert_facts_are_logged(path, fake, effects)
    for body in bodies(fake):
        assert_history_is_valid(body)
    meant = {id: command for turn in turns.values() for id, command in turn.plan.calls.items()}
    rows = events_of(path.read_bytes())
    calls = [row["data"] for row in rows if row["type"] == "tool/call"]
    for call in calls:
        assert json.loads(call["arguments"])["command"] == meant[call["callId"]]
    results = [row["data"] for row in rows if row["type"] == "tool/result"]
    answered = Counter(
        block["toolCallId"] for result in results for block in result["message"]["content"]
    )
    assert answered == Counter(call["callId"] for call in calls)
    assert set(effects.read_text("utf-8").split() if effects.exists() else ()) <= set(meant)
    ends = [row for row in rows if row["type"] == "turn/end"]
    assert len(ends) == len(turns) + 1


def tell(seed: int, wire: Wire, chaos: Chaos, fake: FakeLlm, turns: dict[int, Turn]) -> None:
    """What this run met, on stdout (`-rP` shows it)."""
    outcomes = Counter(turn.outcome for turn in turns.values())
    retries = sum(
        u.get("content", {}).get("text", "").startswith(DISCARDED)
        for turn in turns.values()
        for u in turn.updates
        if u["sessionUpdate"] == "agent_message_chunk"
    )
    figures = {
        "seed": seed,
        "wire": wire,
        "turns": len(turns),
        "requests": len(fake.requests),
        "retries": retries,
        "slowest_s": round(max(turn.seconds for turn in turns.values()), 2),
        "outcomes": dict(outcomes),
        "met": dict(chaos.counts.most_common()),
    }
    sys.stdout.write(f"chaos {json.dumps(figures)}\n")
