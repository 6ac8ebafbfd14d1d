"""Confined commands and language servers, through the real process."""

from collections.abc import Callable, Iterator
import json
import os
from pathlib import Path
import pwd
import shutil
import sys
import time

from e2e_agent import PROJECT, Agent, bodies, script, tool
import pytest

from dsh_acp.llm.fake import FakeLlm
from dsh_acp.tools import confine

Start = Callable[..., Agent]
UNRULY = Path(__file__).parents[1] / "lsp" / "unruly_server.py"


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that is no folder for temporary files, wherever this project lies."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for place in (PROJECT / ".cache", home / ".cache"):
        if not any(place.is_relative_to(folder) for folder in confine.temporary_folders()):
            break
    else:
        pytest.skip("project and home lie where temporary files go, which is writable")
    folder = place / f"outside-{os.getpid()}"
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def answers(fake: FakeLlm) -> list[str]:
    """The results that the model was told."""
    last = bodies(fake)[-1]["messages"]
    return [message["content"] for message in last if message["role"] == "tool"]


def test_a_command_is_held_to_the_workspace_and_an_escalation_is_asked_about(
    start: Start, fake: FakeLlm, tmp_path: Path, outside: Path
) -> None:
    if confine.find("auto") is None:
        pytest.skip("nothing confines commands on this machine")
    work = tmp_path / "work"
    work.mkdir()
    call = {"command": f"echo a >here; echo b >{outside}/there", "description": "d"}
    wider = {"sandbox_permissions": "danger-full-access", "justification": "It must go there."}
    fake.use(
        script(
            {"tool_calls": [tool("c1", "bash", **call)]},
            {"tool_calls": [tool("c2", "bash", **call, **wider)]},
        )
    )
    agent = start(cwd=work, DSH_ACP_PERMISSION="workspace-write", DSH_ACP_SANDBOX="auto")
    agent.initialize()
    session = agent.new(work)
    agent.prompt(session)
    first, second = answers(fake)
    assert "[sandbox: file access denied under workspace-write mode]" in first
    assert second == "(no output)"
    (asked,) = agent.asked()
    assert "It must go there." in json.dumps(asked)
    kinds = [option["kind"] for option in asked["params"]["options"]]
    assert kinds == ["allow_once", "reject_once"]
    assert (work / "here").read_text(encoding="utf-8") == "a\n"
    assert (outside / "there").read_text(encoding="utf-8") == "b\n"


@pytest.mark.parametrize("end", ["close", "kill"])
def test_language_servers_end_with_the_agent(
    start: Start, fake: FakeLlm, tmp_path: Path, end: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "one.x").write_text("first\n", encoding="utf-8")
    config = tmp_path / "config.toml"
    config.write_text(
        f'[lsp.unruly]\ncommand = "{sys.executable}"\n'
        f'args = ["{UNRULY}", "ignores the end"]\nlanguages = {{ ".x" = "x" }}\n',
        encoding="utf-8",
    )
    question = {"operation": "hover", "file_path": "one.x", "line": 1, "character": 1}
    fake.use(script({"tool_calls": [tool("c1", "lsp", **question)]}))
    agent = start(cwd=work, DSH_ACP_CONFIG=str(config))
    agent.initialize()
    agent.prompt(agent.new(work))
    assert answers(fake) == ['{"jsonrpc": "2.0"}']
    pid = int((work / "notes").read_text(encoding="utf-8").split()[1])
    assert Path(f"/proc/{pid}").exists()
    getattr(agent, end)()
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()
