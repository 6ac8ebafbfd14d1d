"""The rules of the format, each with the words in which it is broken."""

from collections.abc import Sequence
from typing import Any

from log_samples import HEADER, Recorder, memory_log, user
import msgspec
import pytest

from dsh_acp.errors import InvariantError, LogError
from dsh_acp.log.events import (
    AssistantMessage,
    EndSeed,
    Event,
    FeedbackRecord,
    Replace,
    RequestContext,
    RequestHeader,
    StepEnd,
    StepStart,
    TodoWrite,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
    make_event,
)
from dsh_acp.log.history import History
from dsh_acp.log.load import load, reading
from dsh_acp.log.packed import Entry
from dsh_acp.messages import Message, Text, TextDelta

FIRST = b'{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0}\n'
USER = '{"content":[{"type":"text","text":"x"}],"source":{"kind":"user"},"role":"user","id":"m%d"}'
SESSION = '@deepseek-ai/dsh-session": '


def event(kind: str, seq: int, data: str, **more: Any) -> Event:
    return make_event(kind, seq, 1, data.encode(), **more)


def surface_log(count: int = 3) -> History:
    history = History()
    for seq in range(count):
        history.admit(event("user/message", seq, USER % seq, placement="append"))
    return history


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (
            event("user/message", 7, USER % 7, placement="append"),
            "session event seq 7 is not contiguous; expected 3",
        ),
        (
            event("feedback/record", 3, '{"text":"x"}', placement="append"),
            'session event "feedback/record" is not surface-eligible and cannot carry surfaceOp',
        ),
        (
            event("feedback/record", 3, '{"text":"x"}', sources=[1]),
            'session event "feedback/record" is not surface-eligible'
            " and cannot carry sourceEventSeqs",
        ),
        (
            event("user/message", 3, USER % 3),
            'session event "user/message" is surface-eligible and requires a surfaceOp marker',
        ),
        (
            event("user/message", 3, USER % 3, placement=Replace(9, 1), sources=[1]),
            "surface replace: start seq 9 not found in surface",
        ),
        (
            event("user/message", 3, USER % 3, placement=Replace(1, 9), sources=[1]),
            "surface replace: end seq 9 not found in surface",
        ),
        (
            event("user/message", 3, USER % 3, placement=Replace(2, 0), sources=[1]),
            "surface replace: start seq 2 (index 2) is after end seq 0 (index 0)",
        ),
        (
            event("user/message", 3, USER % 3, placement="append", sources=[]),
            "sourceEventSeqs must not be empty except on assistant/message",
        ),
        (
            event("user/message", 3, USER % 3, placement="append", sources=[-1]),
            'session event "user/message" sourceEventSeqs'
            " must densely contain non-negative safe integers",
        ),
        (
            event("user/message", 3, USER % 3, placement="append", sources=[1, 1]),
            "sourceEventSeqs must not contain duplicates",
        ),
        (
            event("user/message", 3, USER % 3, placement="append", sources=[0, 3]),
            "sourceEventSeqs must reference earlier events: 3 >= current seq 3",
        ),
        (
            event("user/message", 3, USER % 3, placement=Replace(0, 2), sources=[1]),
            "surface replace: sourceEventSeqs must include every shadowed surface node;"
            " missing 0, 2",
        ),
        (
            event("tool/result", 3, "{}", placement=Replace(0, 1), sources=[0, 1]),
            "tool/result surface replacement must rewrite exactly one current node",
        ),
        (
            event("tool/result", 3, "{}", placement=Replace(1, 1), sources=[1]),
            "tool/result surface replacement must target a current tool/result",
        ),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_a_surface_rule_is_broken_in_these_words(candidate: Event, words: str) -> None:
    history = surface_log()
    with pytest.raises(LogError) as caught:
        history.admit(candidate)
    assert str(caught.value) == words
    assert caught.value.code == "INVALID_EVENT"
    assert history.surface.nodes == [0, 1, 2]
    assert history.seq == 3


def test_a_replacement_names_positions_not_a_numeric_range() -> None:
    history = surface_log(4)
    history.admit(event("user/message", 4, USER % 4, placement=Replace(0, 1), sources=[0, 1]))
    assert history.surface.nodes == [4, 2, 3]
    history.admit(event("user/message", 5, USER % 5, placement=Replace(4, 2), sources=[4, 2]))
    assert history.surface.nodes == [5, 3]
    assert history.surface.generation == 2
    assert [message.id for message in history.messages()] == ["m5", "m3"]


def test_trimming_a_result_may_change_only_its_content() -> None:
    log = memory_log()
    recorder = Recorder(log)
    recorder.begin()
    recorder.answer(calls=["c"])
    result = recorder.result("c", recorder.call("c").seq)
    old = result.payload.message
    place = Replace(result.seq, result.seq)
    new = Message.tool_result("c", [Text("shorter")], False, id=old.id)
    other = Message.tool_result("c", [Text("shorter")], True, id=old.id)
    with pytest.raises(LogError, match="may change only content"):
        log.append(ToolResultEvent(1, 1, other), surface=place, sources=[result.seq])
    trimmed = log.append(ToolResultEvent(1, 1, new), surface=place, sources=[result.seq])
    assert log.messages()[-1] == new
    assert log.surface.nodes[-1] == trimmed.seq


def test_an_empty_answer_hosts_its_usage_and_derives_to_nothing() -> None:
    log = memory_log()
    recorder = Recorder(log)
    recorder.begin()
    empty = Message.assistant([], "p", "m")
    appended = log.append(AssistantMessage(1, 1, empty), sources=[])
    assert appended.source_event_seqs == ()
    assert len(log.surface.nodes) == 2
    assert len(log.messages()) == 1


def open_step() -> Recorder:
    recorder = Recorder(memory_log())
    recorder.begin()
    return recorder


def result_for(call: str, **more: Any) -> ToolResultEvent:
    return ToolResultEvent(1, 1, Message.tool_result(call, [Text("x")], True), **more)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (TurnStart(2), "turn/start 2 while turn 1 is still open"),
        (TurnEnd(2, TurnEndReason("completed")), "turn/end 2 does not match open turn 1"),
        (TurnEnd(1, TurnEndReason("completed")), "turn/end 1 while step 1 is still open"),
        (StepStart(2, 1), "step/start in turn 2 but open turn is 1"),
        (StepStart(1, 2), "step/start 2 while step 1 is still open"),
        (StepEnd(1, 2), "step/end names turn 1/step 2 but open is turn 1/step 1"),
        (
            AssistantMessage(2, 1, Message.assistant([Text("x")], "p", "m")),
            "assistant/message names turn 2/step 1 but open is turn 1/step 1",
        ),
        (
            ToolCallEvent(1, 3, "c", "n", ""),
            "tool/call names turn 1/step 3 but open is turn 1/step 1",
        ),
        (result_for("c"), "tool/result for c with no prior tool/call in this step"),
    ],
    ids=lambda value: value[:50] if isinstance(value, str) else "",
)
def test_an_order_is_broken_in_these_words(payload: Any, words: str) -> None:
    recorder = open_step()
    before = recorder.log.seq
    with pytest.raises(InvariantError) as caught:
        recorder.log.append(payload)
    assert str(caught.value) == f'invariant violated by "{SESSION}{words}'
    assert recorder.log.seq == before
    recorder.answer()
    recorder.end_step()
    recorder.end()


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (TurnStart(3), "turn/start expected turn 2, got 3"),
        (StepStart(1, 2), "step/start in turn 1 but open turn is null"),
        (StepEnd(1, 1), "step/end names turn 1/step 1 but open is turn null/step null"),
        (TurnEnd(1, TurnEndReason("x")), "turn/end 1 does not match open turn null"),
        (
            TodoWrite(()),
            "todo/write appended outside any open turn"
            " (core execution events must be turn-enclosed)",
        ),
        (
            RequestHeader(HEADER, "initial"),
            "request/header appended outside any open turn"
            " (core execution events must be turn-enclosed)",
        ),
        (
            RequestContext("p", "m"),
            "request/context appended outside any open turn"
            " (core execution events must be turn-enclosed)",
        ),
    ],
    ids=lambda value: value[:50] if isinstance(value, str) else "",
)
def test_between_turns_an_order_is_broken_in_these_words(payload: Any, words: str) -> None:
    recorder = open_step()
    recorder.end_step()
    recorder.end()
    with pytest.raises(InvariantError) as caught:
        recorder.log.append(payload)
    assert caught.value.detail == words


def test_steps_are_counted_within_their_turn() -> None:
    recorder = open_step()
    recorder.end_step()
    with pytest.raises(InvariantError, match="step/start expected step 2 in turn 1, got 3"):
        recorder.log.append(StepStart(1, 3))


def test_chunks_belong_to_an_open_step() -> None:
    log = memory_log()
    with pytest.raises(InvariantError, match="open is turn null/step null"):
        log.append_chunks(1, 1, [TextDelta(0, "x")])
    assert log.seq == 0


def test_a_call_that_never_started_needs_no_call_event() -> None:
    recorder = open_step()
    from dsh_acp.log.events import ErrorInfo

    error = ErrorInfo("ToolNotStartedError", "TOOL_NOT_STARTED")
    recorder.log.append(result_for("c", error=error))


def test_a_result_replacement_needs_an_open_turn() -> None:
    recorder = Recorder(memory_log())
    recorder.tool_turn()
    log = recorder.log
    result = next(e for e in log.events() if e.type == "tool/result")
    payload = result.payload
    with pytest.raises(InvariantError, match="replacement appended outside any open turn"):
        log.append(payload, surface=Replace(result.seq, result.seq), sources=[result.seq])


def test_messages_and_markers_may_come_anywhere() -> None:
    log = memory_log()
    log.append(UserMessage(user("between turns")))
    log.append(EndSeed())
    log.append(FeedbackRecord("nice"))
    assert log.seq == 3


# ---------------------------------------------------------------- loading

MESSAGE = {
    "content": [{"type": "text", "text": "x"}],
    "source": {"kind": "user"},
    "role": "user",
    "id": "m",
}
ANSWER = {
    "role": "assistant",
    "content": [],
    "source": {"kind": "model", "provider": "p", "model": "m"},
    "id": "a",
}
RESULT = {
    "source": {"kind": "tool", "callId": "c"},
    "content": [{"type": "tool-result", "toolCallId": "c", "content": [], "isError": False}],
    "role": "user",
    "id": "r",
}


def log_of(kind: str, data: Any, **more: Any) -> bytes:
    record = {"type": kind, "seq": 0, "time": 1, "data": data, **more}
    return FIRST + msgspec.json.encode(record) + b"\n"


def held(message: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"turn": 1, "step": 1, "message": {**message, **changes}}


HEADER_DATA = {"config": {"provider": "p", "model": "m"}}


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("user/message", {**MESSAGE, "id": ""}, "lacks an identified message"),
        ("user/message", {**MESSAGE, "role": "system"}, 'message must have role "user"'),
        ("user/message", {**MESSAGE, "source": 1}, "message has invalid source"),
        ("user/message", {**MESSAGE, "content": [{"text": 1}]}, "message has invalid content"),
        ("assistant/message", held(ANSWER, id=None), "lacks an identified message"),
        ("assistant/message", held(ANSWER, role="user"), 'message must have role "assistant"'),
        ("assistant/message", held(ANSWER, source={}), "message has invalid source"),
        ("assistant/message", held(ANSWER, content={}), "message has invalid content"),
        (
            "assistant/message",
            held(ANSWER, source={"kind": "model", "provider": "", "model": "m"}),
            "message must have model source",
        ),
        ("tool/result", held(RESULT, source={"kind": "user"}), "message must have tool source"),
        ("tool/result", held(RESULT, content=[]), "message must contain one tool-result block"),
        (
            "tool/result",
            held(RESULT, source={"kind": "tool", "callId": "d"}),
            "has mismatched tool call ids",
        ),
        ("request/header", {"header": {"config": {}}, "reason": "x"}, "lacks provider/model"),
        (
            "request/header",
            {"header": {"config": {**HEADER_DATA["config"], "reasoningEffort": ""}}},
            "has an invalid reasoningEffort",
        ),
        (
            "request/header",
            {"header": {**HEADER_DATA, "adapterDefaults": {"maxTokens": True}}, "reason": "x"},
            "has invalid adapterDefaults",
        ),
        (
            "request/header",
            {"header": {**HEADER_DATA, "adapterDefaults": {"other": True}}, "reason": "x"},
            "has invalid adapterDefaults",
        ),
    ],
)
def test_a_stored_event_is_refused_in_these_words(kind: str, data: Any, words: str) -> None:
    place = {} if kind == "request/header" else {"surfaceOp": "append"}
    with pytest.raises(LogError) as caught:
        load(log_of(kind, data, **place))
    subject = f"seed {kind} at index 0"
    assert str(caught.value) == f'stored session "s" failed validation: {subject} {words}'
    assert caught.value.code == "CORRUPT"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            {"type": "request/header-delta", "seq": 0, "time": 1, "data": {}},
            'session "s" contains unsupported legacy request/header-delta event at seq 0',
        ),
        (
            {"type": "mode/set", "seq": 0, "time": 1, "data": {}},
            'session "s" contains unsupported legacy mode/set event at seq 0',
        ),
        (
            {
                "type": "request/header",
                "seq": 0,
                "time": 1,
                "data": {"header": HEADER_DATA, "reason": "fallback"},
            },
            'session "s" contains unsupported legacy request/header reason "fallback" at seq 0',
        ),
        (
            {"type": "turn/end", "seq": 0, "time": 1, "data": {"turn": 1, "reason": 7}},
            'session "s" contains malformed pre-react-loop turn/end at seq 0',
        ),
        (
            {"type": "prompt/blocked", "seq": 0, "time": 1, "data": {}},
            'session "s" contains event type "prompt/blocked" (seq 0) unknown to this harness and'
            " not marked ignorable; refusing to interpret the log — it was likely written by a"
            " newer harness",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_stored_form_is_refused_in_these_words(line: dict[str, Any], words: str) -> None:
    with pytest.raises(LogError) as caught:
        load(FIRST + msgspec.json.encode(line) + b"\n")
    assert str(caught.value) == words


def test_an_ignorable_event_of_an_unknown_type_is_kept_and_skipped() -> None:
    line = b'{"type":"future/thing","seq":0,"time":1,"data":{"a":[1]},"ignorable":true}'
    log = load(FIRST + line + b"\n")
    assert list(log.lines())[1] == line
    assert log.event(0).payload.json == b'{"a":[1]}'
    assert log.messages() == ()


def test_another_version_is_refused_before_anything_else_is_judged() -> None:
    first = b'{"type":"session","version":3,"unknown":{}}\nnot json\n'
    with pytest.raises(LogError) as caught:
        load(first, expected_id="s")
    assert caught.value.code == "UNSUPPORTED_VERSION"
    assert str(caught.value) == (
        'session "s" uses log format v3, but this harness reads only v0: the log was written by a'
        " newer harness — upgrade the harness to open it"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"createdAt": -1}, "session header createdAt must be a non-negative safe integer"),
        ({"createdAt": 1.5}, "session header createdAt must be a non-negative safe integer"),
        ({"cwd": 1}, "session header cwd must be a string"),
        ({"cwd": "w"}, 'session header cwd must be an absolute path, got "w"'),
        ({"parentSession": 1}, "session header parentSession must be a string"),
        ({"seedLength": -1}, "session header seedLength must be a non-negative safe integer"),
        ({"origin": "x"}, 'session header origin must be "subagent"'),
        (
            {"delegationDepth": None},
            "session header delegationDepth must be a non-negative safe integer",
        ),
        ({"agentPreset": []}, "session header agentPreset must be a string"),
        ({"sandboxMode": "x"}, "session header uses retired policy baseline fields"),
        ({"type": "x"}, "corrupt session log: first line is not a session header"),
    ],
)
def test_a_session_header_is_refused_in_these_words(changes: Any, words: str) -> None:
    fields = {**msgspec.json.decode(FIRST), **changes}
    with pytest.raises(LogError) as caught:
        load(msgspec.json.encode(fields) + b"\n")
    assert str(caught.value) == words


def test_damage_before_a_finished_turn_is_refused_and_a_torn_tail_is_not() -> None:
    recorder = Recorder(memory_log())
    recorder.tool_turn()
    lines = recorder.log.lines().split(b"\n")[:-1]
    damaged = [*lines[:4], b'{"type":"turn', *lines[5:]]
    with pytest.raises(LogError, match="unparsable committed event at line 4") as caught:
        load(b"\n".join(damaged) + b"\n")
    assert caught.value.code == "CORRUPT"
    with pytest.raises(LogError) as caught:
        load(b"\n".join([*lines[:4], *lines[5:]]) + b"\n")
    assert str(caught.value) == (
        "corrupt session log: seq gap in committed region at line 4 (expected 3, got 4)"
    )
    torn = load(b"\n".join(damaged[:8]) + b"\n")
    assert torn.stored_seq == 3
    assert torn.torn.startswith(b'{"type":"turn\n')


def test_an_edge_that_breaks_the_order_of_turns_is_refused() -> None:
    line = b'{"type":"step/end","seq":0,"time":1,"data":{"turn":1,"step":1}}\n'
    with pytest.raises(LogError, match="failed validation: step/end names turn 1/step 1"):
        load(FIRST + line)


OLD = [
    ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": []}, {}),
    ("turn/start", {"turn": 1, "trigger": {"kind": "message"}}, {}),
    ("step/start", {"turn": 1, "step": 1}, {}),
    (
        "user/message",
        {"content": [{"type": "text", "text": "q"}], "source": {"kind": "user"}},
        {"surfaceOp": "append"},
    ),
    (
        "assistant/message",
        {
            "turn": 1,
            "step": 1,
            "content": [{"type": "tool-call", "id": "c", "name": "n", "arguments": ""}],
            "provenance": {"provider": "p", "model": "m"},
        },
        {"surfaceOp": "append", "sourceEventSeqs": []},
    ),
    ("tool/call", {"turn": 1, "step": 1, "callId": "c", "name": "n", "arguments": ""}, {}),
    (
        "tool/result",
        {"turn": 1, "step": 1, "callId": "c", "content": [], "isError": False},
        {"surfaceOp": "append", "sourceEventSeqs": [5]},
    ),
    (
        "tool/result",
        {"turn": 1, "step": 1, "callId": "c", "content": [], "isError": False},
        {"surfaceOp": {"op": "replace", "start": 6, "end": 6}, "sourceEventSeqs": [6]},
    ),
    (
        "steering/message",
        {"turn": 1, "content": [], "source": {"kind": "user"}},
        {"surfaceOp": "append"},
    ),
    ("step/end", {"turn": 1, "step": 1}, {}),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "message": "no"}}, {}),
]


def test_old_forms_are_read_as_what_they_became() -> None:
    lines = [
        msgspec.json.encode({"type": kind, "seq": seq, "time": 1, "data": payload, **more}) + b"\n"
        for seq, (kind, payload, more) in enumerate(OLD)
    ]
    parts: list[Sequence[Entry]] = []
    steps = reading(lambda: [FIRST, *lines])
    with pytest.raises(StopIteration) as end:
        while True:
            parts.append(next(steps))
    log = end.value.value
    # What was handed out before a line broke a rule was void.
    assert [entry.encode() for entry in parts[-1]] == [event.line for event in log.entries()]
    assert [entry for part in parts[:-1] for entry in part]
    assert log.migrated
    assert [message.id for message in log.messages()] == [
        "legacy-message:s:3",
        "legacy-message:s:4",
        "legacy-message:s:6",
        "legacy-message:s:8",
    ]
    assert log.messages()[1].source == {"provider": "p", "model": "m", "kind": "model"}
    assert msgspec.json.decode(log.event(10).data)["reason"] == {
        "kind": "error",
        "error": {"message": "no", "code": "UNKNOWN"},
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"kind": "aborted"}, {"kind": "aborted", "reason": {"kind": "legacy"}}),
        (
            {"kind": "aborted", "reason": "text"},
            {"kind": "aborted", "reason": {"kind": "legacy"}},
        ),
        ({"kind": "disposed"}, {"kind": "aborted", "reason": {"kind": "disposed"}}),
        ({"kind": "rejected", "reason": "x"}, {"kind": "rejected", "reason": "x"}),
    ],
)
def test_old_reasons_are_read_as_what_they_became(old: Any, new: Any) -> None:
    lines = [
        {"type": "turn/start", "seq": 0, "time": 1, "data": {"turn": 1}},
        {"type": "turn/end", "seq": 1, "time": 1, "data": {"turn": 1, "reason": old}},
    ]
    log = load(FIRST + b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    assert msgspec.json.decode(log.event(1).data)["reason"] == new
