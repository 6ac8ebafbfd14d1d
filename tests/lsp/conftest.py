from collections.abc import AsyncIterator
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

import anyio
import pytest

from dsh_acp.config import LspServerSettings
from dsh_acp.lsp.place import Limits, Place
from dsh_acp.lsp.pool import Pool
from dsh_acp.lsp.server import Server
from dsh_acp.lsp.servers import Servers
from dsh_acp.tools import reaper

PROGRAM = Path(__file__).with_name("unruly_server.py")


class Bench:
    """A workspace with unruly servers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "one.x"
        self.file.write_text("first\n  second\n", encoding="utf-8")
        self.pool = Pool()
        self.limits = Limits(start_s=5, request_s=5, farewell_s=0.2)
        self.options: dict[str, Any] = {}

    async def use(self, mode: str, owner: object = "me") -> Server:
        settings = LspServerSettings(
            name="unruly",
            command=sys.executable,
            args=(str(PROGRAM), mode),
            languages={".x": "x"},
            **self.options,
        )
        (found,) = Servers((settings,)).of(str(self.file), (str(self.root),))
        place = Place(start=self.start, environment=os.environ, cache=str(self.root), guard=reaper)
        with anyio.fail_after(30):
            return await self.pool.use(found, str(self.root), owner, place, self.limits)

    def start(self, argv: Any, cwd: str, env: Any) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            start_new_session=True,
        )

    async def read(self, path: str) -> str:
        return await anyio.Path(path).read_text(encoding="utf-8")

    async def define(self, server: Server) -> Any:
        with anyio.fail_after(30):
            return await server.locations("goToDefinition", str(self.file), 1, 1, self.read)

    @property
    def notes(self) -> list[str]:
        file = self.root / "notes"
        return file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []

    @property
    def pids(self) -> list[int]:
        return [int(note.split()[1]) for note in self.notes if note.startswith("start ")]

    @property
    def alive(self) -> list[int]:
        """Servers that still run."""
        return [pid for pid in self.pids if Path(f"/proc/{pid}").exists()]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    root = tmp_path / "work"
    root.mkdir()
    found = Bench(root)
    yield found
    with anyio.fail_after(30):
        for owner in ("me", "you"):
            await found.pool.release(owner)
    assert found.alive == [], "a server outlived its last session"
