"""Servers that misbehave: none of them hangs, ends or misleads us."""

import os
import signal
from typing import Any

import anyio
import pytest

from dsh_acp.errors import LspError
from dsh_acp.lsp.findings import Place
from dsh_acp.lsp.place import Limits


@pytest.mark.parametrize(
    "mode",
    [
        "good",
        "flood",
        "exit",
        "noise on stdout",
        "notebooks",
        "asks",
        "other answers",
        "answers twice",
        "at work",
        "changes its mind",
        "ignores the end",
    ],
)
async def test_an_answer_comes_from_a_server_that_does_odd_things(bench: Any, mode: str) -> None:
    server = await bench.use(mode)
    assert await bench.define(server) == [Place(str(bench.file), 2, 3)]
    assert await bench.define(server) or mode in ("at work", "changes its mind")


@pytest.mark.parametrize(
    ("mode", "code", "words"),
    [
        ("nonsense", "MALFORMED", "its answer makes no sense"),
        ("dies", "ENDED", "it exited with code 9; its last words: fatal error: out of ideas"),
        ("refuses", "REFUSED", "it refused textDocument/definition: not today"),
        ("endless message", "ENDED", "it ended"),
        ("broken json", "ENDED", "it ended"),
        ("deep json", "ENDED", "it ended"),
    ],
)
async def test_a_failure_is_told_in_words(bench: Any, mode: str, code: str, words: str) -> None:
    server = await bench.use(mode)
    with pytest.raises(LspError) as caught:
        await bench.define(server)
    assert (caught.value.code, str(caught.value)[: len(words)]) == (code, words)


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("dies at start", "ENDED"),
        ("hangs at start", "TIMEOUT"),
        ("nonsense at start", "MALFORMED"),
    ],
)
async def test_a_server_that_does_not_start_leaves_nothing(
    bench: Any, mode: str, code: str
) -> None:
    bench.limits = Limits(start_s=1, farewell_s=0.1)
    with pytest.raises(LspError) as caught:
        await bench.use(mode)
    assert caught.value.code == code
    if mode == "dies at start":
        assert str(caught.value) == "it exited with code 3; its last words: error: no licence"
    assert bench.alive == []


async def test_a_program_that_is_not_there_is_told(bench: Any) -> None:
    def start(*_: Any) -> Any:
        raise FileNotFoundError(2, "No such file or directory")

    bench.start = start
    with pytest.raises(LspError, match="cannot be started: No such file") as caught:
        await bench.use("good")
    assert caught.value.code == "NOT_STARTED"


async def test_a_server_that_does_not_answer_is_left_and_started_anew(bench: Any) -> None:
    bench.limits = Limits(request_s=0.2, farewell_s=0.1)
    server = await bench.use("hangs")
    for _ in range(2):
        with pytest.raises(LspError, match="did not answer") as caught:
            await bench.define(server)
        assert caught.value.code == "TIMEOUT"
    assert server.has_ended
    assert await bench.use("hangs") is not server
    assert len(bench.pids) == 2


async def test_a_cancelled_question_is_cancelled_at_the_server_too(bench: Any) -> None:
    server = await bench.use("hangs")
    async with anyio.create_task_group() as group:
        group.start_soon(bench.define, server)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    with anyio.fail_after(30):
        while "cancelled" not in bench.notes:  # noqa: ASYNC110 - another process tells
            await anyio.sleep(0.005)
    assert not server.has_ended


async def test_a_server_that_was_killed_is_started_again_but_not_for_ever(bench: Any) -> None:
    for count in range(1, 4):
        server = await bench.use("good")
        assert len(bench.pids) == count
        os.kill(bench.pids[-1], signal.SIGKILL)
        with anyio.fail_after(30):
            while not server.has_ended:  # noqa: ASYNC110 - another process ends
                await anyio.sleep(0.005)
    with pytest.raises(LspError, match="it ended 3 times and is not started again"):
        await bench.use("good")


async def test_what_a_server_asks_is_answered_without_effect(bench: Any) -> None:
    bench.options = {"settings": '{"a": {"b": {"c": 1}}}'}
    await bench.define(await bench.use("asks"))
    answers = "\n".join(bench.notes)
    assert '"id": 1, "result": [{"c": 1}]' in answers
    assert '"applied": false' in answers
    assert '"code": -32601' in answers
    assert '"code": -32602' in answers


async def test_one_server_serves_all_sessions_of_a_workspace(bench: Any) -> None:
    first, second = await bench.use("good", "me"), await bench.use("good", "you")
    assert first is second
    await bench.pool.release("me")
    assert bench.pool.running(str(bench.root), ("unruly",)) == [first]
    await bench.pool.release("you")
    assert bench.pool.running(str(bench.root), ("unruly",)) == []


async def test_sessions_that_ask_at_once_share_a_start(bench: Any) -> None:
    found: list[Any] = []

    async def use(owner: str) -> None:
        found.append(await bench.use("good", owner))

    async with anyio.create_task_group() as group:
        for owner in ("me", "you"):
            group.start_soon(use, owner)
    assert found[0] is found[1]
    assert len(bench.pids) == 1


async def test_a_text_that_looks_like_a_message_is_only_a_text(bench: Any) -> None:
    server = await bench.use("good")
    found = await server.hover(str(bench.file), 1, 1, bench.read)
    assert found == '{"jsonrpc": "2.0"}'


async def test_findings_are_about_the_text_as_it_is_now(bench: Any) -> None:
    server = await bench.use("good")
    with anyio.fail_after(30):
        assert await server.check(str(bench.file), bench.read, 5) == ([], True)
        bench.file.write_text("bad\n", encoding="utf-8")
        found, is_current = await server.check(str(bench.file), bench.read, 5)
        assert is_current
        assert [each.severity for each in found] == ["error", "warning", "hint"]
        assert found[0].message == "bad 1"
        bench.file.write_text("fine\n", encoding="utf-8")
        assert await server.check(str(bench.file), bench.read, 5) == ([], True)


async def test_findings_that_do_not_come_are_not_made_up(bench: Any) -> None:
    server = await bench.use("checks slowly")
    with anyio.fail_after(30):
        assert await server.check(str(bench.file), bench.read, 0.1) == ([], False)


async def test_a_file_that_vanished_is_closed_at_the_server(bench: Any) -> None:
    server = await bench.use("good")
    other = bench.root / "two.x"
    other.write_text("x", encoding="utf-8")
    with anyio.fail_after(30):
        await server.check(str(other), bench.read, 5)
        other.unlink()
        assert await bench.define(server)
        other.write_text("bad", encoding="utf-8")
        found, is_current = await server.check(str(other), bench.read, 5)
    assert is_current
    assert len(found) == 3


async def test_no_descriptor_stays_open(bench: Any) -> None:
    await bench.use("good")
    await bench.pool.release("me")
    before = len(os.listdir("/proc/self/fd"))
    for mode in ("good", "flood", "ignores the end"):
        await bench.define(await bench.use(mode))
        await bench.pool.release("me")
    assert len(os.listdir("/proc/self/fd")) == before
