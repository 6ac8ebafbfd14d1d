"""acpx, a command-line client: each of its commands is a process, the agent lives beside them."""

from collections.abc import Iterator
import json
import subprocess
from typing import Any

from client_place import COMMAND, Node, Place
import pytest

Frame = dict[str, Any]

KEEPS_AGENT_S = 2
"""How long the agent outlives the last command."""


class Acpx:
    """The command, for one project."""

    def __init__(self, node: Node, place: Place) -> None:
        self._node = node
        self._place = place

    def argv(self, *arguments: str) -> list[str]:
        """A command line."""
        script = str(self._node.modules / "acpx/dist/cli.js")
        folder = str(self._place.project)
        common = ("--agent", str(COMMAND), "--cwd", folder, "--format", "json", "--json-strict")
        return [script, *common, "--ttl", str(KEEPS_AGENT_S), *arguments]

    def __call__(self, *arguments: str) -> list[Frame]:
        """Run a command; what it printed."""
        done = self._node.run(*self.argv(*arguments), place=self._place)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a command."""
        return subprocess.Popen(
            [self._node.program, *self.argv(*arguments)],
            env=self._place.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )


@pytest.fixture
def acpx(node: Node, place: Place) -> Iterator[Acpx]:
    client = Acpx(node, place)
    client("sessions", "new")
    yield client
    client("sessions", "close")


def updates(frames: list[Frame], kind: str) -> list[Frame]:
    found = [f["params"]["update"] for f in frames if f.get("method") == "session/update"]
    return [update for update in found if update["sessionUpdate"] == kind]


def said(frames: list[Frame]) -> str:
    return "".join(update["content"]["text"] for update in updates(frames, "agent_message_chunk"))


def stops(frames: list[Frame]) -> list[str]:
    results = [frame["result"] for frame in frames if "result" in frame]
    return [result["stopReason"] for result in results if "stopReason" in result]


def methods(frames: list[Frame]) -> list[str]:
    return [frame["method"] for frame in frames if "method" in frame]


def test_acpx_prompts_allows_denies_cancels_and_comes_back(acpx: Acpx, place: Place) -> None:
    allowed = acpx("--approve-all", "make it")
    assert stops(allowed) == ["end_turn"] and said(allowed) == "I make it.Made."
    assert "session/request_permission" in methods(allowed)
    assert updates(allowed, "tool_call_update")[-1]["status"] == "completed"
    assert (place.project / "made").exists()

    denied = acpx("--deny-all", "again")
    assert stops(denied) == ["end_turn"] and said(denied) == "I make it again.Then not."
    assert updates(denied, "tool_call_update")[-1]["status"] == "failed"

    is_told = False
    seen: list[Frame] = []
    with acpx.start("think") as thinking:
        assert thinking.stdout is not None
        for line in thinking.stdout:
            seen.append(json.loads(line))
            if said(seen) and not is_told:
                is_told = acpx("cancel")[-1]["cancelled"]
    assert stops(seen) == ["cancelled"] and said(seen) == "Thinking of it. "

    [record] = acpx("sessions", "list")
    assert [entry["title"] for entry in record["sessions"]] == ["A title"]

    acpx("sessions", "close")
    opened = acpx("sessions", "new", "--resume-session", record["sessions"][0]["sessionId"])
    assert opened
    again = acpx("and now?")
    assert stops(again) == ["end_turn"] and said(again) == "Still here."
    assert place.prompts() == ["make it", "again", "think", "and now?"]
