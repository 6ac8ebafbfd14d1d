"""What a person sees of each call."""

import json
from typing import Any

from hypothesis import given, settings, strategies as st
import pytest
from workbench import Workbench

from dsh_acp.messages import Text
from dsh_acp.tools import cards
from dsh_acp.tools.tool import Card, FileDiff, Location, TerminalView

CWD = "/w/project"


def call(name: str, **arguments: Any) -> Card:
    return cards.call_card(name, json.dumps(arguments), CWD)


def result(
    name: str, text: str, *, is_error: bool = False, meta: Any = None, **arguments: Any
) -> Card:
    return cards.result_card(name, json.dumps(arguments), (Text(text),), is_error, meta, CWD)


@pytest.mark.parametrize(
    ("path", "title", "full"),
    [
        ("a.py", "Read a.py", "/w/project/a.py"),
        ("/w/project/src/a.py", "Read src/a.py", "/w/project/src/a.py"),
        ("/w/project/..cache/x", "Read ..cache/x", "/w/project/..cache/x"),
        ("/w/project2/x", "Read /w/project2/x", "/w/project2/x"),
        ("/w/project/../x", "Read /w/project/../x", "/w/x"),
        ("/w/project", "Read /w/project", "/w/project"),
        ("../x", "Read ../x", "/w/x"),
    ],
)
def test_titles_are_short_and_locations_absolute(path: str, title: str, full: str) -> None:
    assert call("read", file_path=path) == Card(
        title=title, kind="read", locations=(Location(full, 1),)
    )


def test_a_read_names_its_lines() -> None:
    card = call("read", file_path="a", offset=5, limit="10")
    assert (card.title, card.locations) == ("Read a (5 - 14)", (Location(f"{CWD}/a", 5),))
    assert call("read", file_path="a", limit=3).title == "Read a (1 - 3)"
    assert call("read", file_path="a", offset=7).title == "Read a (from line 7)"
    assert call("read", file_path="a", offset=-7, limit=0).title == "Read a"


def test_a_write_shows_the_whole_text_at_the_call() -> None:
    assert call("write", file_path="a.txt", content="x\n") == Card(
        title="Write a.txt",
        kind="edit",
        locations=(Location(f"{CWD}/a.txt"),),
        diffs=(FileDiff(f"{CWD}/a.txt", None, "x\n"),),
    )
    edit = call("edit", file_path=f"{CWD}/a.txt", old_string="a", new_string="b")
    assert edit.title == "Edit a.txt"
    assert edit.diffs == (FileDiff(f"{CWD}/a.txt", "a", "b"),)
    assert call("edit", file_path="a", old_string="", new_string="b").diffs[0].old is None


async def test_a_final_card_has_one_diff_per_place_and_the_text_on_disk(bench: Workbench) -> None:
    bench.put("a.txt", "".join(f"line {n}\r\n" for n in range(500)))
    await bench.call("read", file_path="a.txt")
    edit = {"file_path": "a.txt", "old_string": "line 250\n", "new_string": "LINE 250\n"}
    card = await bench.final_card("edit", **edit)
    (diff,) = card.diffs
    assert diff.path == f"{bench.cwd}/a.txt"
    assert (card.title, card.content) == ("Edit a.txt", None)
    # Only the line that changed differs; the file's endings do not count.
    old, new = (diff.old or "").split("\n"), diff.new.split("\n")
    assert len(old) == len(new) == 7
    assert [line for line in new if line not in old] == ["LINE 250"]


async def test_created_and_emptied_files_differ(bench: Workbench) -> None:
    path = f"{bench.cwd}/a.txt"
    card = await bench.final_card("write", file_path="a.txt", content="")
    assert card.diffs == (FileDiff(path, None, ""),)
    card = await bench.final_card("write", file_path="a.txt", content="x\n")
    assert card.diffs == (FileDiff(path, "", "x"),)
    card = await bench.final_card("write", file_path="a.txt", content="x\n")
    assert card.diffs == (FileDiff(path, None, "x\n"),)


def test_failures_show_their_text_and_no_diff() -> None:
    text = "Error: old_string was not found"
    for name, arguments in (
        ("edit", {"file_path": "a", "old_string": "x", "new_string": "y"}),
        ("write", {"file_path": "a", "content": "x"}),
        ("read", {"file_path": "a"}),
    ):
        assert result(name, text, is_error=True, **arguments) == Card(content=(Text(text),))


@pytest.mark.parametrize(
    ("text", "output", "code", "signal"),
    [
        ("hi\n", "hi\n", 0, None),
        ("hi\n[exit code: 3]", "hi\n", 3, None),
        ("(no output)\n[exit code: 1]", "(no output)\n", 1, None),
        ("hi\n[killed by signal: SIGKILL]", "hi\n", None, "SIGKILL"),
        (
            "1\n[timed out after 5ms]\n[killed by signal: SIGTERM]",
            "1\n[timed out after 5ms]\n",
            None,
            "SIGTERM",
        ),
        ("[exit code: 3] was printed", "[exit code: 3] was printed", 0, None),
        ("a\n[exit code: 3]\n", "a\n[exit code: 3]\n", 0, None),
    ],
)
def test_a_command_is_a_terminal(
    text: str, output: str, code: int | None, signal: str | None
) -> None:
    arguments: dict[str, Any] = {
        "command": "make\nmake test",
        "description": "Build",
        "workdir": "sub",
    }
    assert call("bash", **arguments) == Card(
        title="make\nmake test",
        kind="execute",
        content=(Text("Build"),),
        terminal=TerminalView("make\nmake test", f"{CWD}/sub"),
        raw_input=arguments,
    )
    view = TerminalView("make\nmake test", f"{CWD}/sub", output, code, signal)
    assert result("bash", text, **arguments) == Card(terminal=view)


def test_failed_and_background_commands_are_plain_text() -> None:
    assert result("bash", "Error: a ```` b\n", is_error=True, command="x").content == (
        Text("`````console\nError: a ```` b\n`````"),
    )
    started = "started background job job-1"
    card = call("bash", command="x", description="Serve", run_in_background=True)
    assert (card.kind, card.terminal, card.content) == ("execute", None, (Text("Serve"),))
    assert result("bash", started, command="x", run_in_background=True).content == (
        Text(f"```console\n{started}\n```"),
    )


def test_the_other_tools_have_their_titles() -> None:
    searched = {"pattern": "a.b", "path": f"{CWD}/src", "include": "*.py"}
    assert call("grep", **searched) == Card(
        title="Grep a.b in src (*.py)", kind="search", raw_input=searched
    )
    assert call("grep", pattern="x").title == "Grep x"
    assert call("glob", pattern="**/*", path="src").title == "Glob **/* in src"
    todos = [{"content": "a", "status": "pending"}]
    assert call("todo_write", todos=todos) == Card(
        title="Update todo list", kind="other", raw_input={"todos": todos}
    )
    assert call("job_output", job_id="job-1") == Card(
        title="Read output from background task job-1", kind="read"
    )
    assert call("job_list").title == "List background tasks"
    assert call("job_kill", job_id="j").kind == "execute"
    assert call("read_image", file_path="a.png").locations == (Location(f"{CWD}/a.png"),)
    # Hits of a search are no places that the call works on.
    assert call("grep", pattern="x", path="src").locations == ()


@pytest.mark.parametrize(
    ("arguments", "raw"),
    [
        ("", {}),
        ("not json", "not json"),
        ('{"file_path":', '{"file_path":'),
        ("[1]", [1]),
        ('{"file_path":5}', {"file_path": 5}),
        ('{"a":"\\ud800"}', {"a": "\ufffd"}),
    ],
)
def test_odd_arguments_give_the_plain_card(arguments: str, raw: Any) -> None:
    plain = Card(title="read", kind="other", raw_input=raw)
    assert cards.call_card("read", arguments, CWD) == plain
    assert cards.call_card("unheard_of", arguments, CWD).title == "unheard_of"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["file_path", "content", "old_string", "new_string", "command", "workdir", "offset",
             "limit", "pattern", "path", "include", "todos", "job_id", "diffs", "oldText",
             "newText"]
        ),
        inner,
        max_size=5,
    ),
)  # fmt: skip


@settings(max_examples=150)
@given(st.sampled_from([*cards.CALLS, "other"]), _JSON, _JSON, st.text(max_size=9), st.booleans())
def test_cards_never_raise(name: str, value: Any, meta: Any, text: str, is_error: bool) -> None:
    arguments = json.dumps(value)
    card = cards.call_card(name, arguments, CWD)
    assert card.title is not None
    if isinstance(value, dict):  # Toad refuses to show, or to ask about, any other input
        assert card.raw_input is None or isinstance(card.raw_input, dict)
    cards.result_card(name, arguments, (Text(text),), is_error, meta, CWD)
