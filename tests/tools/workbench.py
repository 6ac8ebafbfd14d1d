"""A session's tools on a real folder, without a session."""

from collections.abc import Callable, Mapping, Sequence
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh_acp.config import Settings
from dsh_acp.errors import ToolError
from dsh_acp.messages import Message, text_of
from dsh_acp.tools.catalog import builtin
from dsh_acp.tools.sandbox import Sandbox
from dsh_acp.tools.tool import Card, FileDiff, Outcome, Tool, World
from dsh_acp.tools.world import LocalWorld


class Workbench:
    """A `ToolContext` that remembers what tools did to it, and short ways to call them."""

    def __init__(self, folder: Path, spill: Path) -> None:
        self.folder = folder
        self.call_id = "call_1"
        self.cwd = str(folder)
        self.roots = (self.cwd,)
        self.sandbox: Sandbox | None = None
        self.allowed: tuple[str, ...] = ()
        self.world: World = LocalWorld()
        self.state: dict[str, Any] = {}
        self.spill_dir = str(spill)
        self.events: list[Any] = []
        self.live: list[str] = []
        self.contexts: list[Message] = []
        self.in_plan_mode = False
        self.is_approved = False
        self.asked: list[Mapping[str, Any]] = []
        self.answers: Sequence[Mapping[str, Any]] | ToolError = ToolError("nobody is here")
        settings = Settings(home=spill, config_path=spill / "c", config_dir=spill)
        self.tools: dict[str, Tool] = builtin(settings)

    def append(self, event: Any) -> None:
        self.events.append(event)

    def progress(self, text: str) -> None:
        self.live.append(text)

    def add_context(self, message: Message) -> None:
        self.contexts.append(message)

    async def ask(self, questions: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        self.asked += questions
        if isinstance(self.answers, ToolError):
            raise self.answers
        return self.answers

    def leave_plan_mode(self) -> None:
        self.in_plan_mode = False

    # ------------------------------------------------------------ calls

    async def call(self, name: str, /, **arguments: Any) -> Outcome:
        tool = self.tools[name]
        return await tool.run(tool.parse(json.dumps(arguments)), self)

    async def text(self, name: str, /, **arguments: Any) -> str:
        outcome = await self.call(name, **arguments)
        assert not outcome.is_error
        return text_of(outcome.content)

    async def refusal(self, name: str, /, **arguments: Any) -> ToolError:
        with pytest.raises(ToolError) as caught:
            await self.call(name, **arguments)
        return caught.value

    async def preview(self, name: str, /, **arguments: Any) -> tuple[FileDiff, ...]:
        tool = self.tools[name]
        return await tool.preview(tool.parse(json.dumps(arguments)), self)

    async def final_card(self, name: str, /, **arguments: Any) -> Card:
        outcome = await self.call(name, **arguments)
        raw = json.dumps(arguments)
        # What a card is made of goes through the log, as JSON.
        meta = json.loads(json.dumps(outcome.meta))
        return self.tools[name].result_card(raw, outcome.content, False, meta, self.cwd)

    def call_card(self, name: str, /, **arguments: Any) -> Card:
        return self.tools[name].call_card(json.dumps(arguments), self.cwd)

    # ------------------------------------------------------------ files

    def put(self, name: str, data: bytes | str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def bytes_of(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what other processes do; they give no event."""
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 - nothing to wait on
            await anyio.sleep(0.002)


def text_in(path: str) -> str:
    """The text of a file."""
    return Path(path).read_text("utf-8")


def pid_in(path: Path) -> int:
    """The process id that a command wrote; 0 until it has."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return 0
    return int(text) if text.endswith(b"\n") else 0


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
