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

TAGS: Final = (b'{"type":"text-chunks"', b'{"type":"reasoning-ch', b'{"type":"tool-call-ch')
"""How packed rows begin, when their keys are in the format's order."""


class ChunkRow(Struct, frozen=True, gc=False):
    """A run of compatible deltas: one kind, turn, step, index and, for calls, id and name.

    `dt` holds the time differences between members, so it is one shorter than `texts`.
    """

    kind: RowKind
    seq0: int
    time0: int
    turn: int
    step: int
    index: int
    dt: Sequence[int]
    texts: Sequence[str]
    id: str | None = None
    name: str | None = None
    line: bytes = b""
    """The row's line on disk when it was read from one."""

    type: str = "assistant/chunk"

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
        if self.kind == "text":
            return TextDelta(self.index, text)
        if self.kind == "reasoning":
            return ReasoningDelta(self.index, text)
        return ToolCallDelta(
            index=self.index,
            id=self.id or "",
            name=UNSET if self.name is None else self.name,
            arguments_delta=text,
        )

    def events(self) -> Iterator[Event]:
        """The members as the events they are."""
        time = self.time0
        for k, text in enumerate(self.texts):
            if k:
                time += self.dt[k - 1]
            payload = AssistantChunk(self.turn, self.step, self._chunk(text))
            yield make_event(AssistantChunk.TYPE, self.seq0 + k, time, jsontext.encode(payload))

    def part(self, start: int, end: int) -> "ChunkRow":
        """The members from `start` to before `end`, counted from the row's first."""
        return ChunkRow(
            self.kind,
            self.seq0 + start,
            self.time0 + sum(self.dt[:start]),
            self.turn,
            self.step,
            self.index,
            self.dt[start : max(start, end - 1)],
            self.texts[start:end],
            self.id,
            self.name,
        )

    def encode(self) -> bytes:
        """The row's line, without the newline."""
        if self.line:
            return self.line
        data: _CallData | _TextData
        if self.kind == "tool-call":
            name = UNSET if self.name is None else self.name
            data = _CallData(
                turn=self.turn,
                step=self.step,
                index=self.index,
                dt=self.dt,
                id=self.id or "",
                name=name,
                args=self.texts,
            )
        else:
            data = _TextData(self.turn, self.step, self.index, self.dt, self.texts)
        line = jsontext.encode(_Row(f"{self.kind}-chunks", self.seq0, self.time0, data))
        force_setattr(self, "line", line)
        return line


Entry: TypeAlias = Event | ChunkRow


class _TextData(Struct, frozen=True, forbid_unknown_fields=True):
    turn: int
    step: int
    index: int
    dt: Sequence[int]
    texts: Sequence[str]


class _CallData(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    turn: int
    step: int
    index: int
    dt: Sequence[int]
    id: str
    name: str | UnsetType = UNSET
    args: Sequence[str]


class _Row(Struct, frozen=True):
    type: str
    seq0: int
    time0: int
    data: _TextData | _CallData


class _TextRow(Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["text-chunks", "reasoning-chunks"]
    seq0: int
    time0: int
    data: _TextData


class _CallRow(Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["tool-call-chunks"]
    seq0: int
    time0: int
    data: _CallData


_text_row: Final = msgspec.json.Decoder(_TextRow)
_call_row: Final = msgspec.json.Decoder(_CallRow)
_loose: Final = msgspec.json.Decoder(dict[str, Raw])


class MalformedRow(ValueError):
    """A packed row that breaks the rules of its kind."""


def decode_row(line: bytes) -> ChunkRow:
    """The row of one line (without newline).

    Raises:
        MalformedRow: `malformed <tag> storage row: <why>`.
        jsontext.DecodeError: not JSON.
    """
    call = line.startswith(b'{"type":"tool-call-chunks"') or b'"tool-call-chunks"' in line[:80]
    try:
        if call:
            found = jsontext.decode(line, _call_row)
            data = found.data
            name = None if isinstance(data.name, UnsetType) else data.name
            row = ChunkRow(
                "tool-call",
                found.seq0,
                found.time0,
                data.turn,
                data.step,
                data.index,
                data.dt,
                data.args,
                data.id,
                name,
                line,
            )
        else:
            text = jsontext.decode(line, _text_row)
            body = text.data
            row = ChunkRow(
                "text" if text.type == "text-chunks" else "reasoning",
                text.seq0,
                text.time0,
                body.turn,
                body.step,
                body.index,
                body.dt,
                body.texts,
                line=line,
            )
    except msgspec.ValidationError:
        raise MalformedRow(_why(line)) from None
    if len(row.dt) != len(row.texts) - 1 or row.seq0 < 0:
        raise MalformedRow(_why(line))
    if row.end_seq > jsontext.MAX_SAFE_INTEGER or abs(row.time0) > jsontext.MAX_SAFE_INTEGER:
        raise MalformedRow(_why(line))
    return row


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
    if line.startswith(b'{"type":'):
        return line[:21] in TAGS
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
    return (
        a.end_seq == b.seq0
        and a.kind == b.kind
        and a.index == b.index
        and a.step == b.step
        and a.turn == b.turn
        and a.id == b.id
        and a.name == b.name
    )


def join(rows: Sequence[ChunkRow]) -> ChunkRow:
    """One row of compatible rows, in order."""
    first = rows[0]
    if len(rows) == 1:
        return first
    texts: list[str] = []
    dt: list[int] = []
    end = 0
    for row in rows:
        if texts:
            dt.append(row.time0 - end)
        texts.extend(row.texts)
        dt.extend(row.dt)
        end = row.end_time
    return ChunkRow(
        first.kind,
        first.seq0,
        first.time0,
        first.turn,
        first.step,
        first.index,
        dt,
        texts,
        first.id,
        first.name,
    )


def pack(entries: Sequence[Entry]) -> list[Entry]:
    """`entries` as they are stored: maximal runs joined, runs below three as plain events."""
    found: list[Entry] = []
    run: list[ChunkRow] = []

    def close() -> None:
        if run:
            row = join(run)
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
        return ChunkRow("text", seq, time, turn, step, chunk.index, (), (chunk.text,))
    if isinstance(chunk, ReasoningDelta):
        return ChunkRow("reasoning", seq, time, turn, step, chunk.index, (), (chunk.text,))
    if isinstance(chunk, ToolCallDelta):
        name = None if isinstance(chunk.name, UnsetType) else chunk.name
        texts = (chunk.arguments_delta,)
        return ChunkRow("tool-call", seq, time, turn, step, chunk.index, (), texts, chunk.id, name)
    return None
