"""A conversation with a bit of everything, and ways to run a provider."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from dsh_acp.llm.provider import Provider
from dsh_acp.messages import (
    CallConfig,
    Chunk,
    EpochHeader,
    Image,
    ImageRef,
    Message,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolSchema,
)

PIXELS = ImageRef("sha256:ab", "image/png", 4, 2, 1, name="dot.png")


class Pictures:
    """Attachments that are always there."""

    def get(self, ref: ImageRef, /) -> bytes:
        return b"\x89PNG"


def tools() -> tuple[ToolSchema, ...]:
    schema = b'{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'
    return (ToolSchema("read", "Read a file.", msgspec.Raw(schema)),)


def conversation(provider: str) -> tuple[Message, ...]:
    signed = msgspec.Raw(
        b'{"response":{"reasoning_details":[{"type":"reasoning.text","text":"hm","index":0}]},'
        b'"blocks":[{"signature":"S"},null,{"extra_content":{"google":{"s":"T"}}}]}'
    )
    calls = (
        Reasoning("Think."),
        Text("I look."),
        ToolCall("call_1", "read", '{"path":"a"}'),
        ToolCall("functions.read:1", "read", ""),
    )
    return (
        Message.user((Text("Hello "), Text("you: 读 \u2028")), id="m1"),
        Message.assistant((Text("Hi."),), "another", "m0", id="m2"),
        Message.user((Text("Look"), Image(PIXELS)), id="m3"),
        Message.assistant(calls, provider, "m", id="m4", replay_state=signed),
        Message.tool_result("call_1", (Text("data"), Image(PIXELS)), False, id="m5"),
        Message.tool_result("functions.read:1", (), True, id="m6"),
        Message.user((Text("A note."),), {"kind": "plugin", "plugin": "x"}, id="m7"),
        Message.user((Text("Go on."),), id="m8"),
        Message.assistant((ToolCall("call_3", "read", '{"path":'),), provider, "m", id="m9"),
        Message.tool_result("call_3", (Text("bad arguments"),), True, id="m10"),
        Message.assistant((Reasoning("Only thoughts."),), provider, "m", id="m11"),
        Message.user((Text("Well?"),), id="m12"),
    )


def request(
    provider: Provider, model: str, messages: Sequence[Message] | None = None, **config: object
) -> Request:
    call = msgspec.convert({"provider": provider.name, "model": model, **config}, CallConfig)
    header = EpochHeader(call, system="You are an agent.", tools=tools())
    given = conversation(provider.name) if messages is None else tuple(messages)
    return Request("s1", header, given)


def hello(provider: Provider, model: str = "m") -> Request:
    return request(provider, model, [Message.user((Text("hello"),), id="u1")])


async def collect(provider: Provider, asked: Request) -> list[Chunk]:
    stream: AsyncIterator[Sequence[Chunk]] = provider.stream(asked, provider.body(asked))
    return [chunk async for chunks in stream for chunk in chunks]
