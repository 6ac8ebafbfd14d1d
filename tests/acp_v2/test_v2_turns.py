"""Prompts, states and cancelling in version 2."""

from acp_bench import fail, forever, say, use
import anyio
import pytest
from v2_bench import Bench, Editor

from dsh_acp.wire.frames import RpcError


async def test_a_prompt_is_received_in_its_place_and_ends_idle(bench: Bench) -> None:
    bench.script(say("Hel", "lo", thought="Hmm"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        assert await editor.prompt(session, "hi") == {
            "sessionUpdate": "state_update",
            "state": "idle",
            "background": [],
            "stopReason": "end_turn",
        }
        kinds = [kind for kind in editor.kinds()[2:] if kind != "session_info_update"]
        assert kinds[:3] == ["state_update", "user_message", "response"]
        assert kinds[-1] == "state_update"
        assert editor.view.text("user_message") == ["hi"]
        assert editor.view.text("agent_thought") == ["Hmm"]
        assert editor.view.text("agent_message") == ["Hello"]
        assert ("user_message", editor.message_id) in editor.view.messages
        assert editor.state_names() == ["running", "idle"]


async def test_queued_prompts_are_received_when_their_turn_comes(bench: Bench) -> None:
    gate = anyio.Event()
    bench.script([gate.wait, *say("one")], say("two"), say("three"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        ids = [editor.begin(session, text) for text in ("1", "2", "3")]
        await anyio.wait_all_tasks_blocked()
        answered = [frame["id"] for frame in editor.frames if "result" in frame][2:]
        assert answered == ids[:1]
        assert editor.pending() == [["2", "3"]] or editor.pending()[-1] == ["2", "3"]
        gate.set()
        for id in ids:
            assert (await editor.response(id))["result"]["messageId"]
        await editor.until(lambda: len(editor.states()) == 6)
        assert editor.view.text("user_message") == ["1", "2", "3"]
        assert editor.view.text("agent_message") == ["one", "two", "three"]
        assert editor.pending()[-1] == []
    assert bench.model.seen == ["1", "2", "3"]


async def test_a_failed_turn_ends_idle_with_its_error(bench: Bench) -> None:
    bench.script(fail("BAD_REQUEST", "no such model"))
    async with bench.editor() as editor:
        await editor.initialize()
        ended = await editor.prompt(await editor.new(), "hi")
        assert ended["stopReason"] == "error"
        assert "no such model" in ended["error"]["message"]


@pytest.mark.parametrize("phase", ["before a byte", "mid-text", "tool", "permission"])
async def test_cancelling_ends_idle_and_the_next_prompt_works(bench: Bench, phase: str) -> None:
    match phase:
        case "before a byte":
            bench.script([forever])
        case "mid-text":
            bench.script([*say("partial")[:2], forever])
        case "tool":
            bench.options["permission"] = "full-access"
            bench.script(use(("c1", "bash", {"command": "sleep 30", "description": "Sleep"})))
        case _:
            bench.script(use(("c1", "bash", {"command": "touch x", "description": "Touch"})))
    bench.script(say("fresh"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        id = editor.begin(session, "go")
        await _reached(editor, phase)
        editor.notify("session/cancel", sessionId=session)
        assert (await editor.idle())["stopReason"] == "cancelled"
        assert "result" in await editor.response(id)
        if phase in ("tool", "permission"):
            assert editor.view.calls["c1"]["status"] == "cancelled"
        count = len(editor.states())
        await anyio.wait_all_tasks_blocked()
        assert len(editor.states()) == count
        assert (await editor.prompt(session, "again"))["stopReason"] == "end_turn"


async def _reached(editor: Editor, phase: str) -> None:
    match phase:
        case "before a byte":
            await editor.until(lambda: editor.bench.model.requests)
        case "mid-text":
            await editor.until(lambda: editor.view.text("agent_message"))
        case "tool":
            await editor.until(
                lambda: editor.view.calls.get("c1", {}).get("status") == "in_progress"
            )
        case _:
            await editor.until(lambda: editor.asked("session/request_permission"))


async def test_cancelling_takes_back_prompts_that_wait(bench: Bench) -> None:
    bench.script([forever])
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        first, second = editor.begin(session, "1"), editor.begin(session, "2")
        await editor.until(lambda: bench.model.requests)
        editor.notify("session/cancel", sessionId=session)
        assert (await editor.response(second))["error"]["code"] == -32800
        assert "result" in await editor.response(first)
        assert (await editor.idle())["stopReason"] == "cancelled"
        assert editor.view.text("user_message") == ["1"]


async def test_one_waiting_prompt_can_be_cancelled_by_its_request(bench: Bench) -> None:
    gate = anyio.Event()
    bench.script([gate.wait, *say("one")])
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        editor.begin(session, "1")
        second = editor.begin(session, "2")
        await editor.until(lambda: editor.pending())
        editor.notify("$/cancel_request", requestId=second)
        assert (await editor.response(second))["error"]["code"] == -32800
        gate.set()
        assert (await editor.idle())["stopReason"] == "end_turn"
        assert editor.pending() == [["2"], []]


async def test_a_prompt_can_steer_the_running_turn(bench: Bench) -> None:
    gate = anyio.Event()
    bench.script([gate.wait, *say("one")], say("two"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        editor.begin(session, "1")
        await editor.until(lambda: bench.model.requests)
        second = editor.begin(session, "2", _meta={"dsh-acp": {"steer": True}})
        await editor.until(lambda: editor.updates("_pending_update"))
        (waits,) = editor.updates("_pending_update")[0]["pending"]
        assert waits["target"] == "next_step"
        gate.set()
        assert (await editor.response(second))["result"]["messageId"] == waits["messageId"]
        assert (await editor.idle())["stopReason"] == "end_turn"
        assert editor.state_names() == ["running", "idle"]
        order = [text for kind, text in _told(editor)]
        assert order == ["1", "one", "2", "two"]


def _told(editor: Editor) -> list[tuple[str, str]]:
    return [(kind, content[0]["text"]) for (kind, _), content in editor.view.messages.items()]


async def test_waiting_input_can_be_listed_edited_withdrawn_and_made_to_steer(
    bench: Bench,
) -> None:
    gate = anyio.Event()
    bench.script([gate.wait, *say("one")], say("more"), say("two"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        ids = [editor.begin(session, text) for text in ("1", "2", "3", "4")]
        await editor.until(lambda: editor.pending() and editor.pending()[-1] == ["2", "3", "4"])
        listed = (await editor.call("_session/pending", sessionId=session))["pending"]
        second, third, fourth = [item["messageId"] for item in listed]
        about = {"sessionId": session}
        await editor.call(
            "_session/edit", **about, messageId=second, prompt=[{"type": "text", "text": "two!"}]
        )
        await editor.call("_session/withdraw", **about, messageId=third)
        assert (await editor.response(ids[2]))["error"]["code"] == -32800
        await editor.call("_session/steer", **about, messageId=fourth)
        await editor.until(lambda: editor.pending()[-1] == ["4", "two!"])
        for method in ("_session/withdraw", "_session/steer"):
            with pytest.raises(RpcError) as caught:
                await editor.call(method, **about, messageId=third)
            assert caught.value.code == -32602
        gate.set()
        assert (await editor.response(ids[3]))["result"] == {"messageId": fourth}
        assert (await editor.response(ids[1]))["result"] == {"messageId": second}
        await editor.until(lambda: editor.state_names() == ["running", "idle"] * 2)
        assert editor.view.text("user_message") == ["1", "4", "two!"]
    assert bench.model.seen == ["1", "4", "two!"]


async def test_a_local_command_has_the_states_of_a_turn(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        assert (await editor.prompt(session, "/status"))["stopReason"] == "end_turn"
        assert editor.view.text("user_message") == ["/status"]
        assert "Session:" in editor.view.text("agent_message")[0]
        assert ("user_message", editor.message_id) in editor.view.messages
        assert (await editor.prompt(session, "/nonsense"))["stopReason"] == "end_turn"
        assert editor.view.text("user_message")[1] == "/nonsense"
        assert editor.state_names() == ["running", "idle"] * 2


async def test_a_command_that_stands_for_a_prompt_is_one_piece_of_work(bench: Bench) -> None:
    bench.script(say("done"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "/init")
        assert editor.state_names() == ["running", "idle"]
        assert editor.view.text("user_message") == ["/init"]


async def test_a_prompt_that_cannot_be_read_is_refused_without_a_state(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        for prompt in (
            [],
            [{"type": "audio", "data": "%%%", "mimeType": "audio/wav"}],
            [{"type": "_x"}],
        ):
            frame = await editor.response(editor.begin(session, prompt))
            assert frame["error"]["code"] == -32602
        frame = await editor.response(editor.begin("nope", "hi"))
        assert frame["error"]["code"] == -32002
        assert frame["error"]["data"] == {"sessionId": "nope"}
        assert editor.states() == []


async def test_closing_says_how_the_work_ended_before_it_answers(bench: Bench) -> None:
    bench.script([forever])
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        first, second = editor.begin(session, "1"), editor.begin(session, "2")
        await editor.until(lambda: bench.model.requests)
        closing = editor.start("session/close", sessionId=session)
        assert (await editor.response(closing))["result"] == {}
        assert editor.states()[-1]["stopReason"] == "cancelled"
        assert (await editor.response(second))["error"]["code"] == -32800
        assert "result" in await editor.response(first)
        assert editor.frames[-1].get("id") == closing
        assert await editor.call("session/close", sessionId=session) == {}
        with pytest.raises(RpcError) as caught:
            await editor.call("session/prompt", sessionId=session, prompt=[{"type": "text"}])
        assert caught.value.code == -32002
