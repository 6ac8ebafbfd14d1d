"""The editor's side of `terminal/*`: real processes, output kept up to a byte limit."""

from collections.abc import Awaitable, Callable
import os
import signal
import subprocess
from typing import Any, Final

import anyio
from anyio.abc import Process, TaskGroup

from dsh_acp.snapshot.desk import RpcError

DEFAULT_LIMIT: Final = 1 << 20


class Terminal:
    """One command and what it has printed."""

    def __init__(self, process: Process, limit: int) -> None:
        self.process: Final = process
        self.limit: Final = limit
        self.output = b""
        self.truncated = False
        self.ended: Final = anyio.Event()

    def feed(self, piece: bytes) -> None:
        """Keep the newest `limit` bytes, cut at a character boundary."""
        self.output += piece
        if len(self.output) > self.limit:
            self.truncated = True
            start = len(self.output) - self.limit
            while start < len(self.output) and self.output[start] & 0xC0 == 0x80:
                start += 1
            self.output = self.output[start:]

    def status(self) -> dict[str, Any] | None:
        """`{exitCode, signal}`, or `None` while it runs."""
        code = self.process.returncode
        if code is None or not self.ended.is_set():
            return None
        if code >= 0:
            return {"exitCode": code, "signal": None}
        return {"exitCode": None, "signal": signal.Signals(-code).name}

    def kill(self) -> None:
        """Kill the command with everything it started; nothing when it has ended."""
        if self.process.returncode is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return


class Terminals:
    """All terminals of one client. `released` lists ids the agent gave back.

    Commands without a `cwd` run in that of the client.
    """

    def __init__(self, tasks: TaskGroup, cwd: str | os.PathLike[str]) -> None:
        self._tasks = tasks
        self._cwd = cwd
        self.live: Final[dict[str, Terminal]] = {}
        self.released: Final[list[str]] = []
        self._count = 0

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], Awaitable[Any]]]:
        """The request handlers by method."""
        return {
            "terminal/create": self.create,
            "terminal/output": self.read,
            "terminal/wait_for_exit": self.wait,
            "terminal/kill": self.kill,
            "terminal/release": self.release,
        }

    async def create(self, params: dict[str, Any]) -> dict[str, str]:
        """Start a command; without `args` its text goes through the shell, as editors do."""
        args: list[str] = params.get("args") or []
        program: str = params["command"]
        command = [program, *args] if args else program
        env = os.environ | {item["name"]: item["value"] for item in params.get("env") or ()}
        try:
            process = await anyio.open_process(
                command,
                cwd=params.get("cwd") or self._cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as exc:
            raise RpcError(-32603, f"cannot start {params['command']}: {exc.strerror}") from exc
        self._count += 1
        id = f"term-{self._count}"
        terminal = Terminal(process, params.get("outputByteLimit") or DEFAULT_LIMIT)
        self.live[id] = terminal
        self._tasks.start_soon(self._collect, terminal)
        return {"terminalId": id}

    async def _collect(self, terminal: Terminal) -> None:
        stdout = terminal.process.stdout
        assert stdout is not None
        try:
            async for piece in stdout:
                terminal.feed(piece)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return
        await terminal.process.wait()
        terminal.ended.set()

    def _of(self, params: dict[str, Any]) -> Terminal:
        terminal = self.live.get(params["terminalId"])
        if terminal is None:
            raise RpcError(-32602, f"unknown terminal: {params['terminalId']}")
        return terminal

    async def read(self, params: dict[str, Any]) -> dict[str, Any]:
        """`terminal/output`."""
        terminal = self._of(params)
        answer: dict[str, Any] = {
            "output": terminal.output.decode("utf-8", "replace"),
            "truncated": terminal.truncated,
        }
        status = terminal.status()
        return answer if status is None else answer | {"exitStatus": status}

    async def wait(self, params: dict[str, Any]) -> dict[str, Any]:
        """`terminal/wait_for_exit`."""
        terminal = self._of(params)
        await terminal.ended.wait()
        return terminal.status() or {}

    async def kill(self, params: dict[str, Any]) -> dict[str, Any]:
        """`terminal/kill`: the id stays valid."""
        self._of(params).kill()
        return {}

    async def release(self, params: dict[str, Any]) -> dict[str, Any]:
        """`terminal/release`: kills what still runs."""
        self._of(params).kill()
        self.released.append(params["terminalId"])
        del self.live[params["terminalId"]]
        return {}

    def kill_all(self) -> None:
        """Leave nothing running."""
        for terminal in self.live.values():
            terminal.kill()
