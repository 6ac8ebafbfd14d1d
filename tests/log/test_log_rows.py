"""Packed rows and payloads: what is written is what is read."""

import itertools
import json
from typing import Any

from hypothesis import given, strategies as st
from log_samples import Recorder, memory_log
import msgspec
import pytest

from dsh_acp import jsontext
from dsh_acp.errors import LogError
from dsh_acp.log import events as ev
from dsh_acp.log.packed import ChunkRow, MalformedRow, chunk_row, decode_entry, pack
from dsh_acp.messages import (
    UNSET,
    BlockEnd,
    BlockStart,
    Chunk,
    Failure,
    Finish,
    FinishReason,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageChunk,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
INDEX = st.integers(0, 2)
CHUNKS = st.one_of(
    st.builds(TextDelta, INDEX, TEXTS),
    st.builds(ReasoningDelta, INDEX, TEXTS),
    st.builds(
        ToolCallDelta,
        index=INDEX,
        id=st.sampled_from(["", "c"]),
        name=st.sampled_from([UNSET, "bash"]),
        arguments_delta=TEXTS,
    ),
    st.builds(BlockStart, INDEX, st.just("text")),
    st.builds(BlockEnd, INDEX, st.builds(Text, TEXTS)),
    st.just(UsageChunk(Usage(1, 2))),
    st.just(Finish(FinishReason("error", Failure("m", "C")))),
)


def expanded(entries: Any) -> list[ev.Event]:
    found: list[ev.Event] = []
    for entry in entries:
        found.extend([entry] if isinstance(entry, ev.Event) else entry.events())
    return found


def as_events(chunks: list[Chunk], times: list[int]) -> list[ev.Event]:
    return [
        ev.make_event("assistant/chunk", k, time, ev.AssistantChunk(1, 1, chunk).encode())
        for k, (chunk, time) in enumerate(zip(chunks, times, strict=True))
    ]


@given(st.lists(st.tuples(CHUNKS, st.integers(-1000, 1000)), max_size=30))
def test_packing_loses_nothing(members: list[tuple[Chunk, int]]) -> None:
    events = as_events([chunk for chunk, _ in members], [time for _, time in members])
    packed = pack(events)
    assert expanded(packed) == events
    assert expanded(decode_entry(entry.encode()) for entry in packed) == events
    for entry in packed:
        assert decode_entry(entry.encode()).encode() == entry.encode()
        if isinstance(entry, ChunkRow):
            assert len(entry.texts) >= 3
    for left, right in itertools.pairwise(packed):
        if isinstance(left, ChunkRow) and isinstance(right, ChunkRow):
            assert (left.data.index, left.type, left.data.id, left.data.name) != (
                right.data.index,
                right.type,
                right.data.id,
                right.data.name,
            )


@given(st.lists(st.lists(CHUNKS, max_size=8), max_size=8), st.integers(0, 60))
def test_chunks_appended_in_any_batches_are_the_same_events(
    batches: list[list[Chunk]], start: int
) -> None:
    log = memory_log()
    Recorder(log).begin()
    log.on_pending = lambda delay: None
    first = log.seq
    for batch in batches:
        log.append_chunks(1, 1, batch)
    whole = [event.payload.chunk for event in log.events(first)]
    assert whole == [chunk for batch in batches for chunk in batch]
    log.flush()
    assert [event.payload.chunk for event in log.events(first)] == whole
    offset = min(start, len(whole))
    assert [event.seq for event in log.events(first + offset)] == list(
        range(first + offset, log.seq)
    )
    for seq in range(first, log.seq):
        assert log.event(seq).seq == seq


ROW: dict[str, Any] = {
    "type": "tool-call-chunks",
    "seq0": 30,
    "time0": 5,
    "data": {
        "turn": 1,
        "step": 1,
        "index": 1,
        "dt": [0, -4],
        "id": "call_00_f",
        "name": "bash",
        "args": ["", "{", '"'],
    },
}


def test_a_row_decodes_to_its_members() -> None:
    row = decode_entry(json.dumps(ROW).encode())
    assert isinstance(row, ChunkRow)
    assert (row.kind, row.id, row.name, row.text) == ("tool-call", "call_00_f", "bash", '{"')
    assert (row.seq, row.end_seq, row.end_time) == (30, 33, 1)
    assert [event.line for event in row.events()][2] == (
        b'{"type":"assistant/chunk","seq":32,"time":1,"data":{"turn":1,"step":1,"chunk":'
        b'{"type":"tool-call-delta","index":1,"id":"call_00_f","name":"bash",'
        b'"argumentsDelta":"\\""}}}'
    )


def test_a_row_of_one_or_two_members_decodes_and_any_key_order_is_read() -> None:
    data = {**ROW["data"], "dt": [], "args": ["x"]}
    assert decode_entry(json.dumps({**ROW, "data": data}).encode()).end_seq == 31
    turned = dict(reversed(ROW.items()))
    assert isinstance(decode_entry(json.dumps(turned).encode()), ChunkRow)


def changed(**changes: Any) -> dict[str, Any]:
    return {**ROW, "data": {**ROW["data"], **changes}}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({**ROW, "extra": 1}, "envelope must be exactly {type, seq0, time0, data}"),
        ({**ROW, "seq0": -1}, "seq0 must be a non-negative safe integer"),
        ({**ROW, "time0": 1.5}, "time0 must be a safe integer"),
        ({**ROW, "data": []}, "data must be an object"),
        (changed(texts=[]), "data must be exactly {turn, step, index, id, name?, dt, args}"),
        (
            {**ROW, "type": "text-chunks"},
            "data must be exactly {turn, step, index, dt, texts}",
        ),
        (changed(id=1), "id (and name when present) must be strings"),
        (changed(name=1), "id (and name when present) must be strings"),
        (changed(turn="1"), "turn/step/index must be numbers"),
        (changed(args=[], dt=[]), "args must be a non-empty string array"),
        (changed(args=[1, 2, 3]), "args must be a non-empty string array"),
        (changed(dt=[0, 1.5]), "dt must be an array of safe integers"),
        (changed(dt=[0]), "dt length 1 does not match 3 members"),
        ({**ROW, "seq0": 2**53 - 2}, "member seqs must stay safe integers"),
        ({**ROW, "time0": 2**53 - 1}, "member times must stay safe integers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_row_is_refused_in_these_words(row: Any, why: str) -> None:
    with pytest.raises(MalformedRow) as caught:
        decode_entry(json.dumps(row).encode())
    assert str(caught.value) == f"malformed {row['type']} storage row: {why}"


def test_runs_below_three_and_other_names_are_not_packed() -> None:
    def delta(seq: int, name: Any) -> ChunkRow:
        chunk = ToolCallDelta(index=0, id="c", name=name, arguments_delta=str(seq))
        row = chunk_row(seq, 1, 1, 1, chunk)
        assert row is not None
        return row

    rows = [delta(0, "bash"), *(delta(seq, UNSET) for seq in range(1, 4))]
    packed = pack(rows)
    assert [type(entry) for entry in packed] == [ev.Event, ChunkRow]
    assert b'"name":"bash"' in packed[0].encode()
    assert b'"name"' not in packed[1].encode()


# ---------------------------------------------------------------- payloads


def test_the_table_holds_the_formats_48_types_and_four_of_ours() -> None:
    assert len(ev.KNOWN_TYPES) == 48
    assert ev.OWN_TYPES == {
        "request/digest",
        "permission/grant",
        "permission/revoke",
        "session/options",
    }
    assert ev.SURFACE_TYPES == {"user/message", "assistant/message", "tool/result"}


QUOTED = [
    ("turn/end", '{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"user"}}}'),
    (
        "turn/end",
        '{"turn":1,"reason":{"kind":"error","error":{"message":"no","code":"AUTH"}}}',
    ),
    ("agent/inbox/spliced", '{"target":"next-turn","start":0,"removedCount":1,"inserted":[]}'),
    (
        "agent/inbox/spliced",
        '{"target":"next-step","start":0,"removedCount":2,"inserted":[],"outcome":"canceled"}',
    ),
    ("sandbox/mode", '{"mode":"read-only","source":"delegation"}'),
    ("approval/asked", '{"id":"8b","toolName":"bash","callId":"c","reason":"r"}'),
    ("approval/decided", '{"id":"8b","outcome":"allowed-once"}'),
    ("plan/mode", '{"active":true}'),
    ("todo/write", '{"todos":[{"content":"Write","status":"in_progress"}]}'),
    ("command/run", '{"commandId":"c-1","name":"plan","args":" off","source":{"kind":"user"}}'),
    ("command/done", '{"commandId":"c-2","kind":"success","text":"x","sourceEventSeq":39}'),
    ("compaction/start", '{"compactionId":"k","turn":null}'),
    ("compaction/end", '{"compactionId":"k","turn":3,"error":"e"}'),
    (
        "compaction/summary",
        '{"compactionId":"k-1","summary":[{"type":"text","text":"s"}],"rawOutput":[{"type":"text",'
        '"text":"s"}],"llmStreamCall":true,"shadowedRange":{"start":4,"end":70},"shadowedSeqs":[4,'
        '5],"shadowedTokenCount":5,"provider":"p","model":"m","maxTokens":8192,"usage":'
        '{"inputTokens":200,"outputTokens":900,"cacheReadTokens":50000}}',
    ),
    (
        "compaction/prune",
        '{"shadowedRange":{"start":6,"end":6},"shadowedSeqs":[6],"shadowedTokenCount":3005}',
    ),
    (
        "llm/retry",
        '{"retryId":"r","turn":1,"step":1,"provider":"p","mode":"normal","policyKey":"k","retry":1,'
        '"maxRetries":5,"delayMs":512.3,"failure":{"message":"m","code":"RATE_LIMIT","status":429,'
        '"providerRetryAfterMs":1000}}',
    ),
    ("llm/retry-started", '{"retryId":"r","turn":1,"step":1,"retry":1}'),
    (
        "session/title",
        '{"title":"T","messageSeqs":[4],"source":{"kind":"provider","provider":"x","model":'
        '{"provider":"p","model":"m"}}}',
    ),
    (
        "session/title-llm-request",
        '{"titleProvider":"t","messageSeqs":[4],"route":{"provider":"p","model":"m"},"system":"…",'
        '"messages":[],"maxTokens":64}',
    ),
    ("goal/change", '{"kind":"goal/change","version":1,"operation":"clear","clearedAt":2}'),
    ("schedule/change", '{"version":1,"operation":"delete","id":"s-1"}'),
    ("feedback/record", '{"text":"nice"}'),
    (
        "hook/result",
        '{"turn":1,"point":"PreToolUse","handlerId":"h1","decision":"allow","exitCode":0,'
        '"durationMs":12}',
    ),
    ("subagent/descriptor", '{"version":2,"mode":"one-shot","provider":"spawn","label":"x"}'),
    (
        "tool/code-dispatch",
        '{"rootCallId":"c1","parentCallId":"c1","subCallId":"c1:code:1","name":"read","arguments":'
        '{"file_path":"a"},"isError":false,"content":[{"type":"text","text":"…"}]}',
    ),
    (
        "tool-workflow/agent-start",
        '{"runId":"r1","seq":1,"label":"lint","phase":"check","childId":"x"}',
    ),
    ("tool-workflow/agent-end", '{"runId":"r1","seq":1,"outcome":"completed"}'),
    ("tool-workflow/run-end", '{"runId":"r1","stopReason":"completed"}'),
    ("agent-preset/selected", '{"agentPreset":"coding"}'),
    (
        "web/deepseek-search-llm-request",
        '{"endpoint":"https://x","apiVersion":"1","body":{"model":"m","max_tokens":1024}}',
    ),
    ("team/task", '{"version":1,"teamId":"t","task":{"id":"a","blockedBy":[]}}'),
    (
        "request/context",
        '{"provider":"p","model":"m","contextWindow":1000000}',
    ),
    (
        "request/header",
        '{"header":{"config":{"provider":"p","model":"m","reasoningEffort":"high","temperature":1,'
        '"maxTokens":256000},"adapterDefaults":{"reasoningEffort":true},"system":"s","tools":'
        '[{"name":"b","description":"d","parameters":{"type":"object","properties":{}}}]},'
        '"reason":"initial"}',
    ),
    (
        "tool/result",
        '{"turn":1,"step":1,"message":{"source":{"kind":"tool","callId":"c"},"content":[{"type":'
        '"tool-result","toolCallId":"c","content":[],"isError":true}],"role":"user","id":"r"},'
        '"error":{"name":"AbortError","code":"ABORTED"},"meta":{"a":[1,null]}}',
    ),
    (
        "assistant/message",
        '{"turn":1,"step":1,"message":{"role":"assistant","content":[],"source":{"kind":"model",'
        '"provider":"p","model":"m"},"id":"a"},"interrupted":true,"usage":{"inputTokens":1,'
        '"outputTokens":2}}',
    ),
]


@pytest.mark.parametrize(("kind", "text"), QUOTED)
def test_a_payload_is_written_as_it_was_read(kind: str, text: str) -> None:
    event = ev.make_event(kind, 0, 1, text.encode())
    assert type(event.payload).TYPE == kind
    assert event.payload.encode().decode() == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, 2**53, object(), {1: 2}])
def test_what_json_would_lose_is_not_logged(value: Any) -> None:
    log = memory_log()
    with pytest.raises(LogError) as caught:
        log.append(ev.GoalChange({"value": [value]}))
    assert str(caught.value) == 'session event "goal/change" carries non-JSON-serializable data'
    assert log.seq == 0


def test_a_lone_surrogate_does_not_make_an_event_unrecordable() -> None:
    log = memory_log()
    logged = log.append(ev.FeedbackRecord("a\ud800b"))
    assert logged.payload == ev.FeedbackRecord("a\ufffdb")


def test_whole_numbers_are_written_as_integers() -> None:
    log = memory_log()
    logged = log.append(ev.GoalChange({"a": 1.0, "b": 0.5, "c": [2.0]}))
    assert logged.data == b'{"a":1,"b":0.5,"c":[2]}'


def test_a_payload_of_another_shape_is_unknown_not_an_error() -> None:
    event = ev.make_event("session/title", 0, 1, b'{"title":7}')
    assert event.payload == ev.Unknown("session/title", b'{"title":7}')


def test_our_own_events_are_marked_ignorable_and_only_those() -> None:
    log = memory_log()
    logged = log.append(ev.PermissionGrant("command", "bash", "ls", "allow"))
    assert logged.line.endswith(b'"decision":"allow"},"ignorable":true}')
    assert b"ignorable" not in log.append(ev.FeedbackRecord("x")).line


def test_an_envelope_has_no_other_keys() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_entry(b'{"type":"plan/mode","seq":0,"time":1,"data":{},"extra":1}')
    with pytest.raises(msgspec.ValidationError):
        decode_entry(b'{"type":"plan/mode","seq":0,"time":1}')


def test_events_and_messages_cannot_be_changed() -> None:
    recorder = Recorder(memory_log())
    event = recorder.begin()
    message = recorder.log.messages()[0]
    for thing, name in ((event, "seq"), (event.payload, "message"), (message, "json")):
        with pytest.raises(AttributeError):
            setattr(thing, name, None)
    assert jsontext.loads(message.json)["role"] == "user"
