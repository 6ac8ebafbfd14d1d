"""Bytes of a Chat Completions response in, chunks and the final message out.

Every row is also fed byte by byte, and event by event, and must give the same.
"""

from collections.abc import Sequence
import itertools
import json
from typing import Any

from hypothesis import given, settings, strategies as st
import msgspec
import pytest

from dsh_acp.llm.assemble import Assembler
from dsh_acp.llm.chat_stream import ChatStream
from dsh_acp.llm.place import Place
from dsh_acp.messages import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    KnownBlock,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolSchema,
    Usage,
    UsageChunk,
)

PLACE = Place(provider="deepseek", base_url="https://example.test", model="m")
TOOLS = tuple(
    ToolSchema(name, "", msgspec.Raw(schema))
    for name, schema in (
        ("read", b'{"type":"object","properties":{"path":{"type":"string"}}}'),
        (
            "grep",
            b'{"type":"object","properties":{"pattern":{"type":"string"},"n":{"type":"integer"}}}',
        ),
    )
)


def run(pieces: Sequence[bytes]) -> list[Chunk]:
    numbers = itertools.count(1)
    stream = ChatStream(PLACE, TOOLS, new_id=lambda: f"new-{next(numbers)}")
    chunks = [chunk for piece in pieces for chunk in stream.feed(piece)]
    return chunks + stream.end()


def check_grammar(chunks: Sequence[Chunk]) -> None:
    """Blocks begin, grow and end; usage at most once; a finish last."""
    kinds = {
        TextDelta: "text",
        ReasoningDelta: "reasoning",
        ToolCallDelta: "tool-call",
        Text: "text",
        Reasoning: "reasoning",
        ToolCall: "tool-call",
    }
    opened: dict[int, str] = {}
    usages = 0
    assert isinstance(chunks[-1], Finish)
    for chunk in chunks[:-1]:
        match chunk:
            case BlockStart(index, block_type):
                assert index not in opened
                opened[index] = block_type
            case BlockEnd(index, block):
                assert opened.pop(index) == kinds[type(block)]
            case UsageChunk():
                usages += 1
            case Finish():
                raise AssertionError("something follows a finish")
            case _:
                assert opened[chunk.index] == kinds[type(chunk)]
    assert usages <= 1
    if chunks[-1].reason.kind != "error":
        assert not opened


def answer(body: bytes) -> tuple[tuple[KnownBlock, ...], str, str, Usage | None]:
    whole = run([body])
    check_grammar(whole)
    assert run([body[at : at + 1] for at in range(len(body))]) == whole
    assert run([body[at : at + 7] for at in range(0, len(body), 7)]) == whole
    assembler = Assembler()
    for chunk in whole:
        assembler.feed(chunk)
    finish = assembler.finish
    code = finish.failure.code if finish.failure is not msgspec.UNSET else ""
    return assembler.blocks(), finish.kind, code, assembler.usage


def visible(chunks: Sequence[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


def sse(*lines: Any) -> bytes:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


def call(arguments: Any = None, name: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    given = {key: value for key, value in function.items() if value is not None}
    return delta(tool_calls=[{**fields, "function": given}])


def finish(reason: str | None = "stop") -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


DONE = "[DONE]"
READ_A, READ_B = '{"path":"a"}', '{"path":"b"}'

CALLS: dict[str, tuple[bytes, list[ToolCall]]] = {
    "LLM-01 two calls share an index": (
        sse(
            call(READ_A, "read", index=0, id="call_a", type="function"),
            call(READ_B, "read", index=0, id="call_b", type="function"),
            finish("tool_calls"),
            DONE,
        ),
        [ToolCall("call_a", "read", READ_A), ToolCall("call_b", "read", READ_B)],
    ),
    "LLM-01 two calls share an index, in fragments": (
        sse(
            call("", "read", index=0, id="call_a"),
            call('{"path":', index=0),
            call('"a"}', index=0),
            call("", "read", index=0, id="call_b"),
            call(READ_B, index=0),
            finish("tool_calls"),
            DONE,
        ),
        [ToolCall("call_a", "read", READ_A), ToolCall("call_b", "read", READ_B)],
    ),
    "LLM-02 no ids and one index": (
        sse(
            call('{"path":"p0"}', "read", index=0),
            call('{"path":"p1","content":"x"}', "write", index=0),
            call('{"path":"p2"}', "read", index=0),
            DONE,
        ),
        [
            ToolCall("new-1", "read", '{"path":"p0"}'),
            ToolCall("new-2", "write", '{"path":"p1","content":"x"}'),
            ToolCall("new-3", "read", '{"path":"p2"}'),
        ],
    ),
    "LLM-02 the same tool twice without ids": (
        sse(call(READ_A, "read", index=0), call(READ_B, "read", index=0), finish(), DONE),
        [ToolCall("new-1", "read", READ_A), ToolCall("new-2", "read", READ_B)],
    ),
    "LLM-02 one id for two calls": (
        sse(
            call(READ_A, "read", index=0, id="same"),
            call(READ_B, "read", index=1, id="same"),
            finish("tool_calls"),
            DONE,
        ),
        [ToolCall("same", "read", READ_A), ToolCall("new-1", "read", READ_B)],
    ),
    "LLM-03 empty ids and names in continuations": (
        sse(
            call("", "read", index=0, id="call_1"),
            call('{"path":', "", index=0, id=""),
            call(' "a"}', index=0, id=""),
            DONE,
        ),
        [ToolCall("call_1", "read", '{"path": "a"}')],
    ),
    "LLM-03 id and name repeated in every fragment": (
        sse(
            call("", "read", index=0, id="call_1"),
            call('{"path":', "read", index=0, id="call_1"),
            call(' "a"}', "read", index=0, id="call_1"),
            finish("tool_calls"),
            DONE,
        ),
        [ToolCall("call_1", "read", '{"path": "a"}')],
    ),
    "LLM-04 null for everything that is absent": (
        sse(
            delta(
                role="assistant",
                content=None,
                tool_calls=[
                    {
                        "index": 0,
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "glob", "arguments": None},
                    }
                ],
            ),
            delta(
                content=None,
                tool_calls=[
                    {
                        "index": 0,
                        "id": None,
                        "type": None,
                        "function": {"name": None, "arguments": "{}"},
                    }
                ],
            ),
            {"choices": [{"delta": {"tool_calls": None}, "finish_reason": "tool_calls"}]},
            DONE,
        ),
        [ToolCall("call_1", "glob", "{}")],
    ),
    "LLM-06 id, name and arguments come apart, from index 1": (
        sse(
            delta(tool_calls=[{"index": 1, "id": "call_x"}]),
            call(name="read", index=1),
            call(READ_A, index=1),
            DONE,
        ),
        [ToolCall("call_x", "read", READ_A)],
    ),
    "LLM-06 the name comes before the id": (
        sse(
            call(name="read", index=0),
            delta(tool_calls=[{"index": 0, "id": "call_x"}]),
            call(READ_A, index=0),
            DONE,
        ),
        [ToolCall("call_x", "read", READ_A)],
    ),
    "LLM-06 a phantom call has neither name nor arguments": (
        sse(
            delta(tool_calls=[{"index": 0, "id": "ghost"}]),
            call(READ_A, "read", index=1, id="call_x"),
            finish("tool_calls"),
            DONE,
        ),
        [ToolCall("call_x", "read", READ_A)],
    ),
    "LLM-07 no index": (
        sse(
            call('{"path":"1"}', "read", id="a"),
            call('{"path":', "read", id="b"),
            call('"2"}'),
            call('{"path":"3"}', "read", index=0, id="c"),
            DONE,
        ),
        [
            ToolCall("a", "read", '{"path":"1"}'),
            ToolCall("b", "read", '{"path":"2"}'),
            ToolCall("c", "read", '{"path":"3"}'),
        ],
    ),
    "LLM-08 interleaved by index": (
        sse(
            call('{"path":"', "read", index=0, id="a"),
            call('{"path":"', "read", index=1, id="b"),
            call('1"}', index=0),
            call('2"}', index=1),
            finish("tool_calls"),
            DONE,
        ),
        [ToolCall("a", "read", '{"path":"1"}'), ToolCall("b", "read", '{"path":"2"}')],
    ),
    "LLM-08 a fragment under a wrong index": (
        sse(
            call('{"pa', "read", index=0, id="a"),
            call('th":"1"}', index=5),
            finish("tool_calls"),
            DONE,
        ),
        [ToolCall("a", "read", '{"path":"1"}')],
    ),
    "LLM-09 arguments as an object": (
        sse(call({"path": "a"}, "read", index=0, id="a"), DONE),
        [ToolCall("a", "read", READ_A)],
    ),
    "LLM-09 a whole call in a message": (
        sse(
            {
                "choices": [
                    {
                        "message": {
                            "role": "assistant",
                            "content": None,
                            "tool_calls": [
                                {
                                    "id": "a",
                                    "type": "function",
                                    "function": {"name": "read", "arguments": READ_A},
                                },
                                {
                                    "id": "b",
                                    "type": "function",
                                    "function": {"name": "read", "arguments": READ_B},
                                },
                            ],
                        },
                        "finish_reason": "tool_calls",
                    }
                ]
            },
            DONE,
        ),
        [ToolCall("a", "read", READ_A), ToolCall("b", "read", READ_B)],
    ),
    "LLM-09 the whole call again in a message": (
        sse(
            call(READ_A, "read", index=0, id="a"),
            {
                "choices": [
                    {
                        "message": {
                            "tool_calls": [
                                {"id": "a", "function": {"name": "read", "arguments": READ_A}}
                            ]
                        },
                        "finish_reason": "tool_calls",
                    }
                ]
            },
            DONE,
        ),
        [ToolCall("a", "read", READ_A)],
    ),
    "LLM-09 the whole call again in a delta": (
        sse(
            call('{"path":', "read", index=0, id="a"),
            call('"a"}', index=0),
            call(READ_A, "read", index=0, id="a"),
            finish("tool_calls"),
            DONE,
        ),
        [ToolCall("a", "read", READ_A)],
    ),
    "LLM-09 the old function_call": (
        sse(
            delta(function_call={"name": "read", "arguments": '{"path"'}),
            delta(function_call={"arguments": ':"a"}'}),
            finish("function_call"),
            DONE,
        ),
        [ToolCall("new-1", "read", READ_A)],
    ),
    "LLM-31 malformed arguments stay as they are": (
        sse(
            call('{"action": listt_windows"}', "read", index=0, id="a"), finish("tool_calls"), DONE
        ),
        [ToolCall("a", "read", '{"action": listt_windows"}')],
    ),
    "LLM-32 empty arguments": (
        sse(call("", "list_todos", index=0, id="a"), DONE),
        [ToolCall("a", "list_todos", "")],
    ),
    "LLM-38 unknown and odd names stay as they are": (
        sse(call("{}", "read_fileread_file", index=0, id="a"), finish("tool_calls"), DONE),
        [ToolCall("a", "read_fileread_file", "{}")],
    ),
    "ids that drift within one call": (
        sse(
            call('{"pa', "read", index=0, id="x1"),
            call('th":', index=0, id="x2"),
            call('"a"}', index=0, id="x3"),
            finish("tool_calls"),
            DONE,
        ),
        [ToolCall("x1", "read", READ_A)],
    ),
    "a number as id and a string as index": (
        sse(call(READ_A, "read", index="0", id=7), finish("tool_calls"), DONE),
        [ToolCall("7", "read", READ_A)],
    ),
    "one call as an object instead of a list": (
        sse(delta(tool_calls={"id": "a", "function": {"name": "read", "arguments": READ_A}}), DONE),
        [ToolCall("a", "read", READ_A)],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_put_together(name: str) -> None:
    body, expected = CALLS[name]
    blocks, kind, _, _ = answer(body)
    assert list(blocks) == expected
    assert kind == "tool-calls"


CACHED = {"prompt_tokens_details": {"cached_tokens": 0}}
USAGE = {"prompt_tokens": 10, "completion_tokens": 2}
DSML = (
    'Let me look.\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="read">\n'
    '<｜DSML｜parameter name="path" string="true">a.txt</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)
NO_COMPLAINTS: tuple[Any, ...] = (None, {}, "", False, [], 0)

ANSWERS: dict[str, tuple[bytes, list[KnownBlock], str, str]] = {
    "LLM-10 done without a finish reason": (
        sse(
            {"choices": [{"delta": {"content": "done"}, "finish_reason": None}]},
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
            DONE,
        ),
        [Text("done")],
        "stop",
        "",
    ),
    "LLM-10 a finish reason without done": (
        sse(delta(content="done"), finish()),
        [Text("done")],
        "stop",
        "",
    ),
    "LLM-12 errors that say there is none": (
        sse(
            *({**delta(content="."), "error": none} for none in NO_COMPLAINTS),
            finish(),
            DONE,
        ),
        [Text("......")],
        "stop",
        "",
    ),
    "LLM-10 the last event lacks its blank line": (
        sse(delta(content="done"), finish())[:-2],
        [Text("done")],
        "stop",
        "",
    ),
    "LLM-11 cut while thinking": (
        sse(delta(reasoning_content="Let me")) + b"upstream error: read ECONNRESET\n",
        [Reasoning("Let me")],
        "error",
        "TRANSPORT",
    ),
    "LLM-11 cut in the text": (sse(delta(content="par")), [Text("par")], "error", "STREAM_CLOSED"),
    "LLM-11 cut in a call": (
        sse(call('{"pa', "read", index=0, id="a")),
        [ToolCall("a", "read", '{"pa')],
        "error",
        "STREAM_CLOSED",
    ),
    "LLM-11 cut in an event": (
        sse(delta(content="par")) + b'data: {"choices":[{"delta":{"cont',
        [Text("par")],
        "error",
        "STREAM_CLOSED",
    ),
    "LLM-11 an empty body": (b"", [], "error", "TRANSPORT"),
    "LLM-12 an error beside empty choices": (
        sse({"choices": [], "error": {"code": 502, "message": "provider_unavailable"}}, DONE),
        [],
        "error",
        "SERVER",
    ),
    "LLM-12 an error alone": (
        sse({"error": {"message": "slow down", "type": "rate_limit_error"}}),
        [],
        "error",
        "RATE_LIMIT",
    ),
    "LLM-12 an error in other words": (
        sse(
            {
                "choices": None,
                "error_type": "BadRequestError",
                "error_message": "This model's maximum context length is 10 tokens",
            },
            DONE,
        ),
        [],
        "error",
        "CONTEXT_WINDOW_EXCEEDED",
    ),
    "LLM-12 an error event": (
        b'event: error\ndata: {"message":"bad request","code":400}\n\n',
        [],
        "error",
        "INVALID_REQUEST",
    ),
    "LLM-12 an error event in plain text": (
        b"event: error\ndata: upstream overloaded\n\n",
        [],
        "error",
        "SERVER",
    ),
    "LLM-12 an error object of vLLM": (
        sse({"object": "error", "message": "bad", "type": "BadRequestError", "code": 400}),
        [],
        "error",
        "INVALID_REQUEST",
    ),
    "LLM-12 an error after some text": (
        sse(delta(content="par"), {"error": "internal server error"}, DONE),
        [Text("par")],
        "error",
        "SERVER",
    ),
    "LLM-12 an error as finish reason": (
        sse(delta(content="par"), finish("error"), DONE),
        [Text("par")],
        "error",
        "SERVER",
    ),
    "LLM-13 odd and empty pieces": (
        sse(
            {"choices": []},
            {"choices": None},
            {"id": "x"},
            {"choices": [{"index": 0}]},
            {"choices": [{"delta": None, "finish_reason": None}]},
            {
                "choices": [{"delta": {"content": "ok", "audio": {"x": []}, "refusal": None}}],
                "usage": "n/a",
            },
            finish(),
            DONE,
        ),
        [Text("ok")],
        "stop",
        "",
    ),
    "LLM-13 odd fields cost only themselves": (
        sse(
            None,
            7,
            [],
            {"choices": [None, "x", {"delta": {"content": "a", "tool_calls": "none"}}]},
            {"choices": [{"index": 0, "delta": {"content": "b", "reasoning_content": 3}}]},
            {"choices": {"0": {}}},
            {"choices": [{"delta": {"content": ["c", {"type": "text", "text": "d"}]}}]},
            finish(),
            DONE,
        ),
        [Text("abcd")],
        "stop",
        "",
    ),
    "LLM-14 comments, names, no space, and CRLF": (
        b": keep-alive\n\n: keep-alive\nevent: message\n"
        b'data:{"choices":[{"delta":{"content":"a"}}]}\r\n\r\ndata: [DONE]\n\n',
        [Text("a")],
        "stop",
        "",
    ),
    "LLM-14 only carriage returns, and a byte order mark": (
        b"\xef\xbb\xbf" + sse(delta(content="a"), finish(), DONE).replace(b"\n", b"\r"),
        [Text("a")],
        "stop",
        "",
    ),
    "LLM-14 line separators in the text are text": (
        'data: {"choices":[{"delta":{"content":"a\u2028b\u0085c\x7f"}}]}\n\n'.encode()
        + sse(finish(), DONE),
        [Text("a\u2028b\u0085c\x7f")],
        "stop",
        "",
    ),
    "LLM-16 characters of many bytes": (
        'data: {"choices":[{"delta":{"content":"读🌍"}}]}\n\ndata: [DONE]\n\n'.encode(),
        [Text("读🌍")],
        "stop",
        "",
    ),
    "LLM-16 a pair split over two escapes, and a lonely surrogate": (
        b'data: {"choices":[{"delta":{"content":"\\ud83c\\udf0d \\ud800!"}}]}\n\n'
        + sse(finish(), DONE),
        [Text("🌍 �!")],
        "stop",
        "",
    ),
    "LLM-17 events glued together": (
        b'data: {"choices":[{"delta":{"content":"a"}}]}data: {"choices":[{"delta":'
        b'{"content":"b"}}]}\n\n' + sse(finish()) + b"data: [DONE]",
        [Text("ab")],
        "stop",
        "",
    ),
    "LLM-17 a terminator glued to an event": (
        b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}data: [DONE]\n\n',
        [Text("a")],
        "stop",
        "",
    ),
    "LLM-17 one value over two lines of an event": (
        b'data: {"choices":[{"delta":{"content":"c\ndata: d"}}]}\n\n' + sse(finish(), DONE),
        [Text("c\nd")],
        "stop",
        "",
    ),
    "LLM-17 one value over three events": (
        b'data: {"choices":[{"delta":\n\ndata: {"content":"c\n\ndata: d"}}]}\n\n'
        + sse(finish(), DONE),
        [Text("cd")],
        "stop",
        "",
    ),
    "LLM-17 an event that nothing completes": (
        sse(delta(content="a")) + b'data: {"choices":[{"del\n\n' + sse(delta(content="b"), DONE),
        [Text("a")],
        "error",
        "MALFORMED_RESPONSE",
    ),
    "malformed JSON": (
        b"data: {not-json\n\ndata: [DONE]\n\n",
        [],
        "error",
        "MALFORMED_RESPONSE",
    ),
    "LLM-18 a JSON body": (
        b' {"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}',
        [Text("hi")],
        "stop",
        "",
    ),
    "LLM-18 a JSON body over several lines": (
        b'{\n "choices": [\n {"message": {"content": "hi", "reasoning_content": "hm"},'
        b'\n "finish_reason": "stop"}\n]\n}\n',
        [Reasoning("hm"), Text("hi")],
        "stop",
        "",
    ),
    "LLM-18 a line of JSON for each piece": (
        b"\n".join(json.dumps(x).encode() for x in (delta(content="a"), finish())),
        [Text("a")],
        "stop",
        "",
    ),
    "LLM-18 a JSON error": (
        b'{"error":{"message":"no such model: m","code":"model_not_found"}}',
        [],
        "error",
        "MODEL_NOT_FOUND",
    ),
    "LLM-18 a foreign envelope": (
        b'{"success":true,"data":{"text":"hi"}}',
        [],
        "error",
        "MALFORMED_RESPONSE",
    ),
    "LLM-18 a JSON body that is cut": (b'{"choices":[{"message":{"con', [], "error", "TRANSPORT"),
    "LLM-18 a page of a gateway": (b"<html>502</html>", [], "error", "SERVER"),
    "LLM-18 a page of a portal": (
        b"\n<!doctype html><title>Sign in</title>",
        [],
        "error",
        "MALFORMED_RESPONSE",
    ),
    "LLM-28 a leaked call": (
        sse(delta(content=DSML), finish(), DONE),
        [Text("Let me look."), ToolCall("new-1", "read", '{"path":"a.txt"}')],
        "tool-calls",
        "",
    ),
    "LLM-28 a leaked call without its end": (
        sse(delta(content=DSML.removesuffix("\n</｜DSML｜tool_calls>")), finish(), DONE),
        [Text("Let me look."), ToolCall("new-1", "read", '{"path":"a.txt"}')],
        "tool-calls",
        "",
    ),
    "LLM-28 half a leaked call": (
        sse(delta(content=DSML[:80]), finish(), DONE),
        [Text("Let me look.")],
        "error",
        "EMPTY_RESPONSE",
    ),
    "LLM-28 numbers and text in a leaked call": (
        sse(
            delta(
                content='<｜DSML｜function_calls><｜DSML｜invoke name="grep">'
                '<｜DSML｜parameter name="pattern" string="true">7</｜DSML｜parameter>'
                '<｜DSML｜parameter name="n" string="false">7</｜DSML｜parameter>'
                "</｜DSML｜invoke></｜DSML｜function_calls>"
            ),
            finish(),
            DONE,
        ),
        [ToolCall("new-1", "grep", '{"pattern":"7","n":7}')],
        "tool-calls",
        "",
    ),
    "LLM-28 the structured call was sent as well": (
        sse(
            call('{"path": "a.txt"}', "read", index=0, id="a"),
            delta(content=DSML),
            finish("tool_calls"),
            DONE,
        ),
        [ToolCall("a", "read", '{"path": "a.txt"}'), Text("Let me look.")],
        "tool-calls",
        "",
    ),
    "LLM-28 JSON in tags, two calls": (
        sse(
            delta(
                content='<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>\n'
                '<tool_call>\n{"name": "read", "arguments": {"path": "b"}}\n</tool_call>'
            ),
            finish(),
            DONE,
        ),
        [ToolCall("new-1", "read", READ_A), ToolCall("new-2", "read", READ_B)],
        "tool-calls",
        "",
    ),
    "LLM-28 functions in tags": (
        sse(
            delta(
                content="<tool_call>\n<function=grep>\n<parameter=pattern>\nx y\n</parameter>\n"
                "<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>"
            ),
            finish(),
            DONE,
        ),
        [ToolCall("new-1", "grep", '{"pattern":"x y","n":3}')],
        "tool-calls",
        "",
    ),
    "LLM-28 keys and values in tags": (
        sse(
            delta(
                content="<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n"
                "</tool_call>"
            ),
            finish(),
            DONE,
        ),
        [ToolCall("new-1", "read", READ_A)],
        "tool-calls",
        "",
    ),
    "LLM-28 special tokens of an older model": (
        sse(
            delta(
                content="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>"
                '{"path":"a"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
            ),
            finish(),
            DONE,
        ),
        [ToolCall("new-1", "read", READ_A)],
        "tool-calls",
        "",
    ),
    "LLM-28 section tokens": (
        sse(
            delta(
                content="<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0"
                '<|tool_call_argument_begin|>{"path":"a"}<|tool_call_end|>'
                "<|tool_calls_section_end|>"
            ),
            finish(),
            DONE,
        ),
        [ToolCall("new-1", "read", READ_A)],
        "tool-calls",
        "",
    ),
    "LLM-28 invoke with an unknown tool is text": (
        sse(
            delta(content='<invoke name="rm_rf"><parameter name="p">/</parameter></invoke>'),
            finish(),
            DONE,
        ),
        [Text('<invoke name="rm_rf"><parameter name="p">/</parameter></invoke>')],
        "stop",
        "",
    ),
    "LLM-28 tags that are talked about are text": (
        sse(
            delta(content="Qwen writes `<tool_call>` and\n```\n<tool_call>\n{}\n```\na <b> c"),
            finish(),
            DONE,
        ),
        [Text("Qwen writes `<tool_call>` and\n```\n<tool_call>\n{}\n```\na <b> c")],
        "stop",
        "",
    ),
    "LLM-30 thinking in its field": (
        sse(
            delta(reasoning_content="hmm", content=None),
            delta(reasoning_content=None, content="Hi"),
            DONE,
        ),
        [Reasoning("hmm"), Text("Hi")],
        "stop",
        "",
    ),
    "LLM-30 thinking under another name": (
        sse(delta(reasoning="hmm"), delta(content="Hi"), finish(), DONE),
        [Reasoning("hmm"), Text("Hi")],
        "stop",
        "",
    ),
    "LLM-30 thinking under two names at once": (
        sse(delta(reasoning="hmm", reasoning_content="hmm"), delta(content="Hi"), finish(), DONE),
        [Reasoning("hmm"), Text("Hi")],
        "stop",
        "",
    ),
    "LLM-30 thinking as a part of the content": (
        sse(
            delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}]),
            delta(content="Hi"),
            finish(),
            DONE,
        ),
        [Reasoning("hmm"), Text("Hi")],
        "stop",
        "",
    ),
    "LLM-30 thinking in tags": (
        sse(delta(content="<think>hmm</think>Hi"), finish(), DONE),
        [Reasoning("hmm"), Text("Hi")],
        "stop",
        "",
    ),
    "LLM-30 a tag in the middle is text": (
        sse(delta(content="Use <think>x</think> so."), finish(), DONE),
        [Text("Use <think>x</think> so.")],
        "stop",
        "",
    ),
    "LLM-34 length": (
        sse(delta(content="a"), finish("length"), DONE),
        [Text("a")],
        "max-tokens",
        "",
    ),
    "LLM-34 length in a call drops it": (
        sse(delta(content="a"), call('{"pa', "read", index=0, id="x"), finish("length"), DONE),
        [Text("a")],
        "max-tokens",
        "",
    ),
    "LLM-34 content filter": (
        sse(delta(content="a"), finish("content_filter"), DONE),
        [Text("a")],
        "error",
        "CONTENT_FILTER",
    ),
    "LLM-34 no resources": (
        sse(delta(content="a"), finish("insufficient_system_resource"), DONE),
        [Text("a")],
        "error",
        "SERVER",
    ),
    "LLM-34 a reason nobody knows": (
        sse(delta(content="a"), finish("weird"), DONE),
        [Text("a")],
        "stop",
        "",
    ),
    "LLM-35 nothing": (sse(delta(content=""), finish(), DONE), [], "error", "EMPTY_RESPONSE"),
    "LLM-35 only blanks": (
        sse(delta(content=" \n"), finish(), DONE),
        [Text(" \n")],
        "error",
        "EMPTY_RESPONSE",
    ),
    "LLM-35 only thinking": (
        sse(delta(reasoning_content="I should answer"), finish(), DONE),
        [Reasoning("I should answer")],
        "error",
        "EMPTY_RESPONSE",
    ),
    "LLM-35 only thinking in tags": (
        sse(delta(content="<think>I should"), finish(), DONE),
        [Reasoning("I should")],
        "error",
        "EMPTY_RESPONSE",
    ),
    "LLM-35 calls that never came": (
        sse(finish("tool_calls"), DONE),
        [],
        "error",
        "EMPTY_RESPONSE",
    ),
    "STREAM-03 the message again at the end": (
        sse(
            delta(content="Hel"),
            delta(content="lo"),
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {},
                        "message": {"role": "assistant", "content": "Hello"},
                        "finish_reason": "stop",
                    }
                ]
            },
            DONE,
        ),
        [Text("Hello")],
        "stop",
        "",
    ),
    "STREAM-03 the message again in a delta": (
        sse(
            delta(content="Hel"),
            delta(content="lo"),
            {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]},
            DONE,
        ),
        [Text("Hello")],
        "stop",
        "",
    ),
    "STREAM-03 the message is longer than what was streamed": (
        sse(
            delta(content="Hel"),
            {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]},
            DONE,
        ),
        [Text("Hello")],
        "stop",
        "",
    ),
    "another choice is not ours": (
        sse(
            delta(content="a"),
            {"choices": [{"index": 1, "delta": {"content": "x"}}]},
            finish(),
            DONE,
        ),
        [Text("a")],
        "stop",
        "",
    ),
    "a refusal is text": (
        sse(delta(refusal="I cannot."), finish(), DONE),
        [Text("I cannot.")],
        "stop",
        "",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_what_the_bytes_say(name: str) -> None:
    body, expected, kind, code = ANSWERS[name]
    blocks, found_kind, found_code, _ = answer(body)
    assert (list(blocks), found_kind, found_code) == (expected, kind, code)


def test_a_cut_stream_names_the_complaint_in_its_last_line() -> None:
    chunks = run([b"data: {}\n\nupstream error: read ECONNRESET sk-abcdef123456\n"])
    last = chunks[-1]
    assert isinstance(last, Finish) and last.reason.failure is not msgspec.UNSET
    assert "read ECONNRESET [key]" in last.reason.failure.message


@pytest.mark.parametrize(
    "usage, expected",
    [
        (USAGE, Usage(10, 2)),
        ({**USAGE, "prompt_cache_hit_tokens": 4}, Usage(6, 2, cache_read_tokens=4)),
        (
            {**USAGE, "prompt_tokens_details": {"cached_tokens": 0}},
            Usage(10, 2, cache_read_tokens=0),
        ),
        (
            {
                **USAGE,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            Usage(3, 2, cache_read_tokens=4, cache_write_tokens=3, reasoning_tokens=1),
        ),
        ({**USAGE, "prompt_tokens_details": None, "cached_tokens": 11}, Usage(0, 2, 11)),
        ({"prompt_tokens": "n/a"}, None),
        ({}, None),
        ("n/a", None),
        (None, None),
    ],
)
def test_usage_is_disjoint(usage: Any, expected: Usage | None) -> None:
    ours = sse(delta(content="a"), finish(), {"choices": [], "usage": usage}, DONE)
    assert answer(ours)[3] == expected


def test_the_last_usage_counts_and_comes_once_before_the_finish() -> None:
    first, last = {"prompt_tokens": 1}, {"prompt_tokens": 5, "completion_tokens": 6}
    chunks = run(
        [
            sse({**delta(content="a"), "usage": first}, {**finish(), "usage": last}),
            sse({"choices": [], "usage": None}, DONE),
        ]
    )
    assert chunks[-2] == UsageChunk(Usage(5, 6))


def test_usage_of_a_failed_answer_is_kept() -> None:
    body = sse(finish(), {"choices": [], "usage": USAGE}, DONE)
    assert answer(body)[1:] == ("error", "EMPTY_RESPONSE", Usage(10, 2))


def test_deltas_pass_through_at_once_and_unchanged() -> None:
    stream = ChatStream(PLACE, TOOLS)
    for text in ("Hello", " wor", "ld\n", "x"):
        assert visible(stream.feed(sse(delta(content=text)))) == text


def test_all_block_ends_come_at_the_end() -> None:
    chunks = run([sse(delta(reasoning_content="h"), delta(content="a"), finish(), DONE)])
    assert chunks == [
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "h"),
        BlockStart(1, "text"),
        TextDelta(1, "a"),
        BlockEnd(0, Reasoning("h")),
        BlockEnd(1, Text("a")),
        chunks[-1],
    ]


def test_fragments_of_a_call_carry_its_id_and_name_once_known() -> None:
    chunks = run(
        [sse(*(json.loads(x) for x in ())), CALLS["LLM-03 empty ids and names in continuations"][0]]
    )
    deltas = [chunk for chunk in chunks if isinstance(chunk, ToolCallDelta)]
    assert [(d.id, d.name, d.arguments_delta) for d in deltas] == [
        ("call_1", "read", ""),
        ("call_1", "read", '{"path":'),
        ("call_1", "read", ' "a"}'),
    ]


def test_an_id_of_an_earlier_answer_is_not_given_twice() -> None:
    stream = ChatStream(PLACE, TOOLS, taken={"call_0", "new"}, new_id=iter(["new", "n2"]).__next__)
    first = call('{"path":', "read", index=0, id="call_0")
    body = sse(first, call('"a"}', index=0, id="call_0"), finish("tool_calls"), DONE)
    chunks = stream.feed(body)
    assert BlockEnd(0, ToolCall("n2", "read", READ_A)) in chunks
    assert {chunk.id for chunk in chunks if isinstance(chunk, ToolCallDelta)} == {"n2"}


def test_nothing_follows_the_finish() -> None:
    stream = ChatStream(PLACE)
    stream.feed(sse(delta(content="a"), finish(), DONE, delta(content="b")))
    assert stream.is_done
    assert stream.feed(sse(delta(content="c"))) == []
    assert stream.end() == []


def test_what_a_gateway_wants_back_is_kept_for_it() -> None:
    details = [
        [{"type": "reasoning.text", "index": 0, "text": "he", "signature": None}],
        [{"type": "reasoning.text", "index": 0, "text": "llo", "signature": "S"}],
    ]
    fragment = call("{}", "read", index=0, id="a")
    fragment["choices"][0]["delta"]["tool_calls"][0]["extra_content"] = {"google": {"s": 1}}
    body = sse(
        *(delta(reasoning="x", reasoning_details=d) for d in details),
        fragment,
        finish("tool_calls"),
        DONE,
    )
    assembler = Assembler()
    for chunk in run([body]):
        assembler.feed(chunk)
    state = assembler.replay_state()
    assert state is not None and json.loads(bytes(state)) == {
        "response": {
            "reasoning_details": [
                {"type": "reasoning.text", "index": 0, "text": "hello", "signature": "S"}
            ]
        },
        "blocks": [None, {"extra_content": {"google": {"s": 1}}}],
    }


SPLIT_TEXTS = [
    (DSML, "Let me look.", 1),
    ("<think>hmm</think>Hi", "Hi", 0),
    ("a < b <tool_cal> <｜DSM c", "a < b <tool_cal> <｜DSM c", 0),
    ('ok\n<tool_call>{"name":"read","arguments":{}}</tool_call> bye', "okbye", 1),
]


@pytest.mark.parametrize("text, shown, calls", SPLIT_TEXTS)
@settings(max_examples=30)
@given(data=st.data())
def test_markup_is_never_shown_wherever_the_content_is_split(
    text: str, shown: str, calls: int, data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    edges = [0, *sorted(cuts), len(text)]
    parts = [text[a:b] for a, b in itertools.pairwise(edges)]
    chunks = run([sse(*(delta(content=part) for part in parts), finish(), DONE)])
    check_grammar(chunks)
    assert "".join(visible(chunks).split()) == "".join(shown.split())
    assert sum(isinstance(c, BlockStart) and c.block_type == "tool-call" for c in chunks) == calls


@settings(max_examples=80)
@given(st.binary(max_size=300))
def test_any_bytes_end_in_one_finish(body: bytes) -> None:
    check_grammar(run([body]))
    check_grammar(run([b"data: " + body, b"\n\ndata: [DONE]\n\n"]))


SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False)
FIELDS = (
    "choices delta content tool_calls function name arguments id index message finish_reason usage "
    "error reasoning reasoning_details prompt_tokens error_message"
).split()
JSON = st.recursive(
    SCALARS | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=25,
)


@settings(max_examples=120)
@given(st.lists(JSON, max_size=5))
def test_any_json_ends_in_one_finish(values: list[Any]) -> None:
    check_grammar(run([sse(*values, DONE)]))
