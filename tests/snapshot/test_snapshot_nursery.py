"""Processes of the nursery: forked, and else like any other."""

from collections.abc import Iterator
import json
import os
from pathlib import Path
import sys

import anyio
import pytest

from dsh_acp.snapshot.agents import agent_env
from dsh_acp.snapshot.children import Child
from dsh_acp.snapshot.client import Client
from dsh_acp.snapshot.nursery import Nursery

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forking is for Linux alone")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()


def start(nursery: Nursery, home: Path, *argv: str, **env: str) -> Child:
    child = nursery.start(argv, str(home), agent_env(home, "local", **env))
    assert child is not None
    return child


async def said(child: Child) -> tuple[str, str, int]:
    """What a process prints, on both streams, and its exit code."""
    texts = ["", ""]

    async def read(at: int) -> None:
        stream = (child.stdout, child.stderr)[at]
        try:
            while True:
                texts[at] += (await stream.receive()).decode()
        except anyio.EndOfStream:
            pass

    with anyio.fail_after(30):
        await child.stdin.aclose()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, 0)
            tasks.start_soon(read, 1)
        code = await child.wait()
        await child.aclose()
    return texts[0], texts[1], code


async def test_a_command_has_its_own_folder_environment_streams_and_exit_code(
    nursery: Nursery, tmp_path: Path
):
    version = await said(start(nursery, tmp_path, "--version"))
    assert version[0].startswith("dsh-acp ") and version[1:] == ("", 0)
    out, err, code = await said(start(nursery, tmp_path, "no-such-command"))
    assert (out, code) == ("", 2) and "no-such-command" in err
    home = tmp_path / "else where"
    home.mkdir()
    found = await said(start(nursery, home, "sessions", "--json"))
    assert (json.loads(found[0]), found[2]) == ([], 0)
    assert "DSH_ACP_HOME" not in os.environ


async def test_many_at_once_are_told_apart(nursery: Nursery, tmp_path: Path):
    codes: dict[int, int] = {}

    async def one(number: int) -> None:
        argv = ("--version",) if number % 2 else ("no-such-command",)
        codes[number] = (await said(start(nursery, tmp_path, *argv)))[2]

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, number)
    assert codes == {number: 0 if number % 2 else 2 for number in range(8)}


async def test_an_agent_is_spoken_to_and_killed_like_any_other(nursery: Nursery, tmp_path: Path):
    env = agent_env(tmp_path)
    with anyio.fail_after(30):
        async with Client.spawn(
            [], tmp_path, env, start=lambda: nursery.start([], str(tmp_path), env)
        ) as client:
            assert isinstance(client.process, Child) and client.process.pid != os.getpid()
            assert (await client.initialize(version=2))["protocolVersion"] == 2
            client.process.kill()
            assert await client.process.wait() == -9
            assert client.process.returncode == -9
        async with Client.spawn(
            [], tmp_path, env, start=lambda: nursery.start([], str(tmp_path), env)
        ) as client:
            await client.initialize()
            assert await client.close() == 0


async def test_a_nursery_that_is_gone_opens_again_and_one_that_fails_is_none(tmp_path: Path):
    nursery = Nursery()
    assert (await said(start(nursery, tmp_path, "--version")))[2] == 0
    nursery.close()
    nursery.close()
    assert (await said(start(nursery, tmp_path, "--version")))[2] == 0
    missing = nursery.start(["--version"], str(tmp_path / "missing"), agent_env(tmp_path))
    assert missing is not None and "No such file" in (await said(missing))[1]
    nursery.close()
