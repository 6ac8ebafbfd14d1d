from collections.abc import Callable, Iterator
import io
import os

import pytest
from rich.console import Console

from dsh_acp.commands.demo_view import View, diffs


def viewed(interactive: bool = False) -> tuple[View, io.StringIO]:
    out = io.StringIO()
    return View(Console(file=out, width=60, highlight=False), interactive=interactive), out


def text(kind: str, piece: str) -> dict:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": piece}}


DIFF = {"type": "diff", "path": "/w/a.py", "oldText": "a\nb\n", "newText": "a\nc\n"}


def call(**fields) -> dict:
    return {"sessionUpdate": "tool_call_update", "toolCallId": "1", **fields}


async def test_streamed_pieces_join_and_a_change_of_kind_begins_a_line():
    view, out = viewed()
    for kind, piece in [
        ("agent_thought_chunk", "I "),
        ("agent_thought_chunk", "think"),
        ("agent_message_chunk", "Hel"),
        ("agent_message_chunk", "lo [red]"),
    ]:
        await view.update(text(kind, piece))
    view.heading("End")
    assert out.getvalue().startswith("\nI think\n\nHello [red]\n\nEnd ─")
    assert view.pieces["agent_message_chunk"] == ["Hel", "lo [red]"]


async def test_a_card_shows_its_changes_of_state_its_diff_once_and_its_output():
    view, out = viewed()
    await view.update(call(sessionUpdate="tool_call", title="Edit a.py", kind="edit"))
    await view.update(call(status="in_progress", content=[DIFF]))
    await view.update(call(status="in_progress", content=[DIFF]))
    await view.update(call(status="completed", content=[DIFF]))
    shown = out.getvalue()
    assert [line for line in shown.splitlines() if "Edit" in line] == [
        "· Edit a.py",
        "✓ Edit a.py",
    ]
    assert shown.count("    -b\n    +c\n") == 1
    assert diffs(view.cards["1"]) == [("/w/a.py", "a\nc\n")]


async def test_the_output_of_a_command_is_shown_from_its_end():
    view, out = viewed()
    lines = "".join(f"line {n}\n" for n in range(30))
    content = [{"type": "content", "content": {"type": "text", "text": f"```\n{lines}```"}}]
    await view.update(call(kind="execute", title="sh", status="completed", content=content))
    assert "… 14 lines above" in out.getvalue() and "    line 29\n" in out.getvalue()
    assert "```" not in out.getvalue()


async def test_a_plan_is_a_list_with_boxes():
    view, out = viewed()
    entries = [{"content": "one", "status": "completed"}, {"content": "two", "status": "pending"}]
    await view.update({"sessionUpdate": "plan", "entries": entries})
    assert out.getvalue() == "  ☑ one\n  ☐ two\n"


async def test_without_a_person_once_is_granted_and_remembered():
    view, _ = viewed()
    options = [{"kind": "allow_once", "optionId": "y"}, {"kind": "reject_once", "optionId": "n"}]
    question = {"toolCall": {"toolCallId": "1", "title": "sh"}, "options": options}
    answer = await view.permission(question)
    assert answer == {"outcome": {"outcome": "selected", "optionId": "y"}}
    assert view.granted == ["1"]


@pytest.fixture
def typed(monkeypatch) -> Iterator[Callable[[str], None]]:
    """What is typed, and then the end of the input."""
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)

        def give(text: str) -> None:
            os.write(writer, text.encode())
            os.close(writer)

        yield give


async def test_a_person_is_asked_until_the_answer_is_understood(typed, capsys):
    typed("what?\nN\n")
    view, _ = viewed(interactive=True)
    options = [{"kind": "allow_once", "optionId": "y"}, {"kind": "reject_once", "optionId": "n"}]
    answer = await view.permission({"toolCall": {"toolCallId": "1"}, "options": options})
    assert answer["outcome"]["optionId"] == "n" and view.granted == []
    assert "[y]es, [n]o" in capsys.readouterr().out


async def test_the_end_of_input_is_no_consent(typed):
    typed("")
    view, _ = viewed(interactive=True)
    options = [{"kind": "allow_once", "optionId": "y"}]
    answer = await view.permission({"toolCall": {"toolCallId": "1"}, "options": options})
    assert answer == {"outcome": {"outcome": "cancelled"}}


async def test_updates_of_odd_shape_are_passed_over():
    view, out = viewed()
    for update in [{}, {"sessionUpdate": "new_kind"}, text("agent_message_chunk", "x")]:
        await view.update(update)
    await view.update({"sessionUpdate": "plan", "entries": None})
    await view.update(call(content="no list", title=None))
    assert "x" in out.getvalue()


async def test_a_stream_breaks_between_words():
    view, out = viewed()
    words = " ".join(["incomprehensible"] * 20)
    for start in range(0, len(words), 5):
        await view.update(text("agent_message_chunk", words[start : start + 5]))
    view.heading("next")
    lines = out.getvalue().strip().splitlines()[:-2]
    assert max(map(len, lines)) <= 60 and " ".join(lines).split() == words.split()
