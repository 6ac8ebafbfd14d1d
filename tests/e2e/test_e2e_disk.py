"""A disk that is full or refuses, a second process, a dead owner's lock, damaged files: for real.

Each time the editor gets a sentence or nothing happens at all, what was recorded stays readable,
and the process lives on.
"""

from collections.abc import Callable, Iterator
import os
from pathlib import Path
import subprocess
import sys

from e2e_agent import Agent, bash, bodies, environment, events_of, log_of, script
import pytest

from dsh_acp.llm.fake import FakeLlm

Start = Callable[..., Agent]

LIMITED = (
    "import resource, runpy, signal, sys\n"
    "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (%d, %d))\n"
    "sys.argv[0] = 'dsh-acp'\n"
    "runpy.run_module('dsh_acp', run_name='__main__')\n"
)
"""Starts the agent with files that may not grow beyond a size."""


def limited(size: int) -> tuple[str, ...]:
    return (sys.executable, "-c", LIMITED % (size, size))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs privileges")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_log_that_may_not_grow_fails_the_prompt_in_words_and_stays_whole(
    start: Start, fake: FakeLlm
) -> None:
    pytest.importorskip("resource", reason="needs POSIX resource limits")
    fake.use(script(*[{"text": "words " * 500} for _ in range(40)]))
    agent = start(command=limited(40_000))
    session = agent.open()
    for number in range(40):
        frame = agent.prompt(session, f"prompt {number}")
        if "error" in frame:
            break
    else:
        raise AssertionError("the limit was never reached")
    assert frame["error"]["code"] == -32603
    assert "the disk is full" in frame["error"]["message"]
    assert "load the session again" in frame["error"]["message"]
    sent = len(bodies(fake))
    assert "error" in agent.prompt(session, "again")
    assert len(bodies(fake)) == sent
    data = log_of(agent.home, session).read_bytes()
    assert len(data) <= 40_000 and data.endswith(b"\n")
    assert agent.prompt(agent.new(), "elsewhere")["result"] == {"stopReason": "end_turn"}
    assert agent.close() == 0

    roomier = start()
    roomier.initialize()
    assert "result" in roomier.load(session)
    said = roomier.said("user_message_chunk")
    assert all(f"prompt {n}" in said for n in range(number))
    assert roomier.prompt(session, "room again")["result"] == {"stopReason": "end_turn"}


def test_a_full_disk_fails_the_prompt_and_room_makes_it_work_again(
    start: Start, fake: FakeLlm, small_disk: Path
) -> None:
    fake.use(script())
    agent = start(DSH_ACP_HOME=str(small_disk))
    session = agent.open()
    assert agent.prompt(session, "one")["result"] == {"stopReason": "end_turn"}
    filler = small_disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))
    sent = len(bodies(fake))
    error = agent.prompt(session, "x" * 20_000)["error"]
    assert error["code"] == -32603 and "the disk is full" in error["message"]
    assert len(bodies(fake)) == sent
    filler.unlink()
    assert "result" in agent.call("session/close", sessionId=session)
    assert "result" in agent.load(session)
    assert agent.prompt(session, "two")["result"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize("place", ["/proc/nowhere", "blocked", "read-only"])
def test_where_nothing_can_be_kept_it_says_so_once_and_works(
    start: Start, fake: FakeLlm, tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    fake.use(script({"tool_calls": [bash("c1", "echo hi")]}, "success", "success"))
    match place:
        case "blocked":
            (tmp_path / "file").write_bytes(b"in the way")
            state = tmp_path / "file" / "state"
        case "read-only":
            state = request.getfixturevalue("small_disk")
            subprocess.run(["mount", "-o", "remount,ro", str(state)], check=True)
        case _:
            state = Path(place)
    agent = start(DSH_ACP_HOME=str(state))
    session = agent.open()
    assert agent.prompt(session, "one")["result"] == {"stopReason": "end_turn"}
    assert agent.prompt(session, "two")["result"] == {"stopReason": "end_turn"}
    other = agent.new()
    assert agent.prompt(other, "three")["result"] == {"stopReason": "end_turn"}
    assert "result" in agent.load(session)
    assert agent.close() == 0
    assert agent.stderr.count(b"\n") == 1, agent.stderr
    assert b"memory only" in agent.stderr


def test_a_session_has_one_process_and_a_second_one_is_told(start: Start, fake: FakeLlm) -> None:
    fake.use(script())
    owner, other = start(), start()
    session = owner.open()
    owner.prompt(session, "mine")
    other.initialize()
    error = other.load(session)["error"]
    assert error["code"] == -32603
    assert error["message"] == (
        "the session is open in another dsh-acp process; close it there first"
    )
    assert other.updates() == []
    listed = other.call("session/list")["result"]["sessions"]
    assert [each["sessionId"] for each in listed] == [session]
    # Neither of them is harmed, and the session changes hands once it is closed.
    assert owner.prompt(session, "still mine")["result"] == {"stopReason": "end_turn"}
    assert other.prompt(other.new(), "my own")["result"] == {"stopReason": "end_turn"}
    owner.call("session/close", sessionId=session)
    assert "result" in other.load(session)
    assert other.prompt(session, "ours")["result"] == {"stopReason": "end_turn"}
    assert other.said("user_message_chunk").count("mine") == 2


def test_the_lock_of_a_process_that_was_killed_holds_nobody(start: Start, fake: FakeLlm) -> None:
    fake.use(script({"tool_calls": [bash("c1", "echo $$ > pid; exec sleep 1000")]}))
    agent = start(DSH_ACP_PERMISSION="full-access")
    session = agent.open()
    agent.start_prompt(session, "go")
    agent.until_update(status="in_progress")
    agent.kill()
    again = start()
    again.initialize()
    assert "result" in again.load(session)
    statuses = {u["toolCallId"]: u.get("status") for u in again.updates("tool_call_update")}
    assert set(statuses.values()) == {"failed"}
    assert again.prompt(session, "next")["result"] == {"stopReason": "end_turn"}
    results = [m for m in bodies(fake)[-1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == ["c1"]


@pytest.mark.parametrize("cut", ["half a line", "a byte", "a whole event and a half", "in a word"])
def test_a_torn_tail_is_cut_and_the_session_goes_on(start: Start, fake: FakeLlm, cut: str) -> None:
    fake.use(script())
    agent = start()
    session = agent.open()
    agent.prompt(session, "first")
    assert agent.close() == 0
    path = log_of(agent.home, session)
    lines = path.read_bytes().splitlines(keepends=True)
    match cut:
        case "half a line":
            kept = b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2]
        case "a byte":
            kept = b"".join(lines)[:-1]
        case "a whole event and a half":
            kept = b"".join(lines[:-2]) + lines[-2][:20]
        case _:
            lines[-1] = lines[-1].replace(b'{"type"', '{"tÿpe"'.encode())
            kept = b"".join(lines)[: -len(lines[-1]) + 4]
    path.write_bytes(kept)
    again = start()
    again.initialize()
    frame = again.load(session)
    assert "result" in frame, frame
    assert again.said("user_message_chunk") == "first"
    assert again.prompt(session, "second")["result"] == {"stopReason": "end_turn"}
    assert again.close() == 0
    rows = events_of(path.read_bytes())
    seqs = [row["seq"] for row in rows if "seq" in row]
    assert seqs == sorted(set(seqs))
    ends = [row for row in rows if row["type"] == "turn/end"]
    assert len(ends) == 2


def test_files_that_hold_no_session_are_refused_in_words_and_harm_nobody(
    start: Start, fake: FakeLlm
) -> None:
    fake.use(script())
    agent = start()
    session = agent.open()
    agent.prompt(session, "first")
    agent.close()
    folder = log_of(agent.home, session).parent.parent
    damaged = {"empty": b"", "noise": os.urandom(300), "a list": b"[]\n", "a blank": b"\n\n"}
    for number, data in enumerate(damaged.values()):
        place = folder / f"damaged{number}"
        place.mkdir()
        (place / "session.jsonl").write_bytes(data)
    again = start()
    again.initialize()
    for number in range(len(damaged)):
        error = again.load(f"damaged{number}")["error"]
        assert error["code"] in (-32603, -32002)
        assert "Traceback" not in error["message"] and "\n" not in error["message"]
    listed = again.call("session/list")["result"]["sessions"]
    assert [each["sessionId"] for each in listed] == [session]
    assert "result" in again.load(session)
    assert again.prompt(session, "second")["result"] == {"stopReason": "end_turn"}


def test_an_audit_of_all_that_happened_here_finds_nothing(start: Start, fake: FakeLlm) -> None:
    fake.use(script({"tool_calls": [bash("c1", "echo hi")]}, "success", "rate_limit", "success"))
    agent = start()
    session = agent.open()
    agent.prompt(session, "one")
    agent.prompt(session, "two")
    agent.close()
    done = subprocess.run(
        [sys.executable, "-m", "dsh_acp", "audit"],
        env=environment(agent.home, fake.url),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert len(bodies(fake)) == 4
