from typing import Any

from acp_bench import Bench, Editor, say, use
import anyio
import pytest

from dsh_acp.acp.slash import recognise
from dsh_acp.wire.frames import RpcError


def current(options: list[dict[str, Any]]) -> dict[str, str]:
    return {option["id"]: option["currentValue"] for option in options}


def values(option: dict[str, Any]) -> list[str]:
    found: list[str] = []
    for item in option["options"]:
        found += [x["value"] for x in item["options"]] if "group" in item else [item["value"]]
    return found


async def test_a_new_session_offers_mode_model_and_thinking(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        result = await editor.call("session/new", cwd=str(bench.cwd), mcpServers=[])
        options = result["configOptions"]
        assert [option["category"] for option in options] == ["mode", "model", "thought_level"]
        assert current(options) == {"mode": "ask", "model": "fake/one", "thought_level": ""}
        assert all(option["currentValue"] in values(option) for option in options)
        assert result["modes"]["currentModeId"] == "ask"
        assert [mode["id"] for mode in result["modes"]["availableModes"]] == values(options[0])


@pytest.mark.parametrize("route", ["set_mode", "set_config_option"])
async def test_both_routes_to_a_mode_tell_both_kinds_of_client(bench: Bench, route: str) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await anyio.wait_all_tasks_blocked()
        if route == "set_mode":
            result = await editor.call("session/set_mode", sessionId=session, modeId="plan")
            assert result == {}
        else:
            result = await editor.call(
                "session/set_config_option", sessionId=session, configId="mode", value="plan"
            )
            assert current(result["configOptions"])["mode"] == "plan"
        assert editor.updates("current_mode_update")[-1]["currentModeId"] == "plan"
        update = editor.updates("config_option_update")[-1]
        assert current(update["configOptions"])["mode"] == "plan"
        assert editor.kinds()[-1] == "response"


async def test_a_mode_holds_from_the_next_prompt_on_and_after_a_restart(bench: Bench) -> None:
    bench.script(use(("c1", "bash", {"command": "touch x", "description": "Touch"})), say("done"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.call("session/set_mode", sessionId=session, modeId="full-access")
        await editor.prompt(session, "go")
        assert editor.asked("session/request_permission") == []
    assert (bench.cwd / "x").exists()
    async with bench.editor() as editor:
        await editor.initialize()
        result = await editor.call("session/load", sessionId=session, cwd=str(bench.cwd))
        assert result["modes"]["currentModeId"] == "full-access"
        assert current(result["configOptions"])["mode"] == "full-access"


async def test_modes_can_change_while_a_turn_runs(bench: Bench) -> None:
    gate = anyio.Event()
    bench.script(
        [gate.wait, *use(("c1", "bash", {"command": "touch x", "description": "T"}))], say("ok")
    )
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        id = editor.start(
            "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}]
        )
        await editor.until(lambda: bench.model.requests)
        await editor.call("session/set_mode", sessionId=session, modeId="full-access")
        gate.set()
        await editor.response(id)
        assert editor.asked("session/request_permission") == []
        assert len(editor.updates("current_mode_update")) == 1


async def test_a_model_and_an_effort_hold_for_the_next_request(bench: Bench) -> None:
    bench.script(say("x"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        for option, value in (("model", "fake/two"), ("thought_level", "high")):
            result = await editor.call(
                "session/set_config_option", sessionId=session, configId=option, value=value
            )
            assert current(result["configOptions"])[option] == value
            assert len(result["configOptions"]) == 3
        await editor.prompt(session, "go")
        config = bench.model.requests[0].config
        assert (config.model, config.reasoning_effort) == ("two", "high")
        result = await editor.call(
            "session/set_config_option", sessionId=session, configId="thought_level", value=""
        )
        assert current(result["configOptions"])["thought_level"] == ""


async def test_a_model_that_is_not_listed_stays_selectable(bench: Bench) -> None:
    bench.options["model"] = "fake/hidden"
    async with bench.editor() as editor:
        await editor.initialize()
        result = await editor.call("session/new", cwd=str(bench.cwd), mcpServers=[])
        model = next(option for option in result["configOptions"] if option["id"] == "model")
        assert model["currentValue"] == "fake/hidden" and "fake/hidden" in values(model)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/set_config_option", {"configId": "timeout", "value": "120"}),
        ("session/set_config_option", {"configId": "mode", "value": "nope"}),
        ("session/set_config_option", {"configId": "mode", "value": True, "type": "boolean"}),
        ("session/set_config_option", {"configId": "model"}),
        ("session/set_config_option", {"configId": "thought_level", "value": "enormous"}),
        ("session/set_mode", {"modeId": "nope"}),
    ],
)
async def test_a_bad_choice_is_refused_with_the_allowed_ones(
    bench: Bench, method: str, params: dict[str, Any]
) -> None:
    bench.script(say("x"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        with pytest.raises(RpcError) as caught:
            await editor.call(method, sessionId=session, **params)
        assert caught.value.code == -32602
        assert await editor.prompt(session, "hi") == {"stopReason": "end_turn"}
        assert editor.updates("current_mode_update") == []


async def test_discovered_models_complete_the_picker_of_a_fresh_session(bench: Bench) -> None:
    async def discover() -> Any:
        bench.model.ids = ["one", "two", "three"]

    bench.model.discover = discover  # type: ignore[method-assign]
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.new()
        await editor.until(lambda: editor.updates("config_option_update"))
        options = editor.updates("config_option_update")[0]["configOptions"]
        assert "fake/three" in values(options[1])


# ---------------------------------------------------------------- slash commands


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/compact", ("compact", "")),
        ("  /compact focus on tests \n", ("compact", "focus on tests")),
        ("/plan\nmany\nlines", ("plan", "many\nlines")),
        ("/etc/hosts is odd", None),
        ("/", None),
        ("/ compact", None),
        ("say /compact", None),
        ("/Compact", None),
        ("/a.b", None),
    ],
)
def test_commands_are_recognised(text: str, found: tuple[str, str] | None) -> None:
    assert recognise(text) == found


async def test_a_command_answers_without_the_model(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        prompt = [
            {"type": "text", "text": " /help "},
            {"type": "resource_link", "name": "x", "uri": "file:///x"},
        ]
        assert await editor.prompt(session, prompt) == {"stopReason": "end_turn"}
        assert "/compact" in editor.said()
        assert await editor.prompt(session, "/unknown-thing") == {"stopReason": "end_turn"}
        assert "unknown command: /unknown-thing" in editor.said()
    assert bench.model.requests == []


async def test_compacting_answers_and_reports_the_new_usage(bench: Bench) -> None:
    bench.script(say("x" * 4000), say("y" * 4000))
    async with bench.editor() as editor:
        await editor.initialize(session={"compaction": {}})
        session = await editor.new()
        await editor.prompt(session, "one " * 500)
        await editor.prompt(session, "two " * 500)
        before = editor.updates("usage_update")[-1]["used"]
        assert await editor.prompt(session, "/compact") == {"stopReason": "end_turn"}
        states = [update["status"] for update in editor.updates("compaction_update")]
        assert states == ["in_progress", "completed"]
        used = [update["used"] for update in editor.updates("usage_update")]
        assert 0 < used[-1] < before
        assert used[-2] == before, "it is told once"
        assert editor.said().strip()


async def test_a_command_that_stands_for_a_prompt_is_sent_as_one(bench: Bench) -> None:
    folder = bench.cwd / ".agents/commands"
    folder.mkdir(parents=True)
    (folder / "review.md").write_text(
        "---\ndescription: Review it\n---\nReview $ARGUMENTS now", encoding="utf-8"
    )
    bench.script(say("reviewed"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        names = _offered(editor)
        assert "review" in names
        assert await editor.prompt(session, "/review a.py") == {"stopReason": "end_turn"}
        assert "Review a.py now" in bench.model.seen[0]
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.call("session/load", sessionId=session, cwd=str(bench.cwd))
        assert editor.said("user_message_chunk") == "/review a.py"


async def test_the_list_is_told_again_when_it_changes(bench: Bench) -> None:
    bench.script(say("x"), say("y"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "one")
        assert len(editor.updates("available_commands_update")) == 1
        folder = bench.cwd / ".agents/commands"
        folder.mkdir(parents=True)
        (folder / "late.md").write_text("Do it", encoding="utf-8")
        await editor.prompt(session, "two")
        assert "late" in _offered(editor)


def _offered(editor: Editor) -> list[str]:
    update = editor.updates("available_commands_update")[-1]
    return [command["name"] for command in update["availableCommands"]]


async def test_a_skill_is_offered_and_its_prompt_keeps_every_block(bench: Bench) -> None:
    folder = bench.cwd / ".agents/skills/deploy"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\ndescription: Deploys\n---\nDo it.", encoding="utf-8")
    bench.script(say("Deployed."))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        link = {"type": "resource_link", "uri": "file:///x/notes.txt", "name": "notes.txt"}
        await editor.prompt(session, [{"type": "text", "text": "/deploy now"}, link])
        (offered,) = editor.updates("available_commands_update")
        assert {"name": "deploy", "description": "Deploys"} in offered["availableCommands"]
        sent = bench.model.requests[0].messages
        assert "notes.txt" in sent[0].text and "/deploy now" in sent[0].text
        assert "Do it." in sent[-1].text
