"""A second reading of the log: from its bytes, by code of its own.

It scans lines, counts sequence numbers, follows turns and steps, folds the surface and the header,
and shares nothing with the live log but `derive_event_message`. A mistake in one of the two does
not hide in the other.
"""

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dsh_acp import jsontext
from dsh_acp.log.envelope import Event
from dsh_acp.log.surface import derive_event_message
from dsh_acp.messages import CallConfig, EpochHeader, Message, ToolSchema


class _Span(Struct, frozen=True):
    op: Literal["replace"]
    start: int
    end: int


class Line(Struct, frozen=True, rename="camel", gc=False, forbid_unknown_fields=True):
    """One line as this reading sees it: an event, or a packed row."""

    type: str
    data: Raw
    seq: int = -1
    time: int | UnsetType = UNSET
    ignorable: bool | UnsetType = UNSET
    source_event_seqs: tuple[int, ...] | UnsetType = UNSET
    surface_op: Literal["append"] | _Span | UnsetType = UNSET
    seq0: int = -1
    time0: int | UnsetType = UNSET


class _Row(Struct, frozen=True):
    turn: int
    step: int
    dt: list[int]
    texts: list[str] = []
    args: list[str] = []


class _Place(Struct, frozen=True):
    turn: int = -1
    step: int = -1


class _HeaderFields(Struct, frozen=True, rename="camel"):
    config: CallConfig
    adapter_defaults: dict[str, Any] | UnsetType = UNSET
    system: str = ""
    tools: Raw = Raw(b"[]")
    message_prefix: tuple[Raw, ...] = ()
    message_suffix: tuple[Raw, ...] = ()


class _Snapshot(Struct, frozen=True):
    header: _HeaderFields


class _First(Struct, frozen=True):
    type: Literal["session"]
    version: int
    id: str


_line: Final = msgspec.json.Decoder(Line)
_row: Final = msgspec.json.Decoder(_Row)
_place: Final = msgspec.json.Decoder(_Place)
_snapshot: Final = msgspec.json.Decoder(_Snapshot)
_first: Final = msgspec.json.Decoder(_First)
_tools: Final = msgspec.json.Decoder(tuple[ToolSchema, ...])

ROWS: Final = frozenset({"text-chunks", "reasoning-chunks", "tool-call-chunks"})
_VISIBLE: Final = frozenset({"user/message", "assistant/message", "tool/result"})
_STEP_BOUND: Final = frozenset({"assistant/chunk", "assistant/message", "tool/call", "tool/result"})


class Ledger:
    """The fold of the lines fed so far.

    `issue` is the first thing that a sound log cannot contain; nothing is folded after it.
    """

    def __init__(self) -> None:
        self.offset = 0
        """The number of bytes fed."""
        self.session_id: str | None = None
        self.seq = 0
        self.issue: str | None = None
        self.saw_step = False
        self.turn: int | None = None
        self.step: int | None = None
        self.header: EpochHeader | None = None
        self.derived: list[Message] = []
        """The derivation: the visible messages, without framing."""
        self.origins: list[int] = []
        """For each derived message, the seq of its event."""
        self.generation = 0
        """The number of replacements: between two, the derivation only grows."""
        self._texts: list[bytes] = []
        """The texts of the adopted messages, as they were when they equalled the log's."""
        self._nodes: list[int] = []
        self._at: dict[int, Message | None] = {}
        self._last_turn: int = 0
        self._last_step: int = 0

    def feed(self, lines: bytes) -> None:
        """Read more complete lines; the first of all is the session header. Never raises."""
        self.offset += len(lines)
        for text in lines.split(b"\n"):
            if text and self.issue is None:
                self.read(text)

    def read(self, text: bytes) -> Line | None:
        """Read one line; gives it back when it was an event or a row and nothing is wrong."""
        try:
            if self.session_id is None:
                self._begin(text)
                return None
            line = jsontext.decode(text, _line)
            self._take(line)
            return line
        except (msgspec.ValidationError, jsontext.DecodeError, KeyError) as exc:
            self.issue = f"the line after event {self.seq - 1} cannot be read: {exc}"
        except _Unsound as exc:
            self.issue = str(exc)
        return None

    def _begin(self, text: bytes) -> None:
        first = jsontext.decode(text, _first)
        if first.version != 0:
            raise _Unsound(f"its format version is {first.version}")
        self.session_id = first.id

    def _take(self, line: Line) -> None:
        if line.type in ROWS:
            self._take_row(line)
            return
        if line.seq != self.seq:
            raise _Unsound(f"event {self.seq} is missing: event {line.seq} stands in its place")
        if isinstance(line.time, UnsetType) or line.seq0 != -1:
            raise _Unsound(f"event {line.seq} has no event's envelope")
        self.seq += 1
        if line.type in _VISIBLE:
            self._check_step(line)
            self._place(line)
        elif line.type == "request/header":
            self._check_turn(line)
            self._fold_header(line)
        elif line.type in _STEP_BOUND:
            self._check_step(line)
        elif line.type in ("turn/start", "turn/end", "step/start", "step/end"):
            self._boundary(line)
        elif line.type in ("request/context", "todo/write"):
            self._check_turn(line)

    def _take_row(self, line: Line) -> None:
        row = jsontext.decode(line.data, _row)
        members = row.args if line.type == "tool-call-chunks" else row.texts
        if line.seq0 != self.seq:
            raise _Unsound(f"event {self.seq} is missing: a row from {line.seq0} is in its place")
        if not members or len(row.dt) != len(members) - 1 or isinstance(line.time0, UnsetType):
            raise _Unsound(f"the packed row at event {self.seq} is malformed")
        self._same_step(line.type, row.turn, row.step, line.seq0)
        self.seq += len(members)

    # ------------------------------------------------------------ turns and steps

    def _boundary(self, line: Line) -> None:
        at = jsontext.decode(line.data, _place)
        wrong = f"{line.type} at event {line.seq} is out of place"
        if line.type == "turn/start":
            if self.turn is not None or at.turn != self._last_turn + 1:
                raise _Unsound(wrong)
            self.turn, self._last_turn, self._last_step = at.turn, at.turn, 0
        elif line.type == "step/start":
            if at.turn != self.turn or self.step is not None or at.step != self._last_step + 1:
                raise _Unsound(wrong)
            self.step, self._last_step, self.saw_step = at.step, at.step, True
        elif line.type == "step/end":
            self._same_step(line.type, at.turn, at.step, line.seq)
            self.step = None
        else:
            if at.turn != self.turn or self.step is not None:
                raise _Unsound(wrong)
            self.turn = None

    def _check_step(self, line: Line) -> None:
        if line.type == "user/message":
            return
        if isinstance(line.surface_op, _Span):
            self._check_turn(line)
            return
        at = jsontext.decode(line.data, _place)
        self._same_step(line.type, at.turn, at.step, line.seq)

    def _same_step(self, what: str, turn: int, step: int, seq: int) -> None:
        if self.step is None or turn != self.turn or step != self.step:
            raise _Unsound(f"{what} at event {seq} belongs to no open step")

    def _check_turn(self, line: Line) -> None:
        if self.turn is None:
            raise _Unsound(f"{line.type} at event {line.seq} belongs to no open turn")

    # ------------------------------------------------------------ surface and header

    def _place(self, line: Line) -> None:
        operation = line.surface_op
        if isinstance(operation, UnsetType):
            raise _Unsound(f"{line.type} at event {line.seq} has no place on the surface")
        cited = () if isinstance(line.source_event_seqs, UnsetType) else line.source_event_seqs
        if cited and max(cited) >= line.seq:
            raise _Unsound(f"{line.type} at event {line.seq} cites an event that comes later")
        message = derive_event_message(Event(line.type, line.seq, 0, line.data))
        self._at[line.seq] = message
        if not isinstance(operation, _Span):
            self._nodes.append(line.seq)
            if message is not None:
                self.derived.append(message)
                self.origins.append(line.seq)
            return
        try:
            start = self._nodes.index(operation.start)
            end = self._nodes.index(operation.end, start) + 1
        except ValueError:
            raise _Unsound(
                f"{line.type} at event {line.seq} replaces a span that is not on the surface"
            ) from None
        if not set(cited).issuperset(self._nodes[start:end]):
            raise _Unsound(f"{line.type} at event {line.seq} hides events that it does not cite")
        for seq, text in zip(self.origins, self._texts, strict=False):
            self._at[seq] = Message(text)
        self._texts = []
        self._nodes[start:end] = [line.seq]
        visible = [(seq, self._at[seq]) for seq in self._nodes]
        self.derived = [message for _, message in visible if message is not None]
        self.origins = [seq for seq, message in visible if message is not None]
        self.generation += 1

    def _fold_header(self, line: Line) -> None:
        found = jsontext.decode(line.data, _snapshot).header
        tools = bytes(found.tools)
        # Recorded fixtures put a placeholder string where the tools were.
        schemas = () if tools.startswith(b'"{{') else _tools.decode(tools)
        defaults = found.adapter_defaults
        if not isinstance(defaults, UnsetType):
            defaults = {key: True for key, value in defaults.items() if value is True}
        self.header = EpochHeader(
            config=found.config,
            adapter_defaults=defaults or UNSET,
            system=found.system or UNSET,
            tools=schemas or UNSET,
            message_prefix=found.message_prefix or UNSET,
            message_suffix=found.message_suffix or UNSET,
        )

    def adopt(self, messages: list[Message]) -> None:
        """Keep `messages`, equal to the derivation, in its place: one copy in memory, not two."""
        for k in range(len(self._texts), len(messages)):
            self._at[self.origins[k]] = self.derived[k] = messages[k]
            self._texts.append(messages[k].json)

    def is_kept(self, start: int, end: int) -> bool:
        """Whether the adopted messages from `start` to `end` say what they said when adopted."""
        kept = [message.json for message in self.derived[start:end]]
        return kept == self._texts[start:end]

    def expected(self) -> tuple[Message, ...]:
        """The messages of a request sent now: framing around the derivation."""
        header = self.header
        if header is None or not (header.message_prefix or header.message_suffix):
            return tuple(self.derived)
        return (*header.prefix, *self.derived, *header.suffix)


class _Unsound(Exception):
    """Something that a sound log cannot contain."""
