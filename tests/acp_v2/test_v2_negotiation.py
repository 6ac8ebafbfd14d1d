"""Which version a connection speaks, and what that rules out."""

from typing import Any

import anyio
import pytest
from v2_bench import INFO, Bench, Editor

from dsh_acp.acp import v1_handshake, v2_handshake
from dsh_acp.wire.frames import RpcError

V1_SHAPED = {"clientCapabilities": {"fs": {"readTextFile": True}}, "clientInfo": {"name": "x"}}


async def code(editor: Editor, method: str, **params: Any) -> int | None:
    frame = await editor.response(editor.start(method, **params))
    return frame["error"]["code"] if "error" in frame else None


@pytest.mark.parametrize("params", [{"info": INFO}, V1_SHAPED, {"info": 5, "capabilities": []}])
@pytest.mark.parametrize("asked", [3, 65535])
async def test_a_later_version_gets_the_newest_whatever_its_params_look_like(
    bench: Bench, asked: int, params: dict[str, Any]
) -> None:
    async with bench.editor() as editor:
        result = await editor.call("initialize", protocolVersion=asked, **params)
        assert result["protocolVersion"] == 2
        assert result["info"]["name"] and result["info"]["version"]


@pytest.mark.parametrize(
    "params",
    [{}, V1_SHAPED, {"info": {"name": "x"}}, {"info": {"name": "", "version": "1"}}]
    + [{"info": INFO, "capabilities": value} for value in ([], True, 5)]
    + [
        {"info": INFO, "capabilities": value}
        for value in ({"auth": {"terminal": True}}, {"auth": 1}, {"elicitation": {"form": "yes"}})
    ],
)
async def test_version_2_wants_its_own_params_and_another_try_is_open(
    bench: Bench, params: dict[str, Any]
) -> None:
    async with bench.editor() as editor:
        assert await code(editor, "initialize", protocolVersion=2, **params) == -32602
        assert (await editor.initialize())["protocolVersion"] == 2


async def test_capabilities_that_are_not_known_are_not_looked_at(bench: Bench) -> None:
    async with bench.editor() as editor:
        known: dict[str, Any] = {"auth": None, "elicitation": {"form": None, "voice": 5}}
        assert await editor.initialize(**known, fs={"readTextFile": True}, session=7, _x=[])
        client = editor.bridge.client
        assert (client.forms, client.urls, client.auth_terminal) == (False, False, False)


async def test_a_version_below_all_names_those_there_are(bench: Bench) -> None:
    async with bench.editor() as editor:
        with pytest.raises(RpcError) as caught:
            await editor.call("initialize", protocolVersion=0, info=INFO)
        assert caught.value.code == -32022
        assert caught.value.data == {"requested": 0, "supported": [1, 2]}


async def test_markers_are_objects_and_the_prompt_kinds_are_those_that_are_read(
    bench: Bench,
) -> None:
    async with bench.editor() as editor:
        session = (await editor.initialize())["capabilities"]["session"]
        assert session["prompt"] == {"image": {}, "audio": {}, "embeddedContext": {}}
        assert session["mcp"] == {"stdio": {}, "http": {}}
        assert session["delete"] == session["additionalDirectories"] == {}


async def test_a_terminal_sign_in_is_offered_only_where_terminals_are(bench: Bench) -> None:
    async with bench.editor() as editor:
        (agent,) = (await editor.initialize())["authMethods"]
        assert agent["type"] == "agent"
        result = await editor.initialize(auth={"terminal": {}})
        terminal = result["authMethods"][1]
        assert (terminal["type"], terminal["args"]) == ("terminal", ["--login"])
        assert await editor.call("auth/login", methodId="api-key") == {}
        assert await code(editor, "auth/login", methodId="nope") == -32602
        assert await editor.call("auth/logout") == {}


async def test_without_a_key_sessions_want_a_sign_in(bench: Bench) -> None:
    bench.model.has_key = False
    async with bench.editor() as editor:
        await editor.initialize()
        assert await code(editor, "session/new", cwd=str(bench.cwd)) == -32000
        assert await code(editor, "auth/login", methodId="api-key") == -32000


@pytest.mark.parametrize("method", ["session/list", "session/new", "auth/login", "nonsense"])
async def test_nothing_is_answered_before_initialize(bench: Bench, method: str) -> None:
    async with bench.editor() as editor:
        assert await code(editor, method) == -32600
        editor.notify("session/cancel", sessionId="x")
        editor.send({"jsonrpc": "2.0", "id": 77, "result": {}})
        await anyio.wait_all_tasks_blocked()
        assert len(editor.frames) == 1
        assert (await editor.initialize())["protocolVersion"] == 2


async def test_what_follows_initialize_in_the_same_read_is_understood(bench: Bench) -> None:
    async with bench.editor() as editor:
        params = {"protocolVersion": 2, "info": INFO}
        editor.send(
            {"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params},
            {"jsonrpc": "2.0", "id": "l", "method": "session/list", "params": {}},
        )
        await editor.until(lambda: len(editor.frames) == 2)
        assert editor.frames[1] == {"jsonrpc": "2.0", "id": "l", "result": {"sessions": []}}


@pytest.mark.parametrize("version", [1, 2])
async def test_a_connection_has_the_methods_of_its_version_alone(
    bench: Bench, version: int
) -> None:
    own, other = v1_handshake.METHODS, v2_handshake.METHODS
    if version == 2:
        own, other = other, own
    async with bench.editor() as editor:
        await editor.call("initialize", protocolVersion=version, info=INFO)
        for method in own:
            assert await code(editor, method) != -32601, method
        for method in set(other) - set(own):
            assert await code(editor, method) == -32601, method


async def test_initialize_may_be_repeated_until_the_first_other_request(bench: Bench) -> None:
    async with bench.editor() as editor:
        assert (await editor.call("initialize", protocolVersion=1))["protocolVersion"] == 1
        assert (await editor.initialize())["protocolVersion"] == 2
        assert await code(editor, "initialize", protocolVersion=1) == -32600
        assert (await editor.initialize())["protocolVersion"] == 2
        assert await editor.call("session/list") == {"sessions": []}
        assert await code(editor, "initialize", protocolVersion=2, info=INFO) == -32600


async def test_version_1_may_be_asked_for_again_at_any_time_and_no_other(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.call("initialize", protocolVersion=1)
        await editor.call("session/list")
        assert (await editor.call("initialize", protocolVersion=1))["protocolVersion"] == 1
        assert await code(editor, "initialize", protocolVersion=2, info=INFO) == -32600


@pytest.mark.parametrize("id", ["null", "1.5", "1e3", "-0.0"])
@pytest.mark.parametrize("method", ["initialize", "session/list"])
async def test_ids_are_strings_or_integers(bench: Bench, id: str, method: str) -> None:
    async with bench.editor() as editor:
        if method != "initialize":
            await editor.initialize()
        params = '{"protocolVersion":2,"info":{"name":"x","version":"1"}}'
        line = f'{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}'
        editor.bridge.peer.feed([line.encode()])
        await anyio.wait_all_tasks_blocked()
        assert editor.frames[-1]["id"] is None
        assert editor.frames[-1]["error"]["code"] == -32600


async def test_an_array_is_no_frame(bench: Bench) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        for line in (b"[]", b'[{"jsonrpc":"2.0","id":1,"method":"session/list"}]'):
            editor.bridge.peer.feed([line])
            assert editor.frames[-1]["id"] is None
            assert editor.frames[-1]["error"]["code"] == -32600
        assert await editor.call("session/list") == {"sessions": []}
