"""A log's entries with the folds over them, kept as entries arrive.

This is the read side of a log. `admit` is the only way in: it checks an entry against every fold
before any of them changes.
"""

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, cast

import msgspec
from msgspec import UNSET

from dsh_acp.errors import LogError
from dsh_acp.log.envelope import SURFACE_TYPES, Event
from dsh_acp.log.packed import ChunkRow, Entry
from dsh_acp.log.payloads import RequestContext, RequestHeader
from dsh_acp.log.relations import RULES, WITHIN, Position, Relations
from dsh_acp.log.surface import Span, Surface, derive_event_message
from dsh_acp.log.validation import refused
from dsh_acp.messages import EpochHeader, Message

FOLDED_TYPES: Final = SURFACE_TYPES | {"request/header", "request/context"}
"""The types that change more than the order of turns and steps."""

_CHUNK: Final = "assistant/chunk"


def _shapeless(event: Event, exc: Exception) -> LogError:
    return refused(f'session event "{event.type}" has an invalid payload: {exc}')


class History:
    """Entries in order. `seq` is the number of events, and the seq of the next one."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._starts: list[int] = []
        self._header_event: Event | None = None
        self._context_event: Event | None = None
        self._derived: list[Message] = []
        self._projected = 0
        self._generation = 0
        self._messages: tuple[Message, ...] | None = ()
        self._relations = Relations()
        self.seq = 0
        self.surface = Surface()

    # ------------------------------------------------------------ reading

    def entries(self, start_seq: int = 0) -> Iterator[Entry]:
        """Entries from `start_seq` on, rows packed; a row is cut if it begins earlier.

        The iterator sees what is appended while it runs.
        """
        if start_seq >= self.seq:
            return
        k = bisect_right(self._starts, max(0, start_seq)) - 1
        first = self._entries[k]
        if isinstance(first, ChunkRow) and first.seq0 < start_seq:
            yield first.part(start_seq - first.seq0, len(first.texts))
            k += 1
        # Slices, because an iterator over the list would first pass all that came before.
        while fresh := self._entries[k:]:
            yield from fresh
            k += len(fresh)

    def events(self, start: int = 0) -> Iterator[Event]:
        """Every event from seq `start` on, rows expanded."""
        for entry in self.entries(start):
            if isinstance(entry, ChunkRow):
                yield from entry.events()
            else:
                yield entry

    def backward(self) -> Iterator[Entry]:
        """Entries from the last to the first, rows packed."""
        return reversed(self._entries)

    def event(self, seq: int) -> Event:
        """The event at `seq`.

        Raises:
            IndexError: there is none.
        """
        if not 0 <= seq < self.seq:
            raise IndexError(f"no event at seq {seq}")
        entry = self._entries[bisect_right(self._starts, seq) - 1]
        if isinstance(entry, ChunkRow):
            return next(entry.part(seq - entry.seq0, seq - entry.seq0 + 1).events())
        return entry

    def messages(self) -> tuple[Message, ...]:
        """What the model can still see. Each event is projected once; the tuple never changes."""
        surface = self.surface
        if surface.generation != self._generation:
            self._derived.clear()
            self._projected = 0
            self._generation = surface.generation
            self._messages = None
        nodes = surface.nodes
        if self._projected < len(nodes):
            for seq in nodes[self._projected :]:
                message = derive_event_message(self.event(seq))
                if message is not None:
                    self._derived.append(message)
            self._projected = len(nodes)
            self._messages = None
        if self._messages is None:
            self._messages = tuple(self._derived)
        return self._messages

    def request_header(self) -> EpochHeader | None:
        """The header in force: the last snapshot's."""
        event = self._header_event
        return None if event is None else cast(RequestHeader, event.payload).header

    def request_context(self) -> RequestContext | None:
        """The last request context."""
        event = self._context_event
        return None if event is None else cast(RequestContext, event.payload)

    @property
    def open_turn(self) -> int | None:
        """The turn that is open."""
        return self._relations.turn

    @property
    def open_step(self) -> int | None:
        """The step that is open."""
        return self._relations.step

    @property
    def last_turn(self) -> int:
        """The number of the last turn that was opened; 0 before the first."""
        return self._relations.last_turn

    # ------------------------------------------------------------ writing

    def admit(self, entry: Entry) -> None:
        """Check an entry against the folds, then take it in.

        Raises:
            LogError: `INVALID_EVENT`, it breaks a rule of the surface or lacks a number.
            InvariantError: it may not come here.
        """
        if isinstance(entry, ChunkRow):
            if entry.seq0 != self.seq:
                raise refused(
                    f"session event seq {entry.seq0} is not contiguous; expected {self.seq}"
                )
            end = entry.end_seq
            self._relations.advance_chunks(entry.turn, entry.step, end - 1)
            self._entries.append(entry)
            self._starts.append(entry.seq0)
            self.seq = end
        elif (
            entry.seq == self.seq
            and entry.placement is UNSET
            and entry.sources is UNSET
            and entry.type not in FOLDED_TYPES
        ):
            # Neither surface nor header has an opinion on most events, and long logs spend their
            # time here.
            rule = RULES.get(entry.type)
            if rule is not None:
                try:
                    rule(self._relations, entry)
                except msgspec.ValidationError as exc:
                    raise _shapeless(entry, exc) from None
            self._entries.append(entry)
            self._starts.append(entry.seq)
            self.seq += 1
        else:
            self.commit(entry, self.plan(entry))

    def admit_all(
        self, entries: Iterable[Entry], check: Callable[[Entry], None], plain: Container[str]
    ) -> None:
        """`admit` each of `entries`, after `check` has looked at it.

        Events of the `plain` types need no look, and change nothing but the order of things.

        Raises:
            LogError, InvariantError: as `admit` and `check`; what came before was taken in.
        """
        relations, seq = self._relations, self.seq
        add, begin, rules = self._entries.append, self._starts.append, RULES.get
        appends, nodes = self.surface.appends, self.surface.nodes
        for entry in entries:
            kind = entry.type
            # More than half of a log is chunks of the open step: one look at their line is enough.
            if (
                kind == _CHUNK
                and isinstance(entry, Event)
                and entry.seq == seq
                and entry.placement is entry.sources is UNSET
                and entry.line.find(relations.mark, 0, WITHIN) > 0
            ):
                add(entry)
                begin(seq)
                self.seq = seq = seq + 1
                continue
            is_node = False
            if (
                kind not in plain
                or isinstance(entry, ChunkRow)
                or entry.seq != seq
                or entry.placement is not UNSET
                or entry.sources is not UNSET
            ):
                check(entry)
                if isinstance(entry, ChunkRow) or entry.seq != seq or not appends(entry):
                    self.admit(entry)
                    seq = self.seq
                    continue
                is_node = True
            rule = rules(kind)
            if rule is not None:
                try:
                    rule(relations, entry)
                except msgspec.ValidationError as exc:
                    raise _shapeless(entry, exc) from None
            if is_node:
                nodes.append(seq)
            add(entry)
            begin(seq)
            self.seq = seq = seq + 1

    def plan(self, event: Event) -> Span | None:
        """Check `event`; the place that it takes on the surface, for `commit`.

        The relations move past the event already; `abandon` takes them back.

        Raises:
            LogError: `INVALID_EVENT`, it breaks a rule of the surface or lacks a number.
            InvariantError: it may not come here.
        """
        span = self.surface.plan(event, self.seq, self.event)
        try:
            if event.type == "request/header" and not isinstance(event.payload, RequestHeader):
                raise refused('session event "request/header" has an invalid payload')
            self._relations.advance(event)
        except msgspec.ValidationError as exc:
            raise _shapeless(event, exc) from None
        return span

    def abandon(self, position: Position) -> None:
        """Forget a planned event: it did not get into the log."""
        self._relations.rewind(position, self.seq - 1)

    def commit(self, event: Event, span: Span | None) -> None:
        """Take in a planned event."""
        self._entries.append(event)
        self._starts.append(event.seq)
        self.seq += 1
        if span is not None:
            self.surface.apply(event, span)
        elif event.type == "request/header":
            self._header_event = event
        elif event.type == "request/context" and isinstance(event.payload, RequestContext):
            self._context_event = event

    def take_over(self, other: "History") -> None:
        """Continue from the entries and folds of `other`, which is not used any more."""
        self._entries, self._starts = other._entries, other._starts
        self._header_event, self._context_event = other._header_event, other._context_event
        self._derived, self._projected = other._derived, other._projected
        self._generation, self._messages = other._generation, other._messages
        self._relations, self.seq, self.surface = other._relations, other.seq, other.surface
