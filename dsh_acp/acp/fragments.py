"""Pieces of tool calls, read without their arguments, which are the long part of them.

A history holds tens of thousands, and all that is shown of one is that its call arrives.
"""

from typing import Final

import msgspec
from msgspec import Struct

from dsh_acp.log.events import Event


class Fragment(Struct, frozen=True):
    """Which call a piece belongs to; `""` for what it does not say."""

    index: int
    id: str = ""
    name: str = ""


class _Line(Struct, frozen=True):
    chunk: Fragment


_line: Final = msgspec.json.Decoder(_Line)


def fragment(event: Event) -> Fragment | None:
    """What a chunk event of a call's arguments says besides them; `None` when it is odd."""
    try:
        return _line.decode(event.raw).chunk
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
