"""Connections to real servers on stdio, the well-behaved and the others."""

from functools import partial
import json
import os
from pathlib import Path
import subprocess
import sys

import anyio
from mcp_bench import Bench, alive, children, official, plain
import psutil
import pytest

from dsh_acp.config import McpServerSettings
from dsh_acp.errors import McpError
from dsh_acp.mcp.servers import merged
from dsh_acp.mcp.values import Attached, Picture, PromptArgument, Words


async def test_a_server_of_the_official_sdk_offers_and_answers(mcp: Bench) -> None:
    async with mcp.running(official("sample")) as servers:
        await mcp.ready("sample")
        tools = {offered.name: offered.tool for offered in servers.tools()}
        assert list(tools) == sorted(tools)
        assert tools["mcp__sample__add"].description == "Add two numbers."
        assert tools["mcp__sample__add"].read_only is True
        assert tools["mcp__sample__fail"].destructive is True
        assert json.loads(tools["mcp__sample__add"].parameters)["required"] == ["a", "b"]
        assert await mcp.call("mcp__sample__add", a=20, b=22) == "42"
        assert await mcp.call("mcp__sample__structured") == '{"answer":42}'
        assert await mcp.call("mcp__sample__roots") == mcp.cwd.as_uri()
        connection = mcp.connection("mcp__sample__add")
        failed = await connection.call("fail", {}, lambda text: None)
        assert failed.is_error
        assert failed.pieces == (Words("no such record"),)
        steps: list[str] = []
        await connection.call("slowly", {}, steps.append)
        assert steps == ["1/2 half way\n", "2/2\n"]
        picture = await connection.call("picture", {}, lambda text: None)
        assert [type(piece) for piece in picture.pieces] == [Picture]
        kinds = await connection.call("resources", {}, lambda text: None)
        assert kinds.pieces == (
            Words("[a page](https://example.org/a)"),
            Words("file:///notes.md:\nremember"),
            Attached(b"\0\1", "application/x-data", "file:///data.bin"),
            Words("done"),
        )
        [prompt] = servers.prompts()
        assert prompt.name == "mcp__sample__review"
        assert prompt.prompt.arguments == (
            PromptArgument("path", True),
            PromptArgument("focus", False),
        )
        said = await connection.prompt("review", {"path": "a.py"})
        assert said.pieces == (Words("Review a.py, looking at everything."),)


async def test_a_server_runs_in_the_session_s_folder_with_the_variables_of_its_entry(
    mcp: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "of ours")
    record = tmp_path / "record"
    async with mcp.running(plain("p", env={"RECORD": str(record), "MY_TOKEN": "theirs"})):
        await mcp.ready("p")
        seen = await mcp.echo("mcp__p__echo", text="für alle", nothing=None)
        environment = psutil.Process(seen["pid"]).environ()
        assert seen["cwd"] == str(mcp.cwd)
        assert seen["arguments"] == {"text": "für alle", "nothing": None}
        assert environment["MY_TOKEN"] == "theirs"
        assert "SOME_API_KEY" not in environment
        assert os.getpgid(seen["pid"]) == seen["pid"] != os.getpgid(0)


async def test_what_cannot_be_started_is_said_at_once_and_harms_nobody_else(mcp: Bench) -> None:
    missing = McpServerSettings(name="missing", command="/no/such/program")
    async with mcp.running(missing, plain("ok")):
        await mcp.ready("ok")
        await mcp.until(lambda: mcp.state("missing") == "failed")
        reason = mcp.status("missing").reason
        assert reason == '"/no/such/program" cannot be started: No such file or directory'
        assert mcp.pauses == []
        assert (await mcp.echo("mcp__ok__echo"))["tool"] == "echo"


async def test_a_silent_server_keeps_nobody_waiting(mcp: Bench) -> None:
    async with mcp.running(plain("quiet", "--silent"), plain("ok"), connect_s=1000) as servers:
        await mcp.ready("ok")
        assert not await servers.settled(0)
        assert mcp.state("quiet") == "connecting"
        assert [offered.name for offered in servers.tools()] == ["mcp__ok__echo"]
    assert children() == []


async def test_a_server_that_never_answers_is_given_up_on_after_three_attempts(mcp: Bench) -> None:
    async with mcp.running(plain("quiet", "--silent"), connect_s=0.1) as servers:
        await mcp.until(lambda: len(mcp.statuses) == 3)
        assert await servers.settled(60)
        assert mcp.status("quiet").reason == "it did not answer within 0.1 s"
        assert mcp.pauses == [0.5, 1.0]


async def test_a_server_that_exits_at_once_is_reported_with_its_last_words(mcp: Bench) -> None:
    secret = "hunter2-hunter2"
    server = plain("bad", "--fail", f"no database at {secret}", env={"PASSWORD": secret})
    async with mcp.running(server):
        await mcp.until(lambda: len(mcp.statuses) == 3)
        assert {status.reason for status in mcp.statuses} == {
            "it exited with code 3: no database at …"
        }


async def test_a_server_that_works_at_the_second_attempt_is_used(
    mcp: Bench, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    async with mcp.running(plain("late", "--fail-until", str(flag))):
        await mcp.until(lambda: mcp.statuses)
        flag.touch()
        await mcp.ready("late")
        assert mcp.statuses[0].state == "failed"
        assert (await mcp.echo("mcp__late__echo"))["tool"] == "echo"


async def test_a_flood_on_stderr_and_noise_on_stdout_block_nothing(mcp: Bench) -> None:
    async with mcp.running(plain("loud", "--flood", "3000000", "--noise")):
        await mcp.ready("loud")
        assert (await mcp.echo("mcp__loud__echo", text="x" * 1_000_000))["tool"] == "echo"


async def test_a_server_that_exits_after_each_call_answers_fifty_and_leaves_no_zombie(
    mcp: Bench,
) -> None:
    async with mcp.running(plain("once", "--once")):
        await mcp.ready("once")
        pids: set[int] = set()
        for _ in range(50):
            pids.add((await mcp.echo("mcp__once__echo"))["pid"])
            await mcp.until(lambda: mcp.state("once") == "lost")
        assert len(pids) == 50
        assert mcp.pauses == []
        assert len(children()) <= 1
    assert children() == []


async def test_a_crash_fails_its_call_and_the_next_one_starts_the_server_again(mcp: Bench) -> None:
    async with mcp.running(plain("p")) as servers:
        await mcp.ready("p")
        with pytest.raises(McpError) as caught:
            await mcp.call("mcp__p__echo", do="crash")
        assert caught.value.code == "ENDED"
        assert "exited with code 4: a wheel came off" in str(caught.value)
        assert [offered.name for offered in servers.tools()] == ["mcp__p__echo"]
        assert (await mcp.echo("mcp__p__echo"))["tool"] == "echo"


async def test_restarts_wait_longer_the_more_often_nothing_came_of_them(mcp: Bench) -> None:
    async with mcp.running(plain("p")):
        await mcp.ready("p")
        for _ in range(7):
            with pytest.raises(McpError):
                await mcp.call("mcp__p__echo", do="crash")
        await mcp.echo("mcp__p__echo")
        assert mcp.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
        with pytest.raises(McpError):
            await mcp.call("mcp__p__echo", do="crash")
        await mcp.echo("mcp__p__echo")
        assert len(mcp.pauses) == 7


async def test_a_server_that_cannot_come_back_fails_calls_and_not_the_session(
    mcp: Bench, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    async with mcp.running(plain("p", "--fail-until", str(flag))):
        await mcp.ready("p")
        flag.unlink()
        for sentence in ("it ended before it answered", "it cannot be reached: it exited"):
            with pytest.raises(McpError) as caught:
                await mcp.call("mcp__p__echo", do="crash")
            assert str(caught.value).startswith(sentence)
        flag.touch()
        assert (await mcp.echo("mcp__p__echo"))["tool"] == "echo"


async def test_a_refusal_is_passed_on_in_the_server_s_words(mcp: Bench) -> None:
    async with mcp.running(plain("p")):
        await mcp.ready("p")
        with pytest.raises(McpError) as caught:
            await mcp.call("mcp__p__echo", do="refuse")
        assert (caught.value.code, str(caught.value)) == ("REFUSED", "not today")


async def test_cancelling_a_call_is_told_to_the_server(mcp: Bench, tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with mcp.running(plain("p", env={"RECORD": str(record)})):
        await mcp.ready("p")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(mcp.call, "mcp__p__echo", do="hang"))
            await _recorded(record, '"do":"hang"')
            tasks.cancel_scope.cancel()
        await _recorded(record, "notifications/cancelled")
        assert (await mcp.echo("mcp__p__echo"))["tool"] == "echo"


async def test_a_call_has_a_time_limit(mcp: Bench, tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with mcp.running(plain("p", env={"RECORD": str(record)}), call_s=0.2):
        await mcp.ready("p")
        with pytest.raises(McpError) as caught:
            await mcp.call("mcp__p__echo", do="hang")
        assert (caught.value.code, str(caught.value)) == (
            "TIMEOUT",
            "it did not answer within 0.2 s",
        )
        await _recorded(record, "notifications/cancelled")


async def test_a_changed_list_of_tools_is_read_again(mcp: Bench) -> None:
    async with mcp.running(plain("p")) as servers:
        await mcp.ready("p")
        await mcp.call("mcp__p__echo", do="grow")
        await mcp.until(lambda: len(servers.tools()) == 2)
        assert (await mcp.echo("mcp__p__more"))["tool"] == "more"


async def test_servers_end_with_the_session_whatever_they_do(mcp: Bench, tmp_path: Path) -> None:
    child = tmp_path / "child"
    async with mcp.running(plain("p", "--stubborn", "--child", str(child)), plain("q")):
        await mcp.ready("p", "q")
        pid = int(child.read_text(encoding="utf-8"))
        assert alive(pid)
    assert not alive(pid)
    assert children() == []


async def test_servers_end_when_this_process_is_killed(tmp_path: Path) -> None:
    record, code = tmp_path / "record", tmp_path / "main.py"
    code.write_text(
        "import anyio, os, signal, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from mcp_bench import Bench, plain\n"
        "async def main():\n"
        f"    bench = Bench(Path({str(tmp_path)!r}))\n"
        f"    server = plain('p', '--stubborn', env={{'RECORD': {str(record)!r}}})\n"
        "    async with bench.running(server):\n"
        "        await bench.ready('p')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "anyio.run(main)\n",
        encoding="utf-8",
    )
    done = await anyio.run_process([sys.executable, str(code)], check=False, stderr=subprocess.PIPE)
    assert done.returncode == -9, done.stderr
    pid = int(record.read_text(encoding="utf-8").split("\n")[0].split()[1])
    with anyio.fail_after(30):
        while alive(pid):  # noqa: ASYNC110 - nobody tells of it
            await anyio.sleep(0.02)


async def test_other_servers_can_be_asked_for_while_the_session_runs(mcp: Bench) -> None:
    async with mcp.running(plain("a"), plain("b")) as servers:
        await mcp.ready("a", "b")
        pid = (await mcp.echo("mcp__a__echo"))["pid"]
        servers.use([plain("a"), plain("b", "--tools", '["other"]')])
        await mcp.until(lambda: mcp.state("b") == "ready")
        assert [offered.name for offered in servers.tools()] == ["mcp__a__echo", "mcp__b__other"]
        assert (await mcp.echo("mcp__a__echo"))["pid"] == pid


async def test_odd_and_long_tool_names_reach_their_tools(mcp: Bench) -> None:
    names = ["read file", "read_file", "日本", "x" * 90, "x" * 90 + "y", ""]
    async with mcp.running(plain("My Server!", "--tools", json.dumps(names))) as servers:
        await mcp.ready("My Server!")
        offered = servers.tools()
        assert len({tool.name for tool in offered}) == len(names)
        for tool in offered:
            assert tool.name.startswith("mcp__My_Server__")
            assert (await mcp.echo(tool.name))["tool"] == tool.tool.name


def test_what_the_client_passes_wins_over_the_configuration() -> None:
    own, passed, other = plain("x", "own"), plain("x", "passed"), plain("a")
    assert merged([own, other], [passed]) == (other, passed)


def test_the_package_is_imported_without_the_sdk() -> None:
    code = (
        "import sys\n"
        "import dsh_acp.mcp.servers, dsh_acp.tools.remote\n"
        "print(sorted({'mcp', 'mcp_types', 'httpx2', 'pydantic', 'asyncio'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.strip() == "[]"


async def _recorded(record: Path, text: str) -> None:
    with anyio.fail_after(30):
        while text not in record.read_text(encoding="utf-8"):  # noqa: ASYNC110, ASYNC240 - as above
            await anyio.sleep(0.01)
