"""Results that are too long for the context: their two ends stay, all of them is in a file."""

from collections.abc import Sequence
import os
from pathlib import Path
from typing import Final

from anyio import to_thread

from dsh_acp.messages import Block, Opaque, Text
from dsh_acp.tools.output import from_boundary, to_boundary

PAGED: Final = frozenset({"read"})
"""Tools that bound what they give, and say how to go on."""


async def bounded(
    content: Sequence[Block | Opaque], limit: int, tool: str, folder: str
) -> tuple[Block | Opaque, ...]:
    """`content` within `limit` UTF-8 bytes when it is text alone; what is missing is told.

    A result whose file cannot be written stays whole: nothing is lost.
    """
    texts = [block.text for block in content if isinstance(block, Text)]
    data = "".join(texts).encode("utf-8", "replace")
    if tool in PAGED or len(texts) != len(content) or len(data) <= limit:
        return tuple(content)
    path = await to_thread.run_sync(_kept, data, folder, tool)
    if path is None:
        return tuple(content)
    note = _note(len(data), path)
    room = max(0, limit - len(note.encode()))
    head = to_boundary(data[: room - room // 2])
    tail = from_boundary(data[len(data) - room // 2 :])
    note = _note(len(data) - len(head) - len(tail), path)
    return (Text((head + tail).decode("utf-8", "replace") + note),)


def _note(omitted: int, path: str) -> str:
    return (
        f"\n\n(Omitted {omitted} bytes. Full formatted result stored at: {path}. "
        "Use read with offset/limit, or grep this path to search within it.)"
    )


def _kept(data: bytes, folder: str, tool: str) -> str | None:
    path = Path(folder) / f"{os.urandom(6).hex()}-{tool}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(0o600)
        path.write_bytes(data)
    except OSError:
        return None
    return str(path)
