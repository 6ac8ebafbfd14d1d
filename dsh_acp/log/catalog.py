"""What a person sees in a list of sessions, kept in an index that can be thrown away.

The index is a file of lines under the sessions' directory; per session the last line counts. It is
written by whoever has a session open, and read together with the directory, which decides what
exists. A session without a line, or whose writer died, is summarised again from its log.
"""

from collections.abc import Iterable
import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, UnsetType

from dsh_acp import jsontext
from dsh_acp.errors import LogError
from dsh_acp.log import lock
from dsh_acp.log.envelope import Event, decode_event
from dsh_acp.log.packed import Entry
from dsh_acp.log.paths import LOG_NAME
from dsh_acp.log.payloads import TurnStart
from dsh_acp.log.plugin_payloads import SessionOptionsEvent, SessionTitle
from dsh_acp.log.validation import SessionHeader, decode_session_header

INDEX_NAME: Final = "index.jsonl"
_TITLE_LENGTH: Final = 80
_SLACK: Final = 64 * 1024
"""An index below this size is never rewritten."""


class SessionSummary(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One line of the list; times are Unix milliseconds."""

    id: str
    created_at_ms: int
    updated_at_ms: int
    cwd: str | None = None
    title: str | None = None
    turns: int = 0
    parent: str | None = None
    origin: str | None = None
    additional_directories: tuple[str, ...] = ()
    has_input: bool = False


class _Record(Struct, frozen=True, omit_defaults=True):
    key: str
    live: bool = False
    summary: SessionSummary | None = None


_record: Final = msgspec.json.Decoder(_Record)
NOTABLE_TYPES: Final = frozenset(
    {"turn/start", "turn/end", "user/message", "session/title", "session/options"}
)
"""The types that a summary depends on."""

_PREFIXES: Final = tuple(b'{"type":"' + kind.encode() + b'"' for kind in NOTABLE_TYPES)


class Tracker:
    """The summary of one session, as a fold of its events."""

    def __init__(self, header: SessionHeader) -> None:
        self._header = header
        self._cwd = header.cwd
        self._updated = header.created_at
        self._title: str | None = None
        self._titled = False
        self._turns = 0
        self._directories: tuple[str, ...] = ()
        self._has_input = False

    @classmethod
    def of(cls, header: SessionHeader, entries: Iterable[Entry]) -> "Tracker":
        """The fold of `entries`."""
        tracker = cls(header)
        for entry in entries:
            if entry.type in NOTABLE_TYPES and isinstance(entry, Event):
                tracker.feed(entry)
        return tracker

    def summary(self) -> SessionSummary:
        """The summary so far."""
        header = self._header
        return SessionSummary(
            id=header.id,
            created_at_ms=header.created_at,
            updated_at_ms=self._updated,
            cwd=self._cwd,
            title=self._title,
            turns=self._turns,
            parent=header.parent_session,
            origin=header.origin,
            additional_directories=self._directories,
            has_input=self._has_input,
        )

    def feed(self, event: Event) -> bool:
        """Take in one event; whether the summary changed in a way worth writing down."""
        kind = event.type
        if kind == "user/message":
            self._updated = event.time
            return not self._has_input and self._input(event)
        if kind == "turn/end":
            self._updated = event.time
            return True
        payload = event.payload
        if isinstance(payload, TurnStart):
            self._turns = payload.turn
            return False
        if isinstance(payload, SessionTitle):
            self._title, self._titled = payload.title, True
        elif isinstance(payload, SessionOptionsEvent):
            if not isinstance(payload.cwd, UnsetType):
                self._cwd = payload.cwd
            if not isinstance(payload.additional_directories, UnsetType):
                self._directories = payload.additional_directories
        return True

    def _input(self, event: Event) -> bool:
        payload = event.payload
        try:
            if payload.message.source.get("kind") != "user":
                return False
            words = " ".join(payload.message.text.split())
        except msgspec.MsgspecError:
            return False
        self._has_input = True
        if not self._titled:
            self._title = words[:_TITLE_LENGTH].rstrip() or None
        return True


def summarise(path: Path) -> SessionSummary | None:
    """The summary of a log on disk; `None` when it cannot be read as one."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
        tracker = Tracker(decode_session_header(lines[0])) if lines else None
    except (OSError, LogError):
        return None
    if tracker is None:
        return None
    for line in lines:
        if line.startswith(_PREFIXES):
            try:
                tracker.feed(decode_event(line))
            except (jsontext.DecodeError, msgspec.ValidationError):
                break
    return tracker.summary()


class Catalog:
    """The list of sessions under `root`. Safe to use from several processes at once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / INDEX_NAME

    def record(self, log_path: Path, summary: SessionSummary | None, *, live: bool) -> None:
        """Note the state of a session; without a summary it is gone. Failures are harmless."""
        line = jsontext.encode(_Record(self._key(log_path), live, summary)) + b"\n"
        try:
            self._append(line)
        except OSError:
            pass  # the index is only a cache: a session that is not in it is summarised again

    def _key(self, log_path: Path) -> str:
        return f"{log_path.parent.parent.name}/{log_path.parent.name}"

    def _append(self, data: bytes) -> None:
        while True:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                lock.acquire(fd, wait=True)
                # Another process may have put a rewritten index in place of this one.
                if self._path.exists() and os.path.samestat(os.fstat(fd), self._path.stat()):
                    os.write(fd, data)
                    return
            finally:
                os.close(fd)

    def summaries(self) -> list[SessionSummary]:
        """Every session that exists, in no order."""
        records, lines = self._read()
        found: list[SessionSummary] = []
        stale = 0
        for key in self._keys():
            record = records.pop(key, None)
            if record is not None and record.live and not self._has_writer(key):
                record = None
            if record is None:
                path = self._root / key / LOG_NAME
                summary = summarise(path)
                if summary is None:
                    continue
                stale += 1
                self.record(path, summary, live=False)
                found.append(summary)
            elif record.summary is not None:
                found.append(record.summary)
        if lines > 3 * len(found) + stale + 100:
            self._rewrite()
        return found

    def _has_writer(self, key: str) -> bool:
        try:
            fd = os.open(self._root / key / LOG_NAME, os.O_RDONLY)
        except OSError:
            return False
        try:
            return not lock.acquire(fd)
        finally:
            os.close(fd)

    def _keys(self) -> Iterable[str]:
        try:
            with os.scandir(self._root) as projects:
                folders = [entry.name for entry in projects if entry.is_dir()]
        except OSError:
            return
        for folder in folders:
            try:
                with os.scandir(self._root / folder) as sessions:
                    names = [entry.name for entry in sessions]
            except OSError:
                continue
            for name in names:
                yield f"{folder}/{name}"

    def _read(self) -> tuple[dict[str, _Record], int]:
        try:
            data = self._path.read_bytes()
        except OSError:
            return {}, 0
        try:
            records = _record.decode_lines(data)
        except msgspec.MsgspecError:
            records = self._readable(data)
        return {record.key: record for record in records}, len(records)

    def _readable(self, data: bytes) -> list[_Record]:
        found: list[_Record] = []
        for line in data.split(b"\n"):
            try:
                found.append(_record.decode(line))
            except msgspec.MsgspecError:
                continue
        return found

    def _rewrite(self) -> None:
        try:
            if self._path.stat().st_size < _SLACK:
                return
            fd = os.open(self._path, os.O_RDWR)
        except OSError:
            return
        temporary = self._root / f"{INDEX_NAME}.{os.urandom(6).hex()}.tmp"
        try:
            if not lock.acquire(fd):
                return
            records, _ = self._read()
            kept = [record for record in records.values() if record.summary is not None]
            temporary.write_bytes(b"".join(jsontext.encode(record) + b"\n" for record in kept))
            temporary.replace(self._path)
        except OSError:
            temporary.unlink(missing_ok=True)
        finally:
            os.close(fd)
