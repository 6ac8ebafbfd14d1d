"""Start-up, the handshake, and frames on a real pipe, as editors of all kinds send them."""

from collections.abc import Callable, Iterator
import json
from pathlib import Path
import socket
import subprocess
import sys
import time
from typing import Any

from e2e_agent import Agent, bash, bodies, environment, script, tool
import pytest

from dsh_acp.llm.fake import FakeLlm

Start = Callable[..., Agent]
HERE = Path(__file__).parent
INIT = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize",'
    b'"params":{"protocolVersion":1,"clientCapabilities":{}}}'
)


def promptly(attempt: Callable[[], float], seconds: float) -> None:
    """One of three attempts takes no longer than `seconds`: the machine has other work too."""
    taken = [attempt()]
    while taken[-1] > seconds and len(taken) < 3:
        taken.append(attempt())
    assert min(taken) <= seconds, taken


def nulls(value: Any, path: str = "") -> Iterator[str]:
    """Where a value holds null."""
    if value is None:
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from nulls(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from nulls(item, f"{path}[]")


# ---------------------------------------------------------------- start


OPTIONAL = ("list", "resume", "fork", "close", "delete")


def test_capabilities_and_methods_name_each_other(agent: Agent) -> None:
    capabilities = agent.initialize()["agentCapabilities"]
    assert capabilities["loadSession"] is True
    offered = capabilities["sessionCapabilities"]
    assert all(isinstance(value, dict) for value in offered.values())
    params = {"sessionId": "x", "cwd": "/", "modeId": "m", "configId": "c", "value": "v"}
    for name in (*OPTIONAL, "load", "set_mode", "set_config_option"):
        code = agent.call(f"session/{name}", **params).get("error", {}).get("code")
        assert (code == -32601) == (name in OPTIONAL and name not in offered), name
    assert set(OPTIONAL) <= set(offered)
    session = agent.call("session/new", cwd=str(agent.cwd))["result"]
    assert session["modes"]["availableModes"] and session["configOptions"]
    assert agent.call("session/no_such_thing")["error"]["code"] == -32601


@pytest.fixture
def black_hole() -> Iterator[str]:
    """A proxy that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_initialize_is_answered_at_once_without_bytecode_and_with_a_dead_network(
    start: Start, tmp_path: Path, black_hole: str
) -> None:
    tries = iter(range(3))

    def attempt() -> float:
        before = time.monotonic()
        agent = start(
            fake=black_hole,
            HTTPS_PROXY=black_hole,
            HTTP_PROXY=black_hole,
            ALL_PROXY=black_hole,
            PYTHONPYCACHEPREFIX=str(tmp_path / f"cold{next(tries)}"),
        )
        agent.initialize()
        taken = time.monotonic() - before
        assert "sessionId" in agent.call("session/new", cwd=str(tmp_path))["result"]
        return taken

    promptly(attempt, 2)


@pytest.mark.parametrize("command", ["renamed", "-m", "-c"])
def test_the_shape_of_the_command_line_does_not_matter(
    start: Start, tmp_path: Path, command: str
) -> None:
    forms = {
        "renamed": (str(tmp_path / "jetbrains agent"),),
        "-m": (sys.executable, "-m", "dsh_acp", "acp"),
        "-c": (sys.executable, "-c", "import sys; sys.argv = []; import dsh_acp.__main__"),
    }
    wrapper = tmp_path / "jetbrains agent"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -m dsh_acp "$@"\n', "utf-8")
    wrapper.chmod(0o755)
    if command == "-c":
        code = "import sys; sys.argv = ['']; from dsh_acp.cli import main; sys.exit(main([]))"
        forms["-c"] = (sys.executable, "-c", code)
    agent = start(command=forms[command])
    info = {"name": "JetBrains.IntelliJ IDEA", "title": "IntelliJ IDEA", "version": "2026.1"}
    capabilities = {
        "_meta": {"terminal-auth": True},
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": False,
    }
    shaken = agent.call(
        "initialize", protocolVersion=1, clientCapabilities=capabilities, clientInfo=info
    )
    for method in shaken["result"]["authMethods"]:
        assert "command" not in json.dumps(method) or "dsh" in json.dumps(method)
    assert agent.prompt(agent.new())["result"] == {"stopReason": "end_turn"}


def test_unknown_and_null_fields_are_ignored_and_none_is_ever_sent(
    agent: Agent, fake: FakeLlm, tmp_path: Path
) -> None:
    fake.use(
        script(
            {
                "text": "Look.",
                "tool_calls": [tool("c1", "write", file_path="new.txt", content="x\n")],
            },
            {"tool_calls": [bash("c2", "cat new.txt"), bash("c3", "exit 3")]},
        )
    )
    capabilities = {
        "fs": None,
        "terminal": None,
        "gateway": True,
        "elicitation": {"form": {}},
        "auth": {"terminal": True},
    }
    agent.call(
        "initialize",
        protocolVersion=1,
        _meta=None,
        clientCapabilities=capabilities,
        clientInfo=None,
        future={"x": 1},
    )
    new = agent.call(
        "session/new",
        cwd=str(tmp_path),
        mcpServers=None,
        additionalDirectories=None,
        _meta={"x": 1},
        future=None,
    )
    session = new["result"]["sessionId"]
    prompt = [{"type": "text", "text": "go", "annotations": None, "_meta": None, "x": None}]
    answer = agent.call("session/prompt", sessionId=session, prompt=prompt, messageId=None)
    assert answer["result"] == {"stopReason": "end_turn"}
    agent.call("session/list", cwd=None, cursor=None)
    assert "result" in agent.call(
        "session/load", sessionId=session, cwd=str(tmp_path), mcpServers=None, _meta=None
    )
    found = {path for frame in agent.frames for path in nulls(frame)}
    # The text before a file exists is null by the protocol's own definition.
    assert {path for path in found if not path.endswith(".oldText")} == set()


# ---------------------------------------------------------------- frames


@pytest.mark.parametrize("size", [65_500, 65_537, 1_000_000, 12_000_000])
def test_a_frame_of_any_length_is_read(agent: Agent, fake: FakeLlm, size: int) -> None:
    fake.use(script())
    session = agent.open()
    resource = {"uri": f"file://{agent.cwd}/a.txt", "text": "x" * size}
    prompt = [{"type": "text", "text": "see"}, {"type": "resource", "resource": resource}]
    answer = agent.call("session/prompt", sessionId=session, prompt=prompt)
    assert answer["result"] == {"stopReason": "end_turn"}
    assert b"x" * 65_000 in fake.requests[0].body


def test_a_long_answer_of_the_editor_is_read(agent: Agent, fake: FakeLlm) -> None:
    fake.use(script({"tool_calls": [tool("c1", "read", file_path="big.txt")]}))
    (agent.cwd / "big.txt").write_text("disk\n", "utf-8")
    session = agent.open(fs={"readTextFile": True, "writeTextFile": True})
    id = agent.start_prompt(session, "read it")
    asked = agent.until(lambda f: f.get("method") == "fs/read_text_file")
    agent.reply(asked, {"content": "line of the buffer\n" * 263_158})
    assert agent.response(id)["result"] == {"stopReason": "end_turn"}
    assert "line of the buffer" in json.dumps(bodies(fake)[1]["messages"][-1])


NOISE = """
import atexit, logging, os, sys, warnings

def install(hooks):
    logging.basicConfig(level=logging.DEBUG, force=True)
    from rich.console import Console

    async def pre_step(payload, proceed):
        print("hi")
        sys.stdout.write("no newline")
        sys.stdout.flush()
        sys.__stdout__.write("raw\\n")
        os.write(1, b"straight to the descriptor\\n")
        Console().print("[bold]rich[/bold]")
        warnings.warn("careful")
        logging.getLogger("x").debug("debugging")
        return await proceed()

    hooks.pre_step.append(pre_step)
    atexit.register(print, "bye")
"""


def test_nothing_but_frames_reaches_stdout_whatever_plugins_print(
    start: Start, tmp_path: Path
) -> None:
    info = tmp_path / "site" / "noise-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_bytes(b"Metadata-Version: 2.1\nName: noise\nVersion: 1\n")
    (info / "entry_points.txt").write_bytes(b"[dsh_acp.plugins]\nnoise = noise:install\n")
    (tmp_path / "site" / "noise.py").write_text(NOISE, "utf-8")
    agent = start(PYTHONPATH=str(tmp_path / "site"), PYTHONUNBUFFERED="1", PYTHONDEVMODE="1")
    session = agent.open()
    assert agent.prompt(session)["result"] == {"stopReason": "end_turn"}
    assert agent.close() == 0
    assert agent.garbage == []
    for said in (b"hi\n", b"no newline", b"straight to the descriptor", b"rich"):
        assert said in agent.stderr


def test_a_child_cannot_write_to_the_wire(agent: Agent, fake: FakeLlm) -> None:
    title = r"printf '\033]0;title\007' >&1; printf hello; printf x > /proc/self/fd/1"
    wild = "for n in 0 1 2 3 4 5 6 7 8 9; do echo wild >&$n; done 2>/dev/null; true"
    fake.use(script({"tool_calls": [bash("c1", title), bash("c2", wild)]}))
    session = agent.open()
    assert agent.prompt(session)["result"] == {"stopReason": "end_turn"}
    assert agent.garbage == []
    assert "hello" in json.dumps(bodies(fake)[1]["messages"])


def test_damaged_lines_do_not_end_the_conversation(agent: Agent) -> None:
    agent.initialize()
    agent.send_raw(
        b"stitem parent list node",
        b'{"jsonrpc":"2.0","id":7,"method":',
        b"\xff\xfe\x00",
        b"7",
        b'"x"',
        b"null",
        b'{"jsonrpc":"2.0","id":8,"method":"session/list","params":{}}',
    )
    assert agent.response(8)["result"] == {"sessions": []}
    codes = [f["error"]["code"] for f in agent.frames if "error" in f]
    assert set(codes) <= {-32700, -32600}


def test_nothing_without_an_id_is_ever_answered(agent: Agent) -> None:
    agent.initialize()
    seen = len(agent.frames)
    agent.notify("session/some_future_notification")
    agent.notify("$/progress", token=1)
    agent.notify("$/cancel_request", requestId=99)
    agent.notify("session/cancel", sessionId="nope")
    agent.notify("session/prompt", sessionId="nope", prompt=[])
    agent.send({"jsonrpc": "2.0", "method": "session/cancel", "params": [1, 2]})
    agent.send({"jsonrpc": "2.0", "method": "session/cancel"})
    agent.call("session/list")
    assert len(agent.frames) == seen + 1


def test_blank_lines_and_carriage_returns_are_no_frames(agent: Agent) -> None:
    agent.send_raw(INIT, end=b"\r\n")
    agent.send_raw(b"", b"\r", b"  ", b"")
    agent.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"session/list"}', end=b"\r\n")
    assert "result" in agent.response(1)
    assert len(agent.frames) == 2 and agent.close() == 0
    assert agent.stderr == b""


@pytest.mark.parametrize("coding", ["ascii", "cp936", "latin-1"])
def test_bytes_are_utf8_whatever_the_locale_says(start: Start, fake: FakeLlm, coding: str) -> None:
    text = "Messgerät 你好 ✓ \u2028 😀"
    fake.use(script({"text": text, "chunk_size": 1}))
    agent = start(LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING=coding, PYTHONCOERCECLOCALE="0")
    session = agent.open()
    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
    frame = {"jsonrpc": "2.0", "id": 9, "method": "session/prompt", "params": prompt}
    agent.send_raw(json.dumps(frame, ensure_ascii=False).encode())
    assert agent.response(9)["result"] == {"stopReason": "end_turn"}
    assert agent.said() == text
    assert text in json.dumps(bodies(fake)[0], ensure_ascii=False)
    raw = b"".join(line.data for line in agent.lines if not line.sent)
    assert not raw.startswith(b"\xef\xbb\xbf") and b"\r" not in raw


def test_a_frame_ends_with_one_newline_and_holds_none(agent: Agent, fake: FakeLlm) -> None:
    fake.use(script({"text": "a\r\nb\nc\rd"}))
    session = agent.open()
    assert agent.prompt(session)["result"] == {"stopReason": "end_turn"}
    assert agent.said() == "a\r\nb\nc\rd"
    for line in agent.lines:
        assert b"\r" not in line.data and b"\n" not in line.data


def test_params_of_a_wrong_shape_are_refused_and_the_next_call_works(agent: Agent) -> None:
    agent.initialize()
    for params in ("x", [1, 2], 7, {"sessionId": 5, "prompt": []}, {"sessionId": "s"}, {}):
        agent.send({"jsonrpc": "2.0", "id": 4, "method": "session/prompt", "params": params})
    agent.send({"jsonrpc": "2.0", "id": 5, "method": "session/list", "params": {}})
    assert "result" in agent.response(5)
    refused = [f["error"]["code"] for f in agent.frames if f.get("id") == 4]
    assert refused == [-32602] * 6


@pytest.mark.parametrize("id", [0, -1, 9007199254740993, "b4c1-…", "", "0"])
def test_an_id_comes_back_as_it_was_sent(agent: Agent, id: Any) -> None:
    agent.send_raw(INIT)
    agent.response(0)
    seen = len(agent.frames)
    agent.send({"jsonrpc": "2.0", "id": id, "method": "session/list", "params": {}})
    frame = agent.until(lambda f: "result" in f, seen)
    assert frame["id"] == id and type(frame["id"]) is type(id)


def test_ids_of_both_sides_do_not_meet(agent: Agent, fake: FakeLlm) -> None:
    fake.use(script({"tool_calls": [bash("c1", "echo a"), bash("c2", "echo b")]}))
    session = agent.open()
    agent.permission = None
    agent.start("session/list")
    id = agent.start_prompt(session)
    first = agent.until(lambda f: f.get("method") == "session/request_permission")
    # The agent's first request has an id that the editor has used as well.
    assert first["id"] in range(10)
    agent.call("session/list")
    option = first["params"]["options"][0]["optionId"]
    agent.permission = "allow_once"
    agent.reply(first, {"outcome": {"outcome": "selected", "optionId": option}})
    assert agent.response(id)["result"] == {"stopReason": "end_turn"}


def test_a_batch_is_refused_or_answered_and_the_process_stays(agent: Agent) -> None:
    agent.initialize()
    cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "x"}}
    listed = {"jsonrpc": "2.0", "id": 11, "method": "session/list", "params": {}}
    agent.is_judged = False
    agent.send([listed, cancel, 7], [])
    agent.send({**listed, "id": 12})
    assert agent.response(12)["result"] == {"sessions": []}
    answered = [f for f in agent.frames if f.get("id") == 11 or f.get("error", {}).get("code")]
    assert answered


def test_stdin_from_a_file_is_served_to_its_end(tmp_path: Path) -> None:
    lines = tmp_path / "in"
    lines.write_bytes(INIT + b'\n{"jsonrpc":"2.0","id":1,"method":"session/list"}\n')
    with lines.open("rb") as stdin:
        done = subprocess.run(
            [sys.executable, "-m", "dsh_acp"],
            stdin=stdin,
            capture_output=True,
            env=environment(tmp_path, "http://127.0.0.1:9/v1"),
            check=False,
            timeout=30,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]
