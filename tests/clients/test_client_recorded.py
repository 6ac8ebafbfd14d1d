"""The proxy between acpx and an agent that is not ours, and the replay of what it wrote down."""

from pathlib import Path
import shlex
import sys

from client_place import COMMAND, HERE, Node, Place
import pytest

from dsh_acp.snapshot.runner import Options, Result, run
from dsh_acp.snapshot.scenario import Scenario

ECHO = HERE.parent / "snapshot" / "echo_agent.py"


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """The echo agent of the official SDK, to be changed."""
    pytest.importorskip("acp")
    copy = tmp_path / "echo_agent.py"
    copy.write_text(ECHO.read_text("utf-8"), "utf-8")
    return copy


def record(node: Node, place: Place, agent: Path, out: Path) -> str:
    """One prompt through acpx; what it printed."""
    proxy = [str(COMMAND), "snapshot", "proxy", "--out", str(out), "--", sys.executable, str(agent)]
    argv = [str(node.modules / "acpx/dist/cli.js"), "--agent", shlex.join(proxy)]
    argv += ["--cwd", str(place.project), "--format", "quiet", "exec", "Hello, echo."]
    done = node.run(*argv, place=place)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def change(agent: Path) -> None:
    """Have it shout."""
    text = agent.read_text("utf-8")
    agent.write_text(text.replace("block.text)", "block.text.upper())"), "utf-8")


async def check(out: Path) -> Result:
    return await run(Scenario(out), Options())


async def test_what_acpx_and_an_agent_said_is_replayed_and_red_where_the_agent_changed(
    node: Node, place: Place, agent: Path, tmp_path: Path
) -> None:
    out = tmp_path / "acp" / "taped"
    assert record(node, place, agent, out).strip() == "Hello, echo."
    assert Scenario(out).faults() == []
    result = await check(out)
    assert result.ok, (result.problems, result.differences)

    change(agent)
    (difference,) = (await check(out)).differences
    assert difference.path == "frame.params.update.content.text"
    assert (difference.expected, difference.got) == ('"Hello, echo."', '"HELLO, ECHO."')
    assert difference.label == "session/update agent_message_chunk"
