"""Calls, terminals, questions and plans in version 2."""

from typing import Any

from acp_bench import forever, say, use
import anyio
import pytest
from v2_bench import Bench, View

from dsh_acp.wire.frames import RpcError


def bash(command: str, id: str = "c1", **more: Any) -> tuple[str, str, dict[str, Any]]:
    return (id, "bash", {"command": command, "description": "Do it", **more})


async def test_a_command_runs_in_a_terminal_of_the_agent_s(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    bench.script(use(bash("printf 'one\\n'; printf 'two\\n' >&2; exit 3")), say("done"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "go")
        call, terminal = editor.view.calls["c1"], editor.view.terminals["c1"]
        assert call["name"] == "bash" and call["status"] == "failed"
        assert {"type": "terminal", "terminalId": "c1"} in call["content"]
        assert call["rawOutput"] == {"exitCode": 3}
        assert terminal["cwd"] == str(bench.cwd)
        assert terminal["exitStatus"] == {"exitCode": 3}
        assert sorted(terminal["shown"].split()) == [b"one", b"two"]
        assert call["capabilities"] == terminal["capabilities"] == {}
        assert editor.updates("terminal_output_chunk")
        first = next(u for u in editor.updates() if u.get("terminalId") == "c1")
        assert first["sessionUpdate"] == "terminal_update" and first["command"]


async def test_a_replay_brings_a_snapshot_of_each_terminal(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    bench.script(use(bash("echo hi")), say("done"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "go")
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.replay(session)
        assert not editor.updates("terminal_output_chunk")
        terminal = editor.view.terminals["c1"]
        assert terminal["shown"] == b"hi\n" and terminal["exitStatus"] == {"exitCode": 0}
        assert editor.view.calls["c1"]["status"] == "completed"


async def test_output_beyond_what_is_streamed_is_replaced_by_what_was_kept(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    bench.script(use(bash("head -c 400000 /dev/zero | tr '\\0' x; echo end")), say("done"))
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.prompt(await editor.new(), "go")
        terminal = editor.view.terminals["c1"]
        assert b"end" in terminal["shown"][-200:] and len(terminal["shown"]) < 200_000


async def test_one_running_call_can_be_stopped_and_the_turn_goes_on(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    bench.script(use(bash("sleep 30")), say("I see."))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        editor.begin(session, "go")
        await editor.until(lambda: editor.status("c1") == "in_progress")
        assert editor.view.calls["c1"]["capabilities"] == {"cancel": {}}
        about = {"sessionId": session, "toolCallId": "c1"}
        assert await editor.call("tool_call/cancel", **about) == {}
        assert (await editor.idle())["stopReason"] == "end_turn"
        assert editor.status("c1") == "cancelled"
        assert editor.view.terminals["c1"]["exitStatus"] == {}
        assert editor.view.text("agent_message") == ["I see."]
        with pytest.raises(RpcError) as caught:
            await editor.call("tool_call/cancel", **about)
        assert caught.value.code == -32602
    assert "the user stopped this call" in bench.told()


async def test_a_terminal_can_be_stopped_and_keeps_what_it_said(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    bench.script(use(bash("echo started; sleep 30")), say("I see."))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        editor.begin(session, "go")
        await editor.until(lambda: editor.view.terminals.get("c1", {}).get("shown"))
        about = {"sessionId": session, "terminalId": "c1"}
        assert await editor.call("terminal/cancel", **about) == {}
        assert (await editor.idle())["stopReason"] == "end_turn"
        terminal = editor.view.terminals["c1"]
        assert terminal["exitStatus"] == {"signal": "SIGTERM"}
        assert terminal["shown"] == b"started\n"
        with pytest.raises(RpcError) as caught:
            await editor.call("terminal/cancel", **about)
        assert caught.value.code == -32602
    assert "started\\n[killed by signal: SIGTERM]" in bench.told()


async def test_a_question_about_a_command_is_about_the_command(bench: Bench) -> None:
    bench.script(use(bash("touch x")), say("done"))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("allow-once")
        session = await editor.new()
        assert (await editor.prompt(session, "go"))["stopReason"] == "end_turn"
        (asked,) = editor.asked("session/request_permission")
        assert asked["title"] == "Run touch x"
        assert asked["subject"] == {
            "type": "command",
            "command": "touch x",
            "cwd": str(bench.cwd),
            "toolCallId": "c1",
            "terminalId": "c1",
        }
        assert asked["options"][0]["kind"] == "allow_once"
        assert editor.state_names() == ["running", "requires_action", "running", "idle"]
    assert (bench.cwd / "x").exists()


async def test_a_question_about_an_edit_shows_the_patch(bench: Bench) -> None:
    lines = "".join(f"{n}\n" for n in range(1, 21))
    path = bench.file("a.txt", lines)
    change = {"file_path": str(path), "old_string": "15\n", "new_string": "fifteen\n"}
    bench.script(use(("r", "read", {"file_path": str(path)})))
    bench.script(use(("c1", "edit", change)), say("done"))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("allow-once")
        await editor.prompt(await editor.new(), "go")
        (asked,) = editor.asked("session/request_permission")
        call = asked["subject"]["toolCall"]
        assert asked["title"] and call["toolCallId"] == "c1"
        for content in (call["content"], editor.view.calls["c1"]["content"]):
            (diff,) = [item for item in content if item["type"] == "diff"]
            assert diff["changes"] == [
                {"operation": "modify", "path": str(path), "fileType": "text"}
            ]
            assert "@@ -12,7 +12,7 @@" in diff["patch"]["text"]
            assert "-15\n+fifteen\n" in diff["patch"]["text"]


@pytest.mark.parametrize(
    "outcome",
    [
        {"outcome": "_never"},
        {"outcome": "selected", "optionId": "unknown"},
        {"outcome": "selected", "optionId": "reject-once"},
    ],
)
async def test_any_other_answer_is_a_no(bench: Bench, outcome: dict[str, Any]) -> None:
    bench.script(use(bash("touch x")), say("done"))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.answers["session/request_permission"] = lambda params: {"outcome": outcome}
        assert (await editor.prompt(await editor.new(), "go"))["stopReason"] == "end_turn"
        assert editor.status("c1") == "failed"
    assert not (bench.cwd / "x").exists()


async def test_a_cancelled_question_cancels_the_turn(bench: Bench) -> None:
    bench.script(use(bash("touch x")))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("cancelled")
        assert (await editor.prompt(await editor.new(), "go"))["stopReason"] == "cancelled"
        assert editor.status("c1") == "cancelled"


async def test_an_open_question_is_withdrawn_by_cancelling(bench: Bench) -> None:
    bench.script(use(bash("touch x")))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        editor.begin(session, "go")
        await editor.until(lambda: editor.asked("session/request_permission"))
        assert editor.states()[-1]["state"] == "requires_action"
        editor.notify("session/cancel", sessionId=session)
        assert (await editor.idle())["stopReason"] == "cancelled"
        assert any(frame.get("method") == "$/cancel_request" for frame in editor.frames)


async def test_the_todo_list_is_a_plan_with_an_id(bench: Bench) -> None:
    todos = [
        {"content": "one", "status": "completed"},
        {"content": "two", "status": "in_progress"},
    ]
    bench.script(use(("c1", "todo_write", {"todos": todos})), say("done"))
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.prompt(await editor.new(), "go")
        (plan,) = editor.updates("plan_update")
        assert plan["plan"]["type"] == "items"
        entries = editor.view.plans[plan["plan"]["planId"]]
        assert [(entry["content"], entry["status"]) for entry in entries] == [
            ("one", "completed"),
            ("two", "in_progress"),
        ]


@pytest.mark.parametrize("forms", [True, False])
async def test_a_question_of_the_model_waits_for_the_person(bench: Bench, forms: bool) -> None:
    asking = {
        "questions": [
            {
                "id": "q",
                "question": "Which?",
                "header": "Pick",
                "options": [{"label": "a"}, {"label": "b"}],
            }
        ]
    }
    bench.script(use(("c1", "ask_user_question", asking)), say("done"))
    async with bench.editor() as editor:
        await editor.initialize(**({"elicitation": {"form": {}}} if forms else {}))
        editor.answers["elicitation/create"] = lambda params: {
            "action": "accept",
            "content": {"choice": "b"},
        }
        editor.choose("option-1")
        assert (await editor.prompt(await editor.new(), "go"))["stopReason"] == "end_turn"
        asked = editor.asked("elicitation/create" if forms else "session/request_permission")
        assert len(asked) == 1
        assert "requires_action" in editor.state_names()
    assert '\\"b\\"' in bench.told()


async def test_an_unfinished_call_is_cancelled_when_its_turn_is(bench: Bench) -> None:
    step = use(bash("true"))[0]
    assert not callable(step)
    bench.script([step[:2], forever])
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        editor.begin(session, "go")
        await editor.until(lambda: bench.model.requests)
        await anyio.wait_all_tasks_blocked()
        editor.notify("session/cancel", sessionId=session)
        assert (await editor.idle())["stopReason"] == "cancelled"
        assert all(editor.status(id) == "cancelled" for id in editor.view.calls)


async def test_a_command_in_the_background_is_listed_until_it_ends(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    flag = bench.cwd / "go"
    command = f"echo begun; while [ ! -e {flag} ]; do sleep 0.02; done; exit 4"
    bench.script(use(bash(command, run_in_background=True)), say("started"))
    async with bench.editor() as editor:
        await editor.initialize()
        ended = await editor.prompt(await editor.new(), "go")
        (work,) = ended["background"]
        terminal = editor.view.terminals[work["terminalId"]]
        assert work["type"] == "terminal" and terminal["command"] == command
        assert {"type": "terminal", "terminalId": work["terminalId"]} in editor.view.calls["c1"][
            "content"
        ]
        assert "exitStatus" not in terminal
        flag.touch()
        await editor.until(lambda: editor.states()[-1]["background"] == [])
        assert terminal["exitStatus"] == {"exitCode": 4} and terminal["shown"] == b"begun\n"
        assert editor.states()[-1]["stopReason"] == "end_turn"


async def test_what_a_command_in_the_background_prints_is_shown_while_the_session_is_idle(
    bench: Bench,
) -> None:
    bench.options["permission"] = "full-access"
    flag = bench.cwd / "go"
    command = f"until [ -e {flag} ]; do sleep 0.02; done; printf 'one\\xff'; sleep 30"
    bench.script(use(bash(command, run_in_background=True)), say("started"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        (work,) = (await editor.prompt(session, "go"))["background"]
        states = len(editor.states())
        flag.touch()
        terminal = editor.view.terminals[work["terminalId"]]
        await editor.until(lambda: terminal["shown"])
        assert terminal["shown"] == b"one\xff" and "exitStatus" not in terminal
        assert len(editor.states()) == states
        about = {"sessionId": session, "terminalId": work["terminalId"]}
        await editor.call("terminal/cancel", **about)
        await editor.until(lambda: "exitStatus" in terminal)
        assert terminal["shown"] == b"one\xff"


async def test_a_command_in_the_background_is_told_to_who_joins_and_ends_with_the_session(
    bench: Bench,
) -> None:
    bench.options["permission"] = "full-access"
    flag = bench.cwd / "begun"
    command = f"echo begun; touch {flag}; sleep 30"
    wait = bash(f"until [ -e {flag} ]; do sleep 0.02; done", "c2")
    bench.script(use(bash(command, run_in_background=True)), use(wait), say("started"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        (work,) = (await editor.prompt(session, "go"))["background"]
        before = len(editor.updates())
        await editor.resume(session)
        told = {update["sessionUpdate"] for update in editor.updates()[before:]}
        assert "state_update" in told and "terminal_update" not in told
        editor.view = View()
        await editor.replay(session)
        terminal = editor.view.terminals[work["terminalId"]]
        assert (terminal["command"], terminal["shown"]) == (command, b"begun\n")
        assert {"type": "terminal", "terminalId": work["terminalId"]} in editor.view.calls["c1"][
            "content"
        ]
        assert editor.states()[-1]["background"] == [work]
        await editor.call("session/close", sessionId=session)
        assert "exitStatus" in terminal
        assert (editor.states()[-1]["state"], editor.states()[-1]["background"]) == ("idle", [])
        assert editor.kinds()[-1] == "response"


async def test_a_subagent_in_the_background_is_listed_until_it_rests(bench: Bench) -> None:
    done = anyio.Event()

    async def gate() -> None:
        if "Count them." in [message.text for message in bench.model.requests[-1].messages]:
            await done.wait()

    errand = {"description": "Count files", "prompt": "Count them.", "run_in_background": True}
    bench.script(use(("c1", "subagent", errand)), [gate, *say("a")], [gate, *say("b")], say("so"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        (work,) = (await editor.prompt(session, "go"))["background"]
        assert (work["type"], work["title"]) == ("_subagent", "Count files")
        await editor.resume(session)
        assert editor.states()[-1]["background"] == [work]
        done.set()
        await editor.until(lambda: editor.state_names()[-2:] == ["running", "idle"]
                           and editor.states()[-1]["background"] == [])  # fmt: skip
        assert editor.view.text("agent_message")[-1] == "so"


async def test_a_command_in_the_background_can_be_stopped(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    bench.script(use(bash("sleep 30", run_in_background=True)), say("started"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        (work,) = (await editor.prompt(session, "go"))["background"]
        about = {"sessionId": session, "terminalId": work["terminalId"]}
        assert await editor.call("terminal/cancel", **about) == {}
        await editor.until(lambda: editor.states()[-1]["background"] == [])
        assert "exitStatus" in editor.view.terminals[work["terminalId"]]
