"""How the real process starts and asks for a key (the groups START and AUTH of reported faults)."""

import io
import json
from pathlib import Path
import socket
import subprocess
import sys

import anyio
import pytest

from dsh_acp import cli
from dsh_acp.llm.fake import FakeLlm
from dsh_acp.snapshot.client import Client, agent_argv, agent_env
from dsh_acp.snapshot.desk import RpcError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def configure(home: Path, text: str) -> Path:
    path = home / ".config/dsh-acp/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


async def opens_a_session(home: Path, env: dict[str, str], *arguments: str) -> str:
    """Initialize and open a session; what went to stderr.

    Raises:
        RpcError: the session was refused.
    """
    with anyio.fail_after(30):
        async with Client.spawn(agent_argv(*arguments), cwd="/", env=env) as client:
            answer = await client.initialize()
            assert answer["protocolVersion"] == 1 and answer["authMethods"]
            await client.new_session(home)
            await client.close()
    assert client.garbage == []
    return bytes(client.stderr).decode()


async def test_an_unknown_key_in_the_file_is_one_line_on_stderr(home):
    configure(
        home,
        'model = "here/m"\nsome_future_key = true\n[providers.here]\n'
        'base_url = "http://127.0.0.1:9/v1"\n',
    )
    errors = await opens_a_session(home, agent_env(home))
    (line,) = [line for line in errors.splitlines() if "some_future_key" in line]
    assert "is not a setting of this version" in line


async def test_a_broken_file_still_answers_initialize_and_names_file_and_key(home):
    path = configure(home, 'model = "x/y"\npermission = "everything"\n')
    with pytest.raises(RpcError) as caught:
        await opens_a_session(home, agent_env(home))
    assert str(path) in caught.value.message and "permission" in caught.value.message
    assert "pydantic" not in caught.value.message


async def test_without_a_key_a_session_is_refused_with_the_way_to_sign_in(home):
    with pytest.raises(RpcError) as caught:
        await opens_a_session(home, agent_env(home))
    assert caught.value.code == -32000
    assert "dsh-acp login" in caught.value.message


@pytest.mark.parametrize("where", ["environment", "file", "base url", "local server"])
async def test_any_way_to_reach_a_model_opens_a_session(home, where):
    env = agent_env(home)
    match where:
        case "environment":
            env["DEEPSEEK_API_KEY"] = "sk-1"
        case "file":
            configure(home, '[providers.openai]\napi_key = "sk-1"\n')
        case "base url":
            env |= {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "DSH_ACP_MODEL": "openai/m"}
        case _:
            configure(
                home,
                '[providers.here]\nbase_url = "http://127.0.0.1:9/v1"\n[providers.here.models.m]\n',
            )
    await opens_a_session(home, env)


async def test_a_key_stored_while_the_agent_runs_is_found(home, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    with anyio.fail_after(30):
        async with Client.spawn(agent_argv(), cwd="/", env=agent_env(home)) as client:
            methods = (await client.initialize())["authMethods"]
            with pytest.raises(RpcError):
                await client.new_session(home)
            monkeypatch.setattr(sys, "stdin", io.StringIO("sk-1\n"))
            assert cli.main(["login", "deepseek", "--no-check"]) == 0
            assert await client.request("authenticate", {"methodId": methods[0]["id"]}) == {}
            assert await client.new_session(home)


async def test_authenticating_is_harmless_when_a_key_is_there(home):
    env = agent_env(home, DEEPSEEK_API_KEY="sk-1")
    with anyio.fail_after(30):
        async with Client.spawn(agent_argv(), cwd="/", env=env) as client:
            methods = (await client.initialize())["authMethods"]
            for _ in range(2):
                params = {"methodId": methods[0]["id"]}
                assert await client.request("authenticate", params) == {}
            assert await client.new_session(home)


def test_the_first_line_of_a_bare_start_is_the_answer_to_initialize(tmp_path):
    """What the registry of the protocol checks: an empty home and a dumb terminal."""
    files = {"readTextFile": True, "writeTextFile": True}
    capabilities = {
        "fs": files,
        "terminal": True,
        "_meta": {"terminal_output": True, "terminal-auth": True},
    }
    params = {"protocolVersion": 1, "clientCapabilities": capabilities}
    line = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    done = subprocess.run(
        agent_argv(),
        input=line + "\n",
        capture_output=True,
        encoding="utf-8",
        cwd="/",
        env={"HOME": str(tmp_path / "none"), "TERM": "dumb", "PYTHONPATH": str(ROOT)},
        timeout=20,
    )
    answer = json.loads(done.stdout.splitlines()[0])
    assert answer["id"] == 0
    kinds = [method.get("type", "agent") for method in answer["result"]["authMethods"]]
    assert set(kinds) <= {"agent", "terminal"} and kinds
    assert done.returncode == 0


async def test_initialize_needs_no_network_and_no_home(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        proxy = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = {"PYTHONPATH": str(ROOT), "HTTPS_PROXY": proxy, "HTTP_PROXY": proxy}
        env |= {"DEEPSEEK_API_KEY": "sk-1"}
        with anyio.fail_after(30):
            async with Client.spawn(agent_argv(), cwd="/", env=env) as client:
                await client.initialize()
                assert await client.new_session(tmp_path)


async def test_it_starts_through_any_name_and_interpreter_flags(home, tmp_path):
    script = tmp_path / "renamed agent.py"
    script.write_text(
        "import sys\nfrom dsh_acp.cli import main\nsys.exit(main())\n", encoding="utf-8"
    )
    env = agent_env(home, DEEPSEEK_API_KEY="sk-1")
    for argv in ([sys.executable, str(script)], [sys.executable, "-X", "utf8", "-m", "dsh_acp"]):
        with anyio.fail_after(30):
            async with Client.spawn(argv, cwd="/", env=env) as client:
                await client.initialize(clientInfo={"name": "JetBrains.IDE", "version": "1"})
                assert await client.new_session(home)


async def test_a_refused_key_is_a_sentence_and_the_session_goes_on(home):
    with FakeLlm([{"behavior": "auth_error"}, {"text": "hello", "repeat": 0}]) as fake:
        env = agent_env(home, "openai/m", OPENAI_BASE_URL=fake.url, OPENAI_API_KEY="sk-12345678")
        with anyio.fail_after(30):
            async with Client.spawn(agent_argv(), cwd="/", env=env) as client:
                await client.initialize()
                session = await client.new_session(home)
                with pytest.raises(RpcError) as caught:
                    await client.prompt(session, "hi")
                assert "key" in caught.value.message.lower()
                assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"
                assert client.text(session).endswith("hello")
