"""What proof costs: the audit before a request as history grows, and the audit of a whole log.

Run from a source checkout: `python -m tests.bench.audit_growth [--json]`. The log is a real file,
written by the real writer, and read back by the auditor as it is before a request.
"""

import argparse
import json
from pathlib import Path
import statistics
import sys
import tempfile
import time

from msgspec import Raw

from dsh_acp.log import events as ev
from dsh_acp.log.audit import Auditor, audit_log
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.store import Store
from dsh_acp.messages import (
    BlockEnd,
    BlockStart,
    CallConfig,
    Chunk,
    EpochHeader,
    Finish,
    FinishReason,
    Message,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolSchema,
    Usage,
    UsageChunk,
)

TURNS = (50, 500, 2_000)
MEASURED = 25
"""Requests measured after each history length."""
EVENTS = 100_000
LIMIT_S = 2.0
HEADER = EpochHeader(
    config=CallConfig(provider="deepseek", model="deepseek-v4-flash", max_tokens=8_000),
    system="You are careful. " * 200,
    tools=tuple(
        ToolSchema(f"tool_{k}", "Does one thing. " * 20, Raw(b'{"type":"object","properties":{}}'))
        for k in range(12)
    ),
)
WORDS = "the answer comes in small pieces that the provider streams one after the other ".split()


class Growing:
    """A session that gains turns of two steps: a tool call, then words."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self.turn = 0

    def grow(self) -> None:
        """One more turn, up to where its second request leaves; `finish` ends it."""
        self.turn += 1
        log, turn = self.log, self.turn
        message = Message.user([Text(f"Question {turn}: " + " ".join(WORDS * 3))])
        log.append(ev.InboxSpliced("next-turn", 0, inserted=(message,)))
        log.append(ev.TurnStart(turn))
        log.append(ev.InboxSpliced("next-turn", 0, 1))
        log.append(ev.StepStart(turn, 1))
        log.append(ev.UserMessage(message))
        if turn == 1:
            log.append(ev.RequestHeader(HEADER, "initial"))
        arguments = '{"command":"make test"}'
        self._answer(1, ToolCall(f"c{turn}", "bash", arguments))
        call = log.append(ev.ToolCallEvent(turn, 1, f"c{turn}", "bash", arguments))
        output = Message.tool_result(f"c{turn}", [Text("ok\n" * 200)], False)
        log.append(ev.ToolResultEvent(turn, 1, output), sources=[call.seq])
        log.append(ev.StepEnd(turn, 1))
        log.append(ev.StepStart(turn, 2))

    def finish(self) -> None:
        """The rest of the turn."""
        self._answer(2, Text(" ".join(WORDS * 3)))
        self.log.append(ev.StepEnd(self.turn, 2))
        self.log.append(ev.TurnEnd(self.turn, ev.TurnEndReason("completed")))

    def _answer(self, step: int, block: Text | ToolCall) -> None:
        kind = "text" if isinstance(block, Text) else "tool-call"
        pieces = block.text.split(" ") if isinstance(block, Text) else []
        chunks: list[Chunk] = [BlockStart(0, kind), *(TextDelta(0, piece) for piece in pieces)]
        usage = Usage(100, len(pieces), 1_000)
        finish = Finish(FinishReason("stop" if isinstance(block, Text) else "tool-calls"))
        chunks += [BlockEnd(0, block), UsageChunk(usage), finish]
        seqs = self.log.append_chunks(self.turn, step, chunks)
        message = Message.assistant([block], "deepseek", "deepseek-v4-flash")
        self.log.append(ev.AssistantMessage(self.turn, step, message, usage), sources=seqs)


def per_request(home: Path, turns: int) -> dict[str, float]:
    """Median and worst microseconds of the audit before a request, after `turns` turns."""
    log = Store(home).create(str(home), id=f"turns-{turns}")
    session = Growing(log)
    for _ in range(turns):
        session.grow()
        session.finish()
    auditor = Auditor(log.header.id)
    times: list[float] = []
    for _ in range(MEASURED + 1):
        session.grow()
        request = Request(log.header.id, HEADER, log.messages())
        lines = log.lines(auditor.offset)
        began = time.perf_counter()
        auditor.feed(lines)
        auditor.check(request)
        times.append(time.perf_counter() - began)
        session.finish()
    log.close()
    # The first reads all that came before, as after a restart; the others are the steady cost.
    first, steady = times[0], times[1:]
    return {
        "turns": turns,
        "events": log.seq,
        "messages": len(log.messages()),
        "first_ms": first * 1e3,
        "median_us": statistics.median(steady) * 1e6,
        "worst_us": max(steady) * 1e6,
    }


def whole_log(home: Path) -> dict[str, float]:
    """Seconds for the audit of a whole log of `EVENTS` events."""
    log = Store(home).create(str(home), id="whole")
    session = Growing(log)
    while log.seq < EVENTS:
        session.grow()
        session.finish()
    data = log.lines()
    log.close()
    times: list[tuple[float, float]] = []
    requests = 0
    for _ in range(3):
        began, worked = time.perf_counter(), time.process_time()
        report = audit_log(data)
        times.append((time.perf_counter() - began, time.process_time() - worked))
        requests = len(report.requests)
        assert report.ok, report.problems[:1]
    seconds, cpu_seconds = min(times)
    return {
        "events": log.seq,
        "requests": requests,
        "megabytes": len(data) / 1e6,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
    }


def main() -> int:
    """Print both tables; with --check, 1 when the whole audit takes longer than its limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.audit_growth")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help=f"fail above {LIMIT_S:.0f} s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dsh-acp-bench-") as directory:
        rows = [per_request(Path(directory), turns) for turns in TURNS]
        whole = whole_log(Path(directory))
    if options.json:
        sys.stdout.write(json.dumps({"perRequest": rows, "wholeLog": whole}) + "\n")
    else:
        _show(rows, whole)
    return int(options.check and whole["seconds"] > LIMIT_S)


def _show(rows: list[dict[str, float]], whole: dict[str, float]) -> None:
    say = sys.stdout.write
    say("The audit before a request\n")
    say("  turns   events  messages   first read   median    worst\n")
    for row in rows:
        say(
            f"  {row['turns']:5.0f}  {row['events']:7.0f}  {row['messages']:8.0f}"
            f"  {row['first_ms']:8.1f} ms  {row['median_us']:5.0f} us  {row['worst_us']:5.0f} us\n"
        )
    say(
        f"\nThe audit of a whole log\n  {whole['events']:.0f} events, {whole['requests']:.0f}"
        f" requests, {whole['megabytes']:.1f} MB: {whole['seconds']:.2f} s"
        f" ({whole['cpu_seconds']:.2f} s of it at work; limit {LIMIT_S:.0f} s)\n"
    )


if __name__ == "__main__":
    sys.exit(main())
