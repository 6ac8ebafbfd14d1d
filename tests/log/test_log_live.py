"""A log while it is being written: cursors, waiting chunks, durability."""

import errno
import os
from pathlib import Path
from queue import SimpleQueue

import anyio
from log_samples import Recorder, answer_chunks, memory_log
import pytest

from dsh_acp.errors import LogError
from dsh_acp.log.events import Event, FeedbackRecord, TurnStart
from dsh_acp.log.load import load
from dsh_acp.log.logfile import LogFile
from dsh_acp.log.packed import ChunkRow, Entry
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.store import Store
from dsh_acp.log.validation import SessionHeader
from dsh_acp.messages import TextDelta


def expanded(entries: list[Entry]) -> list[Event]:
    found: list[Event] = []
    for entry in entries:
        found.extend(entry.events() if isinstance(entry, ChunkRow) else [entry])
    return found


async def test_a_follower_gets_every_event_once_and_in_order(tmp_path: Path) -> None:
    log = Store(tmp_path).create("/w")
    seen: list[Event] = []

    async def follow() -> None:
        follower = log.follow()
        while not follower.closed:
            await follower.wait()
            seen.extend(expanded(follower.take()))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            recorder = Recorder(log)
            log.on_pending = lambda delay: None
            for k in range(3):
                recorder.tool_turn(f"turn {k}")
                await anyio.lowlevel.checkpoint()
            recorder.begin()
            for chunk in answer_chunks("one chunk at a time", 19):
                log.append_chunks(recorder.turn, 1, [chunk])
                await anyio.lowlevel.checkpoint()
            log.close()
    assert [event.seq for event in seen] == list(range(log.seq))
    assert seen == list(log.events())


async def test_a_late_follower_replays_from_any_point_even_inside_a_row() -> None:
    log = memory_log()
    Recorder(log).tool_turn()
    events = list(log.events())
    for start in range(log.seq + 1):
        follower = log.follow(start)
        assert expanded(follower.take()) == events[start:]
        assert follower.take() == []


async def test_several_followers_wait_and_each_is_woken() -> None:
    log = memory_log()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await log.follow().wait()
        woken.append(number)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(wait, number)
            await anyio.wait_all_tasks_blocked()
            log.append(TurnStart(1))
    assert sorted(woken) == [0, 1, 2]
    with anyio.move_on_after(0) as scope:
        await log.follow(log.seq).wait()
    assert scope.cancelled_caught
    log.append(FeedbackRecord("x"))


def test_chunks_wait_for_the_timer_or_the_next_fact_and_facts_never_wait(tmp_path: Path) -> None:
    log = Store(tmp_path).create("/w")
    recorder = Recorder(log)
    recorder.begin()
    assert log.path is not None
    armed: list[float] = []
    log.on_pending = armed.append
    size = log.path.stat().st_size
    for k in range(5):
        log.append_chunks(1, 1, [TextDelta(0, str(k))])
    assert armed == [0.05]
    assert log.path.stat().st_size == size
    log.flush_due()
    assert log.path.read_bytes()[size:].startswith(b'{"type":"text-chunks"')
    log.flush_due()
    log.append_chunks(1, 1, [TextDelta(0, "5")])
    assert armed == [0.05, 0.05]
    log.append(FeedbackRecord("fact"))
    assert log.path.read_bytes().endswith(log.event(log.seq - 1).line + b"\n")
    assert load(log.path.read_bytes(), close=False).stored_seq == log.seq
    log.append_chunks(1, 1, [TextDelta(0, "6")])
    log.close()
    assert load(log.path.read_bytes(), close=False).stored_seq == log.seq


def test_without_a_timer_nothing_waits(tmp_path: Path) -> None:
    log = Store(tmp_path).create("/w")
    Recorder(log).begin()
    assert log.path is not None
    log.append_chunks(1, 1, [TextDelta(0, "x")])
    assert load(log.path.read_bytes(), close=False).stored_seq == log.seq
    log.close()


async def test_calls_to_sync_at_the_same_time_share_the_wait(tmp_path: Path) -> None:
    log = Store(tmp_path).create("/w")
    Recorder(log).tool_turn()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(log.sync)
        await log.sync()
        log.append(FeedbackRecord("more"))
        await log.sync()
    log.close()


class Disk(LogFile):
    """A file on a disk that answers when it is told to, with what it is told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "s1" / "log.jsonl", folder)
        self.answers: SimpleQueue[OSError | None] = SimpleQueue()
        self.asked = 0

    def sync(self) -> None:
        self.asked += 1
        answer = self.answers.get(timeout=5)
        if answer is not None:
            raise answer
        super().sync()


def on(disk: Disk) -> SessionLog:
    log = SessionLog(SessionHeader(id="s1", created_at=1, cwd="/w"), disk)
    Recorder(log).begin()
    return log


async def test_a_wait_that_was_begun_early_is_the_one_that_sync_needs(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    log = on(disk)
    told = log.handed_over
    log.begin_sync()
    log.begin_sync()
    log.append(FeedbackRecord("later"))
    with anyio.fail_after(30):
        disk.answers.put(None)
        await log.sync(told)
        assert disk.asked == 1
        # What came later is another wait's.
        disk.answers.put(None)
        await log.sync()
    assert disk.asked == 2
    log.close()


async def test_sync_waits_for_all_that_it_was_asked_for(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    log = on(disk)
    log.begin_sync()
    log.append(FeedbackRecord("later"))
    ended = anyio.Event()

    async def sync() -> None:
        await log.sync()
        ended.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(sync)
            disk.answers.put(None)
            while disk.asked < 2:
                await anyio.lowlevel.checkpoint()
            assert not ended.is_set()
            disk.answers.put(None)
    log.close()


async def test_a_refusal_that_came_early_is_told_to_the_next_who_asks(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    log = on(disk)
    log.begin_sync()
    disk.answers.put(OSError(errno.ENOSPC, "No space left on device"))
    with anyio.fail_after(30), pytest.raises(LogError) as refused:
        await log.sync()
    assert refused.value.code == "DISK_FULL" and not log.writable
    log.begin_sync()
    assert disk.asked == 1
    log.close()


async def test_a_cancelled_wait_leaves_its_answer_to_the_next(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    log = on(disk)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(log.sync)
            while not disk.asked:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
            disk.answers.put(None)
        await log.sync()
    assert disk.asked == 1
    log.close()


async def test_sync_notices_that_the_file_is_gone(tmp_path: Path) -> None:
    log = Store(tmp_path).create("/w")
    Recorder(log).tool_turn()
    await log.sync()
    assert log.path is not None
    os.remove(log.path)
    log.append(FeedbackRecord("into the void"))
    with pytest.raises(LogError, match="was removed while the session was open"):
        await log.sync()
    assert len(log.messages()) == 4
    log.close()


async def test_a_memory_log_has_nothing_to_sync() -> None:
    log = memory_log()
    Recorder(log).tool_turn()
    await log.sync()


def test_a_closed_log_takes_nothing_and_still_reads() -> None:
    log = memory_log()
    Recorder(log).tool_turn()
    log.close()
    log.close()
    for act in (
        lambda: log.append(FeedbackRecord("x")),
        lambda: log.append_chunks(1, 1, [TextDelta(0, "x")]),
    ):
        with pytest.raises(LogError) as caught:
            act()
        assert caught.value.code == "CLOSED"
    assert len(log.messages()) == 4
    assert not log.writable


def test_a_bad_seq_is_an_index_error() -> None:
    log = memory_log()
    for seq in (0, -1):
        with pytest.raises(IndexError):
            log.event(seq)


def test_lines_can_be_read_on_from_any_offset(tmp_path: Path) -> None:
    log = Store(tmp_path).create("/w")
    assert log.lines() == b""
    offset, seen = 0, b""
    recorder = Recorder(log)
    for k in range(3):
        recorder.tool_turn(f"turn {k}")
        part = log.lines(offset)
        offset += len(part)
        seen += part
    assert log.path is not None
    assert seen == log.path.read_bytes()
    log.close()


def test_the_derivation_is_shared_until_it_is_replaced() -> None:
    log = memory_log()
    recorder = Recorder(log)
    recorder.tool_turn()
    first = log.messages()
    assert log.messages() is first
    recorder.tool_turn("second")
    second = log.messages()
    assert all(a is b for a, b in zip(first, second, strict=False))
    nodes = log.surface.nodes
    recorder.compact(nodes[0], nodes[-1])
    assert len(log.messages()) == 1
    assert len(first) == 4


def test_an_old_log_opened_for_writing_keeps_its_file_and_speaks_todays_form(
    tmp_path: Path,
) -> None:
    from dsh_acp.log.audit import Auditor
    from dsh_acp.messages import Request

    store = Store(tmp_path)
    old = (
        b'{"type":"session","version":0,"id":"old","createdAt":1,"cwd":"/w","delegationDepth":0}\n'
        b'{"type":"turn/start","seq":0,"time":1,"data":{"turn":1,"trigger":{}}}\n'
        b'{"type":"step/start","seq":1,"time":1,"data":{"turn":1,"step":1}}\n'
        b'{"type":"user/message","seq":2,"time":1,"data":{"content":[],"source":{"kind":"user"}},'
        b'"surfaceOp":"append"}\n'
        b'{"type":"step/end","seq":3,"time":1,"data":{"turn":1,"step":1}}\n'
        b'{"type":"turn/end","seq":4,"time":1,"data":{"turn":1,"reason":{"kind":"disposed"}}}\n'
    )
    path = store.root / "--w--" / "old" / "session.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(old)
    log = store.open("old")
    recorder = Recorder(log)
    recorder.begin("new")
    recorder.header()
    auditor = Auditor("old")
    auditor.feed(log.lines())
    request = Request("old", log.request_header() or pytest.fail(), log.messages())
    auditor.check(request)
    assert auditor.offset == len(log.lines())
    recorder.answer()
    auditor.feed(log.lines(auditor.offset))
    auditor.check(Request("old", request.header, log.messages()))
    assert path.read_bytes().startswith(old)
    log.close()
    again = store.open("old")
    assert again.messages() == log.messages()
    again.close()


def test_an_observer_may_not_append(tmp_path: Path) -> None:
    log = memory_log()
    refused: list[str] = []

    def observe(event: Event) -> None:
        try:
            log.append(FeedbackRecord("again"))
        except LogError as exc:
            refused.append(str(exc))

    log.observers.append(observe)
    log.append(FeedbackRecord("x"))
    assert refused == ["session append cannot reenter while another append is being published"]
    assert log.seq == 1


def test_a_relative_directory_is_no_working_directory(tmp_path: Path) -> None:
    with pytest.raises(LogError, match='must be an absolute path, got "w"'):
        Store(tmp_path).create("w")
