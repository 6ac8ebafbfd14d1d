from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
import json
from typing import Any

import anyio
import msgspec
import pytest

from dsh_acp.wire.frames import RpcError
from dsh_acp.wire.jsonrpc import DEFERRED, Call, Closed, Handler, Peer

ANY = msgspec.json.Decoder()


class Wire:
    """A peer whose output is a list of frames."""

    def __init__(self, handlers: dict[str, Handler]) -> None:
        self.sent: list[dict[str, Any]] = []
        self.writes = 0
        self._news = anyio.Event()
        self.peer = Peer(self._write, handlers)

    def _write(self, data: bytes) -> None:
        self.writes += 1
        self.sent += [json.loads(line) for line in data.splitlines()]
        self._news.set()

    def feed(self, *messages: dict[str, Any]) -> None:
        self.peer.feed([json.dumps(message).encode() for message in messages])

    async def until(self, count: int) -> list[dict[str, Any]]:
        with anyio.fail_after(30):
            while len(self.sent) < count:
                self._news = anyio.Event()
                await self._news.wait()
        return self.sent


@asynccontextmanager
async def wire(**handlers: Handler) -> AsyncIterator[Wire]:
    async with anyio.create_task_group() as tasks:
        made = Wire(handlers)
        made.peer.start(tasks)
        yield made
        tasks.cancel_scope.cancel()


def call(id: Any, method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def handler(body: Callable[[Call], Any]) -> Handler:
    async def handle(call: Call) -> Any:
        return body(call)

    return handle


def boom(call: Call) -> Any:
    raise RuntimeError("secret detail")


def refuse(call: Call) -> Any:
    raise RpcError(-32002, "Not found.", {"sessionId": "x"})


async def test_a_call_is_answered_once_with_its_result() -> None:
    async with wire(echo=handler(lambda call: call.decode(ANY))) as it:
        it.feed(call(0, "echo", {"a": [1]}))
        assert await it.until(1) == [{"jsonrpc": "2.0", "id": 0, "result": {"a": [1]}}]


async def test_notifications_are_never_answered(capsys: pytest.CaptureFixture[str]) -> None:
    async with wire(boom=handler(boom), ok=handler(lambda call: {})) as it:
        it.feed(
            {"method": "session/some_future_notification", "params": {}},
            {"method": "$/progress"},
            {"method": "boom"},
            {"method": "ok"},
            {"method": "$/cancel_request", "params": {"requestId": 99}},
            {"method": "$/cancel_request", "params": [1]},
            call(1, "ok"),
        )
        assert [frame["id"] for frame in await it.until(1)] == [1]
    assert "secret detail" in capsys.readouterr().err


async def test_unknown_methods_bugs_and_refusals_have_their_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with wire(boom=handler(boom), refuse=handler(refuse)) as it:
        it.feed(call(1, "nope"), call("b", "boom"), call(None, "refuse"))
        sent = {json.dumps(frame["id"]): frame["error"] for frame in await it.until(3)}
    assert sent["1"] == {
        "code": -32601,
        "message": "Method not found: nope",
        "data": {"method": "nope"},
    }
    assert sent['"b"'] == {"code": -32603, "message": "Internal error"}
    assert sent["null"] == {"code": -32002, "message": "Not found.", "data": {"sessionId": "x"}}
    assert "secret detail" in capsys.readouterr().err


async def test_wrong_params_name_the_field() -> None:
    class Params(msgspec.Struct):
        cwd: str

    decoder = msgspec.json.Decoder(Params)
    async with wire(new=handler(lambda call: call.decode(decoder).cwd)) as it:
        it.feed(call(1, "new", {"cwd": 5}), call(2, "new"), call(3, "new", "x"))
        errors = [frame["error"] for frame in await it.until(3)]
    assert [error["code"] for error in errors] == [-32602] * 3
    assert "$.cwd" in errors[0]["message"] and "cwd" in errors[1]["message"]


async def test_malformed_lines_leave_the_connection_working() -> None:
    async with wire(ok=handler(lambda call: {})) as it:
        it.peer.feed([b'{"id":7,"method":', b"[1]", b'{"id":8,"method":"ok"}'])
        frames = await it.until(3)
    assert [frame.get("error", {}).get("code") for frame in frames] == [-32700, -32600, None]
    assert frames[2]["id"] == 8


async def test_calls_start_in_order_and_run_concurrently() -> None:
    order: list[str] = []
    gate = anyio.Event()

    async def slow(call: Call) -> Any:
        order.append("slow")
        await gate.wait()
        return "slow"

    async def quick(call: Call) -> Any:
        order.append("quick")
        gate.set()
        return "quick"

    async with wire(slow=slow, quick=quick) as it:
        it.feed(call(1, "slow"), call(2, "quick"))
        frames = await it.until(2)
    assert order == ["slow", "quick"]
    assert [frame["id"] for frame in frames] == [2, 1]


async def test_a_reply_and_what_follows_it_leave_in_one_write() -> None:
    async def new(call: Call) -> Any:
        call.reply({"ok": True}, then=[b'{"method":"after"}\n'])
        call.reply({"twice": True})
        return DEFERRED

    async with wire(new=new) as it:
        it.feed(call(1, "new"))
        frames = await it.until(2)
        assert it.writes <= 2 and len(frames) == 2
    assert frames[0]["result"] == {"ok": True} and frames[1] == {"method": "after"}


async def test_a_running_call_can_be_cancelled_by_its_peer() -> None:
    started = anyio.Event()

    async def hang(call: Call) -> Any:
        started.set()
        await anyio.sleep_forever()

    async with wire(hang=hang) as it:
        it.feed(call("a", "hang"))
        with anyio.fail_after(30):
            await started.wait()
        it.feed({"method": "$/cancel_request", "params": {"requestId": "a"}})
        assert (await it.until(1))[0]["error"]["code"] == -32800


async def test_a_deferred_call_decides_itself_what_cancelling_means() -> None:
    async def prompt(call: Call) -> Any:
        call.cancelled = lambda: call.reply({"stopReason": "cancelled"})
        return DEFERRED

    async with wire(prompt=prompt) as it:
        it.feed(call(6, "prompt"))
        await anyio.wait_all_tasks_blocked()
        cancel = {"method": "$/cancel_request", "params": {"requestId": 6}}
        it.feed(cancel, cancel)
        assert await it.until(1) == [
            {"jsonrpc": "2.0", "id": 6, "result": {"stopReason": "cancelled"}}
        ]


async def test_own_requests_count_from_zero_and_match_their_answers() -> None:
    async with wire() as it:
        answers: list[Any] = []

        async def ask(method: str) -> None:
            try:
                answers.append((method, ANY.decode(await it.peer.request(method, {}))))
            except RpcError as exc:
                answers.append((method, exc.code))

        async with anyio.create_task_group() as asking:
            asking.start_soon(ask, "a")
            asking.start_soon(ask, "b")
            frames = await it.until(2)
            assert [frame["id"] for frame in frames] == [0, 1]
            it.feed(
                {"id": 1, "error": {"code": -32601, "message": "no"}},
                {"id": 77, "result": 1},
                {"id": 0, "result": {"x": 1}},
            )
    assert sorted(answers) == [("a", {"x": 1}), ("b", -32601)]


async def test_an_abandoned_request_is_cancelled_and_its_late_answer_ignored() -> None:
    async with wire() as it:
        with anyio.move_on_after(0):
            await it.peer.request("ask", {})
        frames = await it.until(2)
        assert frames[1] == {
            "jsonrpc": "2.0",
            "method": "$/cancel_request",
            "params": {"requestId": 0},
        }
        it.feed({"id": 0, "result": {}})


async def test_a_frame_with_nothing_but_an_id_is_an_empty_answer_or_refused() -> None:
    async with wire() as it:
        it.feed({"jsonrpc": "2.0", "id": "mine"})
        (refused,) = it.sent
        assert (refused["id"], refused["error"]["code"]) == ("mine", -32600)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.peer.request, "ask", {})
            await it.until(2)
            it.feed({"jsonrpc": "2.0", "id": 0})
        with anyio.move_on_after(0):
            await it.peer.request("ask", {})
        await it.until(4)
        # Late and empty: the sender has no call of this id that waits.
        it.feed({"jsonrpc": "2.0", "id": 1})
        assert len(it.sent) == 4


async def test_closing_ends_every_open_request() -> None:
    async with wire() as it:

        async def ask() -> None:
            with pytest.raises(Closed):
                await it.peer.request("ask", {})

        with anyio.fail_after(30):
            async with anyio.create_task_group() as asking:
                asking.start_soon(ask)
                await it.until(1)
                it.peer.close()
        with pytest.raises(Closed):
            await it.peer.request("ask", {})


async def test_two_peers_joined_understand_each_other() -> None:
    async with anyio.create_task_group() as tasks:
        left: Peer
        right = Peer(lambda data: left.feed(data.splitlines()), {})
        left = Peer(lambda data: right.feed(data.splitlines()), {})
        right.handlers = {"double": handler(lambda call: call.decode(ANY) * 2)}
        left.start(tasks)
        right.start(tasks)
        with anyio.fail_after(30):
            assert ANY.decode(await left.request("double", [1])) == [1, 1]
        with pytest.raises(RpcError, match="Method not found"), anyio.fail_after(30):
            await right.request("double", [1])
