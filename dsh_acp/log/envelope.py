"""The event: an envelope around a payload, its line on disk, and the table of known types.

An event *is* its line. The envelope is decoded from it first, the payload only when somebody asks;
so a log of any origin is written again byte for byte, and reading one costs little.
"""

from collections.abc import Callable, Iterable
import json
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import force_setattr

from dsh_acp import jsontext
from dsh_acp.log import payloads, plugin_payloads
from dsh_acp.log.payloads import Payload, Unknown


def _table() -> dict[str, type[Payload]]:
    found: dict[str, type[Payload]] = {}
    for module in (payloads, plugin_payloads):
        for cls in vars(module).values():
            if isinstance(cls, type) and issubclass(cls, Payload) and cls.TYPE:
                found[cls.TYPE] = cls
    return found


PAYLOADS: Final = _table()
"""Every type this version knows, with its payload."""

OWN_TYPES: Final = frozenset(name for name, cls in PAYLOADS.items() if cls.IGNORABLE)
"""This program's additions to the format; written with `ignorable: true`."""

KNOWN_TYPES: Final = frozenset(PAYLOADS) - OWN_TYPES
"""The 48 types of the format; any other must be ignorable."""

SURFACE_TYPES: Final = frozenset(name for name, cls in PAYLOADS.items() if cls.SURFACE)
"""The types that the model can see."""


class Replace(Struct, frozen=True, tag_field="op", tag="replace", forbid_unknown_fields=True):
    """Put this event in place of the surface nodes from `start` to `end`.

    Both name *positions* by the seq of the node there; they are not a numeric interval.
    """

    start: int
    end: int


SurfaceOp: TypeAlias = Literal["append"] | Replace


class Event(
    Struct,
    frozen=True,
    gc=False,
    eq=False,
    forbid_unknown_fields=True,
    rename={
        "raw": "data",
        "mark": "ignorable",
        "sources": "sourceEventSeqs",
        "placement": "surfaceOp",
        "line": "(line)",
        "cached": "(payload)",
    },
):
    """One recorded fact. `time` is Unix milliseconds and may go backwards; `seq` orders."""

    type: str
    seq: int
    time: int
    raw: Raw
    mark: bool | UnsetType = UNSET
    sources: tuple[int, ...] | UnsetType = UNSET
    placement: Literal["append"] | Replace | UnsetType = UNSET
    line: bytes = b""
    """The event's line on disk, without the newline."""
    cached: UnsetType = UNSET

    @property
    def data(self) -> bytes:
        """The payload's JSON text, as logged."""
        return bytes(self.raw)

    @property
    def end_seq(self) -> int:
        """One past the last seq of this entry."""
        return self.seq + 1

    @property
    def ignorable(self) -> bool:
        """A reader that does not know the type may skip the event."""
        return self.mark is True

    @property
    def source_event_seqs(self) -> tuple[int, ...] | None:
        """The earlier events that this one was made from."""
        return None if isinstance(self.sources, UnsetType) else self.sources

    @property
    def surface_op(self) -> SurfaceOp | None:
        """Where the event goes on the surface; `None` for events that the model never sees."""
        return None if isinstance(self.placement, UnsetType) else self.placement

    @property
    def payload(self) -> Any:
        """The typed payload, decoded once; `Unknown` when its type or shape is not known."""
        if self.cached is UNSET:
            force_setattr(self, "cached", decode_payload(self.type, self.raw))
        return self.cached

    def encode(self) -> bytes:
        """The line on disk, without the newline."""
        return self.line

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self.line == other.line

    def __hash__(self) -> int:
        return hash(self.line)


_readers: dict[str, Callable[[bytes | Raw], Payload]] = {}


def _reader(cls: type[Payload]) -> Callable[[bytes | Raw], Payload]:
    # Payloads that are nothing but their shape are read without a step in between.
    plain = cls.decode.__func__ is Payload.decode.__func__
    return msgspec.json.Decoder(cls).decode if plain else cls.decode


def decode_payload(type: str, data: bytes | Raw) -> Payload | Unknown:
    """The payload of an event of `type`; never raises."""
    read = _readers.get(type)
    if read is None:
        cls = PAYLOADS.get(type)
        if cls is None:
            return Unknown(type, bytes(data))
        read = _readers[type] = _reader(cls)
    try:
        return read(data)
    except (msgspec.ValidationError, jsontext.DecodeError):
        return Unknown(type, bytes(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decoded_with_care(type, data)


def _decoded_with_care(type: str, data: bytes | Raw) -> Payload | Unknown:
    try:
        return PAYLOADS[type].decode(data)
    except (msgspec.MsgspecError, jsontext.DecodeError, RecursionError):
        return Unknown(type, bytes(data))


_event: Final = msgspec.json.Decoder(Event)
bare_event: Final = _event.decode
"""An event whose line is not set."""


def decode_event(line: bytes) -> Event:
    """The event of one line (without newline).

    Raises:
        jsontext.DecodeError: not JSON.
        msgspec.ValidationError: not an event's envelope.
    """
    try:
        event = _event.decode(line)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        event = _tolerant(line, exc)
    force_setattr(event, "line", line)
    return event


def _tolerant(line: bytes, exc: Exception) -> Event:
    # Lone surrogates in a payload are legal JSON. The envelope, which holds none, is read from a
    # cleaned line; the payload keeps its own text.
    event = jsontext.decode(line, _event)
    text = line.decode("utf-8", "surrogateescape")
    start = text.find('"data":') + len('"data":')
    try:
        _, end = _json.raw_decode(text, start)
    except (ValueError, RecursionError):
        raise jsontext.DecodeError("not valid JSON") from exc
    force_setattr(event, "raw", Raw(text[start:end].encode("utf-8", "surrogateescape")))
    return event


_json: Final = json.JSONDecoder(strict=False)
_quoted: dict[str, bytes] = {}


def make_event(
    type: str,
    seq: int,
    time: int,
    data: bytes,
    *,
    sources: Iterable[int] | None = None,
    placement: SurfaceOp | None = None,
    ignorable: bool = False,
    placement_first: bool = False,
) -> Event:
    """An event with its line; `placement_first` is the key order of repair closers."""
    name = _quoted.get(type)
    if name is None:
        name = _quoted[type] = jsontext.encode(type)
    cited = None if sources is None else tuple(sources)
    line = b'{"type":%b,"seq":%d,"time":%d,"data":%b' % (name, seq, time, data)
    if ignorable:
        line += b',"ignorable":true'
    source_text = b"" if cited is None else b',"sourceEventSeqs":' + jsontext.encode(cited)
    place_text = b"" if placement is None else b',"surfaceOp":' + jsontext.encode(placement)
    if placement_first:
        line += place_text + source_text + b"}"
    else:
        line += source_text + place_text + b"}"
    return Event(
        type,
        seq,
        time,
        Raw(data),
        True if ignorable else UNSET,
        UNSET if cited is None else cited,
        UNSET if placement is None else placement,
        line,
    )
