import json
from pathlib import Path
import weakref

from acp_bench import Bench, Editor, fail, forever, say, use
import anyio
import pytest

from dsh_acp.acp import v1_handshake
from dsh_acp.log.collector import collector_paused
from dsh_acp.wire.frames import RpcError


async def test_every_advertised_method_is_answered(bench: Bench) -> None:
    async with bench.editor() as editor:
        caps = (await editor.initialize())["agentCapabilities"]
        names = ["session/load"] if caps["loadSession"] else []
        names += [
            f"session/{m}" for m in caps["sessionCapabilities"] if m != "additionalDirectories"
        ]
        names += ["logout"] if "auth" in caps else []
        for name in (*names, "session/set_mode", "session/set_config_option"):
            frame = await editor.response(editor.start(name))
            assert frame.get("error", {}).get("code") != -32601, name
        names += ["session/set_mode", "session/set_config_option"]
        assert set(names) <= set(v1_handshake.METHODS)


async def test_version_1_is_answered_with_itself(bench: Bench) -> None:
    async with bench.editor() as editor:
        result = await editor.call("initialize", protocolVersion=1, info={"name": "x"})
        assert result["protocolVersion"] == 1
        assert result["agentInfo"]["name"] == "dsh-acp" and result["agentInfo"]["version"]


async def test_a_version_below_the_oldest_is_refused_with_those_there_are(bench: Bench) -> None:
    async with bench.editor() as editor:
        with pytest.raises(RpcError) as caught:
            await editor.call("initialize", protocolVersion=0)
        assert caught.value.code == -32022
        assert caught.value.data["requested"] == 0 and 1 in caught.value.data["supported"]
        assert (await editor.initialize())["protocolVersion"] == 1


async def test_odd_capabilities_count_as_absent(bench: Bench) -> None:
    async with bench.editor() as editor:
        result = await editor.call(
            "initialize",
            protocolVersion=1,
            _meta=None,
            clientCapabilities={
                "fs": None,
                "terminal": "yes",
                "gateway": True,
                "elicitation": {"form": True},
                "auth": {"terminal": "true"},
                "session": 5,
            },
            clientInfo=None,
        )
        assert [method["id"] for method in result["authMethods"]] == ["api-key"]
        client = editor.bridge.client
        assert not (client.reads_files or client.terminals or client.forms or client.auth_terminal)


async def test_terminal_sign_in_is_offered_only_where_terminals_are(bench: Bench) -> None:
    async with bench.editor() as editor:
        result = await editor.initialize(auth={"terminal": True}, _meta={"terminal-auth": True})
        agent, terminal = result["authMethods"]
        assert agent["_meta"]["terminal-auth"]["args"] == ["-P", "-m", "dsh_acp", "--login"]
        assert (terminal["type"], terminal["args"]) == ("terminal", ["--login"])


async def test_a_version_must_be_an_integer(bench: Bench) -> None:
    async with bench.editor() as editor:
        for value in ("1", None, 1.5, -1):
            with pytest.raises(RpcError) as caught:
                await editor.call("initialize", protocolVersion=value)
            assert caught.value.code == -32602


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume"])
@pytest.mark.parametrize("servers", ["absent", None, [], {}])
async def test_no_servers_may_be_said_in_any_way(
    bench: Bench, method: str, servers: object
) -> None:
    bench.script(say("x"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "hi")
        await editor.call("session/close", sessionId=session)
        params = {"cwd": str(bench.cwd), "_meta": {"x": 1}, "additionalDirectories": None}
        if servers != "absent":
            params["mcpServers"] = servers
        if method != "session/new":
            params["sessionId"] = session
        result = await editor.call(method, **params)
        assert result["modes"]["currentModeId"] == "ask"


@pytest.mark.parametrize("cwd", ["relative", "/nonexistent/folder", "", 5, None])
async def test_a_folder_must_be_absolute_and_there(bench: Bench, cwd: object) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        with pytest.raises(RpcError) as caught:
            await editor.call("session/new", cwd=cwd, mcpServers=[])
        assert caught.value.code == -32602
        assert await editor.new()


async def test_malformed_servers_are_named_and_the_session_works(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = [{"name": "a"}, {"type": "carrier-pigeon", "name": "b"}, 7]
    bench.script(say("fine"))
    async with bench.editor() as editor:
        await editor.initialize(session={"notices": {}})
        session = await editor.new(mcpServers=servers)
        assert len(editor.updates("notice")) == 3
        assert await editor.prompt(session, "hi") == {"stopReason": "end_turn"}
    assert '"carrier-pigeon" is not known' in capsys.readouterr().err


# ---------------------------------------------------------------- history


async def _history(bench: Bench, editor: Editor) -> str:
    note = bench.file("a.txt", "one\n")
    bench.options["permission"] = "full-access"
    bench.script(
        use(
            ("c1", "read", {"file_path": str(note)}),
            ("c2", "edit", {"file_path": str(note), "old_string": "one", "new_string": "two"}),
            ("c3", "bash", {"command": "exit 3", "description": "Fail"}),
            ("c4", "todo_write", {"todos": [{"content": "x", "status": "pending"}]}),
            before="Let me see.",
        ),
        say("All ", "done.", thought="Hmm"),
    )
    session = await editor.new()
    assert await editor.prompt(session, "Change it") == {"stopReason": "end_turn"}
    return session


def _cards(editor: Editor) -> dict[str, dict[str, object]]:
    """What a client knows of each call at the end."""
    cards: dict[str, dict[str, object]] = {}
    for update in editor.updates():
        if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
            fields = {k: v for k, v in update.items() if k != "sessionUpdate"}
            cards.setdefault(update["toolCallId"], {}).update(fields)
    return cards


def _talk(editor: Editor) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for update in editor.updates():
        if update["sessionUpdate"] in ("agent_message_chunk", "agent_thought_chunk"):
            kind, id = update["sessionUpdate"], update["messageId"]
            text = update["content"]["text"]
            if found and found[-1][:2] == (kind, id):
                found[-1] = (kind, id, found[-1][2] + text)
            else:
                found.append((kind, id, text))
    return found


@pytest.mark.parametrize("terminals", [False, True])
async def test_a_loaded_session_shows_what_the_live_one_did(bench: Bench, terminals: bool) -> None:
    meta = {"terminal_output": terminals}
    async with bench.editor() as live:
        await live.initialize(_meta=meta)
        session = await _history(bench, live)
    async with bench.editor() as loaded:
        await loaded.initialize(_meta=meta)
        id = loaded.start("session/load", sessionId=session, cwd=str(bench.cwd), mcpServers=[])
        response = await loaded.response(id)
        assert response["result"]["modes"]["currentModeId"] == "full-access"
        assert _talk(loaded) == _talk(live)
        assert loaded.said("user_message_chunk") == "Change it"
        assert {id: card["status"] for id, card in _cards(loaded).items()} == {
            "c1": "completed",
            "c2": "completed",
            "c3": "failed",
            "c4": "completed",
        }
        if not terminals:
            assert _cards(loaded) == _cards(live)
        assert loaded.updates("plan") == live.updates("plan") != []
        assert loaded.frames[-1] == response
        assert loaded.kinds()[-2] == "available_commands_update"
        assert loaded.kinds().index("user_message_chunk") < loaded.kinds().index("tool_call")
        bench.script(say("again"))
        assert await loaded.prompt(session, "more") == {"stopReason": "end_turn"}


async def test_resuming_restores_without_replay(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await _history(bench, editor)
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.call("session/resume", sessionId=session, cwd=str(bench.cwd))
        assert editor.kinds() == ["response", "response", "available_commands_update"]
        bench.script(say("still here"))
        await editor.prompt(session, "go on")
        messages = bench.model.requests[-1].messages
        assert any("All done." in message.text for message in messages)


async def test_a_session_can_be_loaded_again_while_it_is_open(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await _history(bench, editor)
        talk = _talk(editor)
        await editor.call("session/load", sessionId=session, cwd=str(bench.cwd), mcpServers=[])
        assert _talk(editor) == talk + talk
        bench.script(say("B"))
        assert await editor.prompt(session, "b") == {"stopReason": "end_turn"}
        assert _talk(editor)[-1][2] == "B"


async def test_what_was_streamed_before_a_crash_is_shown_again(bench: Bench) -> None:
    bench.script([*say("partial answer", thought="T")[:4], forever])
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        editor.start("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "q"}])
        await editor.until(lambda: editor.said() == "partial answer")
        log = editor.bridge.sessions.live[session].session.log
        log.flush()
        crashed = log.path.read_bytes()
        path = log.path
    path.write_bytes(crashed)
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.call("session/load", sessionId=session, cwd=str(bench.cwd))
        assert editor.said() == "partial answer" and editor.said("agent_thought_chunk") == "T"
        bench.script(say("fresh"))
        assert await editor.prompt(session, "go on") == {"stopReason": "end_turn"}


async def test_failures_and_retries_are_in_the_history_too(bench: Bench) -> None:
    bench.script(fail("SERVER", "overloaded", "bad"), fail("QUOTA", "no balance"))
    async with bench.editor() as live:
        await live.initialize()
        session = await live.new()
        with pytest.raises(RpcError):
            await live.prompt(session, "q")
        talk = _talk(live)
    async with bench.editor() as loaded:
        await loaded.initialize()
        await loaded.call("session/load", sessionId=session, cwd=str(bench.cwd))
        # The reason of the end was the answer to the prompt while live.
        *same, last = _talk(loaded)
        assert same == talk
    assert "no balance" in last[2]


async def test_unknown_sessions_are_not_found_and_nothing_breaks(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        for method in ("session/load", "session/resume", "session/fork", "session/close"):
            with pytest.raises(RpcError) as caught:
                await editor.call(method, sessionId="../nope", cwd=str(bench.cwd))
            assert (caught.value.code, caught.value.data) == (-32002, {"sessionId": "../nope"})
        with pytest.raises(RpcError) as caught:
            await editor.prompt("nope", "hi")
        assert caught.value.code == -32002
        assert await editor.call("session/delete", sessionId="nope") == {}
        assert await editor.new()


async def test_a_session_is_found_by_its_id_whatever_folder_is_asked_for(
    bench: Bench, tmp_path: Path
) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await _history(bench, editor)
    other = tmp_path / "other"
    other.mkdir()
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.call("session/load", sessionId=session, cwd=f"{other}/")
        bench.script(use(("c9", "bash", {"command": "pwd", "description": "Where"})), say("ok"))
        await editor.prompt(session, "where are you?")
        assert str(other) in json.dumps(_cards(editor)["c9"])


async def test_closing_stops_work_and_the_session_can_come_back(bench: Bench) -> None:
    bench.script([forever])
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        id = editor.start(
            "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "q"}]
        )
        await editor.until(lambda: bench.model.requests)
        assert await editor.call("session/close", sessionId=session) == {}
        assert (await editor.response(id))["result"] == {"stopReason": "cancelled"}
        with pytest.raises(RpcError) as caught:
            await editor.prompt(session, "more")
        assert caught.value.code == -32002
        await editor.call("session/load", sessionId=session, cwd=str(bench.cwd))
        bench.script(say("back"))
        assert await editor.prompt(session, "more") == {"stopReason": "end_turn"}


async def test_deleted_sessions_leave_the_list(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await _history(bench, editor)
        (item,) = (await editor.call("session/list"))["sessions"]
        assert item["sessionId"] == session and item["title"] and item["updatedAt"].endswith("Z")
        assert await editor.call("session/delete", sessionId=session) == {}
        assert await editor.call("session/list") == {"sessions": []}


async def test_a_fork_continues_with_the_history_of_its_parent(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await _history(bench, editor)
        result = await editor.call("session/fork", sessionId=session, cwd=str(bench.cwd))
        child = result["sessionId"]
        assert child != session and result["configOptions"]
        bench.script(say("forked"))
        assert await editor.prompt(child, "go") == {"stopReason": "end_turn"}
        texts = [message.text for message in bench.model.requests[-1].messages]
        assert "All done." in texts and "Change it" in texts


# ---------------------------------------------------------------- lists


async def test_lists_are_filtered_before_they_are_paged(bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with bench.editor() as editor:
        await editor.initialize()
        bench.script(*[say("x") for _ in range(61)])
        mine = await editor.new()
        await editor.prompt(mine, "mine")
        for _ in range(60):
            await editor.prompt(await editor.new(cwd=str(other)), "other")
        assert await editor.new()  # never used, so not listed
        first = await editor.call("session/list", cwd=str(bench.cwd), cursor=None)
        assert [item["sessionId"] for item in first["sessions"]] == [mine]
        assert "nextCursor" not in first
        everything: list[str] = []
        page = await editor.call("session/list")
        assert len(page["sessions"]) == 50
        while True:
            everything += [item["sessionId"] for item in page["sessions"]]
            if "nextCursor" not in page:
                break
            page = await editor.call("session/list", cursor=page["nextCursor"])
        assert len(everything) == len(set(everything)) == 61
        assert await editor.call("session/list", cwd="/unused") == {"sessions": []}
        for bad in ({"cursor": "garbage"}, {"cursor": "ü"}, {"cwd": "relative"}):
            with pytest.raises(RpcError) as caught:
                await editor.call("session/list", **bad)
            assert caught.value.code == -32602


async def test_additional_directories_are_kept_and_listed(bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("b\n", encoding="utf-8")
    bench.script(use(("c1", "read", {"file_path": str(other / "b.txt")})), say("read"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new(additionalDirectories=[str(other)])
        assert await editor.prompt(session, "hi") == {"stopReason": "end_turn"}
        assert editor.asked("session/request_permission") == []
        (item,) = (await editor.call("session/list"))["sessions"]
        assert item["additionalDirectories"] == [str(other)]
        with pytest.raises(RpcError) as caught:
            await editor.new(additionalDirectories=["relative"])
        assert caught.value.code == -32602


# ---------------------------------------------------------------- keys and settings


async def test_a_missing_key_asks_for_sign_in_until_there_is_one(bench: Bench) -> None:
    bench.model.has_key = False
    async with bench.editor() as editor:
        await editor.initialize()
        with pytest.raises(RpcError) as caught:
            await editor.new()
        assert caught.value.code == -32000
        assert "login" in caught.value.message and caught.value.data["authMethods"]
        with pytest.raises(RpcError) as caught:
            await editor.call("authenticate", methodId="api-key")
        assert caught.value.code == -32000
        bench.model.has_key = True
        assert await editor.call("authenticate", methodId="api-key") == {}
        assert await editor.new()
        with pytest.raises(RpcError) as caught:
            await editor.call("authenticate", methodId="nope")
        assert caught.value.code == -32602
        assert await editor.call("logout") == {}


async def test_settings_that_cannot_be_used_are_said_when_a_session_is_opened(
    bench: Bench,
) -> None:
    from dsh_acp.errors import ConfigError

    broken = ConfigError(["config.toml: permission must be one of plan, ask"])
    good = bench.settings

    def load():  # type: ignore[no-untyped-def]
        if broken is not None:
            raise broken
        return good()

    bench.settings = load  # type: ignore[method-assign]
    async with bench.editor() as editor:
        assert (await editor.initialize())["protocolVersion"] == 1
        with pytest.raises(RpcError, match="permission must be one of"):
            await editor.new()
        broken = None  # type: ignore[assignment]
        assert await editor.new()


async def test_a_model_that_is_gone_is_replaced_and_said(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await _history(bench, editor)
    bench.model.name = "renamed"
    bench.options["model"] = "renamed/one"
    async with bench.editor() as editor:
        await editor.initialize(session={"notices": {}})
        result = await editor.call("session/load", sessionId=session, cwd=str(bench.cwd))
        model = next(o for o in result["configOptions"] if o["id"] == "model")
        assert model["currentValue"] == "renamed/one"
        assert "fake/one is not available" in editor.updates("notice")[0]["description"]
        await anyio.wait_all_tasks_blocked()


async def test_a_session_has_one_owner_and_the_other_is_told(bench: Bench) -> None:
    async with bench.editor() as first, bench.editor() as second:
        await first.initialize()
        await second.initialize()
        session = await _history(bench, first)
        with pytest.raises(RpcError) as caught:
            await second.call("session/load", sessionId=session, cwd=str(bench.cwd))
        assert caught.value.code == -32603 and caught.value.data == {"code": "LOCKED"}
        assert await second.new()
        await first.call("session/close", sessionId=session)
        await second.call("session/load", sessionId=session, cwd=str(bench.cwd))


async def test_a_log_that_is_lost_fails_the_prompt_in_words_and_nothing_else(
    bench: Bench,
) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await _history(bench, editor)
        (path,) = bench.home.glob(f"sessions/*/{session}/*.jsonl")
        path.unlink()
        bench.script(say("never heard"))
        with pytest.raises(RpcError) as caught:
            await editor.prompt(session, "more")
        assert caught.value.code == -32603 and "log" in caught.value.message
        bench.model.replies.clear()
        bench.script(say("fine"))
        assert await editor.prompt(await editor.new(), "hi") == {"stopReason": "end_turn"}


async def test_two_loads_of_one_session_at_once_share_it(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await _history(bench, editor)
        await editor.call("session/close", sessionId=session)
        params = {"sessionId": session, "cwd": str(bench.cwd)}
        ids = [editor.start("session/load", **params) for _ in range(2)]
        for id in ids:
            assert "result" in await editor.response(id)
        bench.script(say("zebra"))
        assert await editor.prompt(session, "hi") == {"stopReason": "end_turn"}
        assert editor.said().count("zebra") == 1


async def test_a_session_with_a_damaged_end_loads_and_goes_on(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await _history(bench, editor)
    (path,) = bench.home.glob(f"sessions/*/{session}/*.jsonl")
    _tear(path)
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.call("session/load", sessionId=session, cwd=str(bench.cwd))
        bench.script(say("again"))
        assert await editor.prompt(session, "hi") == {"stopReason": "end_turn"}


def _tear(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: -len(data.splitlines()[-1]) // 2 - 1])


async def test_closing_the_connection_leaves_complete_logs(bench: Bench) -> None:
    bench.script([*say("partial")[:2], forever])
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        editor.start("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "q"}])
        await editor.until(lambda: editor.said() == "partial")
    (path,) = bench.home.glob(f"sessions/*/{session}/*.jsonl")
    last = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][-1]
    assert last["type"] == "turn/end" and last["data"]["reason"]["kind"] == "aborted"


async def test_a_long_session_that_is_closed_leaves_no_memory_behind(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        bench.script(say("x"))
        session = await editor.new()
        await editor.prompt(session, "one")
        await editor.call("session/close", sessionId=session)
        [path] = bench.home.rglob("session.jsonl")
        seq = json.loads(path.read_bytes().splitlines()[-1])["seq"]
        with path.open("a", encoding="utf-8") as file:
            for number in range(seq + 1, seq + 20_000):
                event = {"type": "x", "seq": number, "time": 1, "data": {}, "ignorable": True}
                file.write(json.dumps(event) + "\n")
        await editor.call("session/load", sessionId=session, cwd=str(bench.cwd), mcpServers=[])
        log = weakref.ref(editor.bridge.sessions.live[session].session.log)
        with collector_paused():
            await editor.call("session/close", sessionId=session)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            assert log() is None
