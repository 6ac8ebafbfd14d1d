"""Version 2 of the protocol beside version 1, in the same run: what it costs to speak it."""

from collections.abc import Callable, Sequence
import statistics
import time
from typing import Any

from lab import MS, Lab, Row
import msgspec
from processes import Agent

SHARE = 0.1
"""By how much version 2 may be worse."""

COUNT = 10_000


class Client2(Agent):
    """A client of version 2: a prompt is over when its session is idle again."""

    def initialize(self) -> int:
        info = {"name": "bench", "version": "1"}
        params = {"protocolVersion": 2, "info": info, "capabilities": {}}
        self.initialized, _ = self.answer(self.send("initialize", params))
        return self.initialized

    def finish(self, id: int) -> int:
        while True:
            at, frame = self.receive()
            if frame.method == "session/update" and b'"state":"idle"' in bytes(frame.params):
                return at

    def texts(self) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        for at, frame in self.updates:
            update = msgspec.json.decode(frame.params)["update"]
            if update["sessionUpdate"] == "agent_message":
                found += [(at, block["text"]) for block in update["content"]]
            if update["sessionUpdate"] == "agent_message_chunk":
                found.append((at, update["content"]["text"]))
        return found


class Client1(Agent):
    """A client of version 1."""

    def finish(self, id: int) -> int:
        return self.answer(id)[0]


Client = Client1 | Client2
KINDS: dict[str, type[Client1] | type[Client2]] = {"one": Client1, "two": Client2}


def versions(lab: Lab) -> list[Row]:
    """The figures of both, the agent alternating; `floor` is version 1."""
    return [*_starts(lab), *_prompts(lab), *_streams(lab)]


def _alternate(
    rounds: int, sample: Callable[[str], dict[str, Sequence[float]]]
) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        # Who goes first changes, so that neither always follows the other.
        for kind in sorted(KINDS, reverse=bool(number % 2)):
            for what, values in sample(kind).items():
                found.setdefault(what, {}).setdefault(kind, []).extend(values)
    return found


def _row(name: str, what: str, unit: str, found: dict[str, list[float]]) -> Row:
    # The better quarter: what other programs add is never negative, and here a tenth counts.
    better = 2 if unit == "/s" else 0
    one, two = (statistics.quantiles(found[kind], n=4)[better] for kind in ("one", "two"))
    if unit == "/s":
        reach, met = f"≥ {1 - SHARE:g} × version 1", two >= one * (1 - SHARE)
    else:
        reach, met = f"≤ {1 + SHARE:g} × version 1", two <= one * (1 + SHARE)
    return Row(
        name, f"version 2: {what}", unit, two, one, reach, met, "quartiles; floor: version 1"
    )


def _open(lab: Lab, kind: str) -> Client:
    home = lab.folder / f"v{kind}{time.monotonic_ns()}"
    home.mkdir()
    return KINDS[kind]("real", home, lab.endpoint.url)


def _warm(lab: Lab, kind: str) -> tuple[Client, str]:
    agent = _open(lab, kind)
    agent.initialize()
    session = agent.new_session()
    agent.finish(agent.start_prompt(session, "warm up"))
    return agent, session


def _starts(lab: Lab) -> list[Row]:
    def sample(kind: str) -> dict[str, Sequence[float]]:
        with _open(lab, kind) as agent:
            return {"start": [(agent.initialize() - agent.started) / MS]}

    _alternate(2, sample)
    found = _alternate(16, sample)
    return [_row("v2-start", "spawn to initialize", "ms", found["start"])]


def _prompts(lab: Lab) -> list[Row]:
    def sample(kind: str) -> dict[str, Sequence[float]]:
        lab.endpoint.script([{"text": "hello there", "repeat": 0}])
        agent, session = _warm(lab, kind)
        with agent:
            sent: list[int] = []
            seen: list[int] = []
            for _ in range(20):
                agent.updates.clear()
                sent.append(time.monotonic_ns())
                id = agent.start_prompt(session, "hi")
                seen.append(_first_text(agent))
                agent.finish(id)
            memory, _ = agent.memory()
        requests: list[dict[str, Any]] = lab.endpoint.requests()[-20:]
        trips = list(zip(sent, seen, requests, strict=True))
        return {
            "request": [(request["received_ns"] - at) / MS for at, _, request in trips],
            "update": [(at - request["first_ns"]) / MS for _, at, request in trips],
            "memory": [memory],
        }

    found = _alternate(14, sample)
    return [
        _row("v2-request", "prompt to request", "ms", found["request"]),
        _row("v2-first-update", "first byte to update", "ms", found["update"]),
        _row("v2-memory", "memory after 20 turns", "MiB", found["memory"]),
    ]


def _first_text(agent: Client) -> int:
    while True:
        at, frame = agent.receive()
        if frame.method == "session/update" and b'"agent_message' in bytes(frame.params):
            return at


def _streams(lab: Lab) -> list[Row]:
    def sample(kind: str) -> dict[str, Sequence[float]]:
        entry = {"text": "word ", "deltas": COUNT, "burst": 40, "repeat": 0}
        lab.endpoint.script([{"text": "warm"}, entry])
        agent, session = _warm(lab, kind)
        with agent:
            agent.updates.clear()
            ended = agent.finish(agent.start_prompt(session, "go"))
            first = lab.endpoint.requests()[-1]["first_ns"]
            shown = sum(len(text) for _, text in agent.texts())
        if shown != 5 * COUNT:
            raise RuntimeError(f"{shown} of {5 * COUNT} characters were shown")
        return {"chunks": [COUNT / ((ended - first) / 1e9)]}

    found = _alternate(8, sample)
    return [_row("v2-chunks", "10,000 durable chunks", "/s", found["chunks"])]
