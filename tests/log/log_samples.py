"""Logs to test with: the recorded ones, and a small writer of new ones."""

from collections.abc import Sequence
import json
from pathlib import Path
from typing import Any

from dsh_acp.log.events import (
    AssistantMessage,
    Event,
    InboxSpliced,
    Replace,
    RequestHeader,
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
)
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.validation import SessionHeader
from dsh_acp.messages import (
    BlockEnd,
    BlockStart,
    CallConfig,
    Chunk,
    EpochHeader,
    Finish,
    FinishReason,
    Message,
    Text,
    TextDelta,
    ToolCall,
    Usage,
)

SHARED = Path(__file__).resolve().parents[3] / "shared"
RECORDED = sorted((SHARED / "dsh-sessions").glob("*/session*.jsonl"))
HEADER = EpochHeader(CallConfig("p", "m"), system="Be brief.")


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def memory_log(session_id: str = "s1") -> SessionLog:
    ticks = iter(range(1_000, 10_000_000))
    header = SessionHeader(id=session_id, created_at=1, cwd="/w")
    return SessionLog(header, clock=lambda: next(ticks))


def user(text: str, message_id: str | None = None) -> Message:
    return Message.user([Text(text)], id=message_id)


def answer_chunks(text: str, pieces: int = 4) -> list[Chunk]:
    size = max(1, -(-len(text) // pieces))
    deltas = [TextDelta(0, text[k : k + size]) for k in range(0, len(text), size)]
    return [
        BlockStart(0, "text"),
        *deltas,
        BlockEnd(0, Text(text)),
        Finish(FinishReason("stop")),
    ]


class Recorder:
    """Writes what a session does, in the order in which it is done."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self.turn = log.last_turn
        self.step = 0
        self.calls = 0

    def begin(self, text: str = "hello") -> Event:
        message = user(text)
        self.log.append(InboxSpliced("next-turn", 0, inserted=(message,)))
        self.turn += 1
        self.step = 0
        self.log.append(TurnStart(self.turn))
        self.log.append(InboxSpliced("next-turn", 0, removed_count=1))
        self.begin_step()
        return self.log.append(UserMessage(message))

    def begin_step(self) -> None:
        self.step += 1
        self.log.append(StepStart(self.turn, self.step))

    def header(self, header: EpochHeader = HEADER) -> None:
        if self.log.header_in_this_life:
            reason = "change"
        else:
            reason = "initial" if self.log.request_header() is None else "resume"
        self.log.append(RequestHeader(header, reason))

    def stream(self, text: str = "an answer of some length") -> list[int]:
        return self.log.append_chunks(self.turn, self.step, answer_chunks(text))

    def answer(self, text: str = "an answer of some length", calls: Sequence[str] = ()) -> Event:
        blocks = [Text(text), *(ToolCall(call, "read", '{"file_path":"a"}') for call in calls)]
        chunks = answer_chunks(text)
        for k, block in enumerate(blocks[1:], 1):
            chunks.insert(-1, BlockEnd(k, block))
        seqs = self.log.append_chunks(self.turn, self.step, chunks)
        message = Message.assistant(blocks, "p", "m")
        return self.log.append(
            AssistantMessage(self.turn, self.step, message, usage=Usage(10, 5)), sources=seqs
        )

    def call(self, call: str) -> Event:
        return self.log.append(
            ToolCallEvent(self.turn, self.step, call, "read", '{"file_path":"a"}')
        )

    def result(self, call: str, seq: int, text: str = "contents") -> Event:
        message = Message.tool_result(call, [Text(text)], False)
        return self.log.append(ToolResultEvent(self.turn, self.step, message), sources=[seq])

    def end_step(self) -> None:
        self.log.append(StepEnd(self.turn, self.step))

    def end(self, kind: str = "completed") -> None:
        self.log.append(TurnEnd(self.turn, TurnEndReason(kind)))

    def tool_turn(self, text: str = "read it", header: EpochHeader | None = None) -> None:
        """A whole turn: an answer with a call, its result, a second answer."""
        self.begin(text)
        if header is not None or not self.log.header_in_this_life:
            self.header(header or HEADER)
        self.calls += 1
        call = f"call-{self.turn}-{self.calls}"
        self.answer("let me look", [call])
        self.result(call, self.call(call).seq)
        self.end_step()
        self.begin_step()
        self.answer(f"done with {text}")
        self.end_step()
        self.end()

    def compact(self, start: int, end: int) -> Event:
        nodes = self.log.surface.nodes
        span = nodes[nodes.index(start) : nodes.index(end) + 1]
        message = Message.user([Text("summary")], {"kind": "plugin", "plugin": "compact"})
        return self.log.append(UserMessage(message), surface=Replace(start, end), sources=span)


def sample_lines() -> bytes:
    """A log of two turns with calls, a compaction and a third turn."""
    log = memory_log()
    recorder = Recorder(log)
    recorder.tool_turn("first")
    recorder.tool_turn("second")
    nodes = log.surface.nodes
    recorder.compact(nodes[0], nodes[3])
    recorder.tool_turn("third")
    return log.lines()


def parsed(lines: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.split(b"\n") if line]
