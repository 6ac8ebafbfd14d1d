"""The writer of one session's log, and the cursors that follow it.

The log is the queue: `append` never awaits, readers hold a cursor and follow. Facts go to the
system at once; streamed chunks may wait until the next fact or until the owner's timer fires.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
import time
from typing import TYPE_CHECKING, Final

from dsh_acp.errors import LogError
from dsh_acp.log import repair, validation
from dsh_acp.log.envelope import Event, SurfaceOp, make_event
from dsh_acp.log.follow import Bell, Follower
from dsh_acp.log.history import History
from dsh_acp.log.load import LoadedLog
from dsh_acp.log.logfile import UNWRITABLE, LogFile, disk_error
from dsh_acp.log.packed import ChunkRow, Entry, chunk_row, compatible, pack
from dsh_acp.log.payloads import AssistantChunk, EndSeed, NotLossless, Payload, RequestHeader
from dsh_acp.log.validation import SessionHeader
from dsh_acp.messages import Chunk

if TYPE_CHECKING:
    from pathlib import Path

    from dsh_acp.log.disk_wait import DiskWait

CHUNK_DELAY_S: Final = 0.05
"""How long streamed chunks may wait in this process."""


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


class SessionLog(History):
    """A live log: one writer, any number of followers, all in one thread.

    `on_pending` is called with a delay in seconds when chunks begin to wait; its owner then calls
    `flush_due` after that delay. Without it nothing ever waits. `observers` see every appended
    event (chunks aside) after it is in the log; they must not raise or append. `on_chunks` is
    called after each batch of chunks; when it answers that everything was taken, nobody else is
    woken for it.
    """

    def __init__(
        self,
        header: SessionHeader,
        file: LogFile | None = None,
        *,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        super().__init__()
        self.header: Final = header
        self.first_live_seq = 0
        self.header_in_this_life = False
        self.on_pending: Callable[[float], None] | None = None
        self.on_chunks: Callable[[], bool] | None = None
        self.observers: list[Callable[[Event], None]] = []
        self.on_close: Callable[[], None] | None = None
        self.degraded: str | None = None
        """Why the log is only in memory although it should be on disk."""
        self._clock = clock
        self._file = file
        self._memory = bytearray()
        self._pending_from = -1
        self._failure: LogError | None = None
        self._closed = False
        self._publishing = False
        self._synced = 0
        self._wait: DiskWait | None = None
        self._waited = 0
        self._bell: Final = Bell()
        self._foreign: tuple[bytes, bytes, int] | None = None
        if file is None:
            self._memory += header.encode() + b"\n"

    # ------------------------------------------------------------ state

    @property
    def path(self) -> "Path | None":
        """The file; `None` when the log is only in memory."""
        return None if self._file is None else self._file.path

    @property
    def in_memory(self) -> bool:
        """Nothing of this log outlives the process."""
        return self._file is None

    @property
    def writable(self) -> bool:
        """Whether `append` can work: not closed, and the disk never refused."""
        return not self._closed and self._failure is None

    @property
    def closed(self) -> bool:
        """`close` was called."""
        return self._closed

    def _check_writable(self) -> None:
        if self._closed:
            raise LogError("the session is closed", code="CLOSED")
        if self._publishing:
            raise LogError(
                "session append cannot reenter while another append is being published",
                code="INVALID_EVENT",
            )
        if self._failure is not None:
            raise LogError(
                f"the session can no longer be written: {self._failure}", code=self._failure.code
            )

    # ------------------------------------------------------------ appending

    def append(
        self,
        payload: Payload,
        *,
        surface: SurfaceOp | None = None,
        sources: Sequence[int] | None = None,
    ) -> Event:
        """Record one fact; it is with the operating system when this returns.

        Message payloads go to the end of the surface unless `surface` says otherwise. Nothing is
        logged when this raises.

        Raises:
            LogError: `INVALID_EVENT`, the event breaks a rule; `CLOSED`; `DISK_FULL` or `IO`, and
                then the log takes no more events.
            InvariantError: the event may not come here.
        """
        self._check_writable()
        kind = payload.TYPE
        try:
            data = payload.encode()
        except (NotLossless, TypeError, ValueError, RecursionError) as exc:
            raise validation.refused(
                f'session event "{kind}" carries non-JSON-serializable data'
            ) from exc
        where = f'session event "{kind}"'
        event = make_event(
            kind,
            self.seq,
            self._clock(),
            data,
            sources=sources,
            placement="append" if surface is None and payload.SURFACE else surface,
            ignorable=payload.IGNORABLE,
        )
        return self._commit_event(event, where)

    def _commit_event(self, event: Event, where: str) -> Event:
        validation.check_event(event, where)
        position = self._relations.position
        span = self.plan(event)
        try:
            self._write(self._take_pending() + event.line + b"\n")
        except LogError:
            self.abandon(position)
            raise
        self.commit(event, span)
        if event.type == RequestHeader.TYPE:
            self.header_in_this_life = True
        self._bell.ring()
        self._publishing = True
        try:
            for observer in self.observers:
                observer(event)
        finally:
            self._publishing = False
        return event

    def append_chunks(self, turn: int, step: int, chunks: Sequence[Chunk]) -> list[int]:
        """Record streamed chunks, in order; the seqs given to them.

        They are with the operating system at the next fact, or when the timer fires.

        Raises:
            LogError: `CLOSED`, `DISK_FULL`, `IO`.
            InvariantError: the step is not open; nothing is logged.
        """
        self._check_writable()
        first = self.seq
        self._relations.advance_chunks(turn, step, first + len(chunks) - 1)
        if not chunks:
            return []
        entries = self._entries
        if self._pending_from < 0:
            self._pending_from = len(entries)
            arm = True
        else:
            arm = False
        for entry in _as_entries(first, self._clock(), turn, step, chunks):
            entries.append(entry)
            self._starts.append(entry.seq)
        self.seq = first + len(chunks)
        if self.on_chunks is None or not self.on_chunks():
            self._bell.ring()
        if self.on_pending is None:
            self.flush()
        elif arm:
            self.on_pending(CHUNK_DELAY_S)
        return list(range(first, self.seq))

    # ------------------------------------------------------------ writing

    def _take_pending(self) -> bytes:
        start = self._pending_from
        if start < 0:
            return b""
        self._pending_from = -1
        packed = pack(self._entries[start:])
        self._entries[start:] = packed
        self._starts[start:] = [entry.seq for entry in packed]
        return b"".join([entry.encode() + b"\n" for entry in packed])

    def _write(self, data: bytes) -> None:
        if not data:
            return
        file = self._file
        if file is None:
            self._memory += data
            return
        if not file.exists:
            data = self.header.encode() + b"\n" + data
        try:
            file.write(data)
        except OSError as exc:
            if not file.exists and exc.errno in UNWRITABLE:
                self._degrade(f"{exc.strerror}: {file.path.parent}", data)
                return
            self._failure = disk_error(exc, f"the session log {file.path}")
            raise self._failure from exc
        except LogError as exc:
            self._failure = exc
            raise

    def _degrade(self, reason: str, data: bytes) -> None:
        # The place refused before anything was written, so nothing that exists is left behind.
        self.degraded = reason
        self._file = None
        self._memory += data

    def flush(self) -> None:
        """Hand everything that waits to the operating system now.

        Raises:
            LogError: `DISK_FULL`, `IO`; the log takes no more events.
        """
        data = self._take_pending()
        if data:
            if self._failure is not None:
                raise self._failure
            self._write(data)

    def flush_due(self) -> None:
        """What the timer calls. A refusal of the disk is reported by the next append or sync."""
        try:
            self.flush()
        except LogError:
            pass

    @property
    def handed_over(self) -> int:
        """How many bytes of the log the operating system has; see `sync`."""
        return 0 if self._file is None else self._file.size

    def begin_sync(self) -> None:
        """Begin to put on disk what was appended so far; whoever needs it calls `sync` later.

        Never raises: what goes wrong is raised by that `sync`.
        """
        self.flush_due()
        file = self._file
        if self._wait is None and file is not None and self._failure is None:
            with suppress(OSError):
                self._begin(file)

    async def sync(self, size: int | None = None) -> None:
        """Wait until everything appended so far is on disk; calls at the same time share one wait.

        With `size`, the first so many bytes (`handed_over`) are enough.

        Raises:
            LogError: `DISK_FULL`, `IO`; the log stays readable and takes no more events.
        """
        self.flush()
        if self._failure is not None:
            raise self._failure
        file = self._file
        if file is None:
            return
        file.check(self._content)
        target = file.size if size is None else size
        while self._synced < target:
            try:
                wait = self._wait
                if wait is None:
                    wait = self._begin(file)
                await wait.finished()
            except OSError as exc:
                if self._closed:
                    raise LogError("the session is closed", code="CLOSED") from exc
                self._failure = self._failure or disk_error(exc, f"the session log {file.path}")
                raise self._failure from exc
            if self._wait is wait:
                self._wait, self._synced = None, self._waited

    def _begin(self, file: LogFile) -> "DiskWait":
        from dsh_acp.log import disk_wait

        self._waited = file.size
        self._wait = disk_wait.begin(file.sync)
        self._wait.give_way()
        return self._wait

    # ------------------------------------------------------------ reading

    def lines(self, from_offset: int = 0) -> bytes:
        """The log's own bytes from `from_offset` on, read back from the file.

        Flushes first, so these are complete lines when `from_offset` is where one begins.

        Raises:
            LogError: `IO`, `CORRUPT`, the file is gone or no longer what was written.
        """
        self.flush()
        file = self._file
        if file is None:
            return bytes(memoryview(self._memory)[from_offset:])
        if self._failure is None:
            file.check(self._content)
        if self._foreign is None:
            return file.read(from_offset)
        seed, old, _ = self._foreign
        if from_offset >= len(seed):
            return file.read(from_offset - len(seed) + len(old))
        return seed[from_offset:] + file.read(len(old))

    def _content(self) -> bytes:
        """What the file should hold."""
        start, first = 0, self.header.encode() + b"\n"
        if self._foreign is not None:
            _, first, start = self._foreign
        return first + b"".join([entry.encode() + b"\n" for entry in self.entries(start)])

    def follow(self, start_seq: int = 0) -> Follower:
        """A cursor that begins at `start_seq`."""
        return Follower(self, self._bell, start_seq)

    def close(self) -> None:
        """Hand over what waits, release the lock, end the followers. Never raises."""
        if self._closed:
            return
        self.flush_due()
        self._closed = True
        if self._file is not None:
            self._file.close()
        self._bell.ring()
        if self.on_close is not None:
            self.on_close()

    # ------------------------------------------------------------ seeding

    def adopt(self, loaded: LoadedLog) -> None:
        """Go on from a log that was read; what closes its last turn is written."""
        self.take_over(loaded)
        if self._file is None:
            self._memory = bytearray(b"".join(line + b"\n" for line in loaded.lines()))
        elif loaded.migrated:
            # The file keeps the old forms; readers of `lines` get what this log is made of.
            seed = b"".join(line + b"\n" for line in loaded.lines())
            self._foreign = (seed, self._file.read(), loaded.stored_seq)
        self._write(b"".join(event.line + b"\n" for event in loaded.closers))
        self._begin_life()

    def inherit(self, entries: Iterable[Entry]) -> None:
        """Begin with what a parent recorded; written as this session's own first lines.

        What the entries leave open is closed.
        """
        lines: list[bytes] = []
        for entry in entries:
            self.admit(entry)
            lines.append(entry.encode() + b"\n")
        for event in list(repair.closers(self)):
            self.admit(event)
            lines.append(event.line + b"\n")
        self._write(b"".join(lines))
        self._begin_life()

    def _begin_life(self) -> None:
        self.first_live_seq = self.seq
        last = self._entries[-1] if self._entries else None
        if last is None or last.type != EndSeed.TYPE:
            self.append(EndSeed())


def _as_entries(
    seq: int, time: int, turn: int, step: int, chunks: Sequence[Chunk]
) -> Iterable[Entry]:
    run: list[ChunkRow] = []
    for chunk in chunks:
        row = chunk_row(seq, time, turn, step, chunk)
        if run and (row is None or not compatible(run[-1], row)):
            yield run[0].joined(run)
            run = []
        if row is None:
            payload = AssistantChunk(turn, step, chunk)
            yield make_event(AssistantChunk.TYPE, seq, time, payload.encode())
        else:
            run.append(row)
        seq += 1
    if run:
        yield run[0].joined(run)
