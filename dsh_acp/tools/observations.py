"""What the model has seen of files, so that it never overwrites what it has not.

In memory and per session: after a reload everything counts as unseen, so an edit asks for a read
first. Our own writes keep what was seen current. Only digests are compared: a command may change a
file without a new modification time, and touch one without changing it.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
import os
from pathlib import Path
import unicodedata
from weakref import WeakValueDictionary

import anyio

from dsh_acp.tools.tool import ToolContext, Version


class Observations:
    """Versions by real path; `None` for a path that was seen to be absent."""

    def __init__(self) -> None:
        self._seen: dict[str, Version | None] = {}

    def record(self, path: str, version: Version | None) -> None:
        """The model now knows this state."""
        self._seen[_key(path)] = version

    def seen(self, path: str) -> Version | None:
        """The state that the model knows; `None` when it knows none, or that there was none."""
        return self._seen.get(_key(path))


def observations(ctx: ToolContext) -> Observations:
    """Those of the session."""
    return ctx.state.setdefault("files", Observations())


def _key(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


_locks: WeakValueDictionary[object, anyio.Lock] = WeakValueDictionary()


def _lock_key(path: str) -> object:
    try:
        status = Path(path).stat()
        if status.st_nlink > 1:
            return status.st_dev, status.st_ino
    except (OSError, ValueError):
        pass
    return unicodedata.normalize("NFC", _key(path)).casefold()


@asynccontextmanager
async def exclusive(path: str) -> AsyncGenerator[None]:
    """One at a time per file, first come first served, over all sessions of the process.

    Spellings that some file systems take for the same file share a lock, and so do hard links.
    """
    key = _lock_key(path)
    lock = _locks.get(key)
    if lock is None:
        lock = _locks[key] = anyio.Lock()
    async with lock:
        yield
