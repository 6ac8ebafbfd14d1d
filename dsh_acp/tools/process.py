"""Child processes that leave nothing behind.

A child is the leader of a session of its own: no terminal, no descriptor of ours, and a stdin
that is null or a private file.
Whatever ends the wait (exit, time limit, cancellation) ends the whole group, and processes that
left the group are found by a mark in their environment.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import os
from pathlib import Path
import re
import signal
import subprocess
import tempfile
from typing import IO, Final

import anyio
from anyio import CancelScope, to_thread
from msgspec import Struct

from dsh_acp.errors import ToolError
from dsh_acp.tools import belongings, reaper, strays as strays_of
from dsh_acp.tools.sandbox import Sandbox

GRACE_S: Final = 3.0
_KILLED_S: Final = 2.0
_LINGER_S: Final = 0.1
PROC: Final = Path("/proc")
_MARK: Final = "DSH_RUN"
_SECRET: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:_PWD|_PAT|_DSN|_AUTH)$",
    re.IGNORECASE,
)
_LOGIN: Final = re.compile(r"://[^/@\s]+:[^/@\s]+@")
_hidden: Final = set[str]()
_PLAIN: Final = {"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"}

Sink = Callable[[bytes], None]


class Ended(Struct, frozen=True):
    """How a child ended; `left_behind` when it had started processes that outlived it."""

    exit_code: int | None
    signal: str | None
    timed_out: bool = False
    left_behind: bool = False


def hide(names: Iterable[str]) -> None:
    """Keep these variables from every child, whatever they are called."""
    _hidden.update(names)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours without what looks like a secret, set for output that nobody pages or colours.

    A proxy's address keeps its login, because nothing would work without it.
    """
    env = {name: value for name, value in os.environ.items() if not _is_secret(name, value)}
    env.update(_PLAIN)
    env.update(belongings.environment())
    env.update(extra or {})
    return env


def _is_secret(name: str, value: str) -> bool:
    if name in _hidden or _SECRET.search(name):
        return True
    return _LOGIN.search(value) is not None and not name.lower().endswith("_proxy")


class Child:
    """A started process; `stop` and `close` end every use."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes | None = None,
        sandbox: Sandbox | None = None,
        terminal: int | None = None,
    ) -> None:
        """Start it, with `stdin` to read, inside `sandbox`; by default there is neither.

        `terminal` is a descriptor for all three of its streams.

        Raises:
            ToolError: the program or the folder cannot be used.
        """
        reaper.prepare()
        self._mark = f"{_MARK}={os.urandom(8).hex()}"
        marked = dict(env)
        marked[_MARK] = self._mark.partition("=")[2]
        given = None if stdin is None else _file_of(stdin)

        def launch(argv: Sequence[str]) -> "subprocess.Popen[bytes]":
            return subprocess.Popen(
                argv,
                cwd=cwd,
                env=marked,
                stdin=terminal or given or subprocess.DEVNULL,
                stdout=terminal or subprocess.PIPE,
                stderr=terminal or subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )

        try:
            self._popen = launch(argv) if sandbox is None else sandbox.start(argv, cwd, launch)
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else str(exc)
            where = getattr(exc, "filename", None) or argv[0]
            raise ToolError(
                f'cannot run "{argv[0]}" in "{cwd}": {reason} ({where})', code="EXEC_FAILED"
            ) from exc
        finally:
            if given is not None:
                given.close()
        self.pid = self._popen.pid
        reaper.watch(self.pid, self._mark)
        self._pidfd = -1
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(self.pid)

    @property
    def streams(self) -> tuple[int, int]:
        """Descriptors of stdout and stderr, non-blocking."""
        out, err = self._popen.stdout, self._popen.stderr
        assert out is not None
        assert err is not None
        for stream in (out, err):
            os.set_blocking(stream.fileno(), False)
        return out.fileno(), err.fileno()

    async def exited(self) -> None:
        """Wait until it has ended. It stays a zombie, so its id cannot become another's."""
        if self._pidfd >= 0:
            await anyio.wait_readable(self._pidfd)
        else:
            await to_thread.run_sync(self._popen.wait, abandon_on_cancel=True)

    async def stop(self, grace_s: float = GRACE_S, *, strays: bool = False) -> bool:
        """End it and whatever it started, and reap it; whether something still ran.

        Shielded from cancellation. SIGTERM first, SIGKILL after `grace_s`. `strays` looks for
        processes that left the group even when nothing in the group ran.
        """
        ran = False
        with CancelScope(shield=True):
            ran = await self._stop(grace_s, strays)
        return ran

    async def _stop(self, grace_s: float, strays: bool) -> bool:
        ran = not self._has_exited()
        if ran:
            self._signal(signal.SIGTERM)
            with anyio.move_on_after(grace_s):
                await self.exited()
            if not self._has_exited():
                self._signal(signal.SIGKILL)
                # One that hangs in the kernel ends when the kernel lets it; nobody waits for that.
                with anyio.move_on_after(_KILLED_S):
                    await self.exited()
        if self._has_exited():
            self._popen.wait()
        if self._group_lives():
            ran = True
            await self._end_group(grace_s)
        reaper.forget(self.pid)
        if ran or strays:
            ran = await strays_of.end(self._mark) or ran
        return ran

    def close(self) -> None:
        """Give back the descriptors of a child that was stopped."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        for stream in (self._popen.stdout, self._popen.stderr):
            if stream is not None:
                stream.close()

    def outcome(self) -> tuple[int | None, str | None]:
        """Exit code and signal name, one of them `None`, once reaped."""
        code = self._popen.poll()
        if code is None:
            return None, "SIGKILL"
        if code >= 0:
            return code, None
        try:
            return None, signal.Signals(-code).name
        except ValueError:
            return None, f"SIG{-code}"

    def _has_exited(self) -> bool:
        if self._popen.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._popen.poll() is not None
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _group_lives(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        # The dead that nobody has reaped yet still count as members.
        return not PROC.is_dir() or any(
            status.group == self.pid and status.state not in "ZX" for status in processes()
        )

    async def _end_group(self, grace_s: float) -> None:
        self._signal(signal.SIGTERM)
        with anyio.move_on_after(grace_s):
            pause = 0.001
            while self._group_lives():
                await anyio.sleep(pause)
                pause = min(0.05, pause * 2)
        self._signal(signal.SIGKILL)


def _file_of(data: bytes) -> IO[bytes]:
    # Unlike a pipe, a file never waits for a reader.
    file = tempfile.TemporaryFile()
    file.write(data)
    file.seek(0)
    return file


class ProcessStatus(Struct, frozen=True):
    """One line of the process table."""

    pid: int
    state: str
    group: int


def processes() -> Iterator[ProcessStatus]:
    """The process table, where there is a `/proc`."""
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name may hold spaces and brackets; what follows its last bracket does not.
                fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                yield ProcessStatus(int(folder.name), fields[0], int(fields[2]))


async def run(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout_s: float,
    stdout: Sink,
    stderr: Sink,
    stdin: bytes | None = None,
    sandbox: Sandbox | None = None,
) -> Ended:
    """Run a program to its end, feeding its output to the sinks as it comes.

    What it started and left running is stopped too. On cancellation everything is reaped before
    the cancellation goes on.

    Raises:
        ToolError: it could not be started.
    """
    child = Child(argv, cwd, env, stdin, sandbox)
    timed_out = ran = finished = False
    try:
        out, err = child.streams
        readers = _Readers(2)
        async with anyio.create_task_group() as group:
            group.start_soon(readers.drain, out, stdout)
            group.start_soon(readers.drain, err, stderr)
            with anyio.move_on_after(timeout_s) as limit:
                await child.exited()
            timed_out = limit.cancelled_caught
            # A child of the child may hold the pipes: it gets a moment, not for ever.
            with anyio.move_on_after(_LINGER_S):
                await readers.done.wait()
            # Whoever still holds the pipes is no daemon that meant to leave.
            ran = await child.stop(strays=not readers.done.is_set())
            with anyio.move_on_after(_LINGER_S):
                await readers.done.wait()
            finished = True
            group.cancel_scope.cancel()
    finally:
        if not finished:
            await child.stop(strays=True)
        child.close()
    code, name = child.outcome()
    return Ended(code, name, timed_out, ran and not timed_out)


class _Readers:
    def __init__(self, count: int) -> None:
        self._open = count
        self.done = anyio.Event()

    async def drain(self, fd: int, sink: Sink) -> None:
        while True:
            await anyio.wait_readable(fd)
            try:
                data = os.read(fd, 65_536)
            except BlockingIOError:
                continue
            if not data:
                break
            sink(data)
        self._open -= 1
        if not self._open:
            self.done.set()
