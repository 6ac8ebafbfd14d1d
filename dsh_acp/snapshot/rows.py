"""Packed chunk rows of a log, taken apart and put together in one canonical way.

Independent of `dsh_acp.log` on purpose: the kit must not share a fault with what it checks.
Rows may lack `seq0` and `time0`, as committed fixtures do.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

_DELTAS: Final = {
    "text-delta": "text-chunks",
    "reasoning-delta": "reasoning-chunks",
    "tool-call-delta": "tool-call-chunks",
}
_ROWS: Final = {row: delta for delta, row in _DELTAS.items()}


def unpack(records: Iterable[Json]) -> Iterator[Json]:
    """Every event on its own; events keep their keys, members of rows get theirs.

    Members after the first carry `gap`, the milliseconds since the one before.

    Raises:
        ValueError: sequence numbers are present and not contiguous.
    """
    expected = 0
    for record in records:
        members = list(_members(record)) if record.get("type") in _ROWS else [record]
        for event in members:
            if event.get("seq", expected) != expected:
                raise ValueError(f"the log jumps from seq {expected - 1} to {event['seq']}")
            expected += 1
            yield event


def _members(row: Json) -> Iterator[Json]:
    data = row["data"]
    kind = _ROWS[row["type"]]
    where = {"turn": data["turn"], "step": data["step"]}
    pieces: list[str] = data["args"] if kind == "tool-call-delta" else data["texts"]
    for k, piece in enumerate(pieces):
        chunk: Json = {"type": kind, "index": data["index"]}
        if kind == "tool-call-delta":
            chunk["id"] = data["id"]
            if "name" in data:
                chunk["name"] = data["name"]
            chunk["argumentsDelta"] = piece
        else:
            chunk["text"] = piece
        event: Json = {"type": "assistant/chunk", "data": {**where, "chunk": chunk}}
        if "seq0" in row:
            event["seq"] = row["seq0"] + k
        if k:
            event["gap"] = data["dt"][k - 1]
        yield event


def pack(events: list[Json], *, keep_gaps: bool = False) -> list[Json]:
    """Maximal runs of at least three deltas of one block as rows without times.

    Gaps between members are 0 unless kept; a gap between two rows of one run is not known.
    """
    out: list[Json] = []
    at = 0
    while at < len(events):
        key = _key(events[at])
        end = at + 1
        while key is not None and end < len(events) and _key(events[end]) == key:
            end += 1
        if key is None or end - at < 3:
            out.extend(_without_gap(event) for event in events[at:end])
        else:
            out.append(_row(events[at:end], keep_gaps))
        at = end
    return out


def _key(event: Json) -> tuple[Any, ...] | None:
    if event.get("type") != "assistant/chunk":
        return None
    data = event["data"]
    chunk = data["chunk"]
    if chunk["type"] not in _DELTAS:
        return None
    return (chunk["type"], data["turn"], data["step"], chunk["index"], chunk.get("id"),
            chunk.get("name"))  # fmt: skip


def _without_gap(event: Json) -> Json:
    event.pop("gap", None)
    return event


def _row(run: list[Json], keep_gaps: bool) -> Json:
    data = run[0]["data"]
    chunk = data["chunk"]
    packed: Json = {"turn": data["turn"], "step": data["step"], "index": chunk["index"]}
    gaps = [event.get("gap", 0) if keep_gaps else 0 for event in run[1:]]
    if chunk["type"] == "tool-call-delta":
        packed["dt"] = gaps
        packed["id"] = chunk["id"]
        if "name" in chunk:
            packed["name"] = chunk["name"]
        packed["args"] = [event["data"]["chunk"]["argumentsDelta"] for event in run]
    else:
        packed["dt"] = gaps
        packed["texts"] = [event["data"]["chunk"]["text"] for event in run]
    return {"type": _DELTAS[chunk["type"]], "data": packed}
