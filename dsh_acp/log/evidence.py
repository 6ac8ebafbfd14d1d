"""What a log records twice, compared: a check for requests that no digest proves.

Input appears in the inbox and as a message; an answer as chunks and as a message; a call in the
answer and as an event of its own; provenance as numbers and as positions.
"""

from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct, UnsetType

from dsh_acp import jsontext
from dsh_acp.log.ledger import ROWS, Line


class Attempt(Struct, frozen=True):
    """One request on its way out: where it stands in the log, and its digest when recorded."""

    turn: int
    step: int
    attempt: int
    seq: int
    header_reason: str
    digest: str | None = None


class _Digest(Struct, frozen=True):
    turn: int
    step: int
    attempt: int
    sha256: str


class _Reason(Struct, frozen=True):
    reason: str = ""


class _ChunkHead(Struct, frozen=True):
    type: str
    index: int = -1


class _ChunkData(Struct, frozen=True):
    turn: int
    step: int
    chunk: Raw


class _RowPlace(Struct, frozen=True):
    turn: int
    step: int


_digest: Final = msgspec.json.Decoder(_Digest)
_reason: Final = msgspec.json.Decoder(_Reason)
_chunk: Final = msgspec.json.Decoder(_ChunkData)
_head: Final = msgspec.json.Decoder(_ChunkHead)
_row_place: Final = msgspec.json.Decoder(_RowPlace)


REWRITTEN: Final = "user/message differs from the inbox entry it was claimed from"


class Attempts:
    """Finds where requests left: at their digest, else at the first chunk of their answer."""

    def __init__(self) -> None:
        self._open = False
        self._waiting = False
        self._count = 0
        self._reason = ""

    def feed(self, line: Line, seq: int) -> Attempt | None:
        """The attempt that begins at this line, whose first seq is `seq`."""
        kind = line.type
        if kind == "request/header":
            self._reason = jsontext.decode(line.data, _reason).reason
        elif kind == "step/start":
            self._open, self._waiting, self._count = False, False, 0
        elif kind == "request/digest":
            found = jsontext.decode(line.data, _digest)
            self._open, self._waiting = True, True
            return self._begin(found.turn, found.step, seq, found.sha256)
        elif kind in ROWS:
            if not self._open:
                place = jsontext.decode(line.data, _row_place)
                return self._begin(place.turn, place.step, seq)
        elif kind == "assistant/chunk":
            data = jsontext.decode(line.data, _chunk)
            finish = jsontext.decode(data.chunk, _head).type == "finish"
            begins = not self._open
            self._open = not finish
            if begins:
                attempt = self._begin(data.turn, data.step, seq)
                self._open = not finish
                return attempt
        elif kind == "assistant/message" and isinstance(line.surface_op, str):
            self._open = False
        return None

    def _begin(self, turn: int, step: int, seq: int, digest: str | None = None) -> Attempt:
        self._open = True
        self._count += 1
        reason, self._reason = self._reason, ""
        return Attempt(turn, step, self._count, seq, reason, digest)


class Evidence:
    """Doubts about lines that contradict what the log says elsewhere."""

    def __init__(self) -> None:
        self._inbox: dict[str, Any] = {}
        self._answer = _Answer()
        self._calls: dict[str, tuple[str, str]] = {}
        self._call_seqs: dict[str, int] = {}

    def feed(self, line: Line, seq: int) -> Iterator[str]:
        """Sentences, one per contradiction."""
        kind = line.type
        if kind in ROWS:
            self._answer.row(line, seq)
        elif kind == "assistant/chunk":
            self._answer.chunk(line, seq)
        elif kind in _READERS:
            value = cast(dict[str, Any], jsontext.loads(bytes(line.data)))
            yield from _READERS[kind](self, line, value)

    def _step(self, line: Line, value: dict[str, Any]) -> Iterator[str]:
        self._answer = _Answer()
        self._calls.clear()
        self._call_seqs.clear()
        yield from ()

    def _splice(self, line: Line, value: dict[str, Any]) -> Iterator[str]:
        for message in value["inserted"]:
            self._inbox[message["id"]] = message
        yield from ()

    def _user(self, line: Line, value: dict[str, Any]) -> Iterator[str]:
        known = self._inbox.pop(value["id"], None)
        if known is not None and known != value:
            yield REWRITTEN

    def _assistant(self, line: Line, value: dict[str, Any]) -> Iterator[str]:
        answer, self._answer = self._answer, _Answer()
        message = value["message"]
        self._calls = {
            block["id"]: (block["name"], block["arguments"])
            for block in message["content"]
            if block.get("type") == "tool-call"
        }
        cited = line.source_event_seqs
        if isinstance(cited, UnsetType) or not isinstance(line.surface_op, str):
            return
        if list(cited) != answer.seqs:
            yield "assistant/message does not cite exactly the chunks of its answer"
        elif not value.get("interrupted") and answer.seqs:
            blocks = answer.blocks()
            if blocks is not None and blocks != message["content"]:
                yield "assistant/message differs from the chunks it was assembled from"

    def _call(self, line: Line, value: dict[str, Any]) -> Iterator[str]:
        made = self._calls.get(value["callId"])
        self._call_seqs[value["callId"]] = line.seq
        if made is None:
            yield f"tool/call {value['callId']} was not made by the answer of its step"
        elif made != (value["name"], value["arguments"]):
            yield f"tool/call {value['callId']} differs from the call in the answer"

    def _result(self, line: Line, value: dict[str, Any]) -> Iterator[str]:
        cited = line.source_event_seqs
        if isinstance(line.surface_op, str) and not isinstance(cited, UnsetType):
            call = value["message"]["source"]["callId"]
            if list(cited) != [self._call_seqs.get(call)]:
                yield f"tool/result for {call} does not cite its tool/call"


_READERS: Final = {
    "step/start": Evidence._step,  # pyright: ignore[reportPrivateUsage]
    "agent/inbox/spliced": Evidence._splice,  # pyright: ignore[reportPrivateUsage]
    "user/message": Evidence._user,  # pyright: ignore[reportPrivateUsage]
    "assistant/message": Evidence._assistant,  # pyright: ignore[reportPrivateUsage]
    "tool/call": Evidence._call,  # pyright: ignore[reportPrivateUsage]
    "tool/result": Evidence._result,  # pyright: ignore[reportPrivateUsage]
}


class _Answer:
    """The chunks of one attempt, and the blocks that they assemble to."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self._open: dict[int, dict[str, Any]] = {}
        self._closed: dict[int, dict[str, Any]] = {}
        self._order: list[int] = []
        self._finish: str | None = None

    def row(self, line: Line, seq: int) -> None:
        data = cast(dict[str, Any], jsontext.loads(bytes(line.data)))
        call = line.type == "tool-call-chunks"
        texts = data["args" if call else "texts"]
        self._begin()
        self.seqs.extend(range(seq, seq + len(texts)))
        kind = line.type.removesuffix("-chunks")
        self._delta(kind, data["index"], "".join(texts), data.get("id"), data.get("name"))

    def chunk(self, line: Line, seq: int) -> None:
        self._begin()
        self.seqs.append(seq)
        chunk = cast(dict[str, Any], jsontext.loads(bytes(line.data)))["chunk"]
        kind, index = chunk["type"], chunk.get("index", -1)
        if kind == "finish":
            self._finish = chunk["reason"]["kind"]
        elif kind == "block-end":
            self._know(index)
            self._closed.setdefault(index, chunk["block"])
        elif kind == "block-start":
            self._know(index)
            self._open.setdefault(index, {"type": chunk["blockType"], "text": ""})
        elif kind.endswith("-delta"):
            text = chunk.get("text", chunk.get("argumentsDelta", ""))
            name = kind.removesuffix("-delta")
            self._delta(name, index, text, chunk.get("id"), chunk.get("name"))

    def _begin(self) -> None:
        # Chunks after a finish belong to the next attempt; a message cites only its own.
        if self._finish is not None:
            self.__init__()

    def _know(self, index: int) -> None:
        if index not in self._order:
            self._order.append(index)

    def _delta(self, kind: str, index: int, text: str, id: str | None, name: str | None) -> None:
        self._know(index)
        block = self._open.setdefault(index, {"type": kind, "text": ""})
        block["text"] += text
        if id:
            block["id"] = id
        if name:
            block["name"] = name

    def blocks(self) -> list[dict[str, Any]] | None:
        """The assembled content; `None` when the chunks do not determine it."""
        found: list[dict[str, Any]] = []
        for index in self._order:
            block = self._closed.get(index)
            if block is None:
                raw = self._open[index]
                if raw["type"] not in ("text", "reasoning"):
                    return None
                block = {"type": raw["type"], "text": raw["text"]}
            if not (self._finish == "max-tokens" and block["type"] == "tool-call"):
                found.append(block)
        return found
