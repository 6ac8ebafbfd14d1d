"""The event loop around one connection: what arrives, what is warmed up, how it ends."""

from collections.abc import Callable, Sequence
from contextlib import suppress
import signal
from typing import Final

import anyio
from anyio import from_thread, lowlevel

from dsh_acp.acp.bridge import Bridge
from dsh_acp.acp.client import Client
from dsh_acp.acp.host import Host
from dsh_acp.config import Flags, load
from dsh_acp.wire.stdio import Input, Output, Overlong

_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)


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
    token = lowlevel.current_token()
    over = anyio.Event()
    relief = _Relief(output)

    def from_other_thread(do: Callable[..., object], *args: object) -> None:
        with suppress(anyio.RunFinishedError, RuntimeError):  # the loop has ended meanwhile
            from_thread.run_sync(do, *args, token=token)

    output.relieved = lambda: from_other_thread(relief.come)
    bridge = Bridge(host, output.write, relief.wait, client)
    async with anyio.create_task_group() as tasks:
        bridge.start(tasks)
        output.broken = over.set
        bridge.peer.feed(first)
        tasks.start_soon(_until_signal, over)
        lines.start(
            lambda batch: from_other_thread(bridge.peer.feed, batch),
            lambda: from_other_thread(over.set),
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
