"""Writes logs the way the loop does: what the tests of the log's commands read."""

from typing import Any

from msgspec import UNSET, Raw

from dsh_acp.log import events as ev
from dsh_acp.log.session_log import SessionLog
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
    ToolSchema,
    Usage,
    UsageChunk,
)


class Clock:
    """One second per look."""

    def __init__(self, start: int = 1_783_000_000_000) -> None:
        self.now = start

    def __call__(self) -> int:
        self.now += 1000
        return self.now


def tool(name: str) -> ToolSchema:
    return ToolSchema(name, f"Runs {name}.", Raw(b'{"type":"object","properties":{"2":{},"1":{}}}'))


def framing(text: str) -> Raw:
    return Raw(Message.user([Text(text)], {"kind": "plugin", "plugin": "frame"}, id=text).json)


class Recording:
    """Writes turns into a log the way the loop does."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self.turn = 0
        self.step = 0

    def header(self, reason: str, **changes: Any) -> None:
        config = CallConfig(provider="deepseek", model="deepseek-v4-flash", max_tokens=8000)
        fields: dict[str, Any] = {
            "config": config,
            "system": "You are careful.",
            "tools": (tool("read"), tool("bash")),
            **changes,
        }
        self.log.append(ev.RequestHeader(EpochHeader(**fields), reason))

    def begin_turn(self, text: str) -> None:
        self.turn, self.step = self.turn + 1, 0
        message = Message.user([Text(text)], id=f"u{self.turn}")
        self.log.append(ev.InboxSpliced("next-turn", 0, inserted=(message,)))
        self.log.append(ev.TurnStart(self.turn))
        self.log.append(ev.InboxSpliced("next-turn", 0, 1))
        self.begin_step()
        self.log.append(ev.UserMessage(message))

    def begin_step(self) -> None:
        self.step += 1
        self.log.append(ev.StepStart(self.turn, self.step))

    def answer(self, text: str, usage: Usage, call: str = "") -> None:
        block = ToolCall(f"call-{self.turn}-{self.step}", "bash", call) if call else Text(text)
        kind = "tool-call" if call else "text"
        deltas: list[Chunk] = [] if call else [TextDelta(0, piece) for piece in text.split(" ")]
        chunks: list[Chunk] = [
            BlockStart(0, kind),
            *deltas,
            BlockEnd(0, block),
            UsageChunk(usage),
            Finish(FinishReason("tool-calls" if call else "stop")),
        ]
        seqs = self.log.append_chunks(self.turn, self.step, chunks)
        name = f"a{self.turn}-{self.step}"
        message = Message.assistant([block], "deepseek", "deepseek-v4-flash", id=name)
        self.log.append(ev.AssistantMessage(self.turn, self.step, message, usage), sources=seqs)

    def run_call(self, call: str, output: str) -> None:
        name = f"call-{self.turn}-{self.step}"
        started = self.log.append(ev.ToolCallEvent(self.turn, self.step, name, "bash", call))
        result = Message.tool_result(name, [Text(output)], False, id=f"r{self.turn}-{self.step}")
        self.log.append(ev.ToolResultEvent(self.turn, self.step, result), sources=[started.seq])

    def end_step(self) -> None:
        self.log.append(ev.StepEnd(self.turn, self.step))

    def end_turn(self) -> None:
        self.end_step()
        self.log.append(ev.TurnEnd(self.turn, ev.TurnEndReason("completed")))

    def compact(self) -> None:
        """Replace everything but the last node by a summary."""
        nodes = list(self.log.surface.nodes[:-1])
        name = "k-1"
        start = self.log.append(ev.CompactionStart(compaction_id=name, turn=self.turn))
        summary = self.log.append(
            ev.CompactionSummary(
                compaction_id=name,
                summary=({"type": "text", "text": "They said hello."},),
                shadowed_range=ev.ShadowedRange(nodes[0], nodes[-1]),
                shadowed_seqs=tuple(nodes),
                shadowed_token_count=50,
            )
        )
        source = {"kind": "plugin", "plugin": "compact", "compactionId": name}
        self.log.append(
            ev.UserMessage(Message.user([Text("They said hello.")], source, id="checkpoint")),
            surface=ev.Replace(nodes[0], nodes[-1]),
            sources=[start.seq, summary.seq, *nodes],
        )
        self.log.append(ev.CompactionEnd(compaction_id=name, turn=self.turn))


def record(log: SessionLog) -> None:
    """Three turns: a call, a header change with framing, a compaction."""
    recording = Recording(log)
    recording.begin_turn("Say hello")
    log.append(ev.SessionTitle("Hello there", (5,), {"kind": "fallback"}))
    recording.header("initial")
    log.append(ev.RequestContext("deepseek", "deepseek-v4-flash", 1_000_000))
    recording.answer("", Usage(2900, 20, 0), call='{"command":"echo hello"}')
    recording.run_call('{"command":"echo hello"}', "hello\n")
    recording.end_step()
    recording.begin_step()
    recording.answer("I have said it now", Usage(100, 10, 2816))
    recording.end_turn()
    recording.begin_turn("Again, </script><b>loudly</b>")
    recording.header("change", system="You are loud.", message_suffix=(framing("it is noon"),))
    recording.answer("HELLO THERE TO YOU", Usage(3000, 10, 0))
    recording.end_turn()
    recording.begin_turn("And once more")
    recording.compact()
    recording.header("change", message_prefix=(framing("before all"),), tools=UNSET)
    recording.answer("Hello again to you", Usage(700, 10, 0))
    recording.end_turn()
