"""A server's process: three pipes, a group of its own, and an end that leaves nothing behind.

What it prints to stderr is always read and only its end is kept, so that a talkative server never
blocks. For POSIX systems; elsewhere the SDK starts servers.
"""

from collections import deque
from collections.abc import Mapping, Sequence
import contextlib
import os
import signal
import subprocess
from typing import IO, Final, Protocol

import anyio
from anyio import CancelScope

from dsh_acp.errors import McpError

MAX_LINE: Final = 64 * 1024 * 1024
KEPT_STDERR: Final = 16_384
_MARK: Final = "DSH_RUN"
_READ: Final = 262_144
_FAREWELL_S: Final = 0.7
_GRACE_S: Final = 1.0
_KILLED_S: Final = 1.0


class Guard(Protocol):
    """What ends process groups should this process be killed (`dsh_acp.tools.reaper`)."""

    def prepare(self) -> None:
        """Be ready to `watch`."""
        ...

    def watch(self, group: int, mark: str) -> None:
        """End `group`, and whatever has `mark` in its environment, when this process is gone."""
        ...

    async def sweep(self, mark: str) -> None:
        """End whatever has `mark` in its environment, now."""
        ...

    def forget(self, group: int) -> None:
        """Nothing of `group` runs any more."""
        ...


class ServerProcess:
    """A started server. Whoever starts one must `stop` it, once nothing else uses it."""

    def __init__(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], guard: Guard) -> None:
        """Start it.

        Raises:
            McpError: `NOT_STARTED`, the program or the folder cannot be used.
        """
        guard.prepare()
        mark = os.urandom(8).hex()
        self._mark: Final = f"{_MARK}={mark}"
        try:
            self._popen = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**env, _MARK: mark},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else str(exc)
            raise McpError(f'"{argv[0]}" cannot be started: {reason}', code="NOT_STARTED") from exc
        self._guard: Final = guard
        self.pid: Final = self._popen.pid
        guard.watch(self.pid, self._mark)
        self._stdin = _open(self._popen.stdin)
        self._stdout = _open(self._popen.stdout)
        self._stderr = _open(self._popen.stderr)
        self._partial = bytearray()
        self._complaints: deque[bytes] = deque()
        self._kept = 0
        self._was_signalled = False

    async def read(self) -> list[bytes]:
        """The next whole lines, without their ends; none at the end of its output.

        Raises:
            McpError: `MALFORMED`, a line without end.
        """
        while data := await _some(self._stdout):
            # Searching only what is new keeps a long line from being searched again and again.
            if b"\n" in data:
                *lines, rest = (bytes(self._partial) + data).split(b"\n")
                self._partial = bytearray(rest)
                return lines
            self._partial += data
            if len(self._partial) > MAX_LINE:
                raise McpError("it sent a line of more than 64 MiB", code="MALFORMED")
        rest, self._partial = bytes(self._partial), bytearray()
        return [rest] if rest else []

    async def send(self, data: bytes) -> None:
        """Write all of `data`.

        Raises:
            OSError: nobody reads any more.
        """
        view = memoryview(data)
        while view:
            await anyio.wait_writable(self._stdin)
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(self._stdin, view) :]

    async def drain(self) -> None:
        """Read stderr until its end."""
        while data := await _some(self._stderr):
            self._complaints.append(data)
            self._kept += len(data)
            while self._kept - len(self._complaints[0]) >= KEPT_STDERR:
                self._kept -= len(self._complaints.popleft())

    @property
    def last_words(self) -> str:
        """The last line that it printed to stderr; `""` when it printed nothing."""
        lines = b"".join(self._complaints).decode("utf-8", "replace").split("\n")
        return next((text for line in reversed(lines) if (text := line.strip())), "")

    def outcome(self) -> str:
        """How it ended, as a clause; `""` while it runs, and when it had to be ended."""
        code = self._popen.returncode
        if code is None or self._was_signalled:
            return ""
        if code >= 0:
            return f"it exited with code {code}"
        with contextlib.suppress(ValueError):
            return f"it was ended by {signal.Signals(-code).name}"
        return f"it was ended by signal {-code}"

    async def stop(self) -> None:
        """End it and its group, and reap it.

        Shielded from cancellation, and bounded. Its input is closed first, then come SIGTERM and
        SIGKILL.
        """
        with CancelScope(shield=True):
            os.close(self._stdin)
            if not await self._ends_within(_FAREWELL_S):
                self._was_signalled = True
                self._signal(signal.SIGTERM)
                if not await self._ends_within(_GRACE_S):
                    self._signal(signal.SIGKILL)
                    await self._ends_within(_KILLED_S)
            if self._popen.returncode is not None and self._group_lives():
                self._signal(signal.SIGTERM)
                with anyio.move_on_after(_GRACE_S):
                    while self._group_lives():  # noqa: ASYNC110 - nobody tells of it
                        await anyio.sleep(0.01)
                self._signal(signal.SIGKILL)
            await self._guard.sweep(self._mark)
            self._guard.forget(self.pid)
            os.close(self._stdout)
            os.close(self._stderr)

    async def _ends_within(self, seconds: float) -> bool:
        pause = 0.002
        with anyio.move_on_after(seconds):
            while self._popen.poll() is None:
                await anyio.sleep(pause)
                pause = min(0.02, pause * 1.5)
        return self._popen.poll() is not None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _group_lives(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def _open(stream: IO[bytes] | None) -> int:
    """The descriptor of a pipe, ours from now on, non-blocking."""
    assert stream is not None
    fd = os.dup(stream.fileno())
    stream.close()
    os.set_blocking(fd, False)
    return fd


async def _some(fd: int) -> bytes:
    while True:
        await anyio.wait_readable(fd)
        try:
            return os.read(fd, _READ)
        except BlockingIOError:
            continue
        except OSError:
            return b""
