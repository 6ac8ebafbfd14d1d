"""Files, commands and questions as an editor gets them: real process, real files, real frames."""

from collections.abc import Callable
import json
import os
from pathlib import Path
import sys

from e2e_agent import Agent, Frame, bash, bodies, script, tool
import pytest

from dsh_acp.llm.fake import FakeLlm

Start = Callable[..., Agent]
PLAIN = Path(__file__).parents[1] / "mcp" / "plain_server.py"


def work(start: Start, fake: FakeLlm, folder: Path, *calls: Frame, **options: str) -> Agent:
    """An agent that has made these calls, one per step, in `folder`."""
    fake.use(script(*({"tool_calls": [call]} for call in calls)))
    agent = start(cwd=folder, **options)
    session = agent.open()
    assert agent.prompt(session)["result"] == {"stopReason": "end_turn"}
    return agent


def told(fake: FakeLlm, id: str) -> str:
    """What the model was told of a call."""
    last = bodies(fake)[-1]["messages"]
    return next(m["content"] for m in last if m.get("tool_call_id") == id)


def shown(agent: Agent, id: str) -> Frame:
    """What an editor shows of a call in the end: content replaces, absent content stays."""
    card: Frame = {}
    for update in agent.updates():
        if update.get("toolCallId", "").endswith(id):
            card |= update
    return card


def text_of(card: Frame) -> str:
    blocks = [block for block in card.get("content", ()) if block["type"] == "content"]
    return "".join(block["content"]["text"] for block in blocks)


EDITS = {
    "lines that end with CRLF": (
        b"a = 1\r\nb = 2\r\nc = 3\r\n",
        ("a = 1\nb = 2", "a = 1\nb = 22"),
        b"a = 1\r\nb = 22\r\nc = 3\r\n",
    ),
    "one of two hundred CRLF lines": (
        b"x\r\n" * 99 + b"y\r\n" + b"x\r\n" * 100,
        ("y", "z"),
        b"x\r\n" * 99 + b"z\r\n" + b"x\r\n" * 100,
    ),
    "mixed endings": (b"a\r\nb\nc\rd\r\n", ("b", "B"), b"a\r\nB\nc\rd\r\n"),
    "a byte order mark": (
        b"\xef\xbb\xbfusing System;\r\n",
        ("using System;", "using X;"),
        b"\xef\xbb\xbfusing X;\r\n",
    ),
    "GBK": ("价格=1\r\n".encode("gbk") * 9, None, None),
    "UTF-16": ("héllo\n".encode("utf-16"), ("llo", "LLO"), "héLLO\n".encode("utf-16")),
    "Latin-1": (b"caf\xe9 menu\n", ("menu", "MENU"), b"caf\xe9 MENU\n"),
    "no final newline": (b"a\nb", ("a", "A"), b"A\nb"),
    "blank lines at the end": (b"a\n\n\n", ("a", "A"), b"A\n\n\n"),
    "a character where a sample ends": (
        b"a" * 8191 + "读\nx\n".encode(),
        ("\nx", "\ny"),
        b"a" * 8191 + "读\ny\n".encode(),
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_changes_only_what_it_says(
    start: Start, fake: FakeLlm, tmp_path: Path, name: str
) -> None:
    before, change, after = EDITS[name]
    if change is None:
        change, after = ("=1", "=2"), None
    folder = tmp_path / "work"
    folder.mkdir()
    file = folder / "f.txt"
    file.write_bytes(before)
    file.chmod(0o755)
    edit = tool("e", "edit", file_path="f.txt", old_string=change[0], new_string=change[1])
    if after is None:
        edit = tool(
            "e",
            "edit",
            file_path="f.txt",
            old_string=change[0],
            new_string=change[1],
            replace_all=True,
        )
        after = before.replace(b"=1", b"=2")
    agent = work(start, fake, folder, tool("r", "read", file_path="f.txt"), edit)
    assert file.read_bytes() == after, told(fake, "e")
    assert file.stat().st_mode & 0o777 == 0o755
    card = shown(agent, "e")
    diffs = [block for block in card["content"] if block["type"] == "diff"]
    assert diffs and all(block["path"] == str(file) for block in diffs)
    assert all("\ufeff" not in (b["oldText"] or "") + b["newText"] for b in diffs)
    # A change of one line is shown as one, whatever ends the lines.
    for block in diffs:
        old, new = block["oldText"].splitlines(), block["newText"].splitlines()
        assert len(old) <= 9 and len(old) == len(new)


def test_links_stay_links_and_a_circle_is_refused(
    start: Start, fake: FakeLlm, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "real.md").write_bytes(b"one\n")
    (folder / "real.md").chmod(0o751)
    for name, target in (("c", "real.md"), ("b", "c"), ("link.md", "b"), ("x", "y"), ("y", "x")):
        (folder / name).symlink_to(target)
    os.link(folder / "real.md", folder / "twin.md")
    agent = work(
        start,
        fake,
        folder,
        tool("r", "read", file_path="link.md"),
        tool("e", "edit", file_path="link.md", old_string="one", new_string="two"),
        tool("x", "read", file_path="x"),
    )
    assert os.readlink(folder / "link.md") == "b" and os.readlink(folder / "c") == "real.md"
    assert (folder / "real.md").read_bytes() == (folder / "twin.md").read_bytes() == b"two\n"
    assert (folder / "real.md").stat().st_mode & 0o777 == 0o751
    assert told(fake, "x").startswith("Error: ")
    assert shown(agent, "x")["status"] == "failed"


def test_what_is_huge_or_no_file_neither_hangs_nor_fills_the_model(
    start: Start, fake: FakeLlm, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "min.json").write_text('{"a":"' + "x" * 5_600_000 + '"}', encoding="utf-8")
    (folder / "sparse").touch()
    os.truncate(folder / "sparse", 3 << 30)
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    names = ("min.json", "sparse", "pipe", "zero")
    calls = [tool(name, "read", file_path=name) for name in names]
    calls += [tool("g", "grep", pattern="."), bash("cat", "cat min.json; head -c 9000000 zero")]
    work(start, fake, folder, *calls, DSH_ACP_PERMISSION="full-access")
    assert "(line truncated to 2000 chars)" in told(fake, "min.json")
    for name in ("sparse", "pipe", "zero"):
        assert told(fake, name).startswith("Error: cannot read")
    assert max(len(told(fake, id)) for id in (*names, "g", "cat")) < 140_000


def test_somebody_elses_change_is_not_overwritten(
    start: Start, fake: FakeLlm, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"one\n")
    work(
        start,
        fake,
        folder,
        tool("r", "read", file_path="a.txt"),
        bash("b", "echo theirs >a.txt"),
        tool("w", "write", file_path="a.txt", content="mine\n"),
        tool("r2", "read", file_path="a.txt"),
        tool("w2", "write", file_path="a.txt", content="first\n"),
        tool("w3", "write", file_path="a.txt", content="second\n"),
    )
    assert "file changed since it was read" in told(fake, "w")
    assert (folder / "a.txt").read_bytes() == b"second\n"


def test_two_edits_in_one_answer_both_count(start: Start, fake: FakeLlm, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    lines = [f"line {number}" for number in range(60)]
    (folder / "a.py").write_text("\n".join(lines), encoding="utf-8")
    both = [
        tool("e1", "edit", file_path="a.py", old_string="line 1\n", new_string="LINE 1\n"),
        tool("e2", "edit", file_path="a.py", old_string="line 50\n", new_string="LINE 50\n"),
    ]
    read = {"tool_calls": [tool("r", "read", file_path="a.py")]}
    fake.use(script(read, {"tool_calls": both}))
    agent = start(cwd=folder)
    agent.prompt(agent.open())
    lines[1], lines[50] = "LINE 1", "LINE 50"
    assert (folder / "a.py").read_text(encoding="utf-8") == "\n".join(lines)


def test_an_editor_gets_all_of_a_long_output(start: Start, fake: FakeLlm, tmp_path: Path) -> None:
    agent = work(
        start,
        fake,
        tmp_path,
        bash("c", "seq 1 2000"),
        bash("more", "seq 1 50000"),
        DSH_ACP_PERMISSION="full-access",
    )
    whole = text_of(shown(agent, "c")).split("\n")
    assert whole[1:-1] == [str(number) for number in range(1, 2001)]
    cut = text_of(shown(agent, "more"))
    assert "\n50000\n" in cut
    assert "[output truncated; full output: " in told(fake, "more") or "bytes omitted" in cut


def test_terminal_control_reaches_neither_model_nor_card(
    start: Start, fake: FakeLlm, tmp_path: Path
) -> None:
    command = r"printf '\033[31mred\033[0m\r10%%\r100%%\n'; printf '\033]0;x\007ok\n'"
    agent = work(start, fake, tmp_path, bash("c", command), DSH_ACP_PERMISSION="full-access")
    for text in (told(fake, "c"), text_of(shown(agent, "c"))):
        assert "\x1b" not in text and "\x07" not in text and "\r" not in text
        assert "100%" in text and "\nok" in text and "10%\n" not in text


def test_a_command_that_is_stopped_keeps_what_it_said(
    start: Start, fake: FakeLlm, tmp_path: Path
) -> None:
    slow = tool("c", "bash", command="echo 1; echo 2; sleep 600", description="d", timeoutMs=800)
    agent = work(start, fake, tmp_path, slow, DSH_ACP_PERMISSION="full-access")
    assert told(fake, "c").startswith("1\n2\n[timed out after 800ms]")
    assert "1\n2\n" in text_of(shown(agent, "c"))


def test_a_search_opens_no_files_in_the_editor(start: Start, fake: FakeLlm, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    for number in range(80):
        (folder / f"f{number}.txt").write_text("hit\nhit\nhit\n", encoding="utf-8")
    searches = (tool("g", "grep", pattern="hit"), tool("l", "glob", pattern="*.txt"))
    agent = work(start, fake, folder, *searches, tool("r", "read", file_path="f1.txt"))
    assert "locations" not in shown(agent, "g") and "locations" not in shown(agent, "l")
    assert shown(agent, "r")["locations"] == [{"path": str(folder / "f1.txt"), "line": 1}]


def test_each_guarded_call_is_announced_asked_about_and_only_then_done(
    start: Start, fake: FakeLlm, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "old").write_bytes(b"a\n")
    calls = [
        tool("r", "read", file_path="old"),
        bash("touch", "touch made"),
        tool("write", "write", file_path="new", content="x"),
        tool("edit", "edit", file_path="old", old_string="a", new_string="b"),
        bash("rm", "rm old"),
        tool("mcp", "mcp__plain__echo", text="hi"),
    ]
    fake.use(script(*({"tool_calls": [call]} for call in calls)))
    agent = start(cwd=folder)
    agent.permission = None
    agent.initialize()
    server = {"name": "plain", "command": sys.executable, "args": [str(PLAIN)], "env": []}
    made = agent.call("session/new", cwd=str(folder), mcpServers=[server])
    prompt = agent.start_prompt(made["result"]["sessionId"])
    state = sorted(os.listdir(folder))
    for number in range(5):
        agent.until(lambda f, n=number: len(agent.asked()) > n)
        asked = agent.asked()[number]
        assert sorted(os.listdir(folder)) == state, "something was done before the answer"
        id = asked["params"]["toolCall"]["toolCallId"]
        at = agent.frames.index(asked)
        announced = [u for u in agent.updates() if u.get("toolCallId") == id]
        assert announced and announced[0]["sessionUpdate"] == "tool_call"
        before = [f for f in agent.frames[:at] if json.dumps(id) in json.dumps(f)]
        assert before, "asked about before it was shown"
        option = next(o for o in asked["params"]["options"] if o["kind"] == "reject_once")
        agent.reply(asked, {"outcome": {"outcome": "selected", "optionId": option["optionId"]}})
    assert agent.response(prompt)["result"] == {"stopReason": "end_turn"}
    assert sorted(os.listdir(folder)) == state
    for call in calls[1:]:
        assert shown(agent, call["id"])["status"] == "failed"
        assert told(fake, call["id"]).startswith("Error: the user rejected tool")
