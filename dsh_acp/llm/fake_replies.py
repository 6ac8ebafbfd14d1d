"""What the fake provider answers: script entries turned into bytes, in both wire formats.

An entry is a behaviour's name, or an object with a `behavior` and any of these fields over it:

* content: `text`, `reasoning`, `tool_calls` (`[{id, name, arguments}]`), `finish`, `usage`,
  `deltas` (send `text` that many times), `chunk_size` (code points in a delta);
* raw answers: `sse` or `body` (text, or a list of pieces), `json`, and `content_type`, `status`,
  `headers`;
* pace: `delay_ms` (before the head), `chunk_delay_ms` (between writes), `split` (bytes in a
  write), `burst` (events in a write), `hold_after` (writes before waiting for a release);
* the end: `end` is `complete`, `cut` (no end of body), `reset` or `stall`; `gzip`;
* choice: `when` (a regular expression that the request body must match), `repeat` (how often,
  `0` for ever).
"""

from collections.abc import Iterable, Mapping, Sequence
import gzip
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dsh_acp import jsontext

Wire: TypeAlias = Literal["openai", "anthropic"]
Entry: TypeAlias = str | Mapping[str, Any]

DONE: Final = b"data: [DONE]\n\n"
SUCCESS_TEXT: Final = "mock response recovered"
PARTIAL_TEXT: Final = "discarded partial response"
REASONING_TEXT: Final = "mock reasoning"


class Reply(Struct, frozen=True, kw_only=True):
    """One response, ready to write. `status` 0 means that the connection is reset at once."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    pieces: tuple[bytes, ...] = ()
    delay_ms: float = 0
    piece_delay_ms: float = 0
    hold_after: int | None = None
    end: Literal["complete", "cut", "reset", "stall"] = "complete"


def sse(value: Any, event: str | None = None) -> bytes:
    """One server-sent event with `value` as JSON."""
    name = f"event: {event}\n".encode() if event else b""
    return b"%sdata: %s\n\n" % (name, jsontext.encode(value))


def _parts(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _openai_delta(delta: Mapping[str, Any]) -> bytes:
    return sse({"choices": [{"index": 0, "delta": delta}]})


def _calls(entry: Mapping[str, Any]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for number, call in enumerate(cast("Sequence[Mapping[str, Any]]", entry.get("tool_calls", ()))):
        arguments = call.get("arguments", "")
        text = arguments if isinstance(arguments, str) else jsontext.encode(arguments).decode()
        found.append(
            {
                "id": call.get("id") or f"mock-call-{number + 1}",
                "name": call["name"],
                "arguments": text,
            }
        )
    return found


def _text_parts(entry: Mapping[str, Any]) -> list[str]:
    text: str = entry.get("text", "")
    if "deltas" in entry:
        return [text or "x"] * int(entry["deltas"])
    return _parts(text, int(entry.get("chunk_size", 8)))


def _openai_frames(entry: Mapping[str, Any]) -> list[bytes]:
    size = int(entry.get("chunk_size", 8))
    frames = [
        _openai_delta({"reasoning_content": part})
        for part in _parts(entry.get("reasoning", ""), size)
    ]
    parts = _text_parts(entry)
    # Each distinct delta is encoded once: a stream of 100,000 must not keep its reader waiting.
    encoded = {part: _openai_delta({"content": part}) for part in set(parts)}
    frames += [encoded[part] for part in parts]
    calls = _calls(entry)
    for index, call in enumerate(calls):
        half = len(call["arguments"]) // 2
        head = {"index": index, "id": call["id"], "type": "function"}
        function = {"name": call["name"], "arguments": call["arguments"][:half]}
        rest = {"index": index, "function": {"arguments": call["arguments"][half:]}}
        frames.append(_openai_delta({"tool_calls": [{**head, "function": function}]}))
        frames.append(_openai_delta({"tool_calls": [rest]}))
    finish = entry.get("finish", "tool_calls" if calls else "stop")
    if finish is None:
        return frames
    usage = entry.get("usage") or {
        "prompt_tokens": 3,
        "completion_tokens": 2 if calls else len(entry.get("text", "")) * entry.get("deltas", 1),
    }
    last = {"index": 0, "delta": {"content": ""}, "finish_reason": finish}
    return [*frames, sse({"choices": [last], "usage": usage}), DONE]


_ANTHROPIC_STOPS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


def _anthropic_block(
    index: int, block: Mapping[str, Any], deltas: Iterable[Mapping[str, Any]]
) -> list[bytes]:
    start = {"type": "content_block_start", "index": index, "content_block": block}
    stop = {"type": "content_block_stop", "index": index}
    return [
        sse(start, "content_block_start"),
        *(
            sse({"type": "content_block_delta", "index": index, "delta": d}, "content_block_delta")
            for d in deltas
        ),
        sse(stop, "content_block_stop"),
    ]


def _anthropic_frames(entry: Mapping[str, Any]) -> list[bytes]:
    size = int(entry.get("chunk_size", 8))
    usage: dict[str, Any] = entry.get("usage") or {"input_tokens": 3, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_fake",
        "type": "message",
        "role": "assistant",
        "content": [],
        "usage": usage,
    }
    frames = [sse({"type": "message_start", "message": message}, "message_start")]
    index = 0
    if reasoning := cast("str", entry.get("reasoning", "")):
        deltas = [{"type": "thinking_delta", "thinking": part} for part in _parts(reasoning, size)]
        signed = {"type": "signature_delta", "signature": entry.get("signature", "fake-signature")}
        thinking = {"type": "thinking", "thinking": "", "signature": ""}
        frames += _anthropic_block(index, thinking, [*deltas, signed])
        index += 1
    if entry.get("text") or "deltas" in entry:
        deltas = [{"type": "text_delta", "text": part} for part in _text_parts(entry)]
        frames += _anthropic_block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    calls = _calls(entry)
    for call in calls:
        half = len(call["arguments"]) // 2
        halves = (call["arguments"][:half], call["arguments"][half:])
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in halves]
        block: dict[str, Any] = {
            "type": "tool_use",
            "id": call["id"],
            "name": call["name"],
            "input": {},
        }
        frames += _anthropic_block(index, block, deltas)
        index += 1
    finish = entry.get("finish", "tool_calls" if calls else "stop")
    if finish is None:
        return frames
    delta = {"stop_reason": _ANTHROPIC_STOPS.get(finish, finish), "stop_sequence": None}
    end = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7, **usage}}
    return [*frames, sse(end, "message_delta"), sse({"type": "message_stop"}, "message_stop")]


def _error(status: int, code: str, message: str, **fields: Any) -> dict[str, Any]:
    return {"status": status, "error": {"message": message, "type": code, "code": code}, **fields}


BEHAVIORS: Final[Mapping[str, Mapping[str, Any]]] = {
    "success": {"text": SUCCESS_TEXT},
    "slow_success": {"text": SUCCESS_TEXT, "chunk_delay_ms": 25},
    "reasoning_success": {"reasoning": REASONING_TEXT, "text": SUCCESS_TEXT},
    "tool_call_success": {"tool_calls": [{"name": "mock_tool", "arguments": {"value": "mock"}}]},
    "max_tokens": {"text": SUCCESS_TEXT, "finish": "length"},
    "empty": {"text": ""},
    "empty_body": {"sse": ""},
    "connection_reset": {"status": 0},
    "stream_disconnect": {"sse": "", "end": "reset"},
    "stream_eof": {"sse": 'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'},
    "partial_eof": {"text": PARTIAL_TEXT, "finish": None},
    "partial_disconnect": {"text": PARTIAL_TEXT, "finish": None, "end": "reset"},
    "partial_cut": {"text": PARTIAL_TEXT, "finish": None, "end": "cut"},
    "partial_stall": {"text": PARTIAL_TEXT, "finish": None, "end": "stall"},
    "stall": {"sse": "", "end": "stall"},
    "malformed_json": {"sse": "data: {not-json\n\ndata: [DONE]\n\n"},
    "malformed_event": {"sse": 'data: {"choices":[null]}\n\ndata: [DONE]\n\n'},
    "wrong_content_type": {"text": SUCCESS_TEXT, "content_type": "application/json"},
    "html": {"body": "<html>502 Bad Gateway</html>", "content_type": "text/html"},
    "rate_limit": _error(429, "rate_limit", "mock rate limit", headers={"retry-after": "1"}),
    "quota_exceeded": _error(429, "insufficient_quota", "mock quota exceeded"),
    "payment_required": _error(402, "insufficient_balance", "Insufficient Balance"),
    "server_error": _error(500, "server_error", "mock server error"),
    "service_unavailable": _error(503, "service_unavailable", "mock service unavailable"),
    "overloaded": _error(529, "overloaded_error", "Overloaded"),
    "auth_error": _error(401, "invalid_api_key", "mock invalid API key"),
    "forbidden": _error(403, "forbidden", "mock forbidden"),
    "model_not_found": _error(404, "model_not_found", "Model Not Exist"),
    "invalid_request": _error(400, "invalid_request", "mock invalid request"),
    "context_overflow": {
        "status": 400,
        "error": {
            "message": "mock: maximum context length is 10 tokens",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        },
    },
    "exhausted": {
        "status": 500,
        "error": {
            "message": "mock script exhausted",
            "type": "mock_error",
            "code": "MOCK_SCRIPT_EXHAUSTED",
        },
    },
}
"""Named behaviours, as the fields they stand for."""


RANDOM: Final[Mapping[str, int]] = {
    "success": 48,
    "slow_success": 10,
    "max_tokens": 2,
    "connection_reset": 5,
    "stream_disconnect": 5,
    "partial_disconnect": 10,
    "empty": 5,
    "stall": 2,
    "rate_limit": 5,
    "server_error": 4,
    "service_unavailable": 2,
    "partial_eof": 1,
    "malformed_json": 1,
}
"""What the behaviour `random` chooses from, with weights."""


FIELDS: Final = (
    "behavior text reasoning tool_calls finish usage deltas chunk_size sse body json error "
    "content_type status headers delay_ms chunk_delay_ms split burst hold_after end gzip when "
    "repeat"
).split()
"""Everything that an entry may say."""


def fields(entry: Entry) -> dict[str, Any]:
    """The fields of `entry` over those of its behaviour.

    Raises:
        ValueError: there is no such behaviour, or no such field.
    """
    if isinstance(entry, str):
        entry = {"behavior": entry}
    for field in entry:
        if field not in FIELDS:
            raise ValueError(f"unknown field {field!r}; there are {', '.join(FIELDS)}")
    name = entry.get("behavior")
    if name is None or name == "random":
        return dict(entry)
    if name not in BEHAVIORS:
        raise ValueError(f"unknown behavior {name!r}; there are {', '.join(BEHAVIORS)}, random")
    return {**BEHAVIORS[name], **entry}


def _frames(entry: Mapping[str, Any], wire: Wire) -> list[bytes]:
    if (error := entry.get("error")) is not None:
        value: Any = {"error": error}
        if wire == "anthropic":
            value = {"type": "error", "error": {"type": error["code"], "message": error["message"]}}
        return [jsontext.encode(value)]
    if "json" in entry:
        return [jsontext.encode(entry["json"])]
    if (raw := entry.get("body", entry.get("sse"))) is not None:
        pieces = [raw] if isinstance(raw, str | bytes) else raw
        return [piece if isinstance(piece, bytes) else piece.encode() for piece in pieces if piece]
    return _openai_frames(entry) if wire == "openai" else _anthropic_frames(entry)


def reply(entry: Entry, wire: Wire = "openai") -> Reply:
    """The response for one script entry.

    Raises:
        ValueError: there is no such behaviour.
    """
    spec = fields(entry)
    frames = _frames(spec, wire)
    plain = "error" in spec or "json" in spec
    kind = spec.get("content_type") or ("application/json" if plain else "text/event-stream")
    headers = [("content-type", kind), *dict(spec.get("headers", {})).items()]
    delay = float(spec.get("chunk_delay_ms", 0))
    if spec.get("gzip"):
        frames = [gzip.compress(b"".join(frames), mtime=0)]
        headers.append(("content-encoding", "gzip"))
    if split := int(spec.get("split", 0)):
        whole = b"".join(frames)
        frames = [whole[at : at + split] for at in range(0, len(whole), split)]
    elif (burst := int(spec.get("burst", 1 if delay else 64))) > 1 and "hold_after" not in spec:
        frames = [b"".join(frames[at : at + burst]) for at in range(0, len(frames), burst)]
    return Reply(
        status=int(spec.get("status", 200)),
        headers=tuple(headers),
        pieces=tuple(frames),
        delay_ms=float(spec.get("delay_ms", 0)),
        piece_delay_ms=delay,
        hold_after=spec.get("hold_after"),
        end=msgspec.convert(
            spec.get("end", "complete"), Literal["complete", "cut", "reset", "stall"]
        ),
    )
