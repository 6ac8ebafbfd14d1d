import json
import os
from typing import Any

from acp_bench import Bench, Editor, say, use
import anyio
import pytest

from dsh_acp.wire.frames import RpcError


def bash(id: str, command: str) -> tuple[str, str, dict[str, Any]]:
    return (id, "bash", {"command": command, "description": "Do it"})


def events(editor: Editor, call: str) -> list[str]:
    """What happened to a call, in order: statuses, and `asked`."""
    found: list[str] = []
    for frame in editor.frames:
        params = frame.get("params", {})
        update = params.get("update", {})
        if update.get("toolCallId") == call and "status" in update:
            found.append(f"{update['sessionUpdate']} {update['status']}")
        elif frame.get("method") == "session/request_permission":
            if params["toolCall"]["toolCallId"] == call:
                found.append("asked")
    return found


async def test_a_guarded_call_is_shown_asked_about_run_and_completed(bench: Bench) -> None:
    bench.script(use(bash("c1", "touch made")), say("done"))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("allow-once")
        assert await editor.prompt(await editor.new(), "go") == {"stopReason": "end_turn"}
        assert events(editor, "c1") == [
            "tool_call pending",
            "asked",
            "tool_call_update in_progress",
            "tool_call_update completed",
        ]
        (asked,) = editor.asked("session/request_permission")
        assert asked["toolCall"]["kind"] == "execute"
        assert asked["toolCall"]["title"] == "touch made"
        assert asked["toolCall"]["rawInput"]
        assert [option["kind"] for option in asked["options"]] == [
            "allow_once",
            "allow_always",
            "reject_once",
            "reject_always",
        ]
    assert (bench.cwd / "made").exists()


async def test_a_question_shows_the_whole_command(bench: Bench) -> None:
    command = "rm -rf build\n" + "echo " + "x" * 500
    bench.script(use(bash("c1", command)), say("ok"))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("reject-once")
        await editor.prompt(await editor.new(), "go")
        (asked,) = editor.asked("session/request_permission")
        assert command in json.dumps(asked["toolCall"], ensure_ascii=False).replace("\\n", "\n")


async def test_an_edit_is_asked_about_with_its_diff(bench: Bench) -> None:
    note = bench.file("a.txt", "one\ntwo\n")
    change = {"file_path": str(note), "old_string": "two", "new_string": "three"}
    bench.script(
        use(("c0", "read", {"file_path": str(note)})), use(("c1", "edit", change)), say("ok")
    )
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("allow-once")
        await editor.prompt(await editor.new(), "go")
        (asked,) = editor.asked("session/request_permission")
        diffs = [item for item in asked["toolCall"]["content"] if item["type"] == "diff"]
        assert diffs[0]["path"] == str(note) and "three" in diffs[0]["newText"]
        assert asked["toolCall"]["locations"] == [{"path": str(note)}]
        final = [u for u in editor.updates("tool_call_update") if u.get("status") == "completed"]
        shown = final[-1]["content"]
        assert [item["type"] for item in shown] == ["diff"]
        assert os.path.isabs(shown[0]["path"])
    assert note.read_text(encoding="utf-8") == "one\nthree\n"


async def test_a_new_file_has_no_old_text(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    new = bench.cwd / "new.txt"
    bench.script(use(("c1", "write", {"file_path": str(new), "content": "x\n"})), say("ok"))
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.prompt(await editor.new(), "go")
        diffs = [item for u in editor.updates() for item in u.get("content", []) if "path" in item]
        assert diffs and all("oldText" not in item for item in diffs)


@pytest.mark.parametrize(
    ("option", "says"),
    [("reject-once", "the user rejected"), ("unheard-of", "the user rejected")],
)
async def test_a_rejection_fails_the_call_and_the_turn_goes_on(
    bench: Bench, option: str, says: str
) -> None:
    bench.script(use(bash("c1", "touch x"), bash("c2", "echo hi")), say("understood"))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose(option)
        assert await editor.prompt(await editor.new(), "go") == {"stopReason": "end_turn"}
        assert events(editor, "c1")[-1] == "tool_call_update failed"
        assert says in json.dumps(editor.updates("tool_call_update"))
        assert editor.said() == "understood"
    assert not (bench.cwd / "x").exists()


async def test_a_cancelled_question_cancels_the_turn(bench: Bench) -> None:
    bench.script(use(bash("c1", "touch x")))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("cancelled")
        assert await editor.prompt(await editor.new(), "go") == {"stopReason": "cancelled"}
        assert events(editor, "c1")[-1] == "tool_call_update failed"
    assert not (bench.cwd / "x").exists()


async def test_a_client_that_cannot_ask_means_no(bench: Bench) -> None:
    def refuse(params: Any) -> Any:
        raise RpcError(-32601, "Method not found")

    bench.script(use(bash("c1", "touch x")), say("I may not"))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.answers["session/request_permission"] = refuse
        assert await editor.prompt(await editor.new(), "go") == {"stopReason": "end_turn"}
        assert events(editor, "c1")[-1] == "tool_call_update failed"
        assert "no approval channel" in json.dumps(editor.updates("tool_call_update"))
    assert not (bench.cwd / "x").exists()


async def test_always_is_remembered_for_its_command_and_its_session(bench: Bench) -> None:
    bench.script(
        use(bash("c1", "git status")),
        use(bash("c2", "git status --short")),
        use(bash("c3", "rm x")),
        say("done"),
        use(bash("c4", "git status")),
        say("done"),
    )
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("allow-always")
        one = await editor.new()
        await editor.prompt(one, "go")
        asked = [p["toolCall"]["toolCallId"] for p in editor.asked("session/request_permission")]
        assert asked == ["c1", "c3"]
        await editor.prompt(await editor.new(), "go")
        asked = [p["toolCall"]["toolCallId"] for p in editor.asked("session/request_permission")]
        assert asked == ["c1", "c3", "c4"]


async def test_a_late_answer_to_a_cancelled_question_is_ignored(bench: Bench) -> None:
    bench.script(use(bash("c1", "touch x")), say("fresh"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        id = editor.start(
            "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}]
        )
        await editor.until(lambda: editor.asked("session/request_permission"))
        editor.notify("session/cancel", sessionId=session)
        assert (await editor.response(id))["result"] == {"stopReason": "cancelled"}
        question = next(f for f in editor.frames if f.get("method") == "session/request_permission")
        editor.send(
            {
                "jsonrpc": "2.0",
                "id": question["id"],
                "result": {"outcome": {"outcome": "selected", "optionId": "allow-once"}},
            }
        )
        assert await editor.prompt(session, "again") == {"stopReason": "end_turn"}
    assert not (bench.cwd / "x").exists()


# ---------------------------------------------------------------- cards


async def test_output_is_fenced_and_plain_without_terminals(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    bench.script(use(bash("c1", r"printf '\033[31mred\033[0m\r10%%\r100%%\n'; exit 3")), say("ok"))
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.prompt(await editor.new(), "go")
        final = editor.updates("tool_call_update")[-1]
        assert final["status"] == "failed"
        text = final["content"][0]["content"]["text"]
        assert text.startswith("```console\n") and "\x1b" not in text and "100%" in text
        assert final["rawOutput"] == {"exitCode": 3}


async def test_output_streams_into_a_terminal_that_the_client_shows(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    gate = bench.cwd / "gate"
    command = f"echo first; while [ ! -e {gate} ]; do sleep 0.01; done; echo second"
    bench.script(use(bash("c1", command)), say("ok"))
    async with bench.editor() as editor:
        await editor.initialize(_meta={"terminal_output": True})
        session = await editor.new()
        id = editor.start(
            "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}]
        )

        def output() -> str:
            return "".join(
                update.get("_meta", {}).get("terminal_output", {}).get("data", "")
                for update in editor.updates("tool_call_update")
            )

        await editor.until(lambda: "first" in output())
        gate.touch()
        await editor.response(id)
        assert output().split() == ["first", "second"]
        (shown,) = editor.updates("tool_call")
        assert {"type": "terminal", "terminalId": "c1"} in shown["content"]
        assert shown["_meta"]["terminal_info"] == {"terminal_id": "c1", "cwd": str(bench.cwd)}
        final = editor.updates("tool_call_update")[-1]
        assert final["status"] == "completed" and "content" not in final
        assert final["_meta"]["terminal_exit"] == {"terminal_id": "c1", "exit_code": 0}


async def test_commands_run_in_the_clients_terminal_when_that_is_wanted(bench: Bench) -> None:
    bench.options.update(permission="full-access", client_terminals=True)
    bench.script(use(bash("c1", "make")), say("ok"))
    async with bench.editor() as editor:
        await editor.initialize(terminal=True)
        editor.answers = {
            "terminal/create": lambda params: {"terminalId": "T1"},
            "terminal/wait_for_exit": lambda params: {"exitCode": 2, "signal": None},
            "terminal/output": lambda params: {"output": "no rule\n", "truncated": False},
            "terminal/release": lambda params: {},
        }
        await editor.prompt(await editor.new(), "go")
        assert editor.asked("terminal/create")[0]["args"] == ["-c", "make"]
        assert editor.asked("terminal/create")[0]["cwd"] == str(bench.cwd)
        assert len(editor.asked("terminal/release")) == 1
        embedded = [u for u in editor.updates("tool_call_update") if u.get("content")]
        assert embedded[0]["content"] == [{"type": "terminal", "terminalId": "T1"}]
        assert editor.updates("tool_call_update")[-1]["status"] == "failed"
        sent = [message.json for request in bench.model.requests for message in request.messages]
        assert any(b"no rule" in message for message in sent)


async def test_client_terminals_are_released_when_the_turn_is_cancelled(bench: Bench) -> None:
    bench.options.update(permission="full-access", client_terminals=True)
    bench.script(use(bash("c1", "sleep 100")))
    async with bench.editor() as editor:
        await editor.initialize(terminal=True)
        editor.answers = {
            "terminal/create": lambda params: {"terminalId": "T1"},
            "terminal/release": lambda params: {},
        }
        session = await editor.new()
        id = editor.start(
            "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}]
        )
        await editor.until(lambda: editor.asked("terminal/wait_for_exit"))
        editor.notify("session/cancel", sessionId=session)
        assert (await editor.response(id))["result"] == {"stopReason": "cancelled"}
        assert len(editor.asked("terminal/release")) == 1


@pytest.mark.parametrize("capabilities", [{}, {"fs": {"readTextFile": False}, "terminal": False}])
async def test_nothing_is_asked_of_a_client_that_offers_nothing(
    bench: Bench, capabilities: dict[str, Any]
) -> None:
    bench.options.update(permission="full-access", client_terminals=True)
    path = str(bench.cwd / "a.txt")
    bench.script(
        use(("c1", "write", {"file_path": path, "content": "x\n"})),
        use(("c2", "read", {"file_path": path}), bash("c3", "cat a.txt")),
        say("ok"),
    )
    async with bench.editor() as editor:
        await editor.initialize(**capabilities)
        await editor.prompt(await editor.new(), "go")
        assert [f for f in editor.frames if "id" in f and "method" in f] == []


async def test_plans_are_complete_each_time(bench: Bench) -> None:
    bench.options["permission"] = "full-access"
    states = [["pending", "pending"], ["in_progress", "pending"], ["completed", "in_progress"]]
    for step, state in enumerate(states):
        todos = [{"content": f"item {n}", "status": s} for n, s in enumerate(state)]
        bench.script(use((f"c{step}", "todo_write", {"todos": todos})))
    bench.script(say("ok"))
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.prompt(await editor.new(), "go")
        plans = editor.updates("plan")
        assert [[e["status"] for e in plan["entries"]] for plan in plans] == states
        assert plans[0]["entries"][0] == {
            "content": "item 0",
            "priority": "medium",
            "status": "pending",
        }


async def test_ids_that_a_model_repeats_are_told_apart(bench: Bench) -> None:
    note = str(bench.file("a.txt", "x\n"))
    read = ("call-0", "read", {"file_path": note})
    bench.script(use(read), use(read), say("ok"))
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.prompt(await editor.new(), "go")
        ids = [update["toolCallId"] for update in editor.updates("tool_call")]
        assert len(set(ids)) == 2
        done = [u["toolCallId"] for u in editor.updates("tool_call_update") if "status" in u]
        assert set(done) == set(ids)


async def test_unknown_tools_and_bad_arguments_are_failed_calls(bench: Bench) -> None:
    bench.script(use(("c1", "nonsense", {"a": 1}), ("c2", "read", {"offset": "x"})), say("ok"))
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.prompt(await editor.new(), "go")
        assert events(editor, "c1")[-1] == events(editor, "c2")[-1] == "tool_call_update failed"
        shown = {update["toolCallId"]: update for update in editor.updates("tool_call")}
        assert shown["c1"]["title"] == "nonsense" and shown["c1"]["rawInput"] == {"a": 1}


async def test_arguments_that_take_long_announce_their_call_early(bench: Bench) -> None:
    from dsh_acp.messages import (
        BlockEnd,
        BlockStart,
        Finish,
        FinishReason,
        ToolCall,
        ToolCallDelta,
    )

    note = str(bench.file("a.txt", "x\n"))
    text = json.dumps({"file_path": note})

    async def pause() -> None:
        await anyio.sleep(0.45)

    bench.script(
        [
            [
                BlockStart(0, "tool-call"),
                ToolCallDelta(index=0, id="c1", name="read", arguments_delta=text[:3]),
            ],
            pause,
            [ToolCallDelta(index=0, id="", arguments_delta=text[3:6])],
            [
                ToolCallDelta(index=0, id="", arguments_delta=text[6:]),
                BlockEnd(0, ToolCall("c1", "read", text)),
                Finish(FinishReason("tool-calls")),
            ],
        ],
        say("ok"),
    )
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "go")
        (shown,) = editor.updates("tool_call")
        assert (shown["title"], shown["kind"]) == ("read", "other") or shown["kind"] == "read"
        named = [u for u in editor.updates("tool_call_update") if "title" in u]
        assert named[0]["title"] == "Read a.txt" and named[0]["locations"]
        live = editor.updates("tool_call")
    async with bench.editor() as loaded:
        await loaded.initialize()
        await loaded.call("session/load", sessionId=session, cwd=str(bench.cwd))
        assert loaded.updates("tool_call") == live
