"""The commands that read logs, called as the command line calls them."""

from hashlib import sha256
import io
import json
from pathlib import Path
import subprocess
import sys
from typing import Any
import zipfile

import pytest
from recording_loop import Clock, Recording, record

from dsh_acp import cli
from dsh_acp.commands import audit, export, fork, request, sessions, show
from dsh_acp.commands.paper import Paper, printable
from dsh_acp.config import Flags, load
from dsh_acp.errors import LogError
from dsh_acp.llm.registry import Providers
from dsh_acp.log import events as ev
from dsh_acp.log.attachments import Attachments
from dsh_acp.log.audit import requests
from dsh_acp.log.store import SUBAGENT, Store
from dsh_acp.messages import Image, Message, Text, Usage

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cfc0f01f0005050201a36f4dda"
    "0000000049454e44ae426082"
)


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_sessions_lists_what_was_recorded_newest_first(
    recorded: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = Store(home, clock=Clock(1_790_000_000_000)).create("/work/other", id="later")
    record(later)
    later.close()

    assert sessions.main([]) == 0
    lines = told(capsys).splitlines()
    assert lines[0].split() == ["ID", "UPDATED", "TURNS", "TITLE", "DIRECTORY"]
    assert [line.split()[0] for line in lines[1:]] == ["later", "5e55107a-0001"]

    assert sessions.main(["--json", "--cwd", "/work/demo"]) == 0
    (only,) = json.loads(told(capsys))
    assert (only["id"], only["title"], only["turns"]) == ("5e55107a-0001", "Hello there", 3)
    assert sessions.main(["--json", "-n", "1"]) == 0
    assert [one["id"] for one in json.loads(told(capsys))] == ["later"]


def test_sessions_of_an_empty_home_are_none(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sessions.main([]) == 0
    assert told(capsys).startswith("No sessions under ")
    assert sessions.main(["--cwd", "/work/demo"]) == 0
    assert told(capsys).startswith("No sessions of /work/demo under ")
    assert sessions.main(["--json"]) == 0
    assert told(capsys) == "[]\n"


def test_show_tells_the_conversation_and_explains_each_drop_of_the_cache(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show.main(["5e55"]) == 0
    text = told(capsys)

    assert "you     Say hello\n" in text
    assert 'calls   bash {"command":"echo hello"}\nresult  hello\n' in text
    assert "step 1.2: 2,916 in, 97% of it from the cache, 10 out" in text
    drops = [line for line in text.splitlines() if line.startswith("cache")]
    assert drops == [
        "cache   read 0% from the cache: header change at #34: system prompt of 13 characters,"
        " framing after: 1 message",
        "cache   read 0% from the cache: compaction at #53 replaced #4 to #43; header change at"
        " #55: system prompt of 16 characters, tools -read -bash, framing before: 1 message,"
        " no framing after",
    ]
    assert "They said hello." not in text
    assert "compacted 6 messages (about 50 tokens) for the model" in text
    assert "4 answers: 9,516 tokens in, 30% of them from the cache, 50 out; " in text


def test_show_says_so_when_nothing_in_the_log_explains_a_drop(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Store(home, clock=Clock()).create("/work/demo", id="forgotten")
    recording = Recording(log)
    for turn in range(2):
        recording.begin_turn("Go on")
        if not turn:
            recording.header("initial")
        recording.answer("I did", Usage(4000, 10, 0))
        recording.end_turn()
    log.close()

    assert show.main(["forgotten"]) == 0
    assert "nothing in the log changed what was sent before" in told(capsys)


def test_what_subagents_used_is_counted_with_the_session_that_sent_them(
    recorded: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(home, clock=Clock())
    for id, parent in (("child", "5e55107a-0001"), ("grandchild", "child")):
        log = store.create("/work/demo", id=id, parent=parent, origin=SUBAGENT)
        recording = Recording(log)
        recording.begin_turn("Look into it")
        recording.header("initial")
        recording.answer("Done", Usage(1000, 10, 500, reasoning_tokens=4))
        recording.end_turn()
        log.close()
    # It begins with what its parent has counted already.
    seed = tuple(store.read("child").events())
    store.create(
        None, id="twin", parent="child", origin=SUBAGENT, seed=seed, seed_length=len(seed)
    ).close()

    assert show.main(["5e55"]) == 0
    text = told(capsys)
    assert "4 answers: 9,516 tokens in, 30% of them from the cache, 50 out; " in text
    assert "3 subagents: 2 answers: 3,000 tokens in, 33% of them from the cache, " in text
    assert "20 out (8 of them thoughts); " in text
    assert "together: 6 answers: 12,516 tokens in, 30% of them from the cache, 70 out " in text
    assert show.main(["--json", "5e55"]) == 0
    shown = json.loads(told(capsys))
    assert (shown["totals"]["answers"], shown["subagents"]["answers"]) == (4, 2)
    assert shown["subagents"]["sessions"] == 3


def test_show_as_json_has_figures_per_step_and_in_all(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show.main(["--json", str(recorded)]) == 0
    shown = json.loads(told(capsys))

    steps = [item["facts"] for item in shown["items"] if item["kind"] == "usage"]
    assert [(step["turn"], step["step"]) for step in steps] == [(1, 1), (1, 2), (2, 1), (3, 1)]
    assert [step["cacheReadRate"] for step in steps] == [0, 0.9657, 0, 0]
    assert [bool(step["explanation"]) for step in steps] == [False, False, True, True]
    assert steps[0]["cost"] > 0
    assert shown["totals"]["cacheReadTokens"] == 2816


def test_shown_text_cannot_drive_the_terminal(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Store(home, clock=Clock()).create("/work/demo", id="escape")
    recording = Recording(log)
    recording.begin_turn("clear \x1b[2J\x07 me\tplease")
    recording.end_turn()
    log.close()

    assert show.main(["escape"]) == 0
    text = told(capsys)
    assert "clear �[2J� me\tplease" in text
    assert "\x1b" not in text


def test_a_pipe_gets_plain_text_and_a_terminal_gets_colour(monkeypatch: Any) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def write(stream: io.StringIO) -> str:
        paper = Paper(stream)
        paper.rule("turn 1")
        paper.block("you", "hello\nworld", "bold")
        paper.table(("A", "B"), [("x", "12")], right=(1,))
        paper.line("[not markup]", "red")
        return stream.getvalue()

    plain = write(io.StringIO())
    assert plain == "\n-- turn 1 --\nyou     hello\n        world\nA   B\nx  12\n[not markup]\n"
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = write(Terminal())
    assert "\x1b[" in coloured
    assert "[not markup]" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in write(Terminal())
    assert printable("a\r\nb\x00") == "a\nb�"


def test_a_session_is_found_by_the_start_of_its_id_and_mistakes_are_explained(
    recorded: Path, home: Path
) -> None:
    other = Store(home).create("/work/demo", id="5e55-other")
    Recording(other).begin_turn("hi")
    other.close()

    with pytest.raises(LogError, match="is the start of 2 sessions"):
        show.main(["5e55"])
    with pytest.raises(LogError, match='no session and no file "zzz"'):
        show.main(["zzz"])
    with pytest.raises(LogError, match='no session and no file ""'):
        show.main([""])


def test_audit_of_a_sound_log_exits_0_and_lists_its_requests(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("5e55107a", str(recorded), str(recorded.parent)):
        assert audit.main([name]) == 0
        assert told(capsys).startswith("ok  5e55107a-0001  67 events, 4 requests")
    assert audit.main(["-v"]) == 0
    assert "3.1 attempt 1 at #56: 3 messages, starts anew, header change" in told(capsys)


def test_audit_of_a_damaged_log_says_where_and_exits_1(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = recorded.read_bytes().splitlines(keepends=True)
    (result,) = (k for k, line in enumerate(lines) if b'"tool/result"' in line)
    broken = tmp_path / "session.jsonl"
    broken.write_bytes(b"".join(lines[:result] + lines[result + 1 :]))

    assert audit.main([str(broken)]) == 1
    assert told(capsys).startswith("BAD ")
    assert audit.main(["--json", str(broken), str(recorded)]) == 1
    bad, good = json.loads(told(capsys))
    assert (bad["ok"], good["ok"]) == (False, True)
    assert bad["problems"]


@pytest.fixture
def with_digests(home: Path) -> Path:
    """A log whose bodies were built by the real provider when they were sent."""
    log = Store(home, clock=Clock()).create("/work/demo", id="digests")
    provider = Providers(load(Flags())).get("deepseek")
    assert provider is not None
    recording = Recording(log)
    for turn in (1, 2):
        recording.begin_turn(f"question {turn}")
        if turn == 1:
            recording.header("initial")
        *_, (_, sent) = requests(log.lines() + probe(log.seq, turn))
        body = provider.body(sent)
        log.append(
            ev.RequestDigest(
                turn, 1, 1, body.sha256, len(body.data), "deepseek", "deepseek-v4-flash"
            )
        )
        recording.answer("An answer", Usage(100, 10))
        recording.end_turn()
    log.close()
    assert log.path is not None
    return log.path


def probe(seq: int, turn: int) -> bytes:
    """A chunk that marks the place where the next request leaves."""
    chunk = {"type": "block-start", "index": 0, "blockType": "text"}
    data = {"turn": turn, "step": 1, "chunk": chunk}
    return json.dumps({"type": "assistant/chunk", "seq": seq, "time": 1, "data": data}).encode() + (
        b"\n"
    )


def test_audit_proves_the_recorded_bodies_and_notices_one_changed_byte(
    with_digests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main(["digests"]) == 0
    assert "2 of 2 recorded bodies proved" in told(capsys)

    # The same word in inbox and message: nothing contradicts it but the digest.
    forged = tmp_path / "session.jsonl"
    forged.write_bytes(with_digests.read_bytes().replace(b"question 1", b"question 7"))
    assert audit.main([str(forged)]) == 1
    assert "the body differs from the one whose digest was recorded" in told(capsys)


def test_a_log_whose_bodies_nobody_here_can_build_is_not_called_ok(
    with_digests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = with_digests.read_bytes()
    # A recording played again goes by the recorded name, and has the replay's bodies.
    with_digests.write_bytes(text.replace(b'"deepseek"', b'"gone"'))
    assert audit.main(["digests"]) == 0
    assert "2 of 2 recorded bodies proved" in told(capsys)

    other = text.replace(b'"deepseek"', b'"gone"').replace(b"question 1", b"question 7")
    with_digests.write_bytes(other)
    assert audit.main(["digests"]) == 0
    said = told(capsys)
    assert said.startswith("NOT PROVED") and "gone not configured" in said


def test_request_prints_a_request_and_its_exact_body(
    with_digests: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert request.main(["digests", "--step", "2.1"]) == 0
    shown = json.loads(capsysbinary.readouterr().out)
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant", "user"]
    assert shown["header"]["system"] == "You are careful."

    assert request.main(["digests", "--step", "2.1", "--body"]) == 0
    body = capsysbinary.readouterr().out
    assert sha256(body).hexdigest() == shown["sha256"]
    assert json.loads(body)["model"] == "deepseek-v4-flash"


def test_request_lists_the_attempts_and_says_what_there_is(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert request.main(["5e55"]) == 0
    assert len(told(capsys).splitlines()) == 5
    assert request.main(["5e55", "--json"]) == 0
    assert [one["messages"] for one in json.loads(told(capsys))] == [1, 3, 6, 3]
    with pytest.raises(LogError, match=r"no request 9\.1 left; there are: 1\.1, 1\.2, 2\.1, 3\.1"):
        request.main(["5e55", "--step", "9.1"])
    with pytest.raises(SystemExit):
        request.main(["5e55", "--step", "nine"])


def test_fork_starts_a_session_with_the_past_up_to_an_event(
    recorded: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fork.main(["5e55", "--at", "27"]) == 0
    child = told(capsys).strip()
    store = Store(home)
    log = store.read(child)
    assert log.header.parent_session == "5e55107a-0001"
    assert log.messages() == store.read("5e55107a-0001").messages()[:0] + log.messages()
    assert [message.id for message in log.messages()] == ["u1", "a1-1", "r1-1", "a1-2"]
    with pytest.raises(LogError, match="does not exist"):
        fork.main(["5e55", "--at", "9999"])

    assert fork.main(["5e55", "--at", "0"]) == 0
    assert "It begins with 1 event of " in capsys.readouterr().err


def test_fork_of_a_file_from_elsewhere_makes_a_session_here(
    recorded: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "copy.jsonl"
    elsewhere.write_bytes(recorded.read_bytes())

    assert fork.main([str(elsewhere), "--at", "27", "--json"]) == 0
    made = json.loads(told(capsys))
    assert (made["parentSession"], made["at"]) == ("5e55107a-0001", 27)
    assert len(Store(home).read(made["id"]).messages()) == 4
    with pytest.raises(LogError, match="does not exist"):
        fork.main([str(elsewhere), "--at", "9999"])


def test_a_recorded_fixture_works_wherever_a_session_does(
    shared: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(shared / "dsh-sessions/parallel-tool-calls/session.jsonl")
    for command in (show, audit, request, fork):
        assert command.main([log]) == 0
    assert export.main([log, "-o", str(tmp_path / "e.zip")]) == 0
    assert told(capsys)


def test_every_recorded_fixture_passes_the_audit(
    shared: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main([str(shared / "dsh-sessions")]) == 0
    assert "none with problems" in told(capsys)


def test_export_holds_the_log_as_it_is_and_the_images_it_names(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, attachments = Store(home, clock=Clock()), Attachments(home)
    log = store.create("/work/demo", id="pictures")
    recording = Recording(log)
    recording.begin_turn("look")
    image = attachments.put(PNG, "image/png", "dot.png")
    log.append(ev.UserMessage(Message.user([Text("here"), Image(image)])))
    recording.end_turn()
    log.close()
    assert log.path is not None

    target = tmp_path / "out.zip"
    for name in ("pictures", str(log.path)):
        assert export.main([name, "-o", str(target)]) == 0
        assert told(capsys) == f"{target}\n"
        with zipfile.ZipFile(target) as archive:
            assert archive.read("session.jsonl") == log.path.read_bytes()
            (media,) = (name for name in archive.namelist() if name.startswith("media/"))
            assert archive.read(media) == attachments.get(image)


def test_reading_commands_leave_the_log_alone(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recorded.read_bytes()
    for command in (show, audit, request):
        command.main(["5e55"])
    export.main(["5e55", "-o", str(tmp_path / "x.zip")])
    assert recorded.read_bytes() == before


def test_piped_commands_do_not_load_rich(recorded: Path, home: Path) -> None:
    code = (
        "import sys; from dsh_acp.cli import main; assert main(['sessions']) == 0;"
        " assert not {'rich', 'httpx', 'pydantic'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"DSH_ACP_HOME": str(home), "HOME": str(home)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "5e55107a-0001" in done.stdout


def test_a_broken_configuration_does_not_hide_the_sessions(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("model = [", encoding="utf-8")
    for command in ([sessions, "-n", "1"], [show, recorded.parent.name]):
        assert command[0].main([*command[1:], "--config", str(broken)]) == 0
        assert "warning: " in capsys.readouterr().err


@pytest.mark.parametrize("command", [["show"], ["audit"], ["lab"], ["request"]])
def test_a_file_that_is_no_log_is_named(
    command: list[str], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "passwd"
    other.write_text("root:x:0:0\n", encoding="utf-8")
    assert cli.main([*command, str(other)]) == 1
    said = capsys.readouterr()
    assert "passwd" in said.out + said.err and "Traceback" not in said.err


def test_a_command_that_needs_a_session_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show"]) == 2
    assert capsys.readouterr().err.startswith("dsh-acp: show needs a session's id")


def test_a_fork_is_told_from_its_parent_in_the_list(
    recorded: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fork.main([recorded.parent.name]) == 0
    capsys.readouterr()
    assert sessions.main([]) == 0
    assert len([line for line in capsys.readouterr().out.splitlines() if "fork · " in line]) == 1
