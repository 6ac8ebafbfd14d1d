"""The scripted client against a real process."""

from pathlib import Path

import anyio
import pytest

from dsh_acp.snapshot.calls import AgentEnded
from dsh_acp.snapshot.client import Client
from dsh_acp.snapshot.desk import RpcError


async def test_a_prompt_is_answered_and_its_updates_are_kept(fake: list[str], tmp_path: Path):
    with anyio.fail_after(30):
        async with Client.spawn(fake, tmp_path) as client:
            await client.initialize()
            sid = await client.new_session(tmp_path)
            assert await client.prompt(sid, "hello") == {"stopReason": "end_turn"}
            assert client.text(sid) == "Echo: hello"
            assert len(client.updates(sid)) == 1
            assert client.updates("another") == []
    assert [line.sent for line in client.lines] == [True, False, True, False, True, False, False]
    assert [frame.get("id") for frame in client.frames] == [0, 1, None, 2]


async def test_an_error_answer_raises_with_code_and_message(fake: list[str], tmp_path: Path):
    with anyio.fail_after(30):
        async with Client.spawn(fake, tmp_path) as client:
            with pytest.raises(RpcError, match="Method not found") as caught:
                await client.request("session/dance")
            assert caught.value.code == -32601


async def test_what_an_ended_agent_still_owed_raises_instead_of_hanging(
    fake: list[str], tmp_path: Path
):
    with anyio.fail_after(30):
        async with Client.spawn(fake, tmp_path) as client:
            await client.initialize()
            sid = await client.new_session(tmp_path)
            with pytest.raises(AgentEnded, match="session/prompt"):
                await client.prompt(sid, "die")
            with pytest.raises(AgentEnded):
                await client.until(lambda frame: frame.get("method") == "never")
            with pytest.raises(AgentEnded):
                await client.new_session(tmp_path)
            assert await client.close() == 3


async def test_a_line_that_is_not_json_is_kept_as_garbage(fake: list[str], tmp_path: Path):
    with anyio.fail_after(30):
        async with Client.spawn(fake, tmp_path) as client:
            await client.initialize()
            await client.prompt(await client.new_session(tmp_path), "garbage")
    assert client.garbage == [b"hello, I am not JSON"]


async def test_scripted_permissions_are_used_in_order_and_then_cancelled(
    fake: list[str], tmp_path: Path
):
    with anyio.fail_after(30):
        async with Client.spawn(fake, tmp_path) as client:
            await client.initialize()
            sid = await client.new_session(tmp_path)
            client.desk.script(
                [{"kind": "allow_once"}, {"optionId": "x"}, {"kind": "allow_always"}]
            )
            for _ in range(4):
                await client.prompt(sid, "ask")
            texts = [update["content"]["text"] for update in client.updates(sid)]
            assert ['"yes"' in texts[0], '"x"' in texts[1]] == [True, True]
            assert all('"outcome": "cancelled"' in text for text in texts[2:])
            assert client.desk.faults == [
                "permission answer 'allow_always' is not among ['allow_once']"
            ]


async def test_a_held_question_is_answered_cancelled_when_the_turn_is(
    fake: list[str], tmp_path: Path
):
    with anyio.fail_after(30):
        async with Client.spawn(fake, tmp_path) as client:
            await client.initialize()
            sid = await client.new_session(tmp_path)
            client.desk.script([{"hold": True}], [{"hold": True}])
            for text in ("ask", "form"):
                call = client.start_prompt(sid, text)
                await client.until(lambda frame: frame.get("id") in client.held)
                client.cancel(sid)
                assert await call.result() == {"stopReason": "end_turn"}
                assert not client.held
            assert '"outcome": "cancelled"' in client.text(sid)
            assert '"action": "cancel"' in client.text(sid)


async def test_an_unsaved_buffer_hides_the_disk_and_takes_the_write(
    fake: list[str], tmp_path: Path
):
    path = tmp_path / "a.txt"
    path.write_text("disk\n", encoding="utf-8")
    with anyio.fail_after(30):
        async with Client.spawn(fake, tmp_path) as client:
            await client.initialize()
            sid = await client.new_session(tmp_path)
            client.buffers.unsaved[str(path)] = "buffer\n"
            await client.prompt(sid, f"read {path}")
            assert '"content": "buffer\\n"' in client.text(sid)
            await client.prompt(sid, f"write {path} new")
            assert client.buffers.unsaved[str(path)] == "new"
            assert path.read_text(encoding="utf-8") == "new"
            await client.prompt(sid, f"read {tmp_path}/missing")
            assert '"code": -32002' in client.text(sid)


async def test_a_terminal_runs_the_command_and_tells_how_it_ended(fake: list[str], tmp_path: Path):
    with anyio.fail_after(30):
        async with Client.spawn(fake, tmp_path) as client:
            await client.initialize()
            await client.prompt(
                await client.new_session(tmp_path), "run echo out; echo é >&2; exit 7"
            )
            assert '"exitCode": 7' in client.text()
            assert '"output": "out\\n\\u00e9\\n"' in client.text()
            assert client.terminals.released == ["term-1"]
            assert client.terminals.live == {}


async def test_an_agent_that_stays_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with anyio.fail_after(30):
        with pytest.raises(ZeroDivisionError):
            async with Client.spawn(["sleep", "60"], tmp_path) as client:
                _ = 1 // 0
    assert client.process.returncode == -9
