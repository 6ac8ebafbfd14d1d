"""What an event of the core says: one frozen struct per event type.

Field order is key order on disk. Optional fields are absent, never `null`. A payload knows its
`TYPE`, how to `encode` itself as the event's `data`, and how to `decode` it again. Messages inside
payloads are kept as the bytes that were logged.
"""

import math
from typing import Any, ClassVar, Literal, Self, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dsh_acp import jsontext
from dsh_acp.log import header as headers
from dsh_acp.messages import Chunk, EpochHeader, Failure, Message, Usage

SurfaceMark: TypeAlias = Literal["append"] | None


class NotLossless(ValueError):
    """A value that JSON cannot carry without loss."""


def lossless(value: Any) -> Any:
    """`value` as plain JSON values that survive a round trip through any JSON reader.

    Integral floats become integers, lone surrogates U+FFFD.

    Raises:
        NotLossless: NaN, an infinity, negative zero, an integer beyond 2^53-1, a non-string key,
            or a value that is not JSON at all.
    """
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return jsontext.clean(value)
    if isinstance(value, int):
        if abs(value) > jsontext.MAX_SAFE_INTEGER:
            raise NotLossless(f"{value} is not a safe integer")
        return value
    if isinstance(value, float):
        if not math.isfinite(value) or str(value) == "-0.0":
            raise NotLossless(f"{value} has no JSON form")
        whole = value.is_integer() and abs(value) <= jsontext.MAX_SAFE_INTEGER
        return int(value) if whole else value
    if isinstance(value, list | tuple):
        return [lossless(item) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        return _lossless_object(cast(dict[Any, Any], value))
    raise NotLossless(f"{type(value).__name__} is not JSON")


def _lossless_object(value: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotLossless("object keys must be strings")
        if item is not UNSET:
            found[jsontext.clean(key)] = lossless(item)
    return found


_decoders: "dict[type, msgspec.json.Decoder[Any]]" = {}


def _decode(shape: type, data: bytes | Raw) -> Any:
    found = _decoders.get(shape)
    if found is None:
        found = _decoders[shape] = msgspec.json.Decoder(shape)
    return jsontext.decode(data, found)


class Payload(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The base of all payloads.

    `OPEN` payloads hold free JSON or fractions, and are checked for loss when encoded.
    `IGNORABLE` ones are this program's own: readers that do not know them may skip them.
    """

    TYPE: ClassVar[str] = ""
    OPEN: ClassVar[bool] = False
    IGNORABLE: ClassVar[bool] = False
    SURFACE: ClassVar[bool] = False

    def encode(self) -> bytes:
        """The event's `data`.

        Raises:
            NotLossless: a value that JSON cannot carry.
        """
        if not self.OPEN:
            try:
                return jsontext.encode(self)
            except UnicodeEncodeError:
                pass
        return jsontext.encode(lossless(msgspec.to_builtins(self)))

    @classmethod
    def decode(cls, data: bytes | Raw) -> Self:
        """The payload of `data`.

        Raises:
            msgspec.ValidationError: `data` has another shape.
        """
        return cast(Self, _decode(cls, data))


class Document(Payload, frozen=True):
    """A payload that is one free JSON object, kept as it is."""

    value: dict[str, Any]

    def encode(self) -> bytes:
        """The object itself."""
        return jsontext.encode(lossless(self.value))

    @classmethod
    def decode(cls, data: bytes | Raw) -> Self:
        """The object of `data`."""
        return cls(cast(dict[str, Any], _decode(dict[str, Any], data)))


class Unknown(Struct, frozen=True):
    """A payload of a type, or in a shape, that this version does not know."""

    type: str
    json: bytes


# ---------------------------------------------------------------- turns and steps


class TurnStart(Payload, frozen=True):
    """A turn opens; numbers are contiguous from 1 over the whole log."""

    TYPE: ClassVar[str] = "turn/start"
    turn: int


class TurnEndReason(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why a turn ended; readers tolerate kinds they do not know.

    Kinds: `completed`, `aborted` (with its cause as `reason`), `blocked`, `error` (with `error`),
    `max-tokens`, `interrupted` (written only by repair).
    """

    kind: str
    reason: dict[str, Any] | UnsetType = UNSET
    error: Failure | UnsetType = UNSET


class TurnEnd(Payload, frozen=True):
    """A turn closes; no step is open."""

    TYPE: ClassVar[str] = "turn/end"
    OPEN: ClassVar[bool] = True
    turn: int
    reason: TurnEndReason


class StepStart(Payload, frozen=True):
    """A step opens; numbers restart at 1 in every turn."""

    TYPE: ClassVar[str] = "step/start"
    turn: int
    step: int


class StepEnd(Payload, frozen=True):
    """A step closes."""

    TYPE: ClassVar[str] = "step/end"
    turn: int
    step: int


# ---------------------------------------------------------------- messages


class UserMessage(Payload, frozen=True):
    """Input that the model sees. The payload is the message itself, without a wrapper."""

    TYPE: ClassVar[str] = "user/message"
    SURFACE: ClassVar[bool] = True
    message: Message

    def encode(self) -> bytes:
        """The message's own text."""
        return self.message.json

    @classmethod
    def decode(cls, data: bytes | Raw) -> Self:
        """A message of `data`."""
        return cls(Message(bytes(data)))


class AssistantChunk(Payload, frozen=True):
    """A streamed piece of the model's answer; display and replay, never a request."""

    TYPE: ClassVar[str] = "assistant/chunk"
    turn: int
    step: int
    chunk: Chunk


class _AssistantWire(Struct, frozen=True, omit_defaults=True):
    turn: int
    step: int
    message: Raw
    interrupted: bool | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET


class AssistantMessage(Payload, frozen=True):
    """The model's answer. It hosts `usage` even when its content is empty.

    `interrupted` marks what was kept of an answer that was cancelled.
    """

    TYPE: ClassVar[str] = "assistant/message"
    SURFACE: ClassVar[bool] = True
    turn: int
    step: int
    message: Message
    usage: Usage | UnsetType = UNSET
    interrupted: bool | UnsetType = UNSET

    def encode(self) -> bytes:
        """Keys in the order turn, step, message, interrupted, usage."""
        return jsontext.encode(
            _AssistantWire(
                self.turn,
                self.step,
                Raw(self.message.json),
                self.interrupted or UNSET,
                self.usage,
            )
        )

    @classmethod
    def decode(cls, data: bytes | Raw) -> Self:
        """The answer of `data`."""
        wire = cast(_AssistantWire, _decode(_AssistantWire, data))
        message = Message(bytes(wire.message))
        return cls(wire.turn, wire.step, message, wire.usage, wire.interrupted)


class ToolCallEvent(Payload, frozen=True):
    """A call is about to run. `arguments` is the model's raw text."""

    TYPE: ClassVar[str] = "tool/call"
    turn: int
    step: int
    call_id: str
    name: str
    arguments: str


class ErrorInfo(Struct, frozen=True):
    """The structured part of a call's failure: an error class and its stable code."""

    name: str
    code: str


class _ToolResultWire(Struct, frozen=True, omit_defaults=True):
    turn: int
    step: int
    message: Raw
    error: ErrorInfo | UnsetType = UNSET
    meta: Raw | UnsetType = UNSET


class ToolResultEvent(Payload, frozen=True):
    """A call's one outcome. `meta` is for presentation and never reaches the model."""

    TYPE: ClassVar[str] = "tool/result"
    SURFACE: ClassVar[bool] = True
    turn: int
    step: int
    message: Message
    error: ErrorInfo | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET

    def encode(self) -> bytes:
        """Keys in the order turn, step, message, error, meta."""
        meta: Raw | UnsetType = UNSET
        if not isinstance(self.meta, UnsetType):
            meta = Raw(jsontext.encode(lossless(self.meta)))
        return jsontext.encode(
            _ToolResultWire(self.turn, self.step, Raw(self.message.json), self.error, meta)
        )

    @classmethod
    def decode(cls, data: bytes | Raw) -> Self:
        """The outcome of `data`."""
        wire = cast(_ToolResultWire, _decode(_ToolResultWire, data))
        meta: Any = UNSET
        if not isinstance(wire.meta, UnsetType):
            meta = jsontext.loads(bytes(wire.meta))
        return cls(wire.turn, wire.step, Message(bytes(wire.message)), wire.error, meta)


class Todo(Struct, frozen=True):
    """One line of the todo list; statuses `pending`, `in_progress`, `completed`."""

    content: str
    status: str


class TodoWrite(Payload, frozen=True):
    """The whole todo list, replacing the one before."""

    TYPE: ClassVar[str] = "todo/write"
    todos: tuple[Todo, ...]


# ---------------------------------------------------------------- requests


class _HeaderWire(Struct, frozen=True):
    header: Raw
    reason: str = ""


class RequestHeader(Payload, frozen=True):
    """A full snapshot of everything a request carries besides its derived messages.

    Reasons: `initial`, `resume` (the first of a process that found one), `change`.
    """

    TYPE: ClassVar[str] = "request/header"
    header: EpochHeader
    reason: str

    def encode(self) -> bytes:
        """The canonical header and the reason."""
        return jsontext.encode(_HeaderWire(Raw(headers.encode(self.header)), self.reason))

    @classmethod
    def decode(cls, data: bytes | Raw) -> Self:
        """The snapshot of `data`, in canonical form."""
        wire = cast(_HeaderWire, _decode(_HeaderWire, data))
        return cls(headers.decode(bytes(wire.header)), wire.reason)


class RequestContext(Payload, frozen=True):
    """What is known of the model that will answer; logged when it differs from the last one."""

    TYPE: ClassVar[str] = "request/context"
    provider: str
    model: str
    context_window: int | UnsetType = UNSET


class RequestDigest(Payload, frozen=True):
    """SHA-256 of the exact bytes handed to HTTP, logged before they leave."""

    TYPE: ClassVar[str] = "request/digest"
    IGNORABLE: ClassVar[bool] = True
    turn: int
    step: int
    attempt: int
    sha256: str
    bytes: int
    provider: str
    model: str


class EndSeed(Payload, frozen=True):
    """What precedes was inherited; what follows happens in this life of the session."""

    TYPE: ClassVar[str] = "session/end-seed"


# ---------------------------------------------------------------- inbox


class _SpliceWire(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    target: str
    start: int
    removed_count: int | UnsetType = UNSET
    inserted: tuple[Raw, ...]
    outcome: str | UnsetType = UNSET


class InboxSpliced(Payload, frozen=True):
    """Pending input changed; `target` is `next-turn` or `next-step`.

    `outcome` is `canceled` when the removed input will never run, absent for a claim.
    """

    TYPE: ClassVar[str] = "agent/inbox/spliced"
    target: str
    start: int
    removed_count: int | UnsetType = UNSET
    inserted: tuple[Message, ...] = ()
    outcome: str | UnsetType = UNSET

    def encode(self) -> bytes:
        """Keys in the order target, start, removedCount, inserted, outcome."""
        return jsontext.encode(
            _SpliceWire(
                target=self.target,
                start=self.start,
                removed_count=self.removed_count or UNSET,
                inserted=tuple(Raw(message.json) for message in self.inserted),
                outcome=self.outcome,
            )
        )

    @classmethod
    def decode(cls, data: bytes | Raw) -> Self:
        """The splice of `data`."""
        wire = cast(_SpliceWire, _decode(_SpliceWire, data))
        inserted = tuple(Message(bytes(raw)) for raw in wire.inserted)
        return cls(wire.target, wire.start, wire.removed_count, inserted, wire.outcome)
