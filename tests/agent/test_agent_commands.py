"""Slash commands: this program's and the project's."""

from pathlib import Path

from agent_bench import Bench, calls, text, types
import pytest

from dsh_acp.agent import command_files
from dsh_acp.log.plugin_payloads import CommandDone, CommandRun, SessionOptionsEvent


def write(root: Path, name: str, content: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


async def test_the_commands_are_listed_by_name_with_description_and_hint(bench: Bench) -> None:
    write(bench.cwd, ".agents/commands/review.md", "---\ndescription: Review it\n---\nReview $1")
    write(bench.cwd, ".claude/commands/Deploy.md", "Deploy the thing.\nMore.")
    write(bench.cwd, ".claude/commands/help.md", "Not this one.")
    write(bench.cwd, ".claude/commands/not a name.md", "Nor this one.")
    async with bench.running() as session:
        found = {info.name: info for info in session.commands.list()}
        assert list(found) == sorted(
            [
                "audit",
                "compact",
                "deploy",
                "fork",
                "help",
                "init",
                "model",
                "permissions",
                "plan",
                "review",
                "status",
            ]
        )
        assert found["review"].description == "Review it"
        assert found["deploy"].description == "Deploy the thing."
        assert found["help"].description == "List the commands"
        assert found["compact"].hint == "what to keep"


async def test_a_run_is_logged_with_its_arguments_and_its_answer(bench: Bench) -> None:
    async with bench.running() as session:
        result = await session.commands.run("permissions", " workspace-write")
        run, chosen, done = (e.payload for e in session.log.events())
        assert isinstance(chosen, SessionOptionsEvent)
        assert chosen.preset == session.preset
        assert isinstance(run, CommandRun) and isinstance(done, CommandDone)
        assert (run.name, run.args, run.source) == (
            "permissions",
            " workspace-write",
            {"kind": "user"},
        )
        assert (done.command_id, done.kind, done.text) == (run.command_id, "success", result.text)
        assert session.preset == "workspace-write"


async def test_an_unknown_command_says_which_there_are(bench: Bench) -> None:
    async with bench.running() as session:
        result = await session.commands.run("compcat")
        assert result.is_error
        assert result.text.startswith("unknown command: /compcat. There are: /audit, /compact")


async def test_a_failing_command_is_an_answer(bench: Bench) -> None:
    async with bench.running() as session:
        result = await session.commands.run("model", "nobody/x")
        assert result.is_error and "no provider named" in result.text
        assert list(session.log.events())[-1].payload.kind == "error"


async def test_plan_switches_the_mode_and_hands_the_wish_over_as_a_prompt(bench: Bench) -> None:
    bench.settings["permission"] = "workspace-write"
    async with bench.running() as session:
        result = await session.commands.run("plan", " how to test this")
        assert session.preset == "plan"
        assert result.prompt is not None and result.prompt.text == "how to test this"
        assert (await session.commands.run("plan", " off")).text == (
            "Plan mode off; permissions: workspace-write."
        )
        assert session.preset == "workspace-write"
        assert "off already" in (await session.commands.run("plan", "off")).text


async def test_a_project_command_becomes_a_prompt(bench: Bench) -> None:
    write(bench.cwd, ".agents/commands/fix.md", "Fix issue $1 with care: $ARGUMENTS")
    async with bench.running() as session:
        result = await session.commands.run("fix", " 12 'the parser'")
        assert result.prompt is not None
        assert result.prompt.text == "Fix issue 12 with care: 12 'the parser'"
        assert result.prompt.source == {"kind": "user"}


async def test_status_tells_model_permissions_tokens_and_cost(bench: Bench) -> None:
    bench.say(text("one"))
    async with bench.running() as session:
        await bench.prompt(session)
        words = (await session.commands.run("status")).text
        assert "fake/one" in words and "full-access" in words
        assert "Context: 15 tokens of 100,000" in words
        assert "Cost: 0.0000 USD" in words
        assert str(session.log.path) in words


async def test_audit_proves_every_request_of_the_session(bench: Bench) -> None:
    bench.tool("look")
    bench.say(calls(("c1", "look")), text("one"))
    async with bench.running() as session:
        await bench.prompt(session)
        result = await session.commands.run("audit")
        assert not result.is_error, result.text
        assert "Every one of 2 requests" in result.text
        assert "2 bodies were built again and match" in result.text


async def test_fork_leaves_this_conversation_as_it_is(bench: Bench) -> None:
    bench.say(text("one"))
    async with bench.running() as session:
        await bench.prompt(session)
        result = await session.commands.run("fork")
        assert not result.is_error, result.text
        id = result.text.split("`")[1]
        child = bench.store.read(id)
        assert child.header.parent_session == session.id
        assert child.messages() == session.log.messages()


async def test_init_asks_the_model_to_write_the_instructions(bench: Bench) -> None:
    async with bench.running() as session:
        result = await session.commands.run("init", " keep it short")
        assert result.prompt is not None
        assert "AGENTS.md" in result.prompt.text and result.prompt.text.endswith("keep it short")


async def test_compact_waits_for_nothing_and_says_when_a_turn_is_running(bench: Bench) -> None:
    async def compact() -> None:
        result = await session.commands.run("compact")
        assert result.is_error and "active work" in result.text

    bench.say([compact, *text("one")])
    async with bench.running() as session:
        await bench.prompt(session)
        assert types(session)[-1] == "turn/end"


async def test_models_and_commands_can_be_listed_in_the_conversation(bench: Bench) -> None:
    async with bench.running() as session:
        assert "`fake/two`" in (await session.commands.run("model")).text
        assert "`/compact what to keep`" in (await session.commands.run("help")).text
        assert "`plan`" in (await session.commands.run("permissions")).text
        chosen = (await session.commands.run("model", " fake/two high")).text
        assert chosen == "Model: fake/two (high), from the next request on."


async def test_remembered_answers_are_listed_and_forgotten(bench: Bench) -> None:
    bench.settings["permission"] = "ask"
    bench.person.answers = ["allow_always"]
    bench.tool("bash", effect="execute", scope="git status", command="git status")
    bench.say(calls(("c1", "bash")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert "- allow `bash`: git status" in (await session.commands.run("permissions")).text
        assert "Forgot 1" in (await session.commands.run("permissions", "reset")).text
        assert "Forgot 0" in (await session.commands.run("permissions", "reset")).text


@pytest.mark.parametrize(
    ("template", "args", "prompt"),
    [
        ("Do it", "", "Do it"),
        ("Do it", "now", "Do it\n\nnow"),
        ("Say $1 and $2.", "a", "Say a and ."),
        ("Say $1.", "'unbalanced", "Say 'unbalanced."),
        ("Costs $100", "x", "Costs x00"),
    ],
)
def test_a_template_is_filled_in(template: str, args: str, prompt: str) -> None:
    command = command_files.parse("c", template)
    assert command is not None and command.expand(args) == prompt


@pytest.mark.parametrize(
    ("content", "description", "template"),
    [
        ("\ufeff---\r\ndescription: 'Say hi'\r\n---\r\nHi!\r\n", "Say hi", "Hi!"),
        ("---\nno end", "---", "---\nno end"),
        ("# Title\n\nBody", "Title", "# Title\n\nBody"),
        ("---\nallowed-tools: x\n---\nBody", "Body", "Body"),
    ],
)
def test_a_file_is_read_with_or_without_frontmatter(
    content: str, description: str, template: str
) -> None:
    command = command_files.parse("c", content)
    assert command is not None
    assert (command.description, command.template) == (description, template)


def test_a_file_without_a_template_is_no_command() -> None:
    assert command_files.parse("c", "---\ndescription: x\n---\n") is None
