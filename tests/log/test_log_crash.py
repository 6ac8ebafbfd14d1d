"""What is left after a crash, a cut, a full disk, a second writer."""

import json
import os
from pathlib import Path
import random
import subprocess
import sys

from log_samples import Recorder, memory_log, sample_lines
import pytest
import second_reading as second

from dsh_acp.errors import LogError
from dsh_acp.log.events import FeedbackRecord
from dsh_acp.log.load import load, outcome
from dsh_acp.log.logfile import BLOCK
from dsh_acp.log.store import Store

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]


def place(store: Store, data: bytes, name: str = "s1") -> Path:
    path = store.root / "--w--" / name / "session.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # overwriting in place makes some file systems wait for the disk
    path.write_bytes(data)
    return path


def test_a_log_cut_at_every_byte_of_its_last_4_kib_opens_and_goes_on(tmp_path: Path) -> None:
    recorder = Recorder(memory_log())
    recorder.tool_turn()
    recorder.begin("second")
    recorder.answer(calls=["c"])
    recorder.call("c")
    data = recorder.log.lines()
    assert 4096 < len(data) < 8192
    store = Store(tmp_path)
    for size in range(len(data) - 4096, len(data) + 1):
        path = place(store, data[:size])
        log = store.open("s1")
        log.close()
        written = path.read_bytes()
        whole = data[: data.rfind(b"\n", 0, size) + 1]
        assert written.startswith(whole)
        added = written[len(whole) :].split(b"\n")
        assert log.open_turn is None
        assert added[-1] == b""
        assert added[-2].startswith(b'{"type":"session/end-seed","seq":%d,' % (log.seq - 1))
        if size % 61 == 0:
            assert second.balanced(second.load(written)[1])
            again = store.open("s1")
            assert again.lines() == written
            Recorder(again).tool_turn("and on it goes")
            again.close()


def test_whole_lines_that_are_cut_off_are_kept_beside_the_log(tmp_path: Path) -> None:
    data = sample_lines()
    lines = data.split(b"\n")[:-1]
    start = next(k for k, line in enumerate(lines) if b'"turn/start","seq":' in line)
    ends = [k for k, line in enumerate(lines) if b'"turn/end"' in line]
    bad = b"\n".join([*lines[: ends[0] + 3], b"garbage", lines[ends[0] + 4]]) + b"\n"
    assert start < ends[0]
    store = Store(tmp_path)
    path = place(store, bad)
    log = store.open("s1")
    log.close()
    kept = list(path.parent.glob("session.jsonl.torn-*"))
    assert [file.read_bytes() for file in kept] == [b"garbage\n" + lines[ends[0] + 4] + b"\n"]


def test_killed_at_any_moment_nothing_that_was_accepted_is_lost(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT}{os.pathsep}{HERE}"}
    writers = [
        subprocess.Popen(
            [sys.executable, str(HERE / "crash_writer.py"), str(tmp_path), f"s{k}"],
            stdout=subprocess.PIPE,
            env=environment,
        )
        for k in range(6)
    ]
    generator = random.Random(7)
    store = Store(tmp_path)
    for k, writer in enumerate(writers):
        assert writer.stdout is not None
        told = b""
        for _ in range(generator.randrange(1, 250)):
            told = writer.stdout.readline()
        writer.kill()
        rest = writer.stdout.read().split(b"\n")[:-1]
        writer.wait()
        writer.stdout.close()
        accepted = int(rest[-1] if rest else told)
        before = store.read(f"s{k}")
        assert before.stored_seq >= accepted
        log = store.open(f"s{k}")
        _, events = second.load(log.lines())
        assert second.balanced(events)
        assert log.seq == len(events)
        Recorder(log).tool_turn("after the crash")
        log.close()
        assert second.balanced(second.load(store.raw(f"s{k}"))[1])


def test_a_second_process_is_told_that_the_session_is_open(tmp_path: Path) -> None:
    store = Store(tmp_path)
    log = store.create("/w", id="shared")
    Recorder(log).tool_turn()
    script = (
        "import sys\nfrom pathlib import Path\nfrom dsh_acp.log.store import Store\n"
        "from dsh_acp.errors import LogError\nstore = Store(Path(sys.argv[1]))\n"
        "try:\n    store.open('shared').close()\n    print('opened')\n"
        "except LogError as exc:\n    print(exc.code, exc)\n"
        "print(store.read('shared').seq)\n"
        "try:\n    store.delete('shared')\nexcept LogError as exc:\n    print(exc.code)\n"
    )

    def other() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            encoding="utf-8",
            check=True,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        )
        return done.stdout.splitlines()

    assert other() == [
        "LOCKED the session is open in another dsh-acp process; close it there first",
        str(log.seq),
        "LOCKED",
    ]
    log.append(FeedbackRecord("still ours"))
    with pytest.raises(LogError) as caught:
        store.open("shared")
    assert caught.value.code == "LOCKED"
    seq = log.seq
    log.close()
    assert other() == ["opened", str(seq + 1)]


FULL = """
import resource, signal, sys
from pathlib import Path
import anyio
from dsh_acp.errors import LogError
from dsh_acp.log.store import Store
from log_samples import Recorder

log = Store(Path(sys.argv[1])).create("/w", id="full")
recorder = Recorder(log)
recorder.tool_turn("one")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    for k in range(100):
        recorder.tool_turn("more")
except LogError as exc:
    print(exc.code)
    print(log.writable, len(log.messages()) > 0, log.seq)
    try:
        recorder.end_step()
    except LogError as again:
        print(again.code)

async def sync():
    try:
        await log.sync()
    except LogError as exc:
        print(exc.code)

anyio.run(sync)
log.close()
"""


def test_a_file_that_may_not_grow_stops_the_session_and_stays_whole(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="needs POSIX resource limits")
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), "20000"],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={**os.environ, "PYTHONPATH": f"{PROJECT}{os.pathsep}{HERE}"},
    )
    lines = done.stdout.split()
    assert lines[:3] == ["DISK_FULL", "False", "True"]
    assert lines[4:] == ["DISK_FULL", "DISK_FULL"]
    assert "disk is full" not in done.stderr
    store = Store(tmp_path)
    path = store.find("full")
    assert path is not None
    data = path.read_bytes()
    assert data.endswith(b"\n")
    assert load(data, close=False).stored_seq == int(lines[3])
    log = store.open("full")
    Recorder(log).tool_turn("room again")
    log.close()


def test_a_full_disk_refuses_a_new_session_in_words(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs privileges")
    try:
        store = Store(disk)
        log = store.create("/w")
        Recorder(log).tool_turn()
        filler = (disk / "filler").open("wb")
        with pytest.raises(OSError), filler:
            filler.write(bytes(100_000))
        other = store.create("/w")
        with pytest.raises(LogError) as caught:
            Recorder(other).tool_turn("x" * 70_000)
        assert caught.value.code == "DISK_FULL"
        assert "Free some space" in str(caught.value)
        with pytest.raises(LogError) as caught:
            Recorder(log).tool_turn("x" * 70_000)
        assert caught.value.code == "DISK_FULL"
        assert log.path is not None
        assert json.loads(log.path.read_bytes().split(b"\n")[-2])["seq"] == log.seq - 1
        log.close()
        other.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_where_nothing_can_be_written_sessions_live_in_memory(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way", encoding="utf-8")
    store = Store(blocked / "home")
    assert store.memory_only is not None
    log = store.create("/w", id="m")
    Recorder(log).tool_turn("remember me")
    assert log.in_memory
    assert log.path is None
    assert store.read("m").seq == log.seq
    assert [summary.id for summary in store.list()] == ["m"]
    child = store.fork("m", 3)
    assert child.in_memory
    child.close()
    log.close()
    again = store.open("m")
    assert again.messages() == log.messages()
    again.close()
    assert store.delete("m")
    with pytest.raises(LogError) as caught:
        store.open("m")
    assert caught.value.code == "NOT_FOUND"


def test_a_directory_that_disappears_before_the_first_event_degrades_to_memory(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "home")
    log = store.create("/w")
    (tmp_path / "home" / "sessions").rmdir()
    (tmp_path / "home").rmdir()
    (tmp_path / "home").write_text("in the way", encoding="utf-8")
    Recorder(log).tool_turn()
    assert log.in_memory
    assert log.degraded is not None
    assert log.lines().count(b"\n") > 10


@pytest.mark.skipif(sys.platform != "linux", reason="finds the open file in /proc")
def test_a_disk_that_fails_while_a_log_is_read_is_told_of_and_the_session_is_free_again(
    tmp_path: Path,
) -> None:
    recorder = Recorder(memory_log())
    while len(recorder.log.lines()) < 3 * BLOCK:
        recorder.tool_turn()
    store = Store(tmp_path)
    path = place(store, recorder.log.lines())
    steps = store.opening("s1")
    next(steps)
    links = {fd: os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    (fd,) = (int(fd) for fd, target in links.items() if target == str(path.resolve()))
    folder = os.open(path.parent, os.O_RDONLY)  # every reading of it fails
    os.dup2(folder, fd, inheritable=False)
    os.close(folder)
    with pytest.raises(LogError, match=r"session\.jsonl cannot be read: Is a directory") as caught:
        outcome(steps)
    assert caught.value.code == "IO"
    store.open("s1").close()


def test_a_read_only_file_system_still_shows_its_sessions(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a read-only file system needs privileges")
    try:
        log = Store(disk).create("/w", id="old")
        Recorder(log).tool_turn()
        log.close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        store = Store(disk)
        assert store.memory_only is not None
        assert [summary.id for summary in store.list()] == ["old"]
        opened = store.open("old")
        assert opened.in_memory
        assert opened.degraded is not None
        Recorder(opened).tool_turn("in memory now")
        opened.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
