"""The check before a request leaves."""

import json
from pathlib import Path
from typing import Any

from log_samples import HEADER, Recorder, memory_log, sample_lines, user
from msgspec.structs import force_setattr, replace
import pytest

from dsh_acp.errors import InvariantError, LogError
from dsh_acp.log.audit import _WINDOW, Auditor, audit_log, rebuild_request
from dsh_acp.log.events import RequestDigest, RequestHeader, StepStart, TurnStart, UserMessage
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.store import Store
from dsh_acp.messages import UNSET, CallConfig, EpochHeader, Message, Raw, Request, ToolSchema

LOOP = 'invariant violated by "@deepseek-ai/dsh-agent-loop": '
DIVERGES = (
    'llm request for session "s1" diverges from the dispatch-time durable derivation'
    " (log-reconstruction desync)"
)


def ready(header: EpochHeader = HEADER) -> tuple[SessionLog, Request, Auditor]:
    log = memory_log()
    recorder = Recorder(log)
    recorder.begin()
    recorder.header(header)
    request = Request("s1", header, (*header.prefix, *log.messages(), *header.suffix))
    auditor = Auditor("s1")
    auditor.feed(log.lines())
    return log, request, auditor


def refuse(auditor: Auditor, request: Any, words: str, **more: Any) -> None:
    with pytest.raises(InvariantError) as caught:
        auditor.check(request, **more)
    assert str(caught.value) == LOOP + words


def test_a_request_that_the_log_explains_passes_again_and_again() -> None:
    log, request, auditor = ready()
    auditor.check(request)
    auditor.check(request)
    copy = Request("s1", HEADER, tuple(Message(bytes(m.json)) for m in request.messages))
    auditor.check(copy)
    recorder = Recorder(log)
    recorder.turn, recorder.step = 1, 1
    recorder.answer(calls=["c"])
    recorder.result("c", recorder.call("c").seq)
    auditor.feed(log.lines(auditor.offset))
    auditor.check(Request("s1", HEADER, log.messages()))
    refuse(auditor, request, DIVERGES)


def test_the_checks_come_in_their_order_with_their_words() -> None:
    _, request, auditor = ready()
    empty = Auditor("s1")
    refuse(empty, {"messages": []}, "a loop-built request must be frozen")
    refuse(empty, Request("", HEADER, ()), "a loop-built request must carry a session id")
    refuse(
        empty,
        Request("other", HEADER, ()),
        'a loop-built request must carry a live session id, got "other"',
    )
    refuse(
        empty,
        request,
        'a loop-built request must carry a live session id, got "s1"',
        log_live=False,
    )
    thawed: Any = list(request.messages)
    refuse(
        auditor,
        Request("s1", HEADER, thawed),
        "a loop-built request must carry a frozen messages array",
    )
    log = memory_log()
    empty.feed(log.lines())
    refuse(empty, request, "a loop-built request with no step/start in its session log")
    log.append(TurnStart(1))
    log.append(StepStart(1, 1))
    empty.feed(log.lines(empty.offset))
    refuse(empty, request, "a loop-built request with no request/header event in its session log")
    other = EpochHeader(CallConfig("p", "other"))
    refuse(auditor, Request("s1", other, ()), DIVERGES)
    refuse(
        auditor,
        Request("s1", other, request.messages),
        'llm request for session "s1" diverges from the folded request header',
    )


def test_one_shots_beside_the_conversation_are_passed() -> None:
    Auditor("s1").check(Request("s1", HEADER, (), purpose="compaction"))


TOOL = ToolSchema("read", "Reads", Raw(b'{"type":"object","properties":{}}'))
FULL = EpochHeader(
    CallConfig("p", "m", reasoning_effort="high", temperature=0.5, max_tokens=9, stop=("x",)),
    system="s",
    tools=(TOOL,),
)


@pytest.mark.parametrize(
    "other",
    [
        EpochHeader(CallConfig("q", "m", "high", 0.5, 9, ("x",)), system="s", tools=(TOOL,)),
        EpochHeader(CallConfig("p", "n", "high", 0.5, 9, ("x",)), system="s", tools=(TOOL,)),
        EpochHeader(CallConfig("p", "m", "low", 0.5, 9, ("x",)), system="s", tools=(TOOL,)),
        EpochHeader(CallConfig("p", "m", "high", 0.7, 9, ("x",)), system="s", tools=(TOOL,)),
        EpochHeader(CallConfig("p", "m", "high", 0.5, UNSET, ("x",)), system="s", tools=(TOOL,)),
        EpochHeader(CallConfig("p", "m", "high", 0.5, 9), system="s", tools=(TOOL,)),
        EpochHeader(CallConfig("p", "m", "high", 0.5, 9, ("x",)), tools=(TOOL,)),
        EpochHeader(CallConfig("p", "m", "high", 0.5, 9, ("x",)), system="s"),
        EpochHeader(CallConfig("p", "m", "high", 0.5, 9, ("x",)), system="s", tools=(TOOL, TOOL)),
    ],
)
def test_a_header_that_was_not_logged_does_not_leave(other: EpochHeader) -> None:
    _, request, auditor = ready(FULL)
    auditor.check(request)
    refuse(
        auditor,
        Request("s1", other, request.messages),
        'llm request for session "s1" diverges from the folded request header',
    )


def framed() -> EpochHeader:
    before, after = user("frozen", "b"), user("fresh", "a")
    return EpochHeader(
        HEADER.config,
        system=HEADER.system,
        message_prefix=(Raw(before.json),),
        message_suffix=(Raw(after.json),),
    )


def test_framing_is_expected_around_the_derivation_and_is_no_history() -> None:
    log, request, auditor = ready(framed())
    assert [message.text for message in request.messages] == ["frozen", "hello", "fresh"]
    auditor.check(request)
    assert [message.text for message in log.messages()] == ["hello"]
    refuse(auditor, Request("s1", framed(), log.messages()), DIVERGES)
    refuse(auditor, Request("s1", framed(), request.messages[:2]), DIVERGES)
    swapped = (request.messages[2], request.messages[1], request.messages[0])
    refuse(auditor, Request("s1", framed(), swapped), DIVERGES)
    log.append(RequestHeader(HEADER, "change"))
    auditor.feed(log.lines(auditor.offset))
    auditor.check(Request("s1", HEADER, log.messages()))
    refuse(auditor, request, DIVERGES)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_message_that_bypasses_the_log_does_not_leave(where: int) -> None:
    log, _, auditor = ready()
    log.append(UserMessage(user("second")))
    auditor.feed(log.lines(auditor.offset))
    messages = log.messages()
    auditor.check(Request("s1", HEADER, messages))
    stray = user("phantom")
    refuse(auditor, Request("s1", HEADER, (*messages[:where], stray, *messages[where:])), DIVERGES)
    refuse(auditor, Request("s1", HEADER, messages[:1]), DIVERGES)
    altered = Message(messages[0].json.replace(b"hello", b"hullo"))
    refuse(auditor, Request("s1", HEADER, (altered, messages[1])), DIVERGES)


def test_a_proved_message_that_was_changed_by_force_does_not_leave() -> None:
    log = memory_log()
    recorder = Recorder(log)
    auditor = Auditor("s1")
    for number in range(100):
        recorder.tool_turn(f"question {number}")
    auditor.feed(log.lines())
    messages = log.messages()
    assert len(messages) > 2 * _WINDOW
    auditor.check(Request("s1", HEADER, messages))
    late, text = messages[_WINDOW + 10], messages[_WINDOW + 10].json
    force_setattr(late, "json", messages[0].json)
    # One that lies far back is looked at in its turn; what is sent of it was encoded before.
    auditor.check(Request("s1", HEADER, messages))
    refuse(auditor, Request("s1", HEADER, messages), DIVERGES)
    force_setattr(late, "json", text)
    auditor.check(Request("s1", HEADER, messages))

    force_setattr(messages[-1], "json", text)
    recorder.begin("with another header everything is encoded anew")
    other = replace(HEADER, system="Be thorough.")
    log.append(RequestHeader(other, "change"))
    auditor.feed(log.lines(auditor.offset))
    refuse(auditor, Request("s1", other, log.messages()), DIVERGES)


def test_a_message_that_was_changed_by_force_does_not_survive_a_replacement() -> None:
    log = memory_log()
    recorder = Recorder(log)
    auditor = Auditor("s1")
    recorder.tool_turn()
    auditor.feed(log.lines())
    auditor.check(Request("s1", HEADER, log.messages()))
    force_setattr(log.messages()[-1], "json", user("phantom").json)
    nodes = log.surface.nodes
    recorder.compact(nodes[0], nodes[1])
    auditor.feed(log.lines(auditor.offset))
    if any(b"phantom" in message.json for message in log.messages()):
        refuse(auditor, Request("s1", HEADER, log.messages()), DIVERGES)
    else:
        auditor.check(Request("s1", HEADER, log.messages()))


def test_after_a_replacement_everything_is_compared_again() -> None:
    log = memory_log()
    recorder = Recorder(log)
    auditor = Auditor("s1")
    recorder.tool_turn()
    auditor.feed(log.lines())
    auditor.check(Request("s1", HEADER, log.messages()))
    old = log.messages()
    nodes = log.surface.nodes
    recorder.compact(nodes[0], nodes[1])
    auditor.feed(log.lines(auditor.offset))
    refuse(auditor, Request("s1", HEADER, old), DIVERGES)
    auditor.check(Request("s1", HEADER, log.messages()))


def lines_of(data: bytes) -> list[bytes]:
    return data.split(b"\n")[:-1]


def joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def test_a_log_with_an_event_missing_doubled_or_moved_explains_nothing() -> None:
    log, request, _ = ready()
    lines = lines_of(log.lines())
    for k in range(1, len(lines)):
        for changed in (
            [*lines[:k], *lines[k + 1 :]],
            [*lines[: k + 1], *lines[k:]],
            [*lines[:k], *lines[k + 1 : k + 2], lines[k], *lines[k + 2 :]],
        ):
            if changed == lines:
                continue
            auditor = Auditor("s1")
            auditor.feed(joined(changed))
            with pytest.raises(InvariantError):
                auditor.check(request)


def test_a_damaged_log_is_named_as_such() -> None:
    log, request, _ = ready()
    lines = lines_of(log.lines())
    auditor = Auditor("s1")
    auditor.feed(joined([*lines[:3], *lines[4:]]))
    refuse(
        auditor,
        request,
        'llm request for session "s1" rests on a damaged log:'
        " event 2 is missing: event 3 stands in its place",
    )


def test_every_changed_byte_of_a_logged_message_is_noticed() -> None:
    log, request, _ = ready()
    data = log.lines()
    start = data.index(b'{"type":"user/message"')
    end = data.index(b"\n", start)
    at = data.index(b"hello", start)
    for k in range(at, at + 5):
        auditor = Auditor("s1")
        auditor.feed(data[:k] + b"#" + data[k + 1 :])
        refuse(auditor, request, DIVERGES)
    survived = ""
    for k in range(start, end):
        auditor = Auditor("s1")
        auditor.feed(data[:k] + data[k + 1 :])
        try:
            auditor.check(request)
        except InvariantError:
            continue
        survived += chr(data[k])
    # The digits of an event's time are no part of any request.
    assert survived.isdigit()


def test_a_file_that_shrank_or_grew_behind_our_back_stops_the_request(tmp_path: Path) -> None:
    log = Store(tmp_path).create("/w")
    recorder = Recorder(log)
    recorder.begin()
    recorder.header()
    auditor = Auditor(log.header.id)
    auditor.feed(log.lines())
    assert log.path is not None
    whole = log.path.read_bytes()
    for other in (whole[:-1], whole + b"x", b"", whole.replace(b"hello", b"hullo")):
        log.path.write_bytes(other)
        with pytest.raises(LogError, match="was changed by another program"):
            auditor.feed(log.lines(auditor.offset))
    log.path.write_bytes(whole)
    assert log.lines(auditor.offset) == b""
    log.path.write_bytes(whole.replace(b"hello", b"hullo"))
    recorder.answer()  # our own write does not hide theirs
    with pytest.raises(LogError, match="what was written is no longer in it"):
        log.lines(auditor.offset)
    log.close()


# ---------------------------------------------------------------- offline


def test_a_digest_is_compared_with_the_body_built_again() -> None:
    import hashlib

    def body_of(request: Request) -> bytes:
        return b"|".join(message.json for message in request.messages)

    log, request, _ = ready()
    recorder = Recorder(log)
    recorder.turn, recorder.step = 1, 1
    body = body_of(request)
    digest = hashlib.sha256(body).hexdigest()
    log.append(RequestDigest(1, 1, 1, digest, len(body), "p", "m"))
    recorder.answer()
    recorder.end_step()
    recorder.end()
    data = log.lines()
    report = audit_log(data, body_of)
    assert report.ok
    assert [request.proved for request in report.requests] == [True]
    assert audit_log(data).requests[0].proved is None
    edited = data.replace(b'"text":"hello"', b'"text":"hullo"')
    report = audit_log(edited, body_of)
    assert [problem.text for problem in report.problems] == [
        "request 1.1: the body differs from the one whose digest was recorded"
    ]
    assert report.requests[0].proved is False


def test_attempts_are_counted_and_each_is_a_request() -> None:
    log, _, _ = ready()
    recorder = Recorder(log)
    recorder.turn, recorder.step = 1, 1
    recorder.stream("first try")
    recorder.stream("second try")
    recorder.answer("third")
    report = audit_log(log.lines())
    assert [(r.turn, r.step, r.attempt) for r in report.requests] == [
        (1, 1, 1),
        (1, 1, 2),
        (1, 1, 3),
    ]
    assert [r.header_reason for r in report.requests] == ["initial", "", ""]
    assert all(r.extends_previous for r in report.requests)


def test_what_is_recorded_twice_must_agree() -> None:
    data = sample_lines()
    assert audit_log(data).ok

    def problem_after(old: bytes, new: bytes, at: int = 0) -> str:
        position = [k for k in range(len(data)) if data.startswith(old, k)][at]
        changed = data[:position] + new + data[position + len(old) :]
        problems = audit_log(changed).problems
        return problems[0].text if problems else ""

    assert "inbox" in problem_after(b'"text":"first"', b'"text":"worst"', 1)
    assert "chunks" in problem_after(
        b'"content":[{"type":"text","text":"let me look"', b'"content":[{"type":"text","text":"l"'
    )
    assert "differs from the call" in problem_after(
        b'"callId":"call-1-1","name":"read"', b'"callId":"call-1-1","name":"edit"'
    )
    assert "cite" in problem_after(b'"sourceEventSeqs":[', b'"sourceEventSeqs":[0,')


def test_input_that_a_hook_rewrote_is_vouched_for_by_the_digest() -> None:
    from dsh_acp.log.events import InboxSpliced

    log = memory_log()
    recorder = Recorder(log)
    log.append(InboxSpliced("next-turn", 0, inserted=(user("said", "id"),)))
    log.append(TurnStart(1))
    log.append(InboxSpliced("next-turn", 0, removed_count=1))
    recorder.turn = 1
    recorder.begin_step()
    log.append(UserMessage(user("rewritten", "id")))
    recorder.header()
    whole = log.lines()
    log.append(RequestDigest(1, 1, 1, "0" * 64, 1, "p", "m"))
    assert audit_log(log.lines()).ok
    assert [problem.text for problem in audit_log(whole).problems] == [
        "user/message differs from the inbox entry it was claimed from"
    ]


def test_whole_lines_behind_a_bad_one_are_reported_and_a_torn_one_is_counted() -> None:
    data = sample_lines()
    assert audit_log(data + b'{"type":"tu').torn_bytes == 11
    assert audit_log(data + b'{"type":"tu').ok
    lines = lines_of(data)[:-1]
    report = audit_log(joined([*lines, lines[-1]]))
    assert [problem.text for problem in report.problems] == [
        "whole lines follow that do not continue the log"
    ]


def test_a_file_that_is_no_log_is_a_problem_not_an_exception() -> None:
    for data in (b"", b"what\n", b'{"type":"session","version":9,"id":"x"}\n'):
        assert not audit_log(data).ok


def test_a_request_is_rebuilt_from_a_prefix_of_events() -> None:
    log, request, _ = ready()
    rebuilt = rebuild_request("s1", log.events())
    assert rebuilt.messages == request.messages
    assert json.loads(rebuilt.messages[0].json)["content"] == [{"type": "text", "text": "hello"}]
    with pytest.raises(InvariantError, match="no request/header"):
        rebuild_request("s1", [log.event(0)])
