"""Sessions as files: created late, found by id, forked, listed, deleted."""

import json
from pathlib import Path
import shutil
import stat

from log_samples import HEADER, Recorder, memory_log, user
import pytest

from dsh_acp.errors import LogError
from dsh_acp.log import paths
from dsh_acp.log.catalog import INDEX_NAME
from dsh_acp.log.events import (
    EndSeed,
    FeedbackRecord,
    InboxSpliced,
    PermissionPreset,
    SessionOptionsEvent,
    SessionTitle,
    UserMessage,
)
from dsh_acp.log.store import Store
from dsh_acp.messages import Message, Text


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_nothing_is_on_disk_before_the_first_event(store: Store) -> None:
    log = store.create("/w")
    assert list(store.root.iterdir()) == []
    log.append(FeedbackRecord("x"))
    assert log.path is not None
    assert [path.name for path in log.path.parent.iterdir()] == ["session.jsonl"]
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.path.parent.stat().st_mode) == 0o700
    log.close()


def test_the_first_line_is_the_header_in_the_formats_order(store: Store) -> None:
    log = store.create("/w", id="x", parent="y", origin="subagent", delegation_depth=1, preset="p")
    log.append(FeedbackRecord("x"))
    first = json.loads(log.lines().split(b"\n")[0])
    assert list(first) == [
        "type",
        "version",
        "id",
        "createdAt",
        "cwd",
        "parentSession",
        "origin",
        "delegationDepth",
        "agentPreset",
    ]
    log.close()


def test_a_session_is_found_by_id_alone_and_an_id_is_used_once(store: Store) -> None:
    for cwd, name in (("/a b", "one"), ("/c", "../two"), (None, "…")):
        log = store.create(cwd, id=name)
        log.append(FeedbackRecord(name))
        log.close()
        assert Store(store.home).read(name).event(0).payload == FeedbackRecord(name)
        with pytest.raises(LogError) as caught:
            store.create("/elsewhere", id=name)
        assert caught.value.code == "EXISTS"
    assert not (store.home / "two").exists()


def test_two_processes_that_create_one_session_do_not_overwrite_each_other(
    store: Store, tmp_path: Path
) -> None:
    ours, theirs = store.create("/w", id="x"), Store(tmp_path).create("/w", id="x")
    theirs.append(FeedbackRecord("theirs"))
    with pytest.raises(LogError) as caught:
        ours.append(FeedbackRecord("ours"))
    assert caught.value.code == "EXISTS"
    assert str(caught.value) == (
        'refusing to materialize "x": a log already exists on disk (load/resume it instead)'
    )
    theirs.close()
    ours.close()
    assert store.read("x").event(0).payload == FeedbackRecord("theirs")


@pytest.mark.parametrize(
    ("cwd", "key"),
    [
        ("/home/u/my proj", "--home-u-my~0020proj--"),
        ("/", "--root--"),
        ("C:\\Users\\é", "--C-Users-~00E9--"),
        (None, "_no-cwd"),
        ("/a//b:/c", "--a-b-c--"),
        ("/" + "x" * 400, f"--{'x' * 251}--"),
        ("/a~b/😀", "--a~007Eb-~D83D~DE00--"),
    ],
)
def test_project_directories_are_named_like_this(cwd: str | None, key: str) -> None:
    assert paths.project_key(cwd) == key


def test_ids_become_file_names_without_collision() -> None:
    assert paths.encode_segment("..") == "~002E~002E"
    assert paths.encode_segment(".") == "~002E"
    assert paths.encode_segment("a/b~\ud800") == "a~002Fb~007E~D800"
    with pytest.raises(ValueError, match="cannot encode an empty path segment"):
        paths.encode_segment("")


def test_an_opened_session_begins_a_new_life(store: Store) -> None:
    log = store.create("/w", id="x")
    recorder = Recorder(log)
    recorder.tool_turn()
    seq, messages = log.seq, log.messages()
    assert log.header_in_this_life
    log.close()
    again = store.open("x")
    assert again.event(seq).type == "session/end-seed"
    assert again.first_live_seq == seq
    assert again.messages() == messages
    assert again.request_header() == HEADER
    assert not again.header_in_this_life
    assert again.last_turn == 1
    Recorder(again).tool_turn("second")
    assert again.header_in_this_life
    again.close()
    third = store.open("x")
    third.close()
    fourth = store.open("x")
    assert fourth.seq == third.seq
    fourth.close()


def test_an_opening_that_is_given_up_leaves_the_session_free(store: Store) -> None:
    log = store.create("/w", id="x")
    Recorder(log).tool_turn()
    log.close()
    steps = store.opening("x")
    assert next(steps)[0].seq == 0
    steps.close()
    store.open("x").close()


def test_an_interrupted_turn_is_closed_when_the_session_is_opened(store: Store) -> None:
    log = store.create("/w", id="x")
    recorder = Recorder(log)
    recorder.begin()
    recorder.header()
    recorder.answer(calls=["started", "waiting"])
    started = recorder.call("started")
    log.close()
    view = store.read("x")
    assert view.open_turn is None
    assert [event.type for event in view.closers] == [
        "tool/result",
        "tool/result",
        "step/end",
        "turn/end",
    ]
    again = store.open("x")
    results = [event.payload for event in again.events() if event.type == "tool/result"]
    assert [(r.error.name, r.error.code) for r in results] == [
        ("ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN"),
        ("ToolNotStartedError", "TOOL_NOT_STARTED"),
    ]
    closers = list(again.events(started.seq + 1))
    assert closers[0].source_event_seqs == (started.seq,)
    assert closers[1].source_event_seqs is None
    assert results[0].message.id == f"interrupted-tool-result-started-{started.seq + 1}"
    assert list(json.loads(results[0].message.json)) == ["id", "role", "source", "content"]
    assert closers[0].line.index(b'"surfaceOp"') < closers[0].line.index(b'"sourceEventSeqs"')
    assert {event.time for event in closers[:4]} == {started.time}
    assert closers[3].payload.reason.kind == "interrupted"
    assert closers[4].payload == EndSeed()
    again.close()


def test_a_session_cut_inside_an_answer_keeps_its_chunks_and_no_message(store: Store) -> None:
    log = store.create("/w", id="x")
    recorder = Recorder(log)
    recorder.begin()
    recorder.stream("never finished")
    log.close()
    again = store.open("x")
    assert len(again.messages()) == 1
    assert sum(event.type == "assistant/chunk" for event in again.events()) == 7
    again.close()


def test_a_missing_session_is_named(store: Store) -> None:
    for act in (store.open, store.read, store.fork):
        with pytest.raises(LogError) as caught:
            act("nope")
        assert (caught.value.code, str(caught.value)) == ("NOT_FOUND", 'session "nope" not found')
    assert not store.delete("nope")


def test_a_session_in_two_projects_is_refused(store: Store) -> None:
    for cwd in ("/a", "/b"):
        path = paths.log_path(store.root, cwd, "x")
        path.parent.mkdir(parents=True)
        path.write_bytes(b"")
    with pytest.raises(LogError, match="appears in multiple project directories"):
        store.read("x")


def test_an_empty_file_is_refused_and_not_listed(store: Store) -> None:
    path = paths.log_path(store.root, "/a", "x")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    with pytest.raises(LogError, match="empty or header-less session log"):
        store.open("x")
    assert store.list() == []
    assert store.delete("x")
    assert not path.parent.exists()


def test_a_file_under_a_foreign_name_is_refused(store: Store) -> None:
    path = paths.log_path(store.root, "/a", "x")
    path.parent.mkdir(parents=True)
    path.write_bytes(memory_log("other").lines())
    with pytest.raises(LogError, match='requested "x", header contains "other"'):
        store.open("x")


# ---------------------------------------------------------------- fork


def test_a_fork_continues_the_count_and_inherits_no_pending_input(store: Store) -> None:
    log = store.create("/w", id="parent", origin="subagent", delegation_depth=2, preset="p")
    Recorder(log).tool_turn()
    log.append(InboxSpliced("next-turn", 0, inserted=(user("pending"),)))
    child = store.fork("parent", new_id="child")
    assert child.header.cwd == "/w"
    assert child.header.parent_session == "parent"
    assert child.header.seed_length == log.seq
    assert (child.header.origin, child.header.delegation_depth) == (None, 0)
    assert child.header.agent_preset is None
    assert child.event(log.seq).payload == EndSeed()
    assert child.first_live_seq == log.seq
    Recorder(child).tool_turn()
    assert child.last_turn == 2
    headers = [event.payload.reason for event in child.events() if event.type == "request/header"]
    assert headers == ["initial", "resume"]
    log.append(FeedbackRecord("the parent goes on"))
    child.close()
    log.close()
    assert store.read("child").last_turn == 2


def test_fork_boundaries_are_checked_in_these_words(store: Store) -> None:
    log = store.create("/w", id="s")
    Recorder(log).tool_turn()
    last = log.seq - 1
    for boundary, words in (
        (-1, 'fork boundary for session "s" must be a non-negative safe integer, got -1'),
        (999, f'fork boundary 999 does not exist in session "s" (last seq: {last})'),
    ):
        with pytest.raises(LogError) as caught:
            store.fork("s", boundary)
        assert (caught.value.code, str(caught.value)) == ("INVALID_BOUNDARY", words)
    with pytest.raises(LogError) as caught:
        store.fork("s", 3, strict=True)
    assert caught.value.code == "OPEN_TURN"
    assert str(caught.value) == 'fork boundary 3 in session "s" ends inside open turn 1'
    log.close()


def test_a_fork_may_end_inside_a_packed_row(store: Store) -> None:
    log = store.create("/w", id="s")
    recorder = Recorder(log)
    recorder.begin()
    seqs = recorder.stream("abcdefgh")
    child = store.fork("s", seqs[2], new_id="c")
    texts = [event.payload.chunk.text for event in child.events(seqs[1]) if event.seq <= seqs[2]]
    assert texts == ["ab", "cd"]
    child.close()
    log.close()
    assert store.read("c").stored_seq == child.seq


def test_an_empty_session_forks_to_an_empty_child(store: Store) -> None:
    parent = store.create("/w", id="p")
    child = store.fork("p")
    assert child.header.seed_length == 0
    child.close()
    parent.close()


# ---------------------------------------------------------------- list


def session(store: Store, name: str, text: str | None = "hello", cwd: str = "/w") -> None:
    log = store.create(cwd, id=name)
    log.append(PermissionPreset("ask"))
    if text is not None:
        Recorder(log).tool_turn(text)
    log.close()


def test_the_list_is_newest_first_and_shows_only_sessions_with_input(tmp_path: Path) -> None:
    ticks = iter(range(1_000, 10_000))
    store = Store(tmp_path, clock=lambda: next(ticks))
    session(store, "a", "fix the\n  bug")
    session(store, "b", "second", cwd="/other")
    session(store, "c", None)
    found = store.list()
    assert [(s.id, s.title, s.turns) for s in found] == [
        ("b", "second", 1),
        ("a", "fix the bug", 1),
    ]
    assert [s.id for s in store.list("/w")] == ["a"]
    assert found[0].updated_at_ms > found[1].updated_at_ms > found[1].created_at_ms
    log = store.open("a")
    log.append(SessionTitle("Better", (4,), {"kind": "user"}))
    log.append(SessionOptionsEvent(cwd="/moved", additional_directories=("/x", "/y")))
    Recorder(log).tool_turn("more")
    first = store.list()[0]
    assert (first.id, first.title, first.cwd, first.turns) == ("a", "Better", "/moved", 2)
    assert first.additional_directories == ("/x", "/y")
    log.close()


def test_the_index_may_be_deleted_or_damaged_and_is_made_again(store: Store) -> None:
    for name in ("a", "b"):
        session(store, name)
    expected = store.list()
    index = store.root / INDEX_NAME
    assert Store(store.home).list() == expected
    whole = index.read_bytes()
    for data in (None, b"", whole[: len(whole) // 2], b"\0garbage\n" + whole, b"[]\n"):
        index.unlink()
        if data is not None:
            index.write_bytes(data)
        assert Store(store.home).list() == expected


def test_a_session_whose_writer_died_is_summarised_again(store: Store) -> None:
    log = store.create("/w", id="a")
    recorder = Recorder(log)
    recorder.tool_turn()
    index = store.root / INDEX_NAME
    assert b'"live":true' in index.read_bytes()
    copy = index.read_bytes()
    Recorder(log).tool_turn("second")
    log.close()
    index.write_bytes(copy)
    assert [s.turns for s in Store(store.home).list()] == [2]


def test_the_index_does_not_grow_forever(store: Store) -> None:
    session(store, "a")
    index = store.root / INDEX_NAME
    index.write_bytes(index.read_bytes() * 2_000)
    assert len(store.list()) == 1
    assert index.read_bytes().count(b"\n") == 1
    assert [s.id for s in store.list()] == ["a"]


def test_what_does_not_exist_is_not_listed_and_what_appears_is(store: Store) -> None:
    session(store, "a")
    path = store.find("a")
    assert path is not None
    target = store.root / "--elsewhere--" / "a"
    target.parent.mkdir()
    path.parent.rename(target)
    assert [s.id for s in store.list()] == ["a"]
    shutil.rmtree(target)
    assert store.list() == []


def test_subagents_are_listed_only_when_asked_for(store: Store) -> None:
    session(store, "a")
    child = store.create("/w", id="child", parent="a", origin="subagent")
    Recorder(child).tool_turn()
    child.close()
    assert [s.id for s in store.list()] == ["a"]
    assert {s.id for s in store.list(include_subagents=True)} == {"a", "child"}
    assert store.descendants("a") == ["child"]


def test_a_deleted_session_is_gone(store: Store) -> None:
    session(store, "a")
    log = store.open("a")
    with pytest.raises(LogError, match="close it before"):
        store.delete("a")
    log.close()
    assert store.delete("a")
    assert store.find("a") is None
    assert store.list() == []
    assert not store.delete("a")


def test_odd_input_has_no_title_but_is_listed(store: Store) -> None:
    log = store.create("/w", id="a")
    log.append(UserMessage(Message.user([Text("  \n ")])))
    log.append(UserMessage(Message.user([Text("injected")], {"kind": "plugin", "plugin": "x"})))
    log.close()
    assert [(s.id, s.title) for s in store.list()] == [("a", None)]
