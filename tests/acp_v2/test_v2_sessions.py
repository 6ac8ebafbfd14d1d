"""Sessions of version 2: opened, resumed, replayed, listed, configured, removed."""

from typing import Any

from acp_bench import fail, forever, say, use
import anyio
import pytest
import v2_bench
from v2_bench import Bench

from dsh_acp.wire.frames import RpcError

PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQ"
    "DwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
SOUND = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA=="


async def test_a_new_session_says_what_can_be_chosen_and_commanded(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        result = await editor.call("session/new", cwd=str(bench.cwd))
        options = {option["configId"]: option for option in result["configOptions"]}
        assert options["mode"]["category"] == "mode" and options["model"]["type"] == "select"
        commands = {command["name"]: command for command in result["availableCommands"]}
        assert commands["compact"]["type"] == "command"
        assert all(
            command["input"]["type"] == "text"
            for command in commands.values()
            if "input" in command
        )
        await anyio.wait_all_tasks_blocked()
        assert editor.kinds() == ["response", "response"]


async def test_an_option_is_chosen_by_its_id_and_every_option_answered(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        about: dict[str, Any] = {"sessionId": session, "configId": "mode"}
        result = await editor.call(
            "session/set_config_option", **about, type="id", value="full-access"
        )
        (mode,) = [each for each in result["configOptions"] if each["configId"] == "mode"]
        assert mode["currentValue"] == "full-access"
        (update,) = editor.updates("config_option_update")
        assert update["configOptions"] == result["configOptions"]
        assert editor.updates("current_mode_update") == []
        for wrong in (
            {"type": "boolean", "value": True},
            {"type": "_own", "value": "plan"},
            {"type": "id", "value": "nonsense"},
            {"type": "id", "value": 5},
            {"value": "plan"},
            {"type": "id", "value": "plan", "configId": "nope"},
        ):
            with pytest.raises(RpcError) as caught:
                await editor.call("session/set_config_option", **{**about, **wrong})
            assert caught.value.code == -32602, wrong


@pytest.mark.parametrize(
    "wrong",
    [
        {"mcpServers": [{"name": "x", "command": "/bin/x"}]},
        {"mcpServers": [{"type": "sse", "name": "x", "url": "http://x"}]},
        {"mcpServers": [{"type": "stdio", "name": "x", "command": "x"}]},
        {"mcpServers": [{"type": "stdio", "command": "/bin/x"}]},
        {"mcpServers": [{"type": "http", "name": "x"}]},
        {"mcpServers": [{"type": "http", "name": "x", "url": "x"}]},
        {"mcpServers": [{"type": "http", "name": "x", "url": "http://x", "headers": {"a": "b"}}]},
        {"mcpServers": [{"type": "stdio", "name": "x", "command": "/bin/x", "args": "y"}]},
        {"mcpServers": [{"type": "stdio", "name": "x", "command": "/bin/x", "env": {"A": "b"}}]},
        {"mcpServers": [{"type": "stdio", "name": "x", "command": "/x", "env": [{"name": "A"}]}]},
        {"mcpServers": [{"type": "stdio", "name": "", "command": "/bin/x"}]},
        {"mcpServers": [{"type": "stdio", "name": "x", "command": "/bin/x"}] * 2},
        {"mcpServers": {}},
        {"mcpServers": [5]},
        {"additionalDirectories": ["relative"]},
        {"cwd": "relative"},
        {"cwd": None},
    ],
)
async def test_params_that_do_not_fit_are_refused(bench: Bench, wrong: dict[str, Any]) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        with pytest.raises(RpcError) as caught:
            await editor.new(**wrong)
        assert caught.value.code == -32602


async def test_a_replay_shows_what_the_live_session_did(bench: Bench) -> None:
    path = bench.file("a.txt", "one\n")
    bench.model.vision = bench.model.audio = True
    bench.script(
        use(("c1", "read", {"file_path": str(path)}), before="I look."),
        say("It says ", "one.", thought="Hm"),
    )
    picture = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
    sound = {"type": "audio", "data": SOUND, "mimeType": "audio/wav"}
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, [{"type": "text", "text": "look"}, picture, sound])
        await editor.prompt(session, "/status")
        live = editor.view
    async with bench.editor() as editor:
        await editor.initialize()
        result = await editor.replay(session)
        assert result["configOptions"] and result["availableCommands"]
        assert editor.view.shown() == live.shown()
        assert {id: call["status"] for id, call in editor.view.calls.items()} == {"c1": "completed"}
        assert editor.view.calls["c1"]["content"] == live.calls["c1"]["content"]
        assert editor.state_names() == ["idle"] and "stopReason" not in editor.states()[0]
        kinds = editor.kinds()
        assert kinds[-2:] == ["state_update", "response"]
        count = len(editor.frames)
        await anyio.wait_all_tasks_blocked()
        assert len(editor.frames) == count


async def test_without_a_replay_only_the_state_comes(bench: Bench) -> None:
    bench.script(say("one"), say("two"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "hi")
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.resume(session)
        assert editor.kinds() == ["response", "state_update", "response"]
        assert (await editor.prompt(session, "more"))["stopReason"] == "end_turn"
        assert editor.view.text("agent_message") == ["two"]
    assert bench.model.seen == ["hi", "more"]


async def test_only_the_start_is_a_place_to_replay_from(bench: Bench) -> None:
    bench.script(say("one"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "hi")
        for wrong in ({"type": "_middle"}, {"type": "message", "messageId": "x"}, {}, "start"):
            with pytest.raises(RpcError) as caught:
                await editor.resume(session, replayFrom=wrong)
            assert caught.value.code == -32602
        with pytest.raises(RpcError) as caught:
            await editor.resume("nope")
        assert caught.value.code == -32002
        assert caught.value.data == {"sessionId": "nope"}


async def test_a_failure_of_an_earlier_life_is_told_in_words(bench: Bench) -> None:
    bench.script(fail("BAD_REQUEST", "no such model"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "hi")
        assert "no such model" in str(editor.updates("state_update")[-1]["error"])
        assert editor.updates("notice") == [], "it is said once"
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.replay(session)
        assert editor.updates("notice") == []
        assert "no such model" in editor.view.text("agent_message")[0]


async def test_a_session_that_works_can_be_watched_from_its_start(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    command = {"command": "echo begun; sleep 30", "description": "Wait"}
    bench.script(use(("c1", "bash", command)), say("done"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        editor.begin(session, "go")
        await editor.until(lambda: editor.view.terminals.get("c1", {}).get("shown"))
        editor.view = v2_bench.View()
        before = len(editor.frames)
        await editor.replay(session)
        assert editor.view.text("user_message") == ["go"]
        assert editor.status("c1") == "in_progress"
        assert editor.view.terminals["c1"]["shown"] == b"begun\n"
        assert editor.states()[-1]["state"] == "running"
        assert editor.frames[-2]["params"]["update"]["state"] == "running"
        assert len(editor.frames) > before
        await editor.call("terminal/cancel", sessionId=session, terminalId="c1")
        assert (await editor.idle())["stopReason"] == "end_turn"
        assert editor.view.text("agent_message") == ["done"]


async def test_a_session_that_waits_for_the_person_says_so_to_who_joins(bench: Bench) -> None:
    bench.script(use(("c1", "bash", {"command": "touch x", "description": "Touch"})))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        editor.begin(session, "go")
        await editor.until(lambda: editor.asked("session/request_permission"))
        editor.begin(session, "later")
        await editor.until(editor.pending)
        await editor.replay(session)
        assert editor.states()[-1]["state"] == "requires_action"
        assert editor.pending()[-1] == ["later"]
        editor.notify("session/cancel", sessionId=session)
        await editor.idle()


async def test_sessions_are_listed_by_folder_and_deleted_for_good(bench: Bench) -> None:
    bench.script(say("one"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "hi")
        (listed,) = (await editor.call("session/list", cwd=str(bench.cwd)))["sessions"]
        assert listed["sessionId"] == session and listed["cwd"] == str(bench.cwd)
        assert (await editor.call("session/list", cwd=str(bench.root)))["sessions"] == []
        assert await editor.call("session/delete", sessionId=session) == {}
        assert (await editor.call("session/list"))["sessions"] == []
        assert await editor.call("session/delete", sessionId="never") == {}


async def test_directories_that_are_not_named_again_are_no_longer_roots(bench: Bench) -> None:
    other = bench.root / "other"
    other.mkdir()
    bench.script(say("one"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new(additionalDirectories=[str(other)])
        await editor.prompt(session, "hi")
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.resume(session)
        live = editor.bridge.sessions.live[session].session
        assert live.parts.options.additional_directories == ()


@pytest.mark.parametrize("first", [1, 2])
async def test_what_one_version_wrote_the_other_resumes(bench: Bench, first: int) -> None:
    bench.script(say("one"), say("two"))
    open_1: dict[str, Any] = {"cwd": str(bench.cwd), "mcpServers": []}
    async with bench.editor() as editor:
        if first == 1:
            await editor.call("initialize", protocolVersion=1)
            session = (await editor.call("session/new", **open_1))["sessionId"]
            prompt = [{"type": "text", "text": "hi"}]
            result = await editor.call("session/prompt", sessionId=session, prompt=prompt)
            assert result == {"stopReason": "end_turn"}
        else:
            await editor.initialize()
            session = await editor.new()
            await editor.prompt(session, "hi")
    async with bench.editor() as editor:
        if first == 1:
            await editor.initialize()
            await editor.replay(session)
            assert editor.view.text("user_message") == ["hi"]
            assert editor.view.text("agent_message") == ["one"]
            await editor.prompt(session, "more")
        else:
            await editor.call("initialize", protocolVersion=1)
            await editor.call("session/load", sessionId=session, **open_1)
            assert editor.said("user_message_chunk") == "hi" and editor.said() == "one"
            prompt = [{"type": "text", "text": "more"}]
            await editor.call("session/prompt", sessionId=session, prompt=prompt)
    assert bench.model.seen == ["hi", "more"]


async def test_compacting_is_told_as_an_entity_of_its_own(bench: Bench) -> None:
    bench.script(say("one"), say("two"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "hi")
        await editor.prompt(session, "more")
        await editor.prompt(session, "/compact")
        statuses = [update["status"] for update in editor.updates("compaction_update")]
        assert statuses == ["in_progress", "completed"] or editor.view.text("agent_message")[-1]
        assert editor.states()[-1]["stopReason"] == "end_turn"


async def test_a_command_can_be_cancelled_while_it_works(bench: Bench) -> None:
    bench.script(say("one"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "hi")
        bench.script([forever])
        editor.begin(session, "work")
        await editor.until(lambda: len(bench.model.seen) == 2)
        id = editor.begin(session, "/compact")
        await editor.response(id)
        editor.notify("session/cancel", sessionId=session)
        assert (await editor.idle())["state"] == "idle"
