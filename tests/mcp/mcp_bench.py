"""Servers of a session, joined to real processes and real HTTP."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
import json
import os
from pathlib import Path
import socket
import sys
import threading
from typing import Any

import anyio
import psutil

from dsh_acp.config import McpServerSettings
from dsh_acp.mcp.connection import Connection
from dsh_acp.mcp.place import Limits, Place
from dsh_acp.mcp.servers import Servers
from dsh_acp.mcp.values import Status, Words
from dsh_acp.tools import process, reaper

HERE = Path(__file__).parent


def plain(name: str, *args: str, env: Mapping[str, str] | None = None) -> McpServerSettings:
    """A server without a library."""
    command = (str(HERE / "plain_server.py"), *args)
    return McpServerSettings(name=name, command=sys.executable, args=command, env=env or {})


def official(name: str) -> McpServerSettings:
    """A server written with the SDK."""
    return McpServerSettings(name=name, command=sys.executable, args=(str(HERE / "sdk_server.py"),))


class Bench:
    """One session's servers, and what they said of themselves."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.statuses: list[Status] = []
        self.pauses: list[float] = []
        self.servers: Servers
        self._news = anyio.Event()

    @asynccontextmanager
    async def running(
        self, *settings: McpServerSettings, connect_s: float = 30, call_s: float = 30
    ) -> AsyncIterator[Servers]:
        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            await anyio.lowlevel.checkpoint()

        place = Place(
            cwd=str(self.cwd),
            roots=(str(self.cwd),),
            environment=process.environment(),
            guard=reaper,
        )
        limits = Limits(connect_s=connect_s, call_s=call_s, pause=pause)
        self.servers = Servers(settings, place, limits, self._note)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.servers.run)
                yield self.servers
                tasks.cancel_scope.cancel()

    def _note(self, status: Status) -> None:
        self.statuses.append(status)
        self._news.set()
        self._news = anyio.Event()

    async def until(self, condition: Callable[[], Any]) -> None:
        with anyio.fail_after(30):
            while not condition():
                await self._news.wait()

    async def ready(self, *names: str) -> None:
        """Wait until these servers are connected."""
        await self.until(lambda: all(self.state(name) == "ready" for name in names))

    def state(self, name: str) -> str:
        return next(s.state for s in self.servers.statuses() if s.server == name)

    def status(self, name: str) -> Status:
        return next(s for s in self.servers.statuses() if s.server == name)

    def connection(self, tool: str) -> Connection:
        """Who offers a tool of that full name."""
        return next(o.connection for o in self.servers.tools() if o.name == tool)

    async def call(self, tool: str, **arguments: Any) -> str:
        """The text of a call's answer."""
        offered = next(o for o in self.servers.tools() if o.name == tool)
        answer = await offered.connection.call(offered.tool.name, arguments, lambda text: None)
        return "".join(piece.text for piece in answer.pieces if isinstance(piece, Words))

    async def echo(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What a plain server saw of a call."""
        return json.loads(await self.call(tool, **arguments))


def alive(pid: int) -> bool:
    """Whether a process runs; the dead that nobody reaped do not count."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def children() -> list[int]:
    """Processes of ours, the dead included, without the shell of the reaper."""
    own = psutil.Process(os.getpid()).children()
    return [child.pid for child in own if "live=" not in " ".join(_line(child))]


def _line(child: psutil.Process) -> list[str]:
    try:
        return child.cmdline()
    except psutil.Error:
        return []


@contextmanager
def served(app: Any, address: str = "http://127.0.0.1:0") -> Iterator[str]:
    """A web application on a port of its own, or on that of an earlier one; its address."""
    import uvicorn

    port = int(address.rpartition(":")[2])
    listener = socket.create_server(("127.0.0.1", port), reuse_port=False)
    config = uvicorn.Config(app, log_level="critical", ws="none", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(5)
        listener.close()
