"""Derivation and header fold once more, on plain JSON values and nothing of the program."""

import json
from typing import Any

SURFACE = {"user/message", "assistant/message", "tool/result"}
DELTAS = {
    "text-chunks": ("text-delta", "texts", "text"),
    "reasoning-chunks": ("reasoning-delta", "texts", "text"),
    "tool-call-chunks": ("tool-call-delta", "args", "argumentsDelta"),
}


def expand(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events with seq and time, counted where a fixture leaves them out."""
    events: list[dict[str, Any]] = []
    for record in records:
        if record["type"] not in DELTAS:
            events.append({"seq": len(events), "time": 0, **record})
            continue
        kind, members, field = DELTAS[record["type"]]
        data = record["data"]
        time = record.get("time0", 0)
        for k, text in enumerate(data[members]):
            if k:
                time += data["dt"][k - 1]
            chunk: dict[str, Any] = {"type": kind, "index": data["index"]}
            chunk.update({key: data[key] for key in ("id", "name") if key in data})
            chunk[field] = text
            events.append(
                {
                    "type": "assistant/chunk",
                    "seq": len(events),
                    "time": time,
                    "data": {"turn": data["turn"], "step": data["step"], "chunk": chunk},
                }
            )
    return events


def surface(events: list[dict[str, Any]]) -> list[int]:
    nodes: list[int] = []
    for event in events:
        if event["type"] not in SURFACE:
            continue
        place = event["surfaceOp"]
        if place == "append":
            nodes.append(event["seq"])
        else:
            first, last = nodes.index(place["start"]), nodes.index(place["end"])
            nodes = [*nodes[:first], event["seq"], *nodes[last + 1 :]]
    return nodes


def derive(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for seq in surface(events):
        event = events[seq]
        message = event["data"] if event["type"] == "user/message" else event["data"]["message"]
        if event["type"] != "assistant/message" or message["content"]:
            messages.append(message)
    return messages


def fold_header(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    found = None
    for event in events:
        if event["type"] == "request/header":
            found = event["data"]["header"]
    return None if found is None else canonical(found)


def canonical(header: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {"config": header["config"]}
    defaults = {k: v for k, v in header.get("adapterDefaults", {}).items() if v is True}
    if defaults:
        kept["adapterDefaults"] = defaults
    for key in ("system", "tools", "messagePrefix", "messageSuffix"):
        if header.get(key):
            kept[key] = header[key]
    return kept


def balanced(events: list[dict[str, Any]]) -> bool:
    """No open turn or step, and every call of the model has exactly one result before the next."""
    turn = step = None
    owed: list[str] = []
    for event in events:
        kind, data = event["type"], event["data"]
        if kind == "turn/start":
            turn = data["turn"]
        elif kind == "turn/end":
            turn = None
        elif kind == "step/start":
            step = data["step"]
        elif kind == "step/end":
            step = None
    for message in derive(events):
        for block in message["content"]:
            if block["type"] == "tool-call":
                owed.append(block["id"])
            elif block["type"] == "tool-result":
                owed.remove(block["toolCallId"])
    return turn is None and step is None and not owed


def load(text: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    records = [json.loads(line) for line in text.split(b"\n") if line.strip()]
    return records[0], expand(records[1:])
