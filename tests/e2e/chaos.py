"""A model's endpoint that fails in every way it can, by a seed.

What it would say to each prompt is planned by seed and number of the prompt, and so is what
happens to each attempt: the same seed gives the same trouble, whatever the machine does. Words,
thoughts and calls are each unique, so that whoever sees one twice, half or not at all can tell.
"""

from collections import Counter
from collections.abc import Callable, Mapping
import gzip
import random
import re
from typing import Any, Final, Literal

from e2e_agent import bash
from shown import words_of

from dsh_acp.llm.fake import Recorded
from dsh_acp.llm.fake_replies import reply

Wire = Literal["openai", "anthropic"]
Entry = dict[str, Any]

STALL_S: Final = 0.5
"""Silence after which the agent is configured to give up an attempt."""

RETRIES: Final = 3


def prompt_of(number: int) -> str:
    """The words of the prompt of that number."""
    return f"please do errand {number} now"


class Round:
    """One answer of a plan: thoughts, text, and the calls at its end."""

    def __init__(self, name: str, chance: random.Random, is_last: bool) -> None:
        def words(kind: str, least: int, most: int) -> str:
            return "".join(f"{name}{kind}{n} " for n in range(chance.randint(least, most)))

        self.thought = words("h", 0, 12)
        self.text = words("w", 1, 40) if is_last else words("w", 0, 12)
        count = 0 if is_last else chance.randint(1, 3)
        self.calls: dict[str, str] = {
            f"{name}c{n}": f"echo {name}c{n} >> effects; echo {'x' * chance.randint(0, 300)}"
            for n in range(count)
        }
        self.storm = chance.choice((0,) * 9 + (1, 2, 3, 9))
        """So many attempts in a row are turned away."""

    @property
    def entry(self) -> Entry:
        """The answer without any trouble."""
        calls = [bash(id, command) for id, command in self.calls.items()]
        chunks = {"chunk_size": 11, "burst": 3}
        return {"reasoning": self.thought, "text": self.text, "tool_calls": calls, **chunks}


class Plan:
    """What the model means to say to one prompt."""

    def __init__(self, seed: int, number: int) -> None:
        chance = random.Random(f"{seed}:{number}:plan")
        last = chance.choice((0, 0, 1, 1, 2))
        self.rounds = [Round(f"e{number}r{n}", chance, n == last) for n in range(last + 1)]
        self.cancel_after = chance.randint(1, 12) if chance.random() < 0.08 else None
        """The person stops it after so many frames."""

    @property
    def calls(self) -> dict[str, str]:
        """The commands of all rounds by the ids of their calls."""
        return {id: command for each in self.rounds for id, command in each.calls.items()}


# ---------------------------------------------------------------- trouble

Trouble = Callable[[Entry, Wire, random.Random], Entry]


def _pieces(entry: Entry, wire: Wire) -> list[bytes]:
    return list(reply(entry, wire).pieces)


def _cut(end: str) -> Trouble:
    def cut(entry: Entry, wire: Wire, chance: random.Random) -> Entry:
        whole = b"".join(_pieces(entry, wire))
        kept = whole[: chance.randrange(1, len(whole))]
        size = chance.randint(1, 400)
        return {"sse": [kept[at : at + size] for at in range(0, len(kept), size)], "end": end}

    return cut


def _cut_gzip(entry: Entry, wire: Wire, chance: random.Random) -> Entry:
    packed = gzip.compress(b"".join(_pieces(entry, wire)), mtime=0)
    kept = packed[: chance.randrange(12, len(packed) - 8)]
    return {"sse": [kept], "headers": {"content-encoding": "gzip"}}


def _strew(entry: Entry, wire: Wire, chance: random.Random) -> Entry:
    """Between two events comes what belongs to no event stream."""
    pieces = _pieces(entry, wire)
    noise = chance.choice(
        (
            b": keep-alive\n\n",
            b"data: {not-json\n\n",
            b"data: \xff\xfe\x00\n\n",
            b"data: [1, 2, 3]\n\n",
            b'data: "a text"\n\n',
            b"<html>502 Bad Gateway</html>\n\n",
            b"upstream error: read ECONNRESET\n\n",
            chance.randbytes(200).replace(b"data:", b"")[:150] + b"\n\n",
        )
    )
    pieces.insert(chance.randint(0, len(pieces)), noise)
    return {"sse": pieces}


def _complain(entry: Entry, wire: Wire, chance: random.Random) -> Entry:
    """In the middle of a 200, the endpoint reports an error."""
    pieces = _pieces(entry, wire)
    kind = chance.choice(("overloaded_error", "server_error", "invalid_request_error"))
    if wire == "anthropic":
        text = f'event: error\ndata: {{"type":"error","error":{{"type":"{kind}","message":"oh"}}}}'
    else:
        text = f'data: {{"error":{{"type":"{kind}","code":"{kind}","message":"oh"}}}}'
    return {"sse": [*pieces[: chance.randrange(len(pieces))], f"{text}\n\n".encode()]}


def _plain(**entry: Any) -> Trouble:
    return lambda *_: entry


def _over(**changes: Any) -> Trouble:
    return lambda entry, *_: {**entry, **changes}


def _refusal(entry: Entry, wire: Wire, chance: random.Random) -> Entry:
    names = ("auth_error", "forbidden", "payment_required", "model_not_found", "invalid_request")
    return {"behavior": chance.choice((*names, "quota_exceeded"))}


def _busy(entry: Entry, wire: Wire, chance: random.Random) -> Entry:
    """Turned away for now, with and without a time to wait."""
    name = chance.choice(("rate_limit", "overloaded", "service_unavailable", "server_error"))
    waits = ({"retry-after-ms": "30"}, {"retry-after": "0.02"}, {"retry-after": "soon"}, {})
    return {"behavior": name, "headers": chance.choice(waits)}


TROUBLES: Final[Mapping[str, tuple[int, Trouble]]] = {
    "none": (34, lambda entry, *_: entry),
    "byte by byte": (4, _over(split=3)),
    "gzip": (4, _over(gzip=True)),
    "reset at once": (5, _plain(behavior="connection_reset")),
    "reset within": (9, _cut("reset")),
    "cut within": (7, _cut("cut")),
    "end within": (8, _cut("complete")),
    "stall at once": (2, _plain(behavior="stall")),
    "stall before the head": (1, _plain(text="late", delay_ms=60_000)),
    "stall within": (4, _cut("stall")),
    "truncated gzip": (4, _cut_gzip),
    "garbage": (7, _strew),
    "error within": (5, _complain),
    "busy": (5, _busy),
    "too long a wait": (1, _plain(behavior="rate_limit", headers={"retry-after": "9999"})),
    "refusal": (2, _refusal),
    "no event": (3, _plain(sse="")),
    "empty": (2, _plain(text="")),
    "web page": (2, _plain(behavior="html")),
    "broken JSON": (2, _plain(behavior="malformed_json")),
    "other type": (2, _over(content_type="application/json")),
    "length": (2, _over(finish="length")),
}


class Chaos:
    """The endpoint's script: what each request gets. Called from the connections' threads."""

    def __init__(self, seed: int, wire: Wire) -> None:
        self.counts: Counter[str] = Counter()
        self._seed = seed
        self._wire: Wire = wire
        self.attempts: Counter[tuple[int, int]] = Counter()
        """How often each round of each prompt was asked for."""
        self._asides = 0

    def __call__(self, record: Recorded) -> Entry:
        if not record.json.get("tools"):
            self._asides += 1
            return self._trouble({"text": "A title"}, f"{self._seed}:aside:{self._asides}")
        number, round = _place(record.json["messages"])
        if number < 0:
            return {"text": "all is well"}
        plan = Plan(self._seed, number).rounds[round]
        self.attempts[number, round] += 1
        attempt = self.attempts[number, round]
        name = f"{self._seed}:{number}:{round}:{attempt}"
        if attempt <= plan.storm:
            self.counts["storm"] += 1
            return _busy({}, self._wire, random.Random(name))
        return self._trouble(plan.entry, name)

    def _trouble(self, entry: Entry, name: str) -> Entry:
        chance = random.Random(name)
        weights = [weight for weight, _ in TROUBLES.values()]
        kind = chance.choices(list(TROUBLES), weights)[0]
        self.counts[kind] += 1
        return TROUBLES[kind][1](entry, self._wire, chance)


def _place(messages: list[Any]) -> tuple[int, int]:
    """The number of the prompt that a body ends with, and how many rounds it has behind it."""
    number, rounds = -1, 0
    for message in messages:
        if message["role"] == "user":
            said = re.findall(r"please do (?:errand (\d+) now|nothing)", words_of(message))
            if said:
                number, rounds = int(said[-1] or -1), 0
        elif message["role"] == "assistant":
            parts = message.get("content") or ()
            used = any(isinstance(p, dict) and p.get("type") == "tool_use" for p in parts)
            rounds += bool(message.get("tool_calls")) or used
    return number, rounds
