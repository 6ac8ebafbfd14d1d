"""Pieces of tool calls, read without their arguments, which are the long part of them.

All that is shown of a piece is that its call arrives.
"""

from typing import Final

import msgspec
from msgspec import Struct

from dsh_acp.log.packed import ChunkRow, Entry
from dsh_acp.log.payloads import AssistantChunk
from dsh_acp.messages import ToolCallDelta


class Fragment(Struct, frozen=True):
    """Which call a piece belongs to, `""` for what it does not say, and when it arrived."""

    index: int
    id: str
    name: str
    first: int
    last: int


class _Delta(Struct, frozen=True):
    index: int
    id: str = ""
    name: str = ""


class _Line(Struct, frozen=True):
    chunk: _Delta


_line: Final = msgspec.json.Decoder(_Line)


def fragment(piece: Entry) -> Fragment | None:
    """What a piece of a call's arguments says besides them; `None` when it is something else."""
    if isinstance(piece, ChunkRow):
        return Fragment(piece.index, piece.id or "", piece.name or "", piece.time0, piece.end_time)
    try:
        delta = _line.decode(piece.raw).chunk
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        payload = piece.payload
        if not isinstance(payload, AssistantChunk) or not isinstance(payload.chunk, ToolCallDelta):
            return None
        odd = payload.chunk
        delta = _Delta(odd.index, odd.id, odd.name if isinstance(odd.name, str) else "")
    return Fragment(delta.index, delta.id, delta.name, piece.time, piece.time)
