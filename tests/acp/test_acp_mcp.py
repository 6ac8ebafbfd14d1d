"""MCP servers as the editor's user meets them."""

import json
from pathlib import Path
import sys
from typing import Any

from acp_bench import Bench, Editor, say, use
import anyio
import psutil
import pytest

from dsh_acp.config import McpServerSettings
import dsh_acp.mcp.wire  # noqa: F401 - takes a second, which is no part of any test

SERVERS = Path(__file__).parents[1] / "mcp"
ECHO = ("c1", "mcp__plain__echo", {"text": "hello"})


def plain(name: str = "plain", *args: str, **env: str) -> dict[str, Any]:
    """An entry as a client passes it."""
    return {
        "name": name,
        "command": sys.executable,
        "args": [str(SERVERS / "plain_server.py"), *args],
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }


def children() -> list[int]:
    """Servers that run, the dead included."""
    found = psutil.Process().children()
    return [child.pid for child in found if "plain_server.py" in " ".join(_line(child))]


def _line(child: psutil.Process) -> list[str]:
    try:
        return child.cmdline() or ["plain_server.py"]
    except psutil.Error:
        return []


def offered(bench: Bench, request: int = -1) -> list[str]:
    """The remote tools in a request of the conversation."""
    asked = [each for each in bench.model.requests if each.purpose == "conversation"]
    tools = asked[request].header.tools or ()
    return [tool.name for tool in tools if tool.name.startswith("mcp__")]


async def until_over(editor: Editor) -> None:
    with anyio.fail_after(30):
        while children():  # noqa: ASYNC110 - nobody tells of it
            await anyio.sleep(0.01)


async def test_a_tool_of_a_server_is_asked_about_called_and_shown(bench: Bench) -> None:
    bench.script(use(ECHO), say("Done."))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("allow-once")
        session = await editor.new(mcpServers=[plain()])
        await editor.prompt(session, "Go")
        assert offered(bench) == ["mcp__plain__echo"]
        [question] = editor.asked("session/request_permission")
        assert question["toolCall"]["title"] == "echo (plain)"
        assert question["toolCall"]["rawInput"] == {"text": "hello"}
        [call] = editor.updates("tool_call")
        assert (call["name"], call["kind"]) == ("mcp__plain__echo", "other")
        last = editor.updates("tool_call_update")[-1]
        assert last["status"] == "completed"
        answer = json.loads(last["content"][0]["content"]["text"])
        assert answer["arguments"] == {"text": "hello"}
        assert answer["cwd"] == str(bench.cwd)
    await until_over(editor)


async def test_a_rejected_call_never_reaches_its_server(bench: Bench, tmp_path: Path) -> None:
    record = tmp_path / "record"
    bench.script(use(ECHO), say("Pity."))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("reject-once")
        session = await editor.new(mcpServers=[plain(RECORD=str(record))])
        await editor.prompt(session, "Go")
        assert editor.updates("tool_call_update")[-1]["status"] == "failed"
    assert "tools/call" not in record.read_text(encoding="utf-8")


async def test_always_covers_that_tool_and_no_other(bench: Bench) -> None:
    names = json.dumps(["echo", "other"])
    other = ("c3", "mcp__plain__other", {})
    bench.script(use(ECHO), use(("c2", *ECHO[1:])), use(other), say("Done."))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("allow-always")
        session = await editor.new(mcpServers=[plain("plain", "--tools", names)])
        await editor.prompt(session, "Go")
        asked = [q["toolCall"]["title"] for q in editor.asked("session/request_permission")]
        assert asked == ["echo (plain)", "other (plain)"]


async def test_a_loaded_session_shows_its_calls_as_it_did_live(bench: Bench) -> None:
    bench.script(use(ECHO), say("Done."))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("allow-once")
        session = await editor.new(mcpServers=[plain()])
        await editor.prompt(session, "Go")
        live = [editor.updates("tool_call")[-1], editor.updates("tool_call_update")[-1]]
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.call("session/load", sessionId=session, cwd=str(bench.cwd), mcpServers=[])
        [shown] = editor.updates("tool_call")
        assert shown["title"] == live[0]["title"]
        assert shown["rawInput"] == live[0]["rawInput"]
        assert editor.updates("tool_call_update")[-1]["content"] == live[1]["content"]


@pytest.mark.parametrize("how", ["session/load", "session/resume", "session/fork"])
async def test_servers_are_connected_however_a_session_is_opened(bench: Bench, how: str) -> None:
    bench.script(say("One."), use(ECHO), say("Two."))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "First")
        assert offered(bench) == []
        await editor.call("session/close", sessionId=session)
        editor.choose("allow-once")
        params = {"sessionId": session, "cwd": str(bench.cwd), "mcpServers": [plain()]}
        result = await editor.call(how, **params)
        await editor.prompt(result.get("sessionId", session), "Second")
        assert offered(bench) == ["mcp__plain__echo"]
        assert editor.updates("tool_call_update")[-1]["status"] == "completed"


async def test_closing_a_session_ends_its_servers_and_nobody_else_s(bench: Bench) -> None:
    bench.script(say("One."), say("Two."))
    async with bench.editor() as editor:
        await editor.initialize()
        first = await editor.new(mcpServers=[plain()])
        second = await editor.new(mcpServers=[plain()])
        await editor.prompt(first, "Go")
        await editor.prompt(second, "Go")
        assert len(children()) == 2
        await editor.call("session/close", sessionId=first)
        with anyio.fail_after(30):
            while len(children()) > 1:  # noqa: ASYNC110 - nobody tells of it
                await anyio.sleep(0.01)
        await editor.call("session/close", sessionId=second)
        await until_over(editor)


async def test_a_configured_server_is_used_and_one_that_is_passed_replaces_it(
    bench: Bench,
) -> None:
    code = str(SERVERS / "plain_server.py")
    names = json.dumps(["mine"])
    bench.options["mcp_servers"] = (
        McpServerSettings(name="a", command=sys.executable, args=(code, "--tools", names)),
        McpServerSettings(name="b", command="/no/such/program"),
    )
    bench.script(say("Done."))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new(mcpServers=[plain("b")])
        await editor.prompt(session, "Go")
        assert offered(bench) == ["mcp__a__mine", "mcp__b__echo"]


async def test_a_silent_server_delays_the_first_prompt_a_little_and_no_other(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.options["mcp_wait_s"] = 0.2
    bench.script(say("One."), say("Two."))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new(mcpServers=[plain("quiet", "--silent")])
        assert (await editor.prompt(session, "Go"))["stopReason"] == "end_turn"
        text = 'The MCP server "quiet" is still connecting; the tools come when they are.'
        assert text in editor.said()
        await editor.prompt(session, "Again")
        assert editor.said().count(text) == 1
        assert offered(bench) == []


async def test_waiting_for_servers_can_be_cancelled(bench: Bench) -> None:
    bench.options["mcp_wait_s"] = 1000.0
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new(mcpServers=[plain("quiet", "--silent")])
        prompt = editor.start(
            "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Go"}]
        )
        await anyio.wait_all_tasks_blocked()
        editor.notify("session/cancel", sessionId=session)
        assert (await editor.response(prompt))["result"]["stopReason"] == "cancelled"


async def test_a_broken_server_is_a_notice_and_a_line_on_stderr(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.script(say("Done."))
    async with bench.editor() as editor:
        await editor.initialize(session={"notices": {}})
        broken = {"name": "broken", "command": "/no/such/program", "args": [], "env": []}
        session = await editor.new(mcpServers=[broken, plain()])
        await editor.prompt(session, "Go")
        assert offered(bench) == ["mcp__plain__echo"]
        [notice] = editor.updates("notice")
        text = (
            'The MCP server "broken" cannot be used: "/no/such/program" cannot be started: '
            "No such file or directory."
        )
        assert (notice["severity"], notice["description"]) == ("warning", text)
    assert f"dsh-acp: {text}\n" in capsys.readouterr().err


async def test_without_notices_the_first_answer_begins_with_what_is_broken(bench: Bench) -> None:
    bench.script(say("Done."))
    async with bench.editor() as editor:
        await editor.initialize()
        broken = {"name": "broken", "command": "/no/such/program", "args": [], "env": []}
        session = await editor.new(mcpServers=[broken])
        assert editor.said() == ""
        await editor.prompt(session, "Go")
        assert editor.said().startswith('The MCP server "broken" cannot be used: ')


async def test_tools_that_come_later_are_a_change_of_the_request_header(bench: Bench) -> None:
    grow = ("c1", "mcp__plain__echo", {"do": "grow"})
    bench.script(use(grow), say("Done."))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("allow-once")
        session = await editor.new(mcpServers=[plain()])
        await editor.prompt(session, "Go")
        assert offered(bench, 0) == ["mcp__plain__echo"]
        assert offered(bench) == ["mcp__plain__echo", "mcp__plain__more"]
    events = map(json.loads, _log(bench, session).read_text(encoding="utf-8").splitlines())
    headers = [event["data"] for event in events if event["type"] == "request/header"]
    assert [header["reason"] for header in headers] == ["initial", "change"]


def _log(bench: Bench, session: str) -> Path:
    return next(path for path in (bench.home / "sessions").rglob("*.jsonl") if session in str(path))


async def test_a_server_that_dies_during_a_call_fails_the_call_and_not_the_turn(
    bench: Bench,
) -> None:
    crash = ("c1", "mcp__plain__echo", {"do": "crash"})
    bench.script(use(crash), use(("c2", *ECHO[1:])), say("Done."))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("allow-once")
        session = await editor.new(mcpServers=[plain()])
        assert (await editor.prompt(session, "Go"))["stopReason"] == "end_turn"
        ends = [u for u in editor.updates("tool_call_update") if u["status"] != "in_progress"]
        assert [end["status"] for end in ends] == ["failed", "completed"]
        failure = ends[0]["content"][0]["content"]["text"]
        assert "a wheel came off" in failure


async def test_cancelling_a_turn_cancels_the_running_call(bench: Bench, tmp_path: Path) -> None:
    record = tmp_path / "record"
    hang = ("c1", "mcp__plain__echo", {"do": "hang"})
    bench.script(use(hang))
    async with bench.editor() as editor:
        await editor.initialize()
        editor.choose("allow-once")
        session = await editor.new(mcpServers=[plain(RECORD=str(record))])
        prompt = editor.start(
            "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Go"}]
        )
        await _recorded(record, '"do":"hang"')
        editor.notify("session/cancel", sessionId=session)
        assert (await editor.response(prompt))["result"]["stopReason"] == "cancelled"
        await _recorded(record, "notifications/cancelled")


async def test_plan_mode_refuses_tools_of_servers(bench: Bench) -> None:
    bench.options["permission"] = "plan"
    bench.script(use(ECHO), say("Planned."))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new(mcpServers=[plain()])
        await editor.prompt(session, "Go")
        assert editor.updates("tool_call_update")[-1]["status"] == "failed"
        assert editor.asked("session/request_permission") == []


async def test_prompts_of_a_server_are_commands(bench: Bench) -> None:
    bench.script(say("Reviewed."))
    entry = {
        "name": "sample",
        "command": sys.executable,
        "args": [str(SERVERS / "sdk_server.py")],
        "env": [],
    }
    bench.options["mcp_wait_s"] = 60.0
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new(mcpServers=[entry])
        await editor.prompt(session, "/mcp__sample__review a.py error handling")
        assert bench.model.seen == ["Review a.py, looking at error handling."]
        listed = editor.updates("available_commands_update")[-1]["availableCommands"]
        [command] = [each for each in listed if each["name"].startswith("mcp__")]
        assert command == {
            "name": "mcp__sample__review",
            "description": "Review a file. (sample)",
            "input": {"hint": "<path> [focus]"},
        }
        await editor.prompt(session, "/mcp__sample__review")
        assert "Error: missing: path" in editor.said()
        await editor.prompt(session, "/mcp")
        assert "- `sample` — connected, 7 tools" in editor.said()


async def test_a_session_that_is_open_goes_on_with_the_servers_of_a_second_load(
    bench: Bench,
) -> None:
    bench.script(say("One."), say("Two."), say("Three."))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "One")
        params = {"sessionId": session, "cwd": str(bench.cwd)}
        await editor.call("session/load", **params, mcpServers=[plain()])
        await editor.prompt(session, "Two")
        assert offered(bench) == ["mcp__plain__echo"]
        await editor.call("session/load", **params, mcpServers=[])
        await editor.prompt(session, "Three")
        assert offered(bench) == []


async def _recorded(record: Path, text: str) -> None:
    with anyio.fail_after(30):
        while text not in _read(record):  # noqa: ASYNC110 - nobody tells of it
            await anyio.sleep(0.01)


def _read(record: Path) -> str:
    return record.read_text(encoding="utf-8") if record.exists() else ""
