"""Payloads that are read only as far as they are shown: a history has tens of thousands."""

from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.log.events import Event

T = TypeVar("T")


class Place(Struct, frozen=True):
    """A turn, and perhaps a step of it."""

    turn: int
    step: int = 0


class Asked(Struct, frozen=True, rename="camel"):
    """Somebody was asked about a call."""

    id: str
    call_id: str | None = None


class Decided(Struct, frozen=True):
    """What they said."""

    id: str
    outcome: str


PLACE: Final = msgspec.json.Decoder(Place)
ASKED: Final = msgspec.json.Decoder(Asked)
DECIDED: Final = msgspec.json.Decoder(Decided)


def read(event: Event, decoder: "msgspec.json.Decoder[T]") -> T | None:
    """What `decoder` reads of the event's payload; `None` when that has another shape."""
    try:
        return jsontext.decode(event.raw, decoder)
    except (msgspec.ValidationError, jsontext.DecodeError):
        return None
