"""What the model is told: system prompt, surroundings, the project's instructions."""

from pathlib import Path
import re
from typing import Any

from agent_bench import Bench, FakeTool, calls, text
from hypothesis import given, settings, strategies as st
import pytest

from dsh_acp.agent import instructions, prompt, surroundings
from dsh_acp.agent.prompt import SystemPrompt
from dsh_acp.agent.session import Session
from dsh_acp.agent.surroundings import Part
from dsh_acp.messages import Message, Text
from dsh_acp.tools.tool import Outcome


def test_the_prompt_is_the_same_for_the_same_tools_and_names_only_those() -> None:
    tools: dict[str, Any] = {name: FakeTool(name) for name in ("bash", "read")}
    words, schemas = SystemPrompt().of(tools)
    assert SystemPrompt().of(dict(reversed(tools.items())))[0] == words
    assert [schema.name for schema in schemas] == ["bash", "read"]
    assert "`bash`" in words and "`edit`" not in words
    assert words.startswith("You are dsh-acp")


def test_nothing_in_the_prompt_depends_on_time_or_place(tmp_path: Path) -> None:
    words = prompt.assemble(prompt.sections(frozenset(prompt.known_tools())))
    assert not re.search(r"\b20\d\d\b", words)
    assert str(Path.cwd()) not in words


def test_tools_that_come_later_change_prompt_and_schemas() -> None:
    tools: dict[str, Any] = {"read": FakeTool("read")}
    system = SystemPrompt()
    before = system.of(tools)
    assert system.of(tools) is before or system.of(tools) == before
    tools["edit"] = FakeTool("edit")
    after = system.of(tools)
    assert [schema.name for schema in after[1]] == ["edit", "read"]
    assert "`edit`" in after[0] and "`edit`" not in before[0]


def test_the_users_standing_instructions_come_last() -> None:
    words, schemas = SystemPrompt("Answer in French.").of({})
    assert words.endswith("Answer in French.")
    assert schemas == ()


def test_a_snapshot_is_owed_only_when_the_last_one_does_not_hold() -> None:
    parts = (Part("a", "one"), Part("b", "two"))
    message = surroundings.project(parts, None)
    assert message is not None
    assert message.text == (
        "Current runtime context. This snapshot supersedes earlier runtime-context snapshots."
        "\n\none\n\ntwo"
    )
    assert message.source == {
        "kind": "plugin",
        "plugin": "@deepseek-ai/dsh-system-prompt",
        "form": "snapshot",
        "sections": [{"name": "a", "text": "one"}, {"name": "b", "text": "two"}],
    }
    assert surroundings.project(parts, message.text) is None
    assert surroundings.project((), None) is None
    gone = surroundings.project((), message.text)
    assert gone is not None and gone.text.startswith("Current runtime context: none.")
    assert "form" not in gone.source


def told(cwd: Path, seen: dict[str, str] | None = None) -> Message | None:
    return instructions.owed(instructions.load(str(cwd)), seen)


def test_instructions_are_told_once_with_their_digest(tmp_path: Path) -> None:
    assert told(tmp_path) is None
    (tmp_path / "AGENTS.md").write_text("\ufeffUse tabs.\n", encoding="utf-8")
    message = told(tmp_path)
    assert message is not None and "\nUse tabs.\n" in message.text
    source = message.source
    assert (source["kind"], source["form"], source["baseline"]) == (
        "agent-instructions",
        "instructions",
        True,
    )
    assert told(tmp_path, instructions.seen_in(source)) is None


def test_claude_md_serves_where_there_is_no_agents_md(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("Be brief.", encoding="utf-8")
    message = told(tmp_path)
    assert message is not None and "Instructions from: CLAUDE.md" in message.text
    (tmp_path / "AGENTS.md").write_text("Be thorough.", encoding="utf-8")
    message = told(tmp_path, instructions.seen_in(message.source))
    assert message is not None and "Be thorough." in message.text
    assert "baseline" not in message.source


@pytest.mark.parametrize("content", [b"", b"  \n", b"\xef\xbb\xbf"])
def test_an_empty_file_instructs_nobody(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "AGENTS.md").write_bytes(content)
    assert told(tmp_path) is None


def test_long_instructions_are_cut_without_splitting_a_character(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("é" * instructions.MAX_BYTES, encoding="utf-8")
    found = instructions.load(str(tmp_path))
    assert found is not None
    assert found.text.startswith("é" * (instructions.MAX_BYTES // 2))
    assert "only its first 65536 bytes" in found.text


def test_a_directory_of_that_name_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").mkdir()
    assert told(tmp_path) is None


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_odd_sources_of_logs_from_elsewhere_are_tolerated(changes: Any) -> None:
    assert instructions.seen_in({"kind": "user", "changes": changes}) is None
    assert instructions.seen_in({"kind": "agent-instructions", "changes": changes}) is not None


async def test_a_recorded_snapshot_of_another_program_is_recognised(bench: Bench) -> None:
    bench.tool("look")
    bench.say(calls(("c1", "look")), text("one"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session)
        await bench.prompt(session)
        assert session.parts.seen.snapshot is not None
        assert session.parts.seen.snapshot in [m.text for m in session.log.messages()]


def instructed(session: Session) -> list[str]:
    """What the model was told of the project's instructions, in order."""
    sent = session.log.messages()
    return [m.text for m in sent if m.source.get("kind") == "agent-instructions"]


async def test_instructions_that_change_are_told_while_the_session_runs(bench: Bench) -> None:
    file = bench.cwd / "AGENTS.md"
    file.write_text("Use tabs.", encoding="utf-8")
    bench.say(text("one"), text("two"), text("three"), text("four"), text("five"))
    async with bench.running() as session:
        await bench.prompt(session)
        await bench.prompt(session)
        assert len(instructed(session)) == 1
        file.write_text("Use spaces, four of them.", encoding="utf-8")
        await bench.prompt(session)
        assert "instructions have changed" in instructed(session)[1]
        assert "Use spaces" in instructed(session)[1]
        file.unlink()
        await bench.prompt(session)
        assert "(AGENTS.md) are gone" in instructed(session)[2]
        await bench.prompt(session)
        assert len(instructed(session)) == 3


async def test_instructions_that_a_call_changed_are_told_with_the_next_step(bench: Bench) -> None:
    file = bench.cwd / "AGENTS.md"
    file.write_text("Use tabs.", encoding="utf-8")

    async def change(args: dict[str, Any], ctx: Any) -> Outcome:
        file.write_text("Use spaces.", encoding="utf-8")
        return Outcome(content=(Text("done"),))

    bench.tool("change", change)
    bench.say(calls(("c1", "change")), text("I see."))
    async with bench.running() as session:
        await bench.prompt(session)
        assert ["Use spaces." in said for said in instructed(session)] == [False, True]
        assert "Use spaces." in bench.model.requests[1].messages[-1].text


def test_instructions_elsewhere_are_not_the_project_s(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.write_text("Secret.", encoding="utf-8")
    (project / "AGENTS.md").symlink_to(outside)
    assert told(project) is None
    (project / "real.md").write_text("Use tabs.", encoding="utf-8")
    (project / "AGENTS.md").unlink()
    (project / "AGENTS.md").symlink_to("real.md")
    assert told(project) is not None
