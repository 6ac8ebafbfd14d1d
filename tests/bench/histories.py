"""Measurements of coming back: long histories, and many of them.

The floor of a long history is one reading of its log's lines by Python's own JSON parser.
"""

from collections.abc import Iterator
import contextlib
import json
from pathlib import Path
import time

from lab import MS, Lab, Row, at_most, median
from long_log import multiply, scatter, turn
from processes import Agent
import psutil

TURNS, CALLS, PER_STEP = 300, 40, 4
SESSIONS = 10_000


def load(lab: Lab) -> list[Row]:
    """`session/load` to its answer after the full replay, and `session/list`."""
    return [_short_turns(lab), _many_calls(lab), _many_sessions(lab)]


@contextlib.contextmanager
def _warm(lab: Lab, home: Path) -> Iterator[Agent]:
    """A new process in an old home; what loads in the background is not measured."""
    with lab.agent("real", home=home) as agent:
        agent.initialize()
        agent.new_session()
        time.sleep(1)
        agent.updates.clear()
        yield agent


def _taken(agent: Agent, method: str, params: dict) -> tuple[float, dict]:
    sent = time.monotonic_ns()
    at, result = agent.answer(agent.send(method, params))
    return (at - sent) / MS, result


def _load(agent: Agent, session: str) -> float:
    params = {"sessionId": session, "cwd": str(agent.cwd), "mcpServers": []}
    return _taken(agent, "session/load", params)[0]


def _short_turns(lab: Lab) -> Row:
    lab.endpoint.script([{"text": "an answer of a few words", "repeat": 0}])
    with lab.session("real") as (agent, session):
        for number in range(199):
            agent.prompt(session, f"prompt {number}")
    taken = []
    for _ in range(5):
        with _warm(lab, agent.home) as again:
            taken.append(_load(again, session))
            said = "".join(text for _, text in again.texts())
            if said.count("an answer of a few words") != 200:
                raise RuntimeError("the replay is not complete")
    return at_most("load", "load of 200 turns", median(taken), None, 20)


def _many_calls(lab: Lab) -> Row:
    lab.endpoint.script([{"text": "warm", "repeat": 0}])
    with lab.session("real") as (agent, session):
        (agent.cwd / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
        lab.endpoint.script(turn(CALLS, PER_STEP, agent.cwd))
        agent.prompt(session, "go")
    log = next((agent.home / "state").rglob("session.jsonl"))
    multiply(log, TURNS)
    taken, used = [], []
    for _ in range(3):
        with _warm(lab, agent.home) as again:
            process = psutil.Process(again.process.pid)
            before = sum(process.cpu_times()[:2])
            taken.append(_load(again, session))
            used.append(sum(process.cpu_times()[:2]) - before)
            calls = sum(b'"tool_call",' in bytes(frame.params) for _, frame in again.updates)
            if calls != TURNS * CALLS:
                raise RuntimeError(f"{calls} of {TURNS * CALLS} calls were replayed")
    began = time.monotonic_ns()
    lines = log.read_bytes().splitlines()
    for line in lines:
        json.loads(line)
    floor = (time.monotonic_ns() - began) / MS
    note = f"{len(lines):,} events; {1000 * median(used):,.0f} ms of processor time"
    row = at_most("load-long", f"load of {TURNS} × {CALLS} calls", median(taken), floor, 1000)
    row.note = note
    return row


def _many_sessions(lab: Lab) -> Row:
    lab.endpoint.script([{"text": "well", "repeat": 0}])
    with lab.session("real") as (agent, _):
        pass
    log = next((agent.home / "state").rglob("session.jsonl"))
    scatter(log, SESSIONS)
    with _warm(lab, agent.home) as again:
        first, result = _taken(again, "session/list", {})
        taken = [_taken(again, "session/list", {})[0] for _ in range(9)]
        count = 0
        while True:
            count += len(result["sessions"])
            if "nextCursor" not in result:
                break
            _, result = _taken(again, "session/list", {"cursor": result["nextCursor"]})
    if count != SESSIONS:
        raise RuntimeError(f"{count} of {SESSIONS} sessions were listed")
    row = at_most("list", f"list of {SESSIONS:,} sessions", median(taken), None, 100)
    row.note = f"the first, which makes the index, {first:,.0f} ms"
    return row
