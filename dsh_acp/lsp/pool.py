"""The running language servers: one per workspace and server, whoever asks.

Each session that asked holds the servers that it asked; a server ends when the last of its
sessions lets go. One that ended by itself is started anew at the next question, a few times.
"""

from collections.abc import Sequence
import importlib
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

from dsh_acp.errors import LspError
from dsh_acp.lsp.place import Limits, Place
from dsh_acp.lsp.process import ServerProcess
from dsh_acp.lsp.servers import Found

if TYPE_CHECKING:
    from dsh_acp.lsp.server import Server

STARTS: Final = 3


class _Slot:
    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.server: Server | None = None
        self.owners: set[object] = set()
        self.starts = 0
        self.last_words = ""


class Pool:
    """The servers of one event loop."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, str], _Slot] = {}

    async def use(
        self, found: Found, root: str, owner: object, place: Place, limits: Limits
    ) -> "Server":
        """The server for `root`, started if it does not run, and held by `owner` until `release`.

        Raises:
            LspError: it does not start, or has ended too often.
        """
        slot = self._slots.setdefault((root, found.known.name), _Slot())
        slot.owners.add(owner)
        async with slot.lock:
            if slot.server is not None and slot.server.has_ended:
                server, slot.server = slot.server, None
                await server.client.stop()
            if slot.server is None:
                if slot.starts >= STARTS:
                    text = f"it ended {slot.starts} times and is not started again"
                    raise LspError(f"{text}; at last {slot.last_words}", code="ENDED")
                slot.starts += 1
                try:
                    slot.server = await _started(found, root, place, limits)
                except LspError as exc:
                    slot.last_words = str(exc)
                    raise
            return slot.server

    def running(self, root: str, names: Sequence[str]) -> "list[Server]":
        """Those of `names` that can be asked at once."""
        slots = (self._slots.get((root, name)) for name in names)
        servers = (slot.server for slot in slots if slot is not None)
        return [each for each in servers if each is not None and not each.has_ended]

    async def release(self, owner: object) -> None:
        """`owner` needs no server any more. Bounded in time."""
        idle: list[_Slot] = []
        for key, slot in list(self._slots.items()):
            slot.owners.discard(owner)
            if not slot.owners:
                del self._slots[key]
                idle.append(slot)
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for slot in idle:
                    if slot.server is not None:
                        group.start_soon(slot.server.client.stop)


async def _started(found: Found, root: str, place: Place, limits: Limits) -> "Server":
    # A third of a second, the first time.
    await to_thread.run_sync(importlib.import_module, "dsh_acp.lsp.server")
    from dsh_acp.lsp.client import Client
    from dsh_acp.lsp.server import Server

    known = found.known
    env = {name: value.replace("{cache}", place.cache) for name, value in known.env.items()}
    server = Server(found, root, limits)
    process = ServerProcess(found.argv, root, env, place)
    server.client = Client(process, known.settings, limits, server.published)
    is_ready = False
    try:
        await server.client.open()
        await server.client.initialize(root, known.options)
        is_ready = True
    finally:
        if not is_ready:
            await server.client.stop()
    return server


_pool: Final[RunVar[Pool]] = RunVar("language servers")


def current() -> Pool:
    """The pool of the running event loop."""
    found = _pool.get(None)
    if found is None:
        found = Pool()
        _pool.set(found)
    return found
