"""A language server's process: three pipes, a group of its own, and an end in bounded time.

What it prints to stderr is always read and only its end is kept, so that a talkative server never
blocks and never fills a disk.
"""

from collections.abc import Mapping, Sequence
import contextlib
import os
import signal
import subprocess
from typing import IO, Final

import anyio
from anyio import CancelScope

from dsh_acp.errors import LspError
from dsh_acp.lsp.place import Place

KEPT_STDERR: Final = 16_384
_MARK: Final = "DSH_RUN"
_GRACE_S: Final = 0.7
_KILLED_S: Final = 1.0


class ServerProcess:
    """A started server. Whoever starts one must `stop` it."""

    def __init__(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], place: Place) -> None:
        """Start it.

        Raises:
            LspError: `NOT_STARTED`, the program or the folder cannot be used.
        """
        place.guard.prepare()
        mark = os.urandom(8).hex()
        self._mark: Final = f"{_MARK}={mark}"
        try:
            self._popen = place.start(argv, cwd, {**place.environment, **env, _MARK: mark})
        except (OSError, ValueError, subprocess.SubprocessError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
            raise LspError(f'"{argv[0]}" cannot be started: {reason}', code="NOT_STARTED") from exc
        self._guard: Final = place.guard
        self.pid: Final = self._popen.pid
        place.guard.watch(self.pid, self._mark)
        self._stderr = b""
        self._was_signalled = False

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        """Its stdin, stdout and stderr; whoever takes them closes them."""
        stdin, stdout, stderr = self._popen.stdin, self._popen.stdout, self._popen.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        return stdin, stdout, stderr

    def complain(self, data: bytes) -> None:
        """More of its stderr."""
        self._stderr = (self._stderr + data)[-KEPT_STDERR:]

    def outcome(self) -> str:
        """How it ended and what it said last, as a clause."""
        whole = self._stderr.decode("utf-8", "replace").split("\n")
        lines = [text for line in reversed(whole) if (text := line.strip())]
        # Traces of calls often come after what went wrong.
        words = next((line for line in lines if "error" in line.lower()), "".join(lines[:1]))
        said = f"; its last words: {words[:500]}" if words else ""
        code = self._popen.returncode
        if code is None or self._was_signalled:
            return f"it ended{said}"
        if code >= 0:
            return f"it exited with code {code}{said}"
        with contextlib.suppress(ValueError):
            return f"it was ended by {signal.Signals(-code).name}{said}"
        return f"it was ended by signal {-code}{said}"

    async def ends_within(self, seconds: float) -> bool:
        """Wait for its end, and reap it."""
        pause = 0.002
        with anyio.move_on_after(seconds):
            while self._popen.poll() is None:
                await anyio.sleep(pause)
                pause = min(0.02, pause * 1.5)
        return self._popen.poll() is not None

    async def stop(self, farewell_s: float) -> None:
        """End it and its group: `farewell_s` for it to go by itself, then by force. Shielded."""
        with CancelScope(shield=True):
            if not await self.ends_within(farewell_s):
                self._was_signalled = True
                self._signal(signal.SIGTERM)
                await self.ends_within(_GRACE_S)
            self._signal(signal.SIGKILL)
            await self.ends_within(_KILLED_S)
            await self._guard.sweep(self._mark)
            self._guard.forget(self.pid)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
