"""Properties of logs that were made up."""

import itertools
import json
from typing import Any

from hypothesis import given, settings, strategies as st
from log_samples import Recorder, memory_log
import second_reading as second

from dsh_acp.log import header as headers
from dsh_acp.log.audit import Auditor, audit_log, rebuild_request, requests
from dsh_acp.log.load import LoadedLog, Reading, load, reading
from dsh_acp.log.packed import Entry
from dsh_acp.log.session_log import SessionLog
from dsh_acp.messages import UNSET, CallConfig, EpochHeader, Message, Raw, Request, Text

WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
FRAMES = st.lists(WORDS, max_size=2)


@st.composite
def header_of(draw: st.DrawFn) -> EpochHeader:
    def frame() -> Any:
        words = draw(FRAMES)
        return tuple(Raw(Message.user([Text(word)]).json) for word in words) or UNSET

    config = CallConfig(
        "p", draw(st.sampled_from(["m", "n"])), temperature=draw(st.sampled_from([UNSET, 0.5, 1.0]))
    )
    system = draw(st.sampled_from(["", "Be brief.", "Be thorough."]))
    return EpochHeader(config, system=system, message_prefix=frame(), message_suffix=frame())


ACTION = st.one_of(
    st.tuples(st.just("turn"), WORDS),
    st.tuples(st.just("tool turn"), WORDS),
    st.tuples(st.just("header"), header_of()),
    st.tuples(st.just("compact"), st.tuples(st.integers(0, 20), st.integers(0, 20))),
)


def send(log: SessionLog, auditor: Auditor) -> Request:
    header = log.request_header()
    assert header is not None
    messages = (*header.prefix, *log.messages(), *header.suffix)
    request = Request(log.header.id, header, messages)
    auditor.feed(log.lines(auditor.offset))
    auditor.check(request)
    return request


class Life:
    """Performs actions as a loop would, keeping the requests that it sent."""

    def __init__(self) -> None:
        self.log = memory_log()
        self.recorder = Recorder(self.log)
        self.auditor = Auditor(self.log.header.id)
        self.sent: list[Request] = []
        self.header = EpochHeader(CallConfig("p", "m"))

    def perform(self, action: tuple[str, Any]) -> None:
        kind, value = action
        if kind == "header":
            self.header = value
        elif kind == "compact":
            nodes = self.log.surface.nodes
            if nodes:
                first, last = sorted(k % len(nodes) for k in value)
                # A call and its result go together.
                while self.is_result(first):
                    first -= 1
                while self.is_result(last + 1):
                    last += 1
                self.recorder.compact(nodes[first], nodes[last])
        else:
            self.turn(value, calls=kind == "tool turn")

    def is_result(self, position: int) -> bool:
        nodes = self.log.surface.nodes
        return position < len(nodes) and self.log.event(nodes[position]).type == "tool/result"

    def turn(self, text: str, *, calls: bool) -> None:
        recorder = self.recorder
        recorder.begin(text)
        known = self.log.request_header()
        if not self.log.header_in_this_life or not headers.equal(known, self.header):
            recorder.header(headers.canonical(self.header))
        self.sent.append(send(self.log, self.auditor))
        if calls:
            recorder.answer(text, ["c"])
            recorder.result("c", recorder.call("c").seq, text)
            self.sent.append(send(self.log, self.auditor))
        recorder.answer(text)
        recorder.end_step()
        recorder.end()


@settings(max_examples=60)
@given(st.lists(ACTION, max_size=12))
def test_requests_extend_their_predecessors_or_the_log_says_why(actions: list[Any]) -> None:
    life = Life()
    for action in actions:
        life.perform(action)
    data = life.log.lines()
    rebuilt = list(requests(data))
    assert [request.messages for _, request in rebuilt] == [r.messages for r in life.sent]
    assert [headers.encode(r.header) for _, r in rebuilt] == [
        headers.encode(r.header) for r in life.sent
    ]
    records = [json.loads(line) for line in data.split(b"\n") if line][1:]
    for (before, old), (after, new) in itertools.pairwise(rebuilt):
        between = [record for record in records if before.seq < record.get("seq", -1) < after.seq]
        changes = [r for r in between if r["type"] == "request/header"]
        same = headers.equal(old.header, new.header)
        assert len(changes) == (0 if same else 1)
        rewritten = any(isinstance(r.get("surfaceOp"), dict) for r in between)
        if same and not rewritten and not old.header.suffix:
            assert new.messages[: len(old.messages)] == old.messages


@settings(max_examples=60)
@given(st.lists(ACTION, max_size=12))
def test_three_readings_agree(actions: list[Any]) -> None:
    life = Life()
    for action in actions:
        life.perform(action)
    data = life.log.lines()
    _, events = second.load(data)
    derived = [json.loads(message.json) for message in life.log.messages()]
    assert derived == second.derive(events)
    header = life.log.request_header()
    assert (header and json.loads(headers.encode(header))) == second.fold_header(events)
    loaded = load(data)
    assert loaded.messages() == life.log.messages()
    assert b"".join(line + b"\n" for line in loaded.lines()) == data
    assert audit_log(data).problems == ()
    if header is not None:
        request = rebuild_request("s1", life.log.entries())
        assert request.messages == (*header.prefix, *life.log.messages(), *header.suffix)


def beginning(actions: list[Any], cut: int) -> bytes:
    """A log that was made by `actions`, cut at some byte behind its header."""
    life = Life()
    for action in actions:
        life.perform(action)
    data = life.log.lines()
    first = data.index(b"\n") + 1
    return data[: first + cut % (len(data) - first + 1)]


@settings(max_examples=30)
@given(st.lists(ACTION, min_size=1, max_size=8), st.integers(0, 10_000))
def test_a_log_cut_at_any_byte_loads_what_was_whole(actions: list[Any], cut: int) -> None:
    piece = beginning(actions, cut)
    loaded = load(piece)
    kept = b"".join(line + b"\n" for line in loaded.lines())
    assert piece.startswith(kept)
    assert b"\n" not in piece[len(kept) :]
    _, events = second.load(kept)
    closing = [json.loads(event.encode()) for event in loaded.closers]
    assert second.balanced([*events, *closing])


def handed_out(steps: Reading[LoadedLog]) -> tuple[LoadedLog, list[Entry]]:
    """What a reading returns, and what it handed out until then."""
    entries: list[Entry] = []
    while True:
        try:
            part = next(steps)
        except StopIteration as end:
            return end.value, entries
        if part[0].seq == 0:
            entries.clear()
        entries += part


@settings(max_examples=60)
@given(
    st.lists(ACTION, min_size=1, max_size=6),
    st.integers(0, 10_000),
    st.integers(1, 700),
    st.booleans(),
)
def test_a_log_that_is_read_in_pieces_is_the_same_log(
    actions: list[Any], cut: int, size: int, odd: bool
) -> None:
    piece = beginning(actions, cut)
    if odd:
        # Blanks between the keys are JSON as well, but nothing that is read in passing.
        head, comma, rest = piece.rpartition(b',"time":')
        piece = head + comma + rest.replace(b":", b": ", 1) if head else piece
    whole = load(piece)
    pieces = [piece[at : at + size] for at in range(0, len(piece), size)]
    log, entries = handed_out(reading(lambda: pieces))
    assert entries == list(log.entries()) == list(whole.entries())
    assert (log.committed, log.torn, log.closers) == (whole.committed, whole.torn, whole.closers)
    assert log.messages() == whole.messages()
