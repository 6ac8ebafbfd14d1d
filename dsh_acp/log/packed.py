"""Packed rows: runs of streamed deltas stored as one line, and kept packed in memory.

Packing is physical only. Every member is an `assistant/chunk` event with a seq of its own, and the
boundaries between members are data: they are never joined. A run of fewer than three members is
written as plain events.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import force_setattr

from dsh_acp import jsontext
from dsh_acp.log.envelope import Event, decode_event, make_event
from dsh_acp.log.payloads import AssistantChunk
from dsh_acp.messages import Chunk, ReasoningDelta, TextDelta, ToolCallDelta

RowKind: TypeAlias = Literal["text", "reasoning", "tool-call"]

MINIMUM: Final = 3
"""Runs below this length are written as plain events."""

_KINDS: Final[dict[str, RowKind]] = {
    "text-chunks": "text",
    "reasoning-chunks": "reasoning",
    "tool-call-chunks": "tool-call",
}
ROW_TYPES: Final = frozenset(_KINDS)
STARTS: Final = frozenset(
    (b'{"type":"text-chunks"', b'{"type":"reasoning-ch', b'{"type":"tool-call-ch')
)
"""The first 21 bytes of a packed row, when its keys are in the format's order."""


class Run(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """A row's `data`. A call has `id`, `args` and perhaps `name`; text and reasoning, `texts`."""

    turn: int
    step: int
    index: int
    dt: Sequence[int]
    id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    args: Sequence[str] | UnsetType = UNSET
    texts: Sequence[str] | UnsetType = UNSET


class ChunkRow(
    Struct,
    frozen=True,
    gc=False,
    eq=False,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"line": "(line)"},
):
    """A run of compatible deltas: one kind, turn, step, index and, for calls, id and name.

    `time0` is the first member's time, `dt` the differences between members' times; it is one
    shorter than `texts`.
    """

    type: str
    seq0: int
    time0: int
    data: Run
    line: bytes = b""
    """The row's line on disk, once there is one."""

    @property
    def kind(self) -> RowKind:
        """What the members are pieces of."""
        return _KINDS[self.type]

    @property
    def turn(self) -> int:
        """The turn of all members."""
        return self.data.turn

    @property
    def step(self) -> int:
        """The step of all members."""
        return self.data.step

    @property
    def index(self) -> int:
        """The block of all members."""
        return self.data.index

    @property
    def dt(self) -> Sequence[int]:
        """Time differences between members."""
        return self.data.dt

    @property
    def texts(self) -> Sequence[str]:
        """The members; for a call, pieces of its arguments."""
        data = self.data
        found = data.args if isinstance(data.texts, UnsetType) else data.texts
        return () if isinstance(found, UnsetType) else found

    @property
    def id(self) -> str | None:
        """The call's id."""
        return None if isinstance(self.data.id, UnsetType) else self.data.id

    @property
    def name(self) -> str | None:
        """The tool's name; absent as long as the provider has not named it."""
        return None if isinstance(self.data.name, UnsetType) else self.data.name

    @property
    def seq(self) -> int:
        """The first member's seq."""
        return self.seq0

    @property
    def end_seq(self) -> int:
        """One past the last member's seq."""
        return self.seq0 + len(self.texts)

    @property
    def text(self) -> str:
        """All members, joined; for a call these are its arguments."""
        return "".join(self.texts)

    @property
    def end_time(self) -> int:
        """The last member's time."""
        return self.time0 + sum(self.dt)

    def chunks(self) -> Iterator[Chunk]:
        """The members as chunks."""
        for text in self.texts:
            yield self._chunk(text)

    def _chunk(self, text: str) -> Chunk:
        data, kind = self.data, self.kind
        if kind == "text":
            return TextDelta(data.index, text)
        if kind == "reasoning":
            return ReasoningDelta(data.index, text)
        return ToolCallDelta(
            index=data.index, id=self.id or "", name=data.name, arguments_delta=text
        )

    def events(self) -> Iterator[Event]:
        """The members as the events they are."""
        time = self.time0
        for k, text in enumerate(self.texts):
            if k:
                time += self.dt[k - 1]
            payload = AssistantChunk(self.turn, self.step, self._chunk(text))
            yield make_event(AssistantChunk.TYPE, self.seq0 + k, time, payload.encode())

    def part(self, start: int, end: int) -> "ChunkRow":
        """The members from `start` to before `end`, counted from the row's first."""
        return ChunkRow(
            self.type,
            self.seq0 + start,
            self.time0 + sum(self.dt[:start]),
            self._run(self.dt[start : max(start, end - 1)], self.texts[start:end]),
        )

    def _run(self, dt: Sequence[int], members: Sequence[str]) -> Run:
        data = self.data
        call = not isinstance(data.args, UnsetType)
        return Run(
            data.turn,
            data.step,
            data.index,
            dt,
            data.id,
            data.name,
            members if call else UNSET,
            UNSET if call else members,
        )

    def joined(self, rows: "Sequence[ChunkRow]") -> "ChunkRow":
        """This row, which is the first of `rows`, with the others' members behind its own."""
        if len(rows) == 1:
            return self
        texts: list[str] = []
        dt: list[int] = []
        end = 0
        for row in rows:
            if texts:
                dt.append(row.time0 - end)
            texts.extend(row.texts)
            dt.extend(row.dt)
            end = row.end_time
        return ChunkRow(self.type, self.seq0, self.time0, self._run(dt, texts))

    def encode(self) -> bytes:
        """The row's line, without the newline."""
        if not self.line:
            force_setattr(self, "line", jsontext.encode(self))
        return self.line

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChunkRow) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self.encode())


Entry: TypeAlias = Event | ChunkRow

_row: Final = msgspec.json.Decoder(ChunkRow)
bare_row: Final = _row.decode
"""A row whose rules are not checked and whose line is not set."""
_loose: Final = msgspec.json.Decoder(dict[str, Raw])


class MalformedRow(ValueError):
    """A packed row that breaks the rules of its kind."""


def decode_row(line: bytes) -> ChunkRow:
    """The row of one line (without newline).

    Raises:
        MalformedRow: `malformed <tag> storage row: <why>`.
        jsontext.DecodeError: not JSON.
    """
    try:
        try:
            row = _row.decode(line)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            row = jsontext.decode(line, _row)
    except msgspec.ValidationError:
        raise MalformedRow(_why(line)) from None
    if not is_sound(row):
        raise MalformedRow(_why(line))
    force_setattr(row, "line", line)
    return row


def is_sound(row: ChunkRow) -> bool:
    """Whether a row of the right shape also keeps the rules of its kind."""
    data = row.data
    if row.type == "tool-call-chunks":
        members, stray = data.args, data.texts is not UNSET or data.id is UNSET
    else:
        members, stray = data.texts, not (data.args is data.id is data.name is UNSET)
    return (
        not stray
        and not isinstance(members, UnsetType)
        and len(data.dt) == len(members) - 1
        and 0 <= row.seq0 <= _FAR
        and -_FAR < row.time0 < _FAR
    )


_FAR: Final = jsontext.MAX_SAFE_INTEGER - 2**32
"""No row within this bound can have a member beyond the safe integers."""


def _why(line: bytes) -> str:
    fields = jsontext.decode(line, _loose)
    tag = cast(str, jsontext.loads(bytes(fields["type"])))
    return f"malformed {tag} storage row: {_reason(tag, fields)}"


def _reason(tag: str, fields: dict[str, Raw]) -> str:
    safe = jsontext.MAX_SAFE_INTEGER
    if set(fields) != {"type", "seq0", "time0", "data"}:
        return "envelope must be exactly {type, seq0, time0, data}"
    seq0, time0, data = (jsontext.loads(bytes(fields[key])) for key in ("seq0", "time0", "data"))
    if not _safe(seq0) or seq0 < 0:
        return "seq0 must be a non-negative safe integer"
    if not _safe(time0):
        return "time0 must be a safe integer"
    if not isinstance(data, dict):
        return "data must be an object"
    body = cast(dict[str, object], data)
    call = tag == "tool-call-chunks"
    members = "args" if call else "texts"
    wanted = {"turn", "step", "index", "dt", members} | ({"id"} if call else set[str]())
    if set(body) - ({"name"} if call else set[str]()) != wanted:
        keys = "{turn, step, index, id, name?, dt, args}"
        return f"data must be exactly {keys if call else '{turn, step, index, dt, texts}'}"
    if call and not (isinstance(body["id"], str) and isinstance(body.get("name", ""), str)):
        return "id (and name when present) must be strings"
    if not all(_number(body[key]) for key in ("turn", "step", "index")):
        return "turn/step/index must be numbers"
    texts, dt = body[members], body["dt"]
    if not (isinstance(texts, list) and texts and _all_strings(cast(list[object], texts))):
        return f"{members} must be a non-empty string array"
    count = len(cast(list[object], texts))
    if not (isinstance(dt, list) and all(_safe(item) for item in cast(list[object], dt))):
        return "dt must be an array of safe integers"
    steps = cast(list[int], dt)
    if len(steps) != count - 1:
        return f"dt length {len(steps)} does not match {count} members"
    if seq0 + count - 1 > safe:
        return "member seqs must stay safe integers"
    return "member times must stay safe integers"


def _safe(value: object) -> bool:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and abs(value) <= jsontext.MAX_SAFE_INTEGER
    )


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all_strings(values: list[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def is_row(line: bytes) -> bool:
    """Whether `line` is a packed row, in whatever order its keys come."""
    if line.startswith(b'{"type":"'):
        return line[:21] in STARTS
    try:
        tag = bytes(jsontext.decode(line, _loose).get("type", b""))
    except (msgspec.ValidationError, jsontext.DecodeError):
        return False
    return tag in (b'"text-chunks"', b'"reasoning-chunks"', b'"tool-call-chunks"')


def decode_entry(line: bytes) -> Entry:
    """The event or row of one line.

    Raises:
        MalformedRow: a packed row that breaks its rules.
        jsontext.DecodeError: not JSON.
        msgspec.ValidationError: not an event's envelope.
    """
    return decode_row(line) if is_row(line) else decode_event(line)


def compatible(a: ChunkRow, b: ChunkRow) -> bool:
    """Whether `b` continues `a` as one run."""
    left, right = a.data, b.data
    return (
        a.type == b.type
        and a.end_seq == b.seq0
        and left.index == right.index
        and left.step == right.step
        and left.turn == right.turn
        and left.id == right.id
        and left.name == right.name
    )


def pack(entries: Sequence[Entry]) -> list[Entry]:
    """`entries` as they are stored: maximal runs joined, runs below three as plain events."""
    found: list[Entry] = []
    run: list[ChunkRow] = []

    def close() -> None:
        if run:
            row = run[0].joined(run)
            if len(row.texts) >= MINIMUM:
                found.append(row)
            else:
                found.extend(row.events())
            run.clear()

    for entry in entries:
        row = entry if isinstance(entry, ChunkRow) else as_row(entry)
        if row is None:
            close()
            found.append(entry)
            continue
        if run and not compatible(run[-1], row):
            close()
        run.append(row)
    close()
    return found


def as_row(event: Event) -> ChunkRow | None:
    """A plain delta event as a row of one; `None` for events that never pack."""
    if event.type != AssistantChunk.TYPE or event.mark is not UNSET:
        return None
    payload = event.payload
    if not isinstance(payload, AssistantChunk) or jsontext.encode(payload) != event.data:
        return None
    return chunk_row(event.seq, event.time, payload.turn, payload.step, payload.chunk)


def chunk_row(seq: int, time: int, turn: int, step: int, chunk: Chunk) -> ChunkRow | None:
    """A delta as a row of one; `None` for chunks that never pack."""
    if isinstance(chunk, TextDelta):
        run = Run(turn, step, chunk.index, (), texts=(chunk.text,))
        return ChunkRow("text-chunks", seq, time, run)
    if isinstance(chunk, ReasoningDelta):
        run = Run(turn, step, chunk.index, (), texts=(chunk.text,))
        return ChunkRow("reasoning-chunks", seq, time, run)
    if isinstance(chunk, ToolCallDelta):
        members = (chunk.arguments_delta,)
        run = Run(turn, step, chunk.index, (), chunk.id, chunk.name, members)
        return ChunkRow("tool-call-chunks", seq, time, run)
    return None
