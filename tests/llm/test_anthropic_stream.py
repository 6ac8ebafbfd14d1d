"""Bytes of an Anthropic response in, chunks and the final message out, at every split."""

import json
from typing import Any

from hypothesis import given, settings, strategies as st
import msgspec
import pytest

from dsh_acp.llm.anthropic_stream import AnthropicStream
from dsh_acp.llm.assemble import Assembler
from dsh_acp.llm.place import Place
from dsh_acp.messages import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    KnownBlock,
    Reasoning,
    Text,
    ToolCall,
    Usage,
)

START = {
    "type": "message_start",
    "message": {
        "usage": {
            "input_tokens": 5,
            "output_tokens": 1,
            "cache_read_input_tokens": 7,
            "cache_creation_input_tokens": 2,
        }
    },
}


def sse(*events: Any) -> bytes:
    texts = (f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n" for event in events)
    return "".join(texts).encode()


def block(index: int, kind: str, *deltas: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *parts: str) -> list[dict[str, Any]]:
    return block(index, "text", *({"type": "text_delta", "text": p} for p in parts), text="")


def call(index: int, *parts: str, input: Any = None) -> list[dict[str, Any]]:
    deltas = ({"type": "input_json_delta", "partial_json": p} for p in parts)
    return block(index, "tool_use", *deltas, id="toolu_1", name="read", input=input or {})


def stop(reason: str) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    usage = {"output_tokens": 9}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def run(pieces: list[bytes]) -> list[Chunk]:
    stream = AnthropicStream(Place("anthropic", model="claude"), new_id=lambda: "new")
    return [chunk for piece in pieces for chunk in stream.feed(piece)] + stream.end()


THOUGHT = block(
    0,
    "thinking",
    {"type": "thinking_delta", "thinking": "hm"},
    {"type": "thinking_delta", "thinking": "m"},
    {"type": "signature_delta", "signature": "SIG"},
    thinking="",
    signature="",
)

CALL = call(2, "", '{"path":', '"a"}')

ROWS: dict[str, tuple[bytes, list[KnownBlock], str, str]] = {
    "text": (
        sse(START, *text(0, "Hel", "lo"), *stop("end_turn")),
        [Text("Hello")],
        "stop",
        "",
    ),
    "thinking, text and a call": (
        sse(
            START,
            *THOUGHT,
            *text(1, "I look."),
            *call(2, "", '{"path":', '"a"}'),
            *stop("tool_use"),
        ),
        [Reasoning("hmm"), Text("I look."), ToolCall("toolu_1", "read", '{"path":"a"}')],
        "tool-calls",
        "",
    ),
    "a call without arguments": (
        sse(START, *call(0), *stop("tool_use")),
        [ToolCall("toolu_1", "read", "")],
        "tool-calls",
        "",
    ),
    "a call whose input comes whole": (
        sse(START, *call(0, input={"path": "a"}), *stop("tool_use")),
        [ToolCall("toolu_1", "read", '{"path":"a"}')],
        "tool-calls",
        "",
    ),
    "redacted thinking": (
        sse(START, *block(0, "redacted_thinking", data="D"), *text(1, "Hi"), *stop("end_turn")),
        [Reasoning(""), Text("Hi")],
        "stop",
        "",
    ),
    "unknown blocks, events and deltas": (
        sse(
            START,
            {"type": "ping"},
            {"type": "hologram"},
            *block(0, "server_tool_use", {"type": "input_json_delta", "partial_json": "{}"}),
            *block(1, "text", {"type": "citations_delta"}, {"type": "text_delta", "text": "Hi"}),
            *stop("end_turn"),
        ),
        [Text("Hi")],
        "stop",
        "",
    ),
    "a delta without its start": (
        sse(START, *text(0, "Hi")[1:], *stop("end_turn")),
        [Text("Hi")],
        "stop",
        "",
    ),
    "max tokens": (
        sse(START, *text(0, "Hi"), *call(1, '{"pa'), *stop("max_tokens")),
        [Text("Hi")],
        "max-tokens",
        "",
    ),
    "a refusal": (
        sse(START, *text(0, "Hi"), *stop("refusal")),
        [Text("Hi")],
        "error",
        "CONTENT_FILTER",
    ),
    "a reason nobody knows": (
        sse(START, *text(0, "Hi"), *stop("weird")),
        [Text("Hi")],
        "stop",
        "",
    ),
    "nothing": (sse(START, *stop("end_turn")), [], "error", "EMPTY_RESPONSE"),
    "only thinking": (
        sse(START, *THOUGHT, *stop("end_turn")),
        [Reasoning("hmm")],
        "error",
        "EMPTY_RESPONSE",
    ),
    "no message_stop": (
        sse(START, *text(0, "Hi"), *stop("end_turn")[:1]),
        [Text("Hi")],
        "stop",
        "",
    ),
    "cut in the text": (sse(START, *text(0, "Hi")), [Text("Hi")], "error", "STREAM_CLOSED"),
    "cut while thinking": (sse(START, *THOUGHT), [Reasoning("hmm")], "error", "TRANSPORT"),
    "overloaded in the middle": (
        sse(
            START,
            *text(0, "Hi"),
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        ),
        [Text("Hi")],
        "error",
        "SERVER",
    ),
    "malformed": (b"data: {no\n\n", [], "error", "MALFORMED_RESPONSE"),
    "a whole message as JSON": (
        json.dumps(
            {
                "type": "message",
                "content": [{"type": "text", "text": "Hi"}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 5, "output_tokens": 9},
            }
        ).encode(),
        [Text("Hi")],
        "stop",
        "",
    ),
    "an error as JSON": (
        b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}',
        [],
        "error",
        "RATE_LIMIT",
    ),
    "a page": (b"<html>hello</html>", [], "error", "MALFORMED_RESPONSE"),
}


@pytest.mark.parametrize("name", ROWS)
def test_an_answer_is_what_the_bytes_say(name: str) -> None:
    body, expected, kind, code = ROWS[name]
    whole = run([body])
    assert run([body[at : at + 1] for at in range(len(body))]) == whole
    assembler = Assembler()
    for chunk in whole:
        assembler.feed(chunk)
    failure = assembler.finish.failure
    found = failure.code if failure is not msgspec.UNSET else ""
    assert (list(assembler.blocks()), assembler.finish.kind, found) == (expected, kind, code)
    assert isinstance(whole[-1], Finish)
    opened = {chunk.index for chunk in whole if isinstance(chunk, BlockStart)}
    ended = {chunk.index for chunk in whole if isinstance(chunk, BlockEnd)}
    assert kind == "error" or opened == ended


def test_usage_is_disjoint_and_the_last_count_wins() -> None:
    assembler = Assembler()
    for chunk in run([sse(START, *text(0, "Hi"), *stop("end_turn"))]):
        assembler.feed(chunk)
    assert assembler.usage == Usage(5, 9, cache_read_tokens=7, cache_write_tokens=2)


def test_signatures_travel_in_the_replay_state_beside_their_blocks() -> None:
    redacted = block(1, "redacted_thinking", data="D")
    body = sse(START, *THOUGHT, *redacted, *text(2, "Hi"), *call(3, "{}"), *stop("tool_use"))
    assembler = Assembler()
    for chunk in run([body]):
        assembler.feed(chunk)
    state = assembler.replay_state()
    assert state is not None
    assert json.loads(bytes(state)) == {
        "response": {},
        "blocks": [{"signature": "SIG"}, {"data": "D"}, None, None],
    }


@settings(max_examples=80)
@given(st.binary(max_size=200))
def test_any_bytes_end_in_one_finish(body: bytes) -> None:
    for chunks in (run([body]), run([b"data: " + body + b"\n\n"])):
        assert sum(isinstance(chunk, Finish) for chunk in chunks) == 1
        assert isinstance(chunks[-1], Finish)
