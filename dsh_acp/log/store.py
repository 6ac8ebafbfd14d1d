"""Sessions on disk: create, open, read, fork, delete, list.

One file per session, found by its id alone. Whoever writes a log holds its lock; everybody else
may read. Where nothing can be written, sessions live in memory and `memory_only` says why.
"""

from collections.abc import Callable, Iterable
import os
from pathlib import Path
from typing import Final

from dsh_acp.errors import LogError
from dsh_acp.log import paths
from dsh_acp.log.catalog import NOTABLE_TYPES, Catalog, SessionSummary, Tracker
from dsh_acp.log.collector import collector_paused
from dsh_acp.log.envelope import Event
from dsh_acp.log.load import LoadedLog, Reading, load, outcome, reading
from dsh_acp.log.logfile import LogFile, disk_error
from dsh_acp.log.packed import ChunkRow, Entry, pack
from dsh_acp.log.session_log import SessionLog, now_ms
from dsh_acp.log.validation import SessionHeader, decode_session_header
from dsh_acp.messages import new_id

SUBAGENT: Final = "subagent"


class Store:
    """All sessions under `<home>/sessions`. Construction never fails."""

    def __init__(self, home: Path, *, clock: Callable[[], int] = now_ms) -> None:
        self.home: Final = home
        self.root: Final = home / "sessions"
        self.memory_only: str | None = None
        """Why nothing will be kept, in words; `None` when all is well."""
        self._clock = clock
        self._live: dict[str, SessionLog] = {}
        self._catalog = Catalog(self.root)
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not os.access(self.root, os.W_OK | os.X_OK):
                self.memory_only = f"{self.root} is not writable"
        except OSError as exc:
            self.memory_only = f"{self.root} cannot be created: {exc.strerror}"

    # ------------------------------------------------------------ writing

    def create(
        self,
        cwd: str | None,
        *,
        id: str | None = None,
        parent: str | None = None,
        seed: Iterable[Entry] = (),
        seed_length: int | None = None,
        origin: str | None = None,
        delegation_depth: int = 0,
        preset: str | None = None,
    ) -> SessionLog:
        """A new session. Nothing is on disk before its first event.

        With a `seed`, the log begins with those entries, whatever they leave open is closed, and
        `session/end-seed` follows.

        Raises:
            LogError: `EXISTS`, there is one with that id; `CORRUPT`, `cwd` is not absolute;
                `DISK_FULL`, `IO` when seeding.
        """
        header = SessionHeader(
            id=id or new_id(),
            created_at=self._clock(),
            cwd=cwd,
            parent_session=parent,
            seed_length=seed_length,
            origin=origin,
            delegation_depth=delegation_depth,
            agent_preset=preset,
        )
        decode_session_header(header.encode())
        if id is not None and (id in self._live or self.find(id) is not None):
            raise LogError(
                f'session "{id}" already has a persisted log on disk;'
                " load/resume it instead of creating",
                code="EXISTS",
            )
        file = None
        if self.memory_only is None:
            file = LogFile(paths.log_path(self.root, cwd, header.id), self.root)
        log = SessionLog(header, file, clock=self._clock)
        entries = list(seed)
        if entries:
            try:
                log.inherit(entries)
            except BaseException:
                log.close()
                raise
        self._attach(log)
        return log

    def open(self, id: str) -> SessionLog:
        """Go on with a session: locked, its torn tail cut off, its interrupted turn closed.

        Where the log can be read but not written, the session goes on in memory and
        `SessionLog.degraded` says why.

        Raises:
            LogError: `NOT_FOUND`, `LOCKED`, `CORRUPT`, `UNSUPPORTED_VERSION`, `UNKNOWN_EVENT`,
                `DISK_FULL`, `IO`.
        """
        with collector_paused():
            return outcome(self.opening(id))

    def opening(self, id: str) -> Reading[SessionLog]:
        """`open` in small steps, which hand out what is read; to be closed when given up.

        Raises:
            LogError: as `open`.
        """
        kept = self._live.get(id)
        if kept is not None and kept.in_memory:
            return self._reopen_in_memory(kept)
        path = self._require(id)
        try:
            file = LogFile.open(path, self.root)
        except LogError as exc:
            if exc.code != "READ_ONLY":
                raise
            return self._open_in_memory(id, path, str(exc))
        try:
            loaded = yield from reading(file.blocks, expected_id=id, path=path)
            if loaded.torn:
                _cut(file, loaded)
            log = SessionLog(loaded.header, file, clock=self._clock)
            log.adopt(loaded)
        except BaseException:
            file.close()
            raise
        self._attach(log)
        return log

    def _reopen_in_memory(self, kept: SessionLog) -> SessionLog:
        if not kept.closed:
            raise LogError("the session is already open", code="LOCKED")
        loaded = load(kept.lines(), expected_id=kept.header.id)
        log = SessionLog(loaded.header, None, clock=self._clock)
        log.degraded = kept.degraded
        log.adopt(loaded)
        self._attach(log)
        return log

    def _open_in_memory(self, id: str, path: Path, why: str) -> SessionLog:
        loaded = load(_bytes_of(path), expected_id=id, path=path)
        log = SessionLog(loaded.header, None, clock=self._clock)
        log.degraded = why
        log.adopt(loaded)
        self._attach(log)
        return log

    def _attach(self, log: SessionLog) -> None:
        id = log.header.id
        self._live[id] = log
        tracker: Tracker | None = None

        def note(live: bool) -> None:
            if tracker is not None and log.path is not None:
                self._catalog.record(log.path, tracker.summary(), live=live)

        def observe(event: Event) -> None:
            nonlocal tracker
            if event.type not in NOTABLE_TYPES:
                return
            if tracker is None:
                # Opening a session is frequent and must be quick; most are only looked at.
                tracker = Tracker.of(log.header, log.entries())
                note(live=True)
            elif tracker.feed(event):
                note(live=True)

        def closed() -> None:
            if not log.in_memory:
                self._live.pop(id, None)
                note(live=False)

        log.observers.append(observe)
        log.on_close = closed

    def fork(
        self, id: str, at_seq: int | None = None, new_id: str | None = None, *, strict: bool = False
    ) -> SessionLog:
        """A child that begins with the parent's events up to and including `at_seq`.

        `None` is the last event. Pending input is not inherited. A turn that is open there is
        closed as after a crash; with `strict` it is refused instead.

        Raises:
            LogError: `NOT_FOUND`, `EXISTS`, `INVALID_BOUNDARY`, `OPEN_TURN`, and those of `read`.
        """
        source = self._load(id, close=False)
        boundary = source.seq - 1 if at_seq is None else at_seq
        if at_seq is not None:
            _check_boundary(id, at_seq, source.seq)
        entries: list[Entry] = []
        for entry in source.entries():
            if entry.end_seq <= boundary + 1:
                entries.append(entry)
                continue
            if isinstance(entry, ChunkRow) and entry.seq <= boundary:
                entries.extend(pack([entry.part(0, boundary + 1 - entry.seq)]))
            break
        if strict:
            _refuse_open_turn(id, boundary, entries)
        return self.create(
            source.header.cwd,
            id=new_id,
            parent=id,
            seed=entries,
            seed_length=boundary + 1,
        )

    def delete(self, id: str) -> bool:
        """Remove a session for good; whether there was one.

        Raises:
            LogError: `LOCKED`, it is open; `IO`.
        """
        live = self._live.get(id)
        if live is not None and not live.closed:
            raise LogError("the session is open; close it before deleting it", code="LOCKED")
        removed = self._live.pop(id, None) is not None
        path = self.find(id)
        if path is None:
            return removed
        import shutil  # pulls in every archive format; deleting is rare

        file = LogFile.open(path, self.root)
        try:
            shutil.rmtree(path.parent)
        except OSError as exc:
            raise LogError(f"{path.parent} cannot be removed: {exc.strerror}", code="IO") from exc
        finally:
            file.close()
        self._catalog.record(path, None, live=False)
        return True

    # ------------------------------------------------------------ reading

    def find(self, id: str) -> Path | None:
        """The log of a session, wherever it was started; `None` when there is none.

        Raises:
            LogError: `CORRUPT`, two projects have a session with that id.
        """
        try:
            segment = paths.encode_segment(id)
            with os.scandir(self.root) as projects:
                candidates = [f"{project.path}/{segment}/{paths.LOG_NAME}" for project in projects]
        except (OSError, ValueError):
            return None
        found = [path for path in candidates if os.path.exists(path)]  # noqa: PTH110 - the hot path of a look-up
        if len(found) > 1:
            raise LogError(
                f'duplicate JSONL session id "{id}" appears in multiple project directories',
                code="CORRUPT",
            )
        return Path(found[0]) if found else None

    def _require(self, id: str) -> Path:
        path = self.find(id)
        if path is None:
            raise LogError(f'session "{id}" not found', code="NOT_FOUND")
        return path

    def read(self, id_or_path: str | Path) -> LoadedLog:
        """A session as it is now, without lock and without writing; closed in memory.

        Raises:
            LogError: `NOT_FOUND`, `CORRUPT`, `UNSUPPORTED_VERSION`, `UNKNOWN_EVENT`, `IO`.
        """
        return self._load(id_or_path, close=True)

    def _load(self, id_or_path: str | Path, *, close: bool) -> LoadedLog:
        if isinstance(id_or_path, Path):
            return load(_bytes_of(id_or_path), path=id_or_path, close=close)
        live = self._live.get(id_or_path)
        path = None if live is None else live.path
        data = self.raw(id_or_path)
        return load(data, expected_id=id_or_path, path=path, close=close)

    def raw(self, id: str) -> bytes:
        """The log's bytes as they are.

        Raises:
            LogError: `NOT_FOUND`, `IO`.
        """
        live = self._live.get(id)
        if live is not None and (live.in_memory or live.path is None):
            return live.lines()
        if live is not None:
            live.flush_due()
            if not live.seq:
                return live.header.encode() + b"\n"
        return _bytes_of(self._require(id))

    def descendants(self, id: str) -> list[str]:
        """Subagents of a session and theirs, parents before children."""
        summaries = self._summaries()
        found = [id]
        for parent in found:
            children = [
                each
                for each in summaries
                if each.parent == parent and each.origin == SUBAGENT and each.id not in found
            ]
            children.sort(key=lambda each: (each.created_at_ms, each.id))
            found.extend(each.id for each in children)
        return found[1:]

    def _summaries(self) -> list[SessionSummary]:
        found = self._catalog.summaries()
        for log in self._live.values():
            if log.in_memory:
                found.append(Tracker.of(log.header, log.entries()).summary())
        return found

    def list(
        self, cwd: str | None = None, *, include_subagents: bool = False
    ) -> list[SessionSummary]:
        """Sessions with input, newest first; those of `cwd` when given."""
        found = [
            summary
            for summary in self._summaries()
            if summary.has_input
            and (cwd is None or summary.cwd == cwd)
            and (include_subagents or summary.origin != SUBAGENT)
        ]
        found.sort(key=lambda summary: (-summary.updated_at_ms, summary.id))
        return found


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise LogError(f"there is no session log at {path}", code="NOT_FOUND") from None
    except OSError as exc:
        raise LogError(f"{path} cannot be read: {exc.strerror}", code="IO") from exc


def _cut(file: LogFile, loaded: LoadedLog) -> None:
    # A torn line is nothing anybody acknowledged. Whole lines behind a bad one are not torn, so
    # they are kept beside the log before they are cut off it.
    try:
        if b"\n" in loaded.torn:
            kept = file.path.with_name(f"{paths.LOG_NAME}.torn-{loaded.committed}")
            kept.write_bytes(loaded.torn)
        file.truncate(loaded.committed)
    except OSError as exc:
        raise disk_error(exc, f"the session log {file.path}") from exc


def _check_boundary(id: str, boundary: int, length: int) -> None:
    if boundary < 0:
        raise LogError(
            f'fork boundary for session "{id}" must be a non-negative safe integer, got {boundary}',
            code="INVALID_BOUNDARY",
        )
    if boundary >= length:
        last = str(length - 1) if length else "none"
        raise LogError(
            f'fork boundary {boundary} does not exist in session "{id}" (last seq: {last})',
            code="INVALID_BOUNDARY",
        )


def _refuse_open_turn(id: str, boundary: int, entries: list[Entry]) -> None:
    for entry in reversed(entries):
        if entry.type == "turn/end":
            return
        if isinstance(entry, Event) and entry.type == "turn/start":
            raise LogError(
                f'fork boundary {boundary} in session "{id}" ends inside open turn'
                f" {entry.payload.turn}",
                code="OPEN_TURN",
            )
