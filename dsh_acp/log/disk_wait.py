"""Threads that wait for the disk.

Why not the general worker threads: waiting for the disk is a third of what a prompt costs before
its request leaves. Here the caller sees to it that the wait has begun before it does anything else
with the interpreter, so that the two overlap.
"""

from collections.abc import Callable
from queue import SimpleQueue
import threading
from typing import Final, Protocol, cast

import anyio
from anyio import lowlevel

_THREADS: Final = 4
"""Waits at the same time; a file system that gathers them answers several at once."""

_HANDOVER_S: Final = 0.0005
"""How long to wait for a thread to begin. On a busy machine it begins when it can."""


class _Loop(Protocol):
    def call_soon_threadsafe(self, do: Callable[[], object]) -> object: ...


class _Wait:
    def __init__(self, job: Callable[[], None], loop: _Loop) -> None:
        self.has_begun = threading.Lock()
        self.has_begun.acquire()
        self.done = anyio.Event()
        self.error: Exception | None = None
        self._job = job
        self._loop = loop

    def run(self) -> None:
        self.has_begun.release()
        try:
            self._job()
        except Exception as exc:  # noqa: BLE001 - the thread's border: whoever waits raises it
            self.error = exc
        try:
            self._loop.call_soon_threadsafe(self.done.set)
        except RuntimeError:
            pass  # the loop has ended meanwhile: nobody waits any more


_queue: Final[SimpleQueue[_Wait]] = SimpleQueue()
_idle = threading.Semaphore(0)
_started: list[threading.Thread] = []


def _serve() -> None:
    while True:
        wait = _queue.get()
        wait.run()
        # Nothing of a finished wait may live on while this one sleeps.
        del wait
        _idle.release()


async def wait_for_disk(job: Callable[[], None]) -> None:
    """Run `job` in a thread, to its end whatever happens.

    Raises:
        Exception: what `job` raised.
    """
    loop = cast("_Loop", lowlevel.current_token().native_token)
    wait = _Wait(job, loop)
    if not _idle.acquire(blocking=False) and len(_started) < _THREADS:
        thread = threading.Thread(target=_serve, name=f"disk-{len(_started)}", daemon=True)
        _started.append(thread)
        thread.start()
    _queue.put(wait)
    wait.has_begun.acquire(timeout=_HANDOVER_S)
    with anyio.CancelScope(shield=True):
        await wait.done.wait()
    if wait.error is not None:
        raise wait.error
    await lowlevel.checkpoint_if_cancelled()
