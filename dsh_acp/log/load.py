"""From bytes to a validated log: scan, version, legacy forms, unknown types, folds.

A torn tail is what a crash leaves and is cut off. Damage before a later `turn/end` is something
else: committed facts are gone, and the log is refused rather than guessed at.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import force_setattr

from dsh_acp import jsontext
from dsh_acp.errors import InvariantError, LogError
from dsh_acp.log import migration, repair
from dsh_acp.log.envelope import PAYLOADS, Event, bare_event
from dsh_acp.log.history import FOLDED_TYPES, History
from dsh_acp.log.logfile import BLOCK
from dsh_acp.log.packed import (
    ROW_TYPES,
    STARTS,
    Entry,
    MalformedRow,
    bare_row,
    decode_entry,
    is_sound,
)
from dsh_acp.log.validation import (
    SessionHeader,
    check_event,
    decode_session_header,
)

VERSION: Final = 0

T = TypeVar("T")

_A: Final = ord("a")


class _Doubt(Exception):
    """A line about which there is something to say."""


def _plain(lines: Iterable[bytes], expected: int) -> list[Entry]:
    """The entries of `lines`, from seq `expected` on, if there is nothing at all to say about them.

    Raises:
        _Doubt: there is.
    """
    entries: list[Entry] = []
    add, read_row, read_event, keep = entries.append, bare_row, bare_event, force_setattr
    try:
        for line in lines:
            # Most types begin with an `a`, as in `assistant`, and none of the packed rows'.
            if line[9] != _A and line[:21] in STARTS:
                entry = read_row(line)
                if entry.seq0 != expected or not is_sound(entry):
                    raise _Doubt
                expected = entry.end_seq
            else:
                entry = read_event(line)
                if entry.seq != expected:
                    raise _Doubt
                expected += 1
            keep(entry, "line", line)
            add(entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, IndexError):
        raise _Doubt from None
    return entries


def _careful(lines: list[bytes]) -> tuple[list[Entry], str]:
    """The entries before the first thing that is wrong, and what that is."""
    entries: list[Entry] = []
    expected = 0
    for number, line in enumerate(islice(lines, 1, None), 1):
        try:
            entry = decode_entry(line)
        except (MalformedRow, jsontext.DecodeError, msgspec.ValidationError):
            return entries, f"corrupt session log: unparsable committed event at line {number}"
        if entry.seq != expected:
            return entries, (
                f"corrupt session log: seq gap in committed region at line {number}"
                f" (expected {expected}, got {entry.seq})"
            )
        entries.append(entry)
        expected = entry.end_seq
    return entries, ""


def _is_turn_end(line: bytes) -> bool:
    if b'"turn/end"' not in line:
        return False
    try:
        return decode_entry(line).type == "turn/end"
    except (MalformedRow, jsontext.DecodeError, msgspec.ValidationError):
        return False


class LoadedLog(History):
    """A log as it was read, complete: what a crash left open is closed in memory."""

    def __init__(self, header: SessionHeader, path: Path | None = None) -> None:
        super().__init__()
        self.header: Final = header
        self.path: Final = path
        self.closers: tuple[Event, ...] = ()
        """The events that closed an open turn; not in the file."""
        self.stored_seq = 0
        """The number of events that came from the file."""
        self.committed = 0
        """The size of the file up to its last good line."""
        self.torn = b""
        """What followed it."""
        self.migrated = False
        """Old forms were read as new ones, so the entries are not the file's bytes."""

    def lines(self) -> Iterator[bytes]:
        """Every line as it is, or would be, stored; header first, without newlines."""
        yield self.header.encode()
        for entry in self.entries():
            if entry.seq < self.stored_seq:
                yield entry.encode()


def load(
    data: bytes,
    *,
    expected_id: str | None = None,
    path: Path | None = None,
    placeholders: bool = False,
    close: bool = True,
) -> LoadedLog:
    """Read, check and fold a log.

    With `close`, the events that close an interrupted turn are added in memory.

    Raises:
        LogError: `CORRUPT`, `UNSUPPORTED_VERSION`, `UNKNOWN_EVENT`, `INVALID_EVENT`.
    """

    def blocks() -> Iterator[bytes]:
        return (data[at : at + BLOCK] for at in range(0, len(data), BLOCK))

    return outcome(
        reading(blocks, expected_id=expected_id, path=path, placeholders=placeholders, close=close)
    )


Reading: TypeAlias = Generator[Sequence[Entry], None, T]
"""Work that hands out the entries of a log in order while it takes them in.

What begins at seq 0 begins anew: what came before is void. Not every entry need be handed out.
"""


def outcome(steps: Reading[T]) -> T:
    """What the work returns in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def reading(
    blocks: Callable[[], Iterable[bytes]],
    *,
    expected_id: str | None = None,
    path: Path | None = None,
    placeholders: bool = False,
    close: bool = True,
) -> Reading[LoadedLog]:
    """`load` of what `blocks` gives, which may be asked for it again, in small steps.

    Entries are read, checked, taken in and handed out while they are at hand: a long log fits in
    no processor's cache.

    Raises:
        LogError: as `load`.
    """
    lines = _Lines(blocks())
    parts = iter(lines)
    part = next(parts, None)
    # Without a newline there is nothing, or nothing but a torn line.
    if part is None or not part[0].strip():
        raise LogError("empty or header-less session log", code="CORRUPT")
    header = _header(part.pop(0), expected_id, path, placeholders)
    log = LoadedLog(header, path)
    try:
        while part is not None:
            entries = _plain(part, log.seq)
            _fold(log, entries)
            if entries:
                yield entries
            part = next(parts, None)
        log.committed, log.torn = lines.size, lines.tail
    except (_Doubt, LogError):
        log = _read_with_care(header, b"".join(blocks()).split(b"\n"), path)
        if log.seq:
            yield list(log.entries())
    log.stored_seq = log.seq
    if close:
        log.closers = tuple(repair.closers(log))
        for event in log.closers:
            log.admit(event)
        if log.closers:
            yield log.closers
    return log


class _Lines:
    """The complete lines of each block. `tail` follows the last of them, which end at `size`."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self.size = 0
        self._blocks = blocks
        self._pending: list[bytes] = []

    @property
    def tail(self) -> bytes:
        return b"".join(self._pending)

    def __iter__(self) -> Iterator[list[bytes]]:
        read = 0
        for block in self._blocks:
            read += len(block)
            if b"\n" not in block:
                self._pending.append(block)
                continue
            lines = block.split(b"\n")
            lines[0] = b"".join((*self._pending, lines[0]))
            self._pending = [lines.pop()]
            self.size = read - len(self._pending[0])
            yield lines


def _header(
    line: bytes, expected_id: str | None, path: Path | None, placeholders: bool
) -> SessionHeader:
    header = decode_session_header(line, placeholders=placeholders)
    if expected_id is not None and header.version == VERSION and header.id != expected_id:
        raise LogError(
            f'stored session identity mismatch: requested "{expected_id}",'
            f' header contains "{header.id}"',
            code="CORRUPT",
        )
    _check_version(expected_id or header.id, header.version, path)
    return header


def _read_with_care(header: SessionHeader, lines: list[bytes], path: Path | None) -> LoadedLog:
    """The log of lines that are damaged, of old forms or written in an unusual way.

    Raises:
        LogError: `CORRUPT`, a committed region is damaged; and as `load`.
    """
    *whole, tail = lines
    entries, issue = _careful(whole)
    good = len(entries) + 1
    if issue and any(_is_turn_end(line) for line in whole[good:]):
        raise LogError(issue, code="CORRUPT")
    log = LoadedLog(header, path)
    try:
        _fold(log, entries)
    except LogError:
        # Old forms break rules, so only a log that breaks one is searched for them.
        current = migration.migrate(header.id, entries)
        if current is entries:
            raise
        log = LoadedLog(header, path)
        log.migrated = True
        _fold(log, current)
    log.committed = sum(map(len, whole[:good])) + good
    log.torn = b"\n".join([*whole[good:], tail])
    return log


_CHECKED: Final = frozenset(
    {"user/message", "assistant/message", "tool/result", "request/header", "turn/end"}
)
_QUIET: Final = (frozenset(PAYLOADS) | ROW_TYPES) - _CHECKED
_PLAIN: Final = frozenset(PAYLOADS) - _CHECKED - FOLDED_TYPES


def _fold(log: LoadedLog, entries: Iterable[Entry]) -> None:
    session_id = log.header.id

    def check(entry: Entry) -> None:
        if entry.type not in _QUIET:
            _check(session_id, cast(Event, entry))

    try:
        log.admit_all(entries, check, _PLAIN)
    except LogError as exc:
        if exc.code != "INVALID_EVENT":
            raise
        text = str(exc)
        if not text.startswith("seed "):
            text = f"invalid seed event at index {log.seq}: {text}"
        raise _invalid(session_id, text) from exc
    except InvariantError as exc:
        raise _invalid(session_id, exc.detail) from exc


def _check(session_id: str, event: Event) -> None:
    kind = event.type
    if kind == "turn/end":
        if not migration.is_current(event):
            raise _invalid(session_id, f"turn/end at index {event.seq} has no valid reason")
    elif kind in _CHECKED:
        check_event(event, f"seed {kind} at index {event.seq}")
    elif not event.ignorable:
        raise _unknown(session_id, event)


def _unknown(session_id: str, event: Event) -> LogError:
    return LogError(
        f'session "{session_id}" contains event type "{event.type}" (seq {event.seq})'
        " unknown to this harness and not marked ignorable; refusing to interpret the log — it was"
        " likely written by a newer harness",
        code="UNKNOWN_EVENT",
    )


def _invalid(session_id: str, text: str) -> LogError:
    return LogError(f'stored session "{session_id}" failed validation: {text}', code="CORRUPT")


def _check_version(session_id: str, version: int, path: Path | None) -> None:
    if version == VERSION:
        return
    text = (
        f'session "{session_id}" uses log format v{version}, but this harness reads only'
        f" v{VERSION}: the log was written by a newer harness — upgrade the harness to open it"
    )
    if path is not None:
        text += f" (raw log: {path})"
    raise LogError(text, code="UNSUPPORTED_VERSION")


def load_fixture(text: bytes | str) -> LoadedLog:
    """A recorded fixture: sequence numbers counted, times zero, placeholders accepted.

    Raises:
        LogError: as `load`.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    lines = [line for line in data.split(b"\n") if line.strip()]
    found = [lines[0]] if lines else []
    seq = 0
    for number, line in enumerate(lines[1:], 2):
        numbered = _numbered(line, seq, number)
        found.append(numbered)
        seq = decode_entry(numbered).end_seq
    return load(b"\n".join(found) + b"\n", placeholders=True, close=False)


def _numbered(line: bytes, seq: int, number: int) -> bytes:
    try:
        fields = jsontext.decode(line, _fields)
    except msgspec.ValidationError:
        raise _bad_line(number, "must be a JSON object") from None
    except jsontext.DecodeError:
        raise _bad_line(number, "contains invalid JSON") from None
    row = bytes(fields.get("type", b"")).endswith(b'-chunks"')
    order, clock = ("seq0", "time0") if row else ("seq", "time")
    if order in fields and clock in fields:
        return line
    kind = bytes(fields.pop("type", b'""'))
    rest = {key: value for key, value in fields.items() if key not in (order, clock)}
    given = bytes(fields.get(order, b"%d" % seq))
    at = bytes(fields.get(clock, b"0"))
    head = b'{"type":%b,"%b":%b,"%b":%b' % (kind, order.encode(), given, clock.encode(), at)
    return (
        head
        + b"".join(b",%b:%b" % (jsontext.encode(key), bytes(value)) for key, value in rest.items())
        + b"}"
    )


_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _bad_line(number: int, why: str) -> LogError:
    return LogError(f"session snapshot line {number} {why}", code="CORRUPT")
