"""Cursors over a log that is being written.

Streaming to an editor, replaying a loaded session and waiting until everything is out are one
loop: take what is past the cursor, wait for more.
"""

from typing import TYPE_CHECKING, Protocol

from dsh_acp.log.packed import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    import anyio


class Bell:
    """Wakes everybody who waits for the log to change."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[anyio.Event] = []

    def ring(self) -> None:
        """The log changed."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.set()

    async def wait(self) -> None:
        """Return at the next change."""
        # Imported here because a process that only answers `initialize` never waits.
        from anyio import Event

        gate = Event()
        self._waiters.append(gate)
        try:
            await gate.wait()
        finally:
            if gate in self._waiters:
                self._waiters.remove(gate)


class _Followed(Protocol):
    @property
    def closed(self) -> bool: ...

    seq: int

    def entries(self, start_seq: int = 0) -> "Iterator[Entry]": ...


class Follower:
    """A cursor; `seq` is the seq of the next event that `take` gives."""

    __slots__ = ("_bell", "_log", "seq")

    def __init__(self, log: _Followed, bell: Bell, start_seq: int) -> None:
        self._log = log
        self._bell = bell
        self.seq = start_seq

    @property
    def closed(self) -> bool:
        """Nothing more will come: the log is closed and everything was taken."""
        return self._log.closed and self.seq >= self._log.seq

    def take(self) -> list[Entry]:
        """Everything past the cursor, which moves to the end. Never waits."""
        found = list(self._log.entries(self.seq))
        self.seq = max(self.seq, self._log.seq)
        return found

    async def wait(self) -> None:
        """Return when there is more to take, or the log is closed."""
        while self.seq >= self._log.seq and not self._log.closed:
            await self._bell.wait()
