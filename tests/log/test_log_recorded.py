"""Every recorded session of the harness whose format this is."""

from collections.abc import Iterator
import itertools
import json
from pathlib import Path
import random

from log_samples import RECORDED, SHARED, name_of
import msgspec
import pytest
import second_reading as second

from dsh_acp.errors import LogError
from dsh_acp.log import header as headers, repair
from dsh_acp.log.audit import audit_log, rebuild_request, requests
from dsh_acp.log.events import Event
from dsh_acp.log.history import History
from dsh_acp.log.load import load, load_fixture
from dsh_acp.log.packed import pack
from dsh_acp.log.store import Store

pytestmark = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the folder ../shared, with the recorded sessions, is not here"
)


@pytest.fixture(params=RECORDED, ids=name_of)
def recorded(request: pytest.FixtureRequest) -> Path:
    return request.param


def whole(path: Path) -> bytes:
    """The session as a log on disk: numbers instead of their absence."""
    lines = b"".join(line + b"\n" for line in load_fixture(path.read_bytes()).lines())
    first, rest = lines.split(b"\n", 1)
    header = json.loads(first) | {"cwd": "/w", "delegationDepth": 0}
    return json.dumps(header).encode() + b"\n" + rest


def test_it_encodes_again_line_for_line(recorded: Path) -> None:
    log = load_fixture(recorded.read_bytes())
    stripped: list[bytes] = []
    for line in log.lines():
        value = json.loads(line)
        projected = {
            key: item for key, item in value.items() if key not in ("seq", "time", "seq0", "time0")
        }
        stripped.append(msgspec.json.encode(projected))
    assert stripped == [line for line in recorded.read_bytes().split(b"\n") if line]


def test_every_event_decodes_to_a_payload_of_its_type(recorded: Path) -> None:
    for event in load_fixture(recorded.read_bytes()).events():
        assert event.payload.TYPE == event.type
        expected = json.loads(event.data)
        if event.type == "request/header":
            # The fixtures put a placeholder in the place of the tools.
            del expected["header"]["tools"]
        assert json.loads(event.payload.encode()) == expected


def test_unpacking_and_packing_a_batch_gives_the_same_lines(recorded: Path) -> None:
    # One stored batch at a time: packing across batches may join what a flush had split.
    for entry in load_fixture(recorded.read_bytes()).entries():
        events = [entry] if isinstance(entry, Event) else list(entry.events())
        packed = pack(events)
        if isinstance(entry, Event) or len(events) >= 3:
            assert [row.encode() for row in packed] == [entry.encode()]


def test_a_second_implementation_agrees_at_every_prefix(recorded: Path) -> None:
    _, events = second.load(recorded.read_bytes())
    live = History()
    for event in load_fixture(recorded.read_bytes()).events():
        live.admit(event)
        prefix = events[: live.seq]
        assert list(live.surface.nodes) == second.surface(prefix)
        if event.type in second.SURFACE:
            assert [json.loads(m.json) for m in live.messages()] == second.derive(prefix)
        header = live.request_header()
        expected = second.fold_header(prefix)
        if expected is not None:
            expected.pop("tools", None)
        assert (header and json.loads(headers.encode(header))) == expected


def test_the_audit_finds_nothing(recorded: Path) -> None:
    report = audit_log(recorded, fixture=True)
    assert report.problems == ()
    finishes = recorded.read_bytes().count(b'"type":"finish"')
    assert len(report.requests) >= finishes


def test_cut_anywhere_it_is_repaired_and_gives_a_valid_request(recorded: Path) -> None:
    events = list(load_fixture(recorded.read_bytes()).events())
    live = History()
    for event in events:
        live.admit(event)
        closing = list(repair.closers(live))
        cut = History()
        for each in [*events[: live.seq], *closing]:
            cut.admit(each)
        plain = [json.loads(each.encode()) for each in cut.events()]
        assert second.balanced(plain)
        assert list(repair.closers(cut)) == []
        if cut.request_header() is not None:
            request = rebuild_request("s", cut.events())
            assert request.messages == cut.messages()


def test_forked_anywhere_the_child_begins_with_the_parents_prefix(
    recorded: Path, tmp_path: Path
) -> None:
    data = whole(recorded)
    parent = load(data, close=False)
    store = Store(tmp_path)
    folder = store.root / "--w--" / "parent"
    folder.mkdir(parents=True)
    source = data.replace(parent.header.id.encode(), b"parent")
    (folder / "session.jsonl").write_bytes(source)
    events = list(load(source, close=False).events())
    live = History()
    # Every boundary where something can differ, and a sample of those inside runs of chunks.
    for event in events:
        live.admit(event)
        if event.type == "assistant/chunk" and event.seq % 13:
            continue
        child = store.fork("parent", event.seq)
        inherited = live.messages()
        assert child.messages()[: len(inherited)] == inherited
        assert list(child.events())[: live.seq] == events[: live.seq]
        assert child.header.seed_length == live.seq
        assert child.header.parent_session == "parent"
        assert child.open_turn is None
        reread = load(child.lines())
        assert reread.messages() == child.messages()
        assert reread.closers == ()
        child.close()
        store.delete(child.header.id)


def tampered(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The log with each line in turn removed, doubled, moved or changed."""
    lines = data.split(b"\n")[:-1]
    chance = random.Random(len(lines))
    for k, line in enumerate(lines[1:], 1):
        others = [*lines[:k], *lines[k + 1 :]]
        far = chance.randrange(1, len(lines))
        made = {
            "deleted": others,
            "doubled": [*lines[: k + 1], *lines[k:]],
            "moved by one": [*others[: k + 1], line, *others[k + 1 :]],
            "moved far": [*others[:far], line, *others[far:]],
        }
        if b'"surfaceOp"' in line and b'"text":"' in line:
            at = line.index(b'"text":"') + 8
            if line[at : at + 1] not in (b'"', b"\\", b"#") and line[at] < 128:
                made["edited"] = [*lines[:k], line[:at] + b"#" + line[at + 1 :], *lines[k + 1 :]]
        for what, left in made.items():
            if left != lines:
                yield f"line {k} {what}", b"\n".join([*left, b""])


def test_tampering_is_refused_or_reported_or_at_least_another_conversation(recorded: Path) -> None:
    data = whole(recorded)
    original = audit_log(data)
    assert original.ok, original.problems
    for what, changed in tampered(data):
        report = audit_log(changed)
        if what.endswith("edited"):
            assert not report.ok or report.fingerprint != original.fingerprint, what
            continue
        # Only the loss of the last line leaves nothing behind to tell of it.
        assert not report.ok or changed == data[: len(changed)], what


def test_each_request_extends_its_predecessor_or_the_log_says_why(recorded: Path) -> None:
    data = whole(recorded)
    records = [json.loads(line) for line in data.split(b"\n") if line][1:]
    for (before, old), (after, new) in itertools.pairwise(requests(data)):
        between = [r for r in records if before.seq < r.get("seq", -1) < after.seq]
        changes = [r for r in between if r["type"] == "request/header"]
        lives = [r for r in between if r["type"] == "session/end-seed"]
        same = headers.equal(old.header, new.header)
        assert len(changes) == (1 if lives or not same else 0)
        rewritten = any(isinstance(r.get("surfaceOp"), dict) for r in between)
        if same and not rewritten and not old.header.suffix:
            assert new.messages[: len(old.messages)] == old.messages


def test_it_opens_for_writing_after_which_it_can_go_on(recorded: Path, tmp_path: Path) -> None:
    data = whole(recorded)
    header = load(data, close=False).header
    store = Store(tmp_path)
    path = store.root / "--w--" / "x" / "session.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(data.replace(header.id.encode(), b"x"))
    log = store.open("x")
    try:
        assert [*log.events()][-1].type == "session/end-seed"
        assert log.open_turn is None
        again = load(log.lines(), close=False)
        assert again.messages() == log.messages()
    finally:
        log.close()


def test_a_foreign_log_with_lone_surrogates_keeps_its_bytes() -> None:
    lines = [
        b'{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0}',
        b'{"type":"user/message","seq":0,"time":1,"data":{"content":[{"type":"text",'
        b'"text":"a\\ud800b"}],"source":{"kind":"user"},"role":"user","id":"m"},'
        b'"surfaceOp":"append"}',
    ]
    log = load(b"\n".join(lines) + b"\n")
    assert list(log.lines()) == lines
    assert b"\\ud800" in log.messages()[0].json


def test_something_that_is_no_log_is_refused(tmp_path: Path) -> None:
    for text in (b"", b"\n", b"not json\n", b"[]\n", b'{"type":"session"}\n'):
        with pytest.raises(LogError):
            load(text)
