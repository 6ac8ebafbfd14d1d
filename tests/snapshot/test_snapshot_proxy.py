"""The proxy between a client and an agent, and the replay of what it wrote down."""

import json
from pathlib import Path
import sys
from typing import Any

import anyio
import pytest

from dsh_acp.snapshot.client import Client
from dsh_acp.snapshot.leaks import leaks, redact
from dsh_acp.snapshot.runner import Options, Result, run
from dsh_acp.snapshot.scenario import Scenario

ENV = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
ECHO = Path(__file__).with_name("echo_agent.py").read_text("utf-8")
PROXY = "import sys; from dsh_acp.commands.snapshot import main; sys.exit(main(sys.argv[1:]))"


async def record(out: Path, agent: list[str], cwd: Path) -> None:
    argv = [sys.executable, "-c", PROXY, "proxy", "--out", str(out), "--", *agent]
    env = ENV | {"MY_TOKEN": "hunter22222"}
    async with Client.spawn(argv, cwd, env) as client:
        await client.initialize()
        sid = await client.new_session(cwd)
        client.desk.script([{"kind": "allow_once"}])
        await client.prompt(sid, f"hello from {cwd}, hunter22222")
        await client.prompt(sid, "ask")
        call = client.start_prompt(sid, "hang")
        await client.until_update(sid, sessionUpdate="agent_message_chunk",
                                  content={"type": "text", "text": "partial"})  # fmt: skip
        client.cancel(sid)
        await call.result()
        assert client.text(sid).startswith(f"Echo: hello from {cwd}")
        assert await client.close() == 0


async def check(folder: Path) -> Result:
    with anyio.fail_after(30):
        return await run(Scenario(folder), Options())


@pytest.fixture
async def recording(tmp_path: Path, fake: list[str]) -> Path:
    out, cwd = tmp_path / "acp" / "taped", tmp_path / "somewhere"
    cwd.mkdir()
    with anyio.fail_after(30):
        await record(out, fake, cwd)
    return out


async def test_a_recording_holds_both_directions_without_paths_ids_and_secrets(recording: Path):
    lines = [
        json.loads(line)
        for line in (recording / "wire.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [line["from"] for line in lines[:4]] == ["client", "agent", "client", "agent"]
    assert lines[2]["frame"]["params"] == {"cwd": "{{cwd}}", "mcpServers": []}
    assert lines[3]["frame"]["result"] == {"sessionId": "{{sessionId}}"}
    text = (recording / "wire.jsonl").read_text(encoding="utf-8")
    assert "Echo: hello from {{cwd}}, {{secret}}" in text
    assert Scenario(recording).faults() == []


async def test_the_same_agent_is_green(recording: Path):
    result = await check(recording)
    assert result.ok, (result.problems, result.differences)


async def test_an_altered_agent_is_red_at_the_right_frame(
    recording: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FAKE_STYLE", "Other")
    result = await check(recording)
    (difference,) = result.differences
    assert difference.path == "frame.params.update.content.text"
    assert (difference.line, difference.label) == (6, "session/update agent_message_chunk")
    assert difference.got.startswith('"Other: hello')


async def test_a_talk_of_the_official_sdks_client_and_echo_agent_is_replayed(tmp_path: Path):
    acp = pytest.importorskip("acp")
    agent, out, cwd = tmp_path / "echo_agent.py", tmp_path / "taped", tmp_path / "somewhere"
    agent.write_text(ECHO, encoding="utf-8")
    cwd.mkdir()
    argv = ["-c", PROXY, "proxy", "--out", str(out), "--", sys.executable, str(agent)]
    heard: list[str] = []

    class Editor(acp.Client):
        async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
            heard.append(update.content.text)

    with anyio.fail_after(60):
        async with acp.spawn_agent_process(Editor(), sys.executable, *argv, env=ENV, cwd=cwd) as (
            connection,
            process,
        ):
            await connection.initialize(protocol_version=1)
            session = (await connection.new_session(cwd=str(cwd), mcp_servers=[])).session_id
            for words in ("hello", f"in {cwd}"):
                prompt = [acp.text_block(words)]
                answer = await connection.prompt(prompt=prompt, session_id=session)
                assert answer.stop_reason == "end_turn"
        await process.wait()
        assert heard == ["hello", f"in {cwd}"]

        result = await check(out)
        assert result.ok, (result.problems, result.differences)

        agent.write_text(ECHO.replace("block.text)", "block.text.upper())"), encoding="utf-8")
        (difference,) = (await check(out)).differences
    # Three lines of the client and two of the agent come before it.
    assert (difference.line, difference.path) == (6, "frame.params.update.content.text")
    assert (difference.expected, difference.got) == ('"hello"', '"HELLO"')


@pytest.mark.long
async def test_a_later_version_that_only_differs_later_is_red_there(tmp_path: Path):
    pytest.importorskip("acp")
    agent, out, cwd = tmp_path / "echo_agent.py", tmp_path / "taped", tmp_path / "somewhere"
    agent.write_text(ECHO, encoding="utf-8")
    cwd.mkdir()
    argv = [sys.executable, "-c", PROXY, "proxy", "--out", str(out), "--", sys.executable]
    with anyio.fail_after(60):
        async with Client.spawn([*argv, str(agent)], cwd, ENV) as client:
            await client.initialize()
            await client.prompt(await client.new_session(cwd), "hello")
        later = ECHO.replace('stop_reason="end_turn"', 'stop_reason="refusal"')
        agent.write_text(later, encoding="utf-8")
        (difference,) = (await check(out)).differences
    assert (difference.line, difference.path) == (7, "frame.result.stopReason")
    assert (difference.expected, difference.got) == ('"end_turn"', '"refusal"')


@pytest.mark.parametrize(
    "text",
    [
        "key sk-abcdefghijklmnop1234",
        "sk-ant-api03-abcdefghijklmnop1234",
        "AKIAABCDEFGHIJKLMNOP",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "Authorization: Bearer abcdefghijklmnopqrstuvwxyz",
        "-----BEGIN RSA PRIVATE KEY-----",
        "https://me:secret@example.org/",
        "value hunter22222 of a variable",
    ],
)
def test_secrets_are_found_by_shape_and_by_value(text: str):
    environ = {"MY_API_KEY": "hunter22222", "PATH": "/usr/bin"}
    assert leaks(f"fine\n{text}", environ)[0].startswith("line 2: ")
    assert leaks(redact(text, environ), environ) == []


def test_ordinary_text_is_no_secret():
    text = '{"sha256":"%s","id":"call_00_abc","x":"risk-free task-oriented"}' % ("ab" * 32)
    assert leaks(text, {"TOKEN": "short"}) == []
