"""What closes a turn that a crash left open, so that the history is valid for the next request.

Calls without a result are answered, the step is closed, the turn ends `interrupted`. A call whose
start was recorded may have had effects, and its answer says so. Partial text of an answer that was
streaming is not salvaged: its chunks stay in the log, and the model never sees them.
"""

from collections.abc import Iterator
from typing import Final

from dsh_acp import jsontext
from dsh_acp.log.envelope import Event, make_event
from dsh_acp.log.history import History
from dsh_acp.log.packed import ChunkRow
from dsh_acp.log.payloads import AssistantMessage, ToolCallEvent, ToolResultEvent
from dsh_acp.messages import ToolCall

OUTCOME_UNKNOWN: Final = (
    "The call was recorded as started, but the process ended before its outcome was. It may have"
    " taken effect. Repeat it only if it is read-only or idempotent; otherwise verify the state it"
    " would have changed first, or ask the user."
)
NOT_STARTED: Final = (
    "The call was interrupted before it was recorded as started, so it had no effect. It may be"
    " made again."
)


def closers(history: History) -> Iterator[Event]:
    """The events that close the last turn of `history`; none when it is balanced.

    Pure: nothing is appended. Sequence numbers continue, times repeat the last event's.
    """
    turn, step = history.open_turn, history.open_step
    if turn is None:
        return
    seq, time = history.seq, _last_time(history)
    if step is not None:
        for call, call_seq in _unanswered(history):
            yield _answer(seq, time, turn, step, call, call_seq)
            seq += 1
        yield _plain("step/end", seq, time, {"turn": turn, "step": step})
        seq += 1
    yield _plain("turn/end", seq, time, {"turn": turn, "reason": {"kind": "interrupted"}})


def _last_time(history: History) -> int:
    last = next(history.entries(history.seq - 1))
    return last.end_time if isinstance(last, ChunkRow) else last.time


def _unanswered(history: History) -> list[tuple[str, int | None]]:
    """The calls of the open step that have no result, with the seq of their start."""
    calls: dict[str, int | None] = {}
    for event in history.backward():
        if isinstance(event, ChunkRow):
            continue
        if event.type == "step/start":
            break
        payload = event.payload
        if isinstance(payload, ToolResultEvent) and event.surface_op == "append":
            calls[payload.message.source["callId"]] = -1
        elif isinstance(payload, ToolCallEvent):
            calls.setdefault(payload.call_id, event.seq)
        elif isinstance(payload, AssistantMessage):
            made = [block.id for block in payload.message.content if isinstance(block, ToolCall)]
            found = {call: calls.get(call) for call in made}
            return [(call, at) for call, at in found.items() if at != -1]
    return [(call, at) for call, at in reversed(calls.items()) if at != -1]


def _answer(seq: int, time: int, turn: int, step: int, call: str, call_seq: int | None) -> Event:
    started = call_seq is not None
    message = {
        "id": f"interrupted-tool-result-{call}-{seq}",
        "role": "user",
        "source": {"kind": "tool", "callId": call},
        "content": [
            {
                "type": "tool-result",
                "toolCallId": call,
                "isError": True,
                "content": [{"type": "text", "text": OUTCOME_UNKNOWN if started else NOT_STARTED}],
            }
        ],
    }
    error = {
        "name": "ToolOutcomeUnknownError" if started else "ToolNotStartedError",
        "code": "TOOL_OUTCOME_UNKNOWN" if started else "TOOL_NOT_STARTED",
    }
    return make_event(
        "tool/result",
        seq,
        time,
        jsontext.encode({"turn": turn, "step": step, "message": message, "error": error}),
        sources=None if call_seq is None else (call_seq,),
        placement="append",
        placement_first=True,
    )


def _plain(type: str, seq: int, time: int, data: dict[str, object]) -> Event:
    return make_event(type, seq, time, jsontext.encode(data))
