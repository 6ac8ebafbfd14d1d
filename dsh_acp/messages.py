"""The vocabulary shared by the log, the loop, the tools and the providers.

Everything here is an immutable value. Field names on the wire of the log are camelCase; absent
optional fields are left out, never `null`.

A `Message` is its JSON text, byte for byte as the log records it; role, content, source and id
are read from it on demand. So "the request equals the log" is a comparison of bytes, and nothing
that holds a message can change what will be sent.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias
import uuid

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dsh_acp import jsontext

# ---------------------------------------------------------------- blocks


class ImageRef(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A content-addressed image beside the log; `attachment_id` is `sha256:<hex>`."""

    attachment_id: str
    media_type: str
    bytes: int
    width: int
    height: int
    name: str | UnsetType = UNSET
    original_dimensions: dict[str, int] | UnsetType = UNSET


class AudioRef(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A content-addressed recording beside the log; `attachment_id` is `sha256:<hex>`."""

    attachment_id: str
    media_type: str
    bytes: int
    name: str | UnsetType = UNSET


MediaRef: TypeAlias = ImageRef | AudioRef


class Text(Struct, frozen=True, tag="text"):
    """Plain text."""

    text: str


class Reasoning(Struct, frozen=True, tag="reasoning"):
    """The model's thinking."""

    text: str


class Image(Struct, frozen=True, tag="image"):
    """An image by reference."""

    attachment: ImageRef


class Audio(Struct, frozen=True, tag="audio"):
    """A recording by reference. This program's own kind; others keep it as it is."""

    attachment: AudioRef


class ToolCall(Struct, frozen=True, tag="tool-call"):
    """The model asks for a tool. `arguments` is its raw text: possibly empty or invalid JSON."""

    id: str
    name: str
    arguments: str


class ToolResult(Struct, frozen=True, tag="tool-result", rename="camel"):
    """A call's outcome as the model sees it."""

    tool_call_id: str
    content: tuple["Block", ...]
    is_error: bool | UnsetType = UNSET


class Opaque(Struct, frozen=True):
    """A block of a type this version does not know; kept verbatim, skipped by consumers."""

    json: bytes


KnownBlock: TypeAlias = Text | Reasoning | Image | Audio | ToolCall | ToolResult
Block: TypeAlias = Text | Reasoning | Image | Audio | ToolCall | ToolResult

_blocks = msgspec.json.Decoder(tuple[KnownBlock, ...])
_block = msgspec.json.Decoder(KnownBlock)
_raws = msgspec.json.Decoder(tuple[Raw, ...])


def decode_blocks(text: bytes) -> tuple[Block | Opaque, ...]:
    """Content blocks; those of unknown type or odd shape come back `Opaque`."""
    try:
        return _blocks.decode(text)
    except msgspec.ValidationError:
        found: list[Block | Opaque] = []
        for raw in _raws.decode(text):
            try:
                found.append(_block.decode(raw))
            except msgspec.ValidationError:
                found.append(Opaque(bytes(raw)))
        return tuple(found)


def encode_blocks(blocks: Iterable[Block | Opaque]) -> bytes:
    """The JSON array of `blocks`."""
    return jsontext.encode(
        [Raw(block.json) if isinstance(block, Opaque) else block for block in blocks]
    )


def text_of(blocks: Iterable[Block | Opaque]) -> str:
    """All text blocks, joined without a separator."""
    return "".join([block.text for block in blocks if isinstance(block, Text)])


# ---------------------------------------------------------------- messages

Role: TypeAlias = Literal["system", "user", "assistant"]


class _MessageShape(Struct, frozen=True):
    role: str
    id: str
    content: Raw
    source: Raw


class _Kind(Struct, frozen=True):
    kind: str = ""


_shape = msgspec.json.Decoder(_MessageShape)
_kind = msgspec.json.Decoder(_Kind)
_dict = msgspec.json.Decoder(dict[str, Any])


class Message(Struct, frozen=True, dict=True):
    """One message, as the JSON text that the log holds.

    Two messages are equal when their texts are. Build one with `user`, `assistant` or
    `tool_result`; each mints an id unless given one, and fixes the key order of the format.
    """

    json: bytes

    # Kept by hand: a history has thousands of messages, and `cached_property` takes a lock each.
    @property
    def _parts(self) -> _MessageShape:
        kept = vars(self)
        found = kept.get("parts")
        if found is None:
            found = kept["parts"] = _shape.decode(self.json)
        return found

    @property
    def role(self) -> str:
        """`user`, `assistant` or `system`."""
        return self._parts.role

    @property
    def id(self) -> str:
        """Minted once; the same in inbox, log and request."""
        return self._parts.id

    @property
    def content(self) -> tuple[Block | Opaque, ...]:
        """The blocks."""
        kept = vars(self)
        found = kept.get("content")
        if found is None:
            found = kept["content"] = decode_blocks(self._parts.content)
        return found

    @property
    def source(self) -> dict[str, Any]:
        """Who produced it: `{"kind": …}` and the fields of that kind. A fresh copy each time."""
        return _dict.decode(self._parts.source)

    @property
    def kind(self) -> str:
        """The `kind` of its source; `""` when there is none."""
        try:
            return _kind.decode(self._parts.source).kind
        except msgspec.ValidationError:
            return ""

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return text_of(self.content)

    @classmethod
    def user(
        cls,
        content: Sequence[Block | Opaque],
        source: dict[str, Any] | None = None,
        id: str | None = None,
    ) -> "Message":
        """A user-role message; `source` defaults to `{"kind": "user"}`."""
        return cls(
            jsontext.encode(
                {
                    "content": Raw(encode_blocks(content)),
                    "source": source or {"kind": "user"},
                    "role": "user",
                    "id": id or new_id(),
                }
            )
        )

    @classmethod
    def assistant(
        cls,
        content: Sequence[Block | Opaque],
        provider: str,
        model: str,
        id: str | None = None,
        replay_state: Raw | None = None,
    ) -> "Message":
        """The model's message; `replay_state` is what its provider wants back with it."""
        source: dict[str, Any] = {"kind": "model", "provider": provider, "model": model}
        if replay_state is not None:
            source["replayState"] = replay_state
        return cls(
            jsontext.encode(
                {
                    "role": "assistant",
                    "content": Raw(encode_blocks(content)),
                    "source": source,
                    "id": id or new_id(),
                }
            )
        )

    @classmethod
    def tool_result(
        cls, call_id: str, content: Sequence[Block | Opaque], is_error: bool, id: str | None = None
    ) -> "Message":
        """The message that carries one call's outcome."""
        return cls(
            jsontext.encode(
                {
                    "source": {"kind": "tool", "callId": call_id},
                    "content": [
                        {
                            "type": "tool-result",
                            "toolCallId": call_id,
                            "content": Raw(encode_blocks(content)),
                            "isError": is_error,
                        }
                    ],
                    "role": "user",
                    "id": id or new_id(),
                }
            )
        )


def new_id() -> str:
    """A random UUID."""
    return str(uuid.uuid4())


# ---------------------------------------------------------------- streaming


class Usage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Tokens of one call, disjoint: `input_tokens` excludes what was read from the cache.

    `reasoning_tokens` is a part of `output_tokens`.
    """

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET

    @property
    def total(self) -> int:
        """Everything that occupied the window in this call."""
        return (
            self.input_tokens
            + self.output_tokens
            + (self.cache_read_tokens or 0)
            + (self.cache_write_tokens or 0)
        )


class Failure(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A provider's failure as the log records it."""

    message: str
    code: str
    status: int | UnsetType = UNSET
    provider_retry_after_ms: int | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


FinishKind: TypeAlias = Literal["stop", "tool-calls", "max-tokens", "aborted", "error"]


class FinishReason(Struct, frozen=True, omit_defaults=True):
    """Why a stream ended; `failure` accompanies `aborted` and `error`."""

    kind: FinishKind
    failure: Failure | UnsetType = UNSET


class BlockStart(Struct, frozen=True, tag="block-start", rename="camel"):
    """A block begins."""

    index: int
    block_type: str


class TextDelta(Struct, frozen=True, tag="text-delta"):
    """More text."""

    index: int
    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning-delta"):
    """More thinking."""

    index: int
    text: str


class ToolCallDelta(
    Struct, frozen=True, tag="tool-call-delta", rename="camel", kw_only=True, omit_defaults=True
):
    """More of a call's arguments; `id` is `""` and `name` absent until the provider names them."""

    index: int
    id: str
    name: str | UnsetType = UNSET
    arguments_delta: str


class BlockEnd(Struct, frozen=True, tag="block-end"):
    """A block is complete; `block` is authoritative."""

    index: int
    block: KnownBlock


class UsageChunk(Struct, frozen=True, tag="usage"):
    """What the call cost so far; the last one counts."""

    usage: Usage


class Finish(Struct, frozen=True, tag="finish", rename="camel", omit_defaults=True):
    """The end of a stream; nothing follows it."""

    reason: FinishReason
    replay_state: Raw | UnsetType = UNSET


Chunk: TypeAlias = (
    BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageChunk | Finish
)

# ---------------------------------------------------------------- requests


class CallConfig(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which model answers, and how."""

    provider: str
    model: str
    reasoning_effort: str | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    max_tokens: int | UnsetType = UNSET
    stop: tuple[str, ...] | UnsetType = UNSET


class ToolSchema(Struct, frozen=True):
    """A tool as the model sees it; `parameters` is JSON Schema text, in the order to send."""

    name: str
    description: str
    parameters: Raw


class EpochHeader(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a request carries besides its derived messages.

    `json` texts compare headers: two canonical headers are equal when `encode_header` is.
    Empty means absent. `message_prefix` and `message_suffix` frame the derived messages of one
    request without becoming history.
    """

    config: CallConfig
    adapter_defaults: dict[str, bool] | UnsetType = UNSET
    system: str | UnsetType = UNSET
    tools: tuple[ToolSchema, ...] | UnsetType = UNSET
    message_prefix: tuple[Raw, ...] | UnsetType = UNSET
    message_suffix: tuple[Raw, ...] | UnsetType = UNSET

    @property
    def prefix(self) -> tuple[Message, ...]:
        """Framing before the derived messages."""
        return tuple(Message(bytes(raw)) for raw in self.message_prefix or ())

    @property
    def suffix(self) -> tuple[Message, ...]:
        """Framing after them."""
        return tuple(Message(bytes(raw)) for raw in self.message_suffix or ())


class Request(Struct, frozen=True, omit_defaults=True):
    """All that the model gets for one call.

    `messages` are prefix, derivation and suffix, in order. `purpose` marks one-shots that are
    not the conversation (`compaction`, `session-title`).
    """

    session_id: str
    header: EpochHeader
    messages: tuple[Message, ...]
    purpose: Literal["conversation", "compaction", "session-title"] = "conversation"

    @property
    def config(self) -> CallConfig:
        """The header's call config."""
        return self.header.config


def source_kind(message: Message) -> str:
    """The `kind` of a message's source."""
    return message.kind


USER_SOURCE: Final = {"kind": "user"}
