"""The event loop around one connection: what arrives, what is warmed up, how it ends."""

from collections.abc import Callable, Sequence
from contextlib import suppress
import signal
import sys
import threading
from typing import Final, Protocol, cast

import anyio
from anyio import lowlevel

from dsh_acp.acp.bridge import Bridge
from dsh_acp.acp.client import Client
from dsh_acp.acp.host import Host
from dsh_acp.config import Flags, load
from dsh_acp.wire.stdio import Input, Output, Overlong

_SWITCH_S: Final = 0.0001
_BATCHES: Final = 16
"""How many reads of the input may wait for the event loop; more make the reader wait."""

_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)


class _Loop(Protocol):
    """What this needs of the event loop itself: the cheapest ways in."""

    def call_soon_threadsafe(self, do: Callable[..., object], *args: object) -> object: ...
    def add_reader(self, fd: int, do: Callable[[], object]) -> None: ...
    def remove_reader(self, fd: int) -> bool: ...


def run(
    flags: Flags,
    lines: Input,
    output: Output,
    first: Sequence[bytes | Overlong],
    client: Client | None,
) -> None:
    """Serve `first` and then `lines` until they end, the output breaks, or a signal comes."""
    anyio.run(_serve, Host(lambda: load(flags)), lines, output, first, client)


async def _serve(
    host: Host,
    lines: Input,
    output: Output,
    first: Sequence[bytes | Overlong],
    client: Client | None,
) -> None:
    loop = cast("_Loop", lowlevel.current_token().native_token)
    # A thread that waits for the interpreter gets it soon: what it waits with is a disk's answer or
    # an editor's line, and five milliseconds are as long as everything else that a prompt takes.
    sys.setswitchinterval(_SWITCH_S)
    over = anyio.Event()
    relief = _Relief(output)

    def from_other_thread(do: Callable[..., object], *args: object) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(do, *args)

    room = threading.Semaphore(_BATCHES)

    def take(batch: Sequence[bytes | Overlong]) -> None:
        room.release()
        bridge.peer.feed(batch)

    def deliver(batch: Sequence[bytes | Overlong]) -> None:
        room.acquire()
        from_other_thread(take, batch)

    def read() -> None:
        batch = lines.read_once()
        if batch:
            bridge.peer.feed(batch)
        if lines.ended:
            loop.remove_reader(lines.fd)
            over.set()

    output.relieved = lambda: from_other_thread(relief.come)
    bridge = Bridge(host, output.write, relief.wait, client)
    async with anyio.create_task_group() as tasks:
        bridge.start(tasks)
        output.broken = over.set
        bridge.peer.feed(first)
        tasks.start_soon(_until_signal, over)
        lines.start(
            deliver,
            lambda: from_other_thread(over.set),
            lambda: from_other_thread(loop.add_reader, lines.fd, read),
        )
        tasks.start_soon(host.warm)
        await over.wait()
        with anyio.CancelScope(shield=True):
            await bridge.close()
        tasks.cancel_scope.cancel()
    output.close()


async def _until_signal(over: anyio.Event) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async for _ in signals:
            over.set()


class _Relief:
    """Lets producers wait while the output is congested."""

    def __init__(self, output: Output) -> None:
        self._output: Final = output
        self._event = anyio.Event()

    def come(self) -> None:
        """The backlog has shrunk."""
        self._event.set()
        self._event = anyio.Event()

    async def wait(self) -> None:
        """Return at once unless the output is congested."""
        while self._output.congested and not self._output.closed:
            with anyio.move_on_after(1):
                await self._event.wait()
