from acp_bench import Bench, Editor, fail, forever, say, use
import anyio
import pytest

from dsh_acp.wire.frames import RpcError


async def test_a_prompt_streams_and_is_answered_last(bench: Bench) -> None:
    bench.script(say("Hel", "lo", thought="Hmm"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        assert await editor.prompt(session, "hi") == {"stopReason": "end_turn"}
        assert editor.said() == "Hello"
        assert editor.said("agent_thought_chunk") == "Hmm"
        assert editor.said("user_message_chunk") == ""
        assert editor.kinds().index("usage_update") < len(editor.kinds()) - 1
        kinds = [kind for kind in editor.kinds() if kind != "session_info_update"]
        assert kinds[-1] == "response"
    assert bench.model.seen == ["hi"]


async def test_the_answer_to_new_precedes_everything_about_the_session(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await anyio.wait_all_tasks_blocked()
        assert editor.kinds() == ["response", "response", "available_commands_update"]
        assert editor.frames[1]["result"]["sessionId"] == session
        (update,) = editor.updates("available_commands_update")
        names = [command["name"] for command in update["availableCommands"]]
        assert "compact" in names and "help" in names


async def test_a_turn_reports_usage_and_a_title(bench: Bench) -> None:
    bench.script(say("one"), say("two"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "Fix the bug in the parser please and thank you")
        await editor.prompt(session, "again")
        used = editor.updates("usage_update")
        assert [update["used"] for update in used] == [1550, 1550]
        assert used[0]["size"] == 100_000
        assert used[1]["cost"]["currency"] == "USD"
        assert used[1]["cost"]["amount"] == pytest.approx(2 * (0.001 + 0.00025 + 0.0001))
        (title, *_) = editor.updates("session_info_update")
        assert title["title"].startswith("Fix the bug")
        assert title["updatedAt"].endswith("Z")


async def test_an_unknown_window_is_not_invented(bench: Bench) -> None:
    bench.model.window = None
    bench.script(say("one"))
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.prompt(await editor.new(), "hi")
        assert editor.updates("usage_update") == []


async def test_messages_have_ids_of_their_own(bench: Bench) -> None:
    bench.file("a.txt", "x\n")
    path = str(bench.cwd / "a.txt")
    bench.script(
        use(("c1", "read", {"file_path": path}), before="A"),
        say("B", thought="T"),
        say("C"),
    )
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "one")
        await editor.prompt(session, "two")
        ids = {
            update["content"]["text"]: update["messageId"]
            for kind in ("agent_message_chunk", "agent_thought_chunk")
            for update in editor.updates(kind)
        }
        assert list(ids) == ["A", "B", "C", "T"] and len(set(ids.values())) == 4


async def test_queued_prompts_run_one_after_the_other(bench: Bench) -> None:
    gate = anyio.Event()
    bench.script([gate.wait, *say("one")], say("two"), say("three"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        ids = [
            editor.start(
                "session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}]
            )
            for text in ("1", "2", "3")
        ]
        await anyio.wait_all_tasks_blocked()
        gate.set()
        for id in ids:
            assert (await editor.response(id))["result"] == {"stopReason": "end_turn"}
    assert bench.model.seen == ["1", "2", "3"]
    order = [
        frame["id"] if "id" in frame else frame["params"]["update"]["content"]["text"]
        for frame in editor.frames
        if frame.get("id") in ids
        or frame.get("params", {}).get("update", {}).get("sessionUpdate") == "agent_message_chunk"
    ]
    assert order == ["one", ids[0], "two", ids[1], "three", ids[2]]


async def test_a_prompt_can_steer_the_running_turn(bench: Bench) -> None:
    bench.options["prompt_while_running"] = "steer"
    gate = anyio.Event()
    bench.script([gate.wait, *say("one")], say("two"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        first = editor.start("session/prompt", sessionId=session, prompt=[_text("1")])
        await anyio.wait_all_tasks_blocked()
        second = editor.start("session/prompt", sessionId=session, prompt=[_text("2")])
        await anyio.wait_all_tasks_blocked()
        gate.set()
        assert (await editor.response(first))["result"] == {"stopReason": "end_turn"}
        assert (await editor.response(second))["result"] == {"stopReason": "end_turn"}
        assert editor.said() == "onetwo"
    assert len({request.session_id for request in bench.model.requests}) == 1


@pytest.mark.parametrize("phase", ["before a byte", "mid-text", "tool", "permission", "late"])
async def test_cancel_answers_cancelled_and_the_next_prompt_works(bench: Bench, phase: str) -> None:
    match phase:
        case "before a byte":
            bench.script([forever])
        case "mid-text":
            bench.script([*say("partial")[:2], forever])
        case "tool":
            bench.options["permission"] = "full-access"
            bench.script(use(("c1", "bash", {"command": "sleep 30", "description": "Sleep"})))
        case "permission":
            bench.script(use(("c1", "bash", {"command": "touch x", "description": "Touch"})))
        case _:
            bench.script(say("done"))
    bench.script(say("fresh"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        id = editor.start("session/prompt", sessionId=session, prompt=[_text("go")])
        await _reached(editor, phase, id)
        before = len(editor.frames)
        editor.notify("session/cancel", sessionId=session)
        result = (await editor.response(id))["result"]
        expected = "end_turn" if phase == "late" else "cancelled"
        assert result == {"stopReason": expected}
        last = editor.frames.index(
            next(f for f in editor.frames if f.get("id") == id and "result" in f)
        )
        await anyio.wait_all_tasks_blocked()
        later = editor.kinds()[last + 1 :]
        assert later == ([] if phase != "late" else ["session_info_update"])
        assert last >= before or phase == "late"
        statuses = {
            update["toolCallId"]: update["status"]
            for update in editor.updates("tool_call_update")
            if "status" in update
        }
        assert set(statuses.values()) <= {"failed"}
        assert await editor.prompt(session, "again") == {"stopReason": "end_turn"}
        assert editor.said().endswith("fresh")
    assert not (bench.cwd / "x").exists()


async def _reached(editor: Editor, phase: str, id: int) -> None:
    match phase:
        case "before a byte":
            await editor.until(lambda: editor.bench.model.requests)
        case "mid-text":
            await editor.until(lambda: editor.said() == "partial")
        case "tool":
            await editor.until(
                lambda: any(
                    u.get("status") == "in_progress" for u in editor.updates("tool_call_update")
                )
            )
        case "permission":
            await editor.until(lambda: editor.asked("session/request_permission"))
        case _:
            await editor.response(id)


async def test_cancel_answers_queued_prompts_too(bench: Bench) -> None:
    bench.script([forever])
    bench.script(say("next"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        ids = [
            editor.start("session/prompt", sessionId=session, prompt=[_text(text)])
            for text in ("1", "2", "3")
        ]
        await editor.until(lambda: bench.model.requests)
        editor.notify("session/cancel", sessionId=session)
        for id in ids:
            assert (await editor.response(id))["result"] == {"stopReason": "cancelled"}
        assert await editor.prompt(session, "4") == {"stopReason": "end_turn"}
    assert bench.model.seen == ["1", "4"]


async def test_one_request_can_be_cancelled_alone(bench: Bench) -> None:
    bench.script([forever])
    bench.script(say("three"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        ids = [
            editor.start("session/prompt", sessionId=session, prompt=[_text(text)])
            for text in ("1", "2", "3")
        ]
        await editor.until(lambda: bench.model.requests)
        editor.notify("$/cancel_request", requestId=ids[1])
        assert (await editor.response(ids[1]))["result"] == {"stopReason": "cancelled"}
        editor.notify("$/cancel_request", requestId=ids[0])
        assert (await editor.response(ids[0]))["result"] == {"stopReason": "cancelled"}
        assert (await editor.response(ids[2]))["result"] == {"stopReason": "end_turn"}
    assert bench.model.seen == ["1", "3"]


async def test_a_cancel_for_nothing_changes_nothing(bench: Bench) -> None:
    bench.script(say("hello"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        editor.notify("session/cancel", sessionId="nope")
        editor.notify("session/cancel", sessionId=session)
        editor.send({"method": "session/cancel", "params": [1, 2]}, {"method": "session/cancel"})
        assert await editor.prompt(session, "hi") == {"stopReason": "end_turn"}


async def test_a_retry_is_told_and_the_good_answer_counts(bench: Bench) -> None:
    bench.script(fail("SERVER", "overloaded", "bad start"), say("good"))
    async with bench.editor() as editor:
        await editor.initialize()
        assert await editor.prompt(await editor.new(), "hi") == {"stopReason": "end_turn"}
        assert (
            "[Previous model attempt discarded; retrying 1/5 in 1ms: overloaded]" in editor.said()
        )
        ids = {
            update["content"]["text"]: update["messageId"]
            for update in editor.updates("agent_message_chunk")
        }
        assert ids["bad start"] != ids["good"]


async def test_notices_replace_marker_texts_where_the_client_shows_them(bench: Bench) -> None:
    bench.script(fail("SERVER", "overloaded"), say("good"))
    async with bench.editor() as editor:
        await editor.initialize(session={"notices": {}})
        await editor.prompt(await editor.new(), "hi")
        (notice,) = editor.updates("notice")
        assert notice["severity"] == "warning" and "overloaded" in notice["description"]
        assert editor.said() == "good"


@pytest.mark.parametrize("before", [(), ("a start",)], ids=["silent", "in its middle"])
async def test_why_the_model_failed_is_said_once(bench: Bench, before: tuple[str, ...]) -> None:
    why = "The account has no balance."
    bench.script(fail("QUOTA", why, *before), say("paid"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        with pytest.raises(RpcError) as caught:
            await editor.prompt(session, "hi")
        assert caught.value.message == why
        discarded = "\n\n[Model attempt failed; the partial output above is discarded]\n\n"
        assert editor.said() == ("a start" + discarded if before else "")
        await editor.prompt(session, "again")
        since = len(editor.frames)
        await editor.call("session/close", sessionId=session)
        # A history has no answers to prompts in it, so that the words are said there.
        await editor.call("session/load", sessionId=session, cwd=str(bench.cwd), mcpServers=[])
        told = [f for f in editor.frames[since:] if why in str(f)]
        assert len(told) == 1


async def test_a_refusal_by_the_filter_is_said_where_the_answer_was(bench: Bench) -> None:
    bench.script(fail("CONTENT_FILTER", "The filter stopped it. Rephrase the request."))
    async with bench.editor() as editor:
        await editor.initialize()
        assert await editor.prompt(await editor.new(), "hi") == {"stopReason": "refusal"}
        assert editor.said().count("The filter stopped it. Rephrase the request.") == 1


async def test_a_failed_turn_is_an_error_with_a_sentence_and_the_session_lives(
    bench: Bench,
) -> None:
    bench.script(fail("QUOTA", "The account has no balance."), say("paid"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        with pytest.raises(RpcError) as caught:
            await editor.prompt(session, "hi")
        assert caught.value.code == -32603
        assert caught.value.message == "The account has no balance."
        assert caught.value.data["code"] == "QUOTA"
        assert await editor.prompt(session, "hi") == {"stopReason": "end_turn"}


async def test_prompts_behind_a_failed_turn_still_run(bench: Bench) -> None:
    gate = anyio.Event()
    bench.script([gate.wait, *fail("QUOTA", "no")], say("two"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        first = editor.start("session/prompt", sessionId=session, prompt=[_text("1")])
        second = editor.start("session/prompt", sessionId=session, prompt=[_text("2")])
        await anyio.wait_all_tasks_blocked()
        gate.set()
        assert "error" in await editor.response(first)
        assert (await editor.response(second))["result"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize(("reply", "code"), [(fail("AUTH", "The key was refused."), -32000)])
async def test_a_refused_key_asks_for_sign_in(bench: Bench, reply: list, code: int) -> None:  # type: ignore[type-arg]
    bench.script(reply)
    async with bench.editor() as editor:
        await editor.initialize()
        with pytest.raises(RpcError) as caught:
            await editor.prompt(await editor.new(), "hi")
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (say("cut", finish="max-tokens"), "max_tokens"),
        (fail("CONTENT_FILTER", "refused"), "refusal"),
    ],
)
async def test_other_stop_reasons(bench: Bench, reply: list, reason: str) -> None:  # type: ignore[type-arg]
    bench.script(reply)
    async with bench.editor() as editor:
        await editor.initialize()
        assert await editor.prompt(await editor.new(), "hi") == {"stopReason": reason}


async def test_a_turn_has_a_bounded_number_of_requests(bench: Bench) -> None:
    bench.options["max_requests_per_turn"] = 2
    bench.file("a.txt", "x\n")
    call = {"file_path": str(bench.cwd / "a.txt")}
    bench.script(use(("c1", "read", call)), use(("c2", "read", call)))
    async with bench.editor() as editor:
        await editor.initialize()
        result = await editor.prompt(await editor.new(), "hi")
        assert result == {"stopReason": "max_turn_requests"}


async def test_two_sessions_do_not_mix(bench: Bench) -> None:
    gate = anyio.Event()
    bench.script([*say("A")[:2], gate.wait, *say("A")[2:]], say("B"))
    async with bench.editor() as editor:
        await editor.initialize()
        one, two = await editor.new(), await editor.new()
        assert one != two
        first = editor.start("session/prompt", sessionId=one, prompt=[_text("a")])
        await editor.until(lambda: editor.said() == "A")
        assert await editor.prompt(two, "b") == {"stopReason": "end_turn"}
        await editor.call("session/close", sessionId=two)
        gate.set()
        assert (await editor.response(first))["result"] == {"stopReason": "end_turn"}
        texts = [
            (frame["params"]["sessionId"], frame["params"]["update"]["content"]["text"])
            for frame in editor.frames
            if frame.get("params", {}).get("update", {}).get("sessionUpdate")
            == "agent_message_chunk"
        ]
        assert texts == [(one, "A"), (two, "B")]


async def test_a_burst_of_tiny_deltas_becomes_few_frames_in_order(bench: Bench) -> None:
    letters = [chr(97 + n % 26) for n in range(5_000)]
    bench.script(say(*letters))
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.prompt(await editor.new(), "hi")
        assert editor.said() == "".join(letters)
        assert len(editor.updates("agent_message_chunk")) < 2_500


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
