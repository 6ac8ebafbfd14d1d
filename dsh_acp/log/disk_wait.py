"""Threads that wait for the disk.

Why not the general worker threads: waiting for the disk is a third of what a prompt costs before
its request leaves. A wait can be begun here while there is other work to do; and whoever has none
sees to it that the wait has begun before anything else gets the interpreter.
"""

from collections.abc import Callable
import errno
from queue import SimpleQueue
import threading
from typing import Final, Protocol, cast

import anyio
from anyio import lowlevel

_THREADS: Final = 4
"""Waits at the same time; a file system that gathers them answers several at once."""

_HANDOVER_S: Final = 0.0005
"""How long to wait for a thread to begin. On a busy machine it begins when it can."""

_PATIENCE_S: Final = 5.0
"""How long a disk that does not answer holds those who were cancelled meanwhile."""


class _Loop(Protocol):
    def call_soon_threadsafe(self, do: Callable[[], object]) -> object: ...


class DiskWait:
    """One job in a thread; it runs to its end whatever happens."""

    def __init__(self, job: Callable[[], None], loop: _Loop) -> None:
        self._has_begun: Final = threading.Lock()
        self._has_begun.acquire()
        self._done: Final = anyio.Event()
        self._is_done = False
        self._error: Exception | None = None
        self._job = job
        self._loop = loop

    def run(self) -> None:
        """Do it. For the threads of this module."""
        self._has_begun.release()
        try:
            self._job()
        except Exception as exc:  # noqa: BLE001 - the thread's border: whoever waits raises it
            self._error = exc
        self._is_done = True
        try:
            self._loop.call_soon_threadsafe(self._done.set)
        except RuntimeError:
            pass  # the loop has ended meanwhile: nobody waits any more

    def give_way(self) -> None:
        """Let the thread begin before the caller does anything else."""
        self._has_begun.acquire(timeout=_HANDOVER_S)

    async def finished(self, patience_s: float = _PATIENCE_S) -> None:
        """Return when it is done; any number may wait.

        A cancelled caller waits for it as well, for `patience_s` at most: a disk that never
        answers must not keep the process alive.

        Raises:
            Exception: what the job raised.
        """
        try:
            if not self._is_done:
                await self._done.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(patience_s, shield=True):
                await self._done.wait()
            if self._error is None:
                raise
        if self._error is not None:
            raise self._error


_queue: Final[SimpleQueue[DiskWait]] = SimpleQueue()
_idle = threading.Semaphore(0)
_started: list[threading.Thread] = []


def _serve() -> None:
    while True:
        wait = _queue.get()
        wait.run()
        # Nothing of a finished wait may live on while this one sleeps.
        del wait
        _idle.release()


def _start() -> None:
    """One more thread, unless the machine has none left and others are at work."""
    thread = threading.Thread(target=_serve, name=f"disk-{len(_started)}", daemon=True)
    try:
        thread.start()
    except RuntimeError as exc:
        if not _started:
            raise OSError(errno.EAGAIN, str(exc)) from exc
    else:
        _started.append(thread)


def begin(job: Callable[[], None]) -> DiskWait:
    """Have `job` run in a thread; call from the event loop.

    Raises:
        OSError: there is no thread to be had.
    """
    wait = DiskWait(job, cast("_Loop", lowlevel.current_token().native_token))
    if not _idle.acquire(blocking=False) and len(_started) < _THREADS:
        _start()
    _queue.put(wait)
    return wait


async def wait_for_disk(job: Callable[[], None], patience_s: float = _PATIENCE_S) -> None:
    """Run `job` in a thread and wait for it, as `DiskWait.finished` does.

    Raises:
        Exception: what `job` raised.
    """
    wait = begin(job)
    wait.give_way()
    await wait.finished(patience_s)
