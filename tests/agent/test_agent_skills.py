"""What the model is told of skills and of instructions in sub-folders."""

from pathlib import Path
import shutil
from typing import Any

from agent_bench import Bench, calls, text
import pytest

from dsh_acp.log.surface import derive_event_message
from dsh_acp.messages import Message


def put(bench: Bench, name: str, description: str = "does it", more: str = "") -> Path:
    folder = bench.cwd / ".agents/skills" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: {description}\n{more}---\nDo {name}.\n", encoding="utf-8"
    )
    return folder


def told(session: Any, kind: str) -> list[Message]:
    """The messages of a kind that entered the history."""
    messages = [derive_event_message(event) for event in session.log.events()]
    return [found for found in messages if found and found.source.get("kind") == kind]


async def test_the_catalogue_is_told_once_and_again_when_it_changes(bench: Bench) -> None:
    bench.tool("skill")
    put(bench, "b")
    put(bench, "a", more="disable-model-invocation: true\n")
    bench.say(*[text("ok")] * 4)
    async with bench.running() as session:
        await bench.prompt(session)
        await bench.prompt(session)
        (first,) = told(session, "skill-catalog")
        assert first.source == {
            "kind": "skill-catalog",
            "form": "catalog",
            "entries": [{"name": "b", "description": "does it"}],
        }
        assert "<available_skills>\n- `b`: does it\n</available_skills>" in first.text
        shutil.rmtree(put(bench, "b"))
        await bench.prompt(session)
        await bench.prompt(session)
        _, second = told(session, "skill-catalog")
        assert second.source["update"] is True and second.source["entries"] == []


async def test_the_catalogue_survives_a_resume(bench: Bench) -> None:
    bench.tool("skill")
    put(bench, "a")
    bench.say(text("ok"), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
    async with bench.running(bench.store.open(session.id)) as again:
        await bench.prompt(again)
        assert len(told(again, "skill-catalog")) == 1


async def test_without_skills_nothing_is_said(bench: Bench) -> None:
    bench.tool("skill")
    bench.say(text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert not told(session, "skill-catalog")


async def test_a_skill_that_the_user_names_comes_with_the_prompt(bench: Bench) -> None:
    bench.tool("skill")
    put(bench, "deploy", more="disable-model-invocation: true\n")
    put(bench, "secret", more="user-invocable: false\n")
    bench.say(text("ok"))
    async with bench.running() as session:
        await bench.prompt(session, "Please /deploy it, /deploy /secret /etc/hosts a/deploy /none")
        (found,) = told(session, "skill-invocation")
        assert found.source == {
            "kind": "skill-invocation",
            "name": "deploy",
            "form": "instructions",
        }
        assert "Do deploy." in found.text
        assert bench.model.requests[0].messages[-1] == found


async def test_a_skill_is_offered_like_a_command_and_sent_as_a_prompt(bench: Bench) -> None:
    put(bench, "deploy")
    put(bench, "help")
    async with bench.running() as session:
        listed = {info.name: info.description for info in session.commands.list()}
        assert listed["deploy"] == "does it" and listed["help"] == "List the commands"
        assert session.commands.is_skill("deploy") and not session.commands.is_skill("help")
        result = await session.commands.run("deploy", "now")
        assert result.prompt is not None and result.prompt.text == "/deploy now"


# ---------------------------------------------------------------- instructions of sub-folders


def instructions(session: Any) -> list[str]:
    return [m.source["changes"][0]["path"] for m in told(session, "agent-instructions")]


async def test_instructions_of_a_folder_follow_the_first_call_in_it(bench: Bench) -> None:
    bench.tool("read", effect="read", safe=True)
    (bench.cwd / "a/b").mkdir(parents=True)
    (bench.cwd / "AGENTS.md").write_text("root", encoding="utf-8")
    (bench.cwd / "a/CLAUDE.md").write_text("outer", encoding="utf-8")
    (bench.cwd / "a/b/AGENTS.md").write_text("inner", encoding="utf-8")
    read = ("read", '{"path": "a/b/x.py"}')
    bench.say(calls(("1", *read), ("2", *read)), calls(("3", *read)), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert instructions(session) == ["AGENTS.md", "a/CLAUDE.md", "a/b/AGENTS.md"]
        inner = told(session, "agent-instructions")[-1]
        assert "Instructions from: a/b/AGENTS.md\n\ninner" in inner.text
        assert inner in bench.model.requests[1].messages


async def test_changed_instructions_of_a_folder_are_told_again(bench: Bench) -> None:
    bench.tool("read", effect="read")
    (bench.cwd / "a").mkdir()
    file = bench.cwd / "a/AGENTS.md"
    file.write_text("one", encoding="utf-8")
    read = calls(("1", "read", '{"path": "a/x.py"}'))
    bench.say(read, text("ok"), calls(("2", "read", '{"path": "a/y.py"}')), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
    file.write_text("two", encoding="utf-8")
    async with bench.running(bench.store.open(session.id)) as again:
        await bench.prompt(again)
        first, second = told(again, "agent-instructions")
        assert "one" in first.text and "have changed" in second.text and "two" in second.text


@pytest.mark.parametrize("path", ["x.py", "../other/x.py", "missing/x.py"])
async def test_elsewhere_there_are_none(bench: Bench, path: str) -> None:
    bench.tool("read", effect="read")
    (bench.cwd.parent / "other").mkdir()
    (bench.cwd.parent / "other/AGENTS.md").write_text("not ours", encoding="utf-8")
    bench.say(calls(("1", "read", f'{{"path": "{path}"}}')), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert not instructions(session)
