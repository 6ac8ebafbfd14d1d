"""A pseudo-terminal with a shell in it, read by a thread of its own."""

import contextlib
import fcntl
import os
import signal
import struct
import sys
import termios
import threading
from typing import Final

import anyio
from anyio import to_thread

from dsh_acp.errors import ToolError
from dsh_acp.tools import confine_git, process
from dsh_acp.tools.output import KEPT_BYTES, decode, from_boundary, readable, to_boundary
from dsh_acp.tools.tool import ToolContext

SHELL: Final = ("bash", "--norc", "--noprofile", "-i")
_SIZE: Final = struct.pack("HHHH", 40, 120, 0, 0)
_LOOK_S: Final = 0.02
_QUIET_S: Final = 0.5
_PROMPT_S: Final = 0.06
# The shell becomes the terminal's owner. A thread must not fork to run such a thing itself.
_OWN: Final = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
_ENV: Final = {"PS1": "$ ", "HISTFILE": "/dev/null", "COLUMNS": "120", "LINES": "40"}


class Terminal:
    """One pseudo-terminal and its shell."""

    def __init__(self, id: str, name: str, cwd: str, ctx: ToolContext) -> None:
        """Start the shell.

        Raises:
            ToolError: there is no shell, or the folder cannot be used.
        """
        self.id = id
        self.name = name
        self.cwd = cwd
        self.sandbox = ctx.sandbox
        self._watch = None if ctx.sandbox is None else confine_git.Watch(ctx.sandbox.writable)
        self.has_ended = False
        self._unread = bytearray()
        self._kept = bytearray()
        self._lost = False
        self._count = 0
        self._guard = threading.Lock()
        self._master, slave = os.openpty()
        try:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, _SIZE)
            argv = (sys.executable, "-I", "-S", "-c", _OWN, *SHELL)
            env = process.environment(_ENV)
            self._child = process.Child(argv, cwd, env, sandbox=ctx.sandbox, terminal=slave)
        except BaseException:
            os.close(self._master)
            raise
        finally:
            os.close(slave)
        self._thread = threading.Thread(target=self._drain, name=f"terminal {id}", daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with contextlib.suppress(OSError):  # which says that nobody has the other side open
            while data := os.read(self._master, 65_536):
                with self._guard:
                    self._count += len(data)
                    self._lost = self._lost or len(self._unread) + len(data) > KEPT_BYTES
                    self._unread = _tail(self._unread + data)
                    self._kept = _tail(self._kept + data)
        self.has_ended = True

    @property
    def state(self) -> str:
        """What it is doing, as the model reads it."""
        if self.has_ended:
            return "[status: ended]"
        return "[status: waiting at its prompt]" if self.is_at_prompt else "[status: busy]"

    @property
    def is_at_prompt(self) -> bool:
        """Whether the shell itself has the keyboard."""
        with contextlib.suppress(OSError):
            return os.tcgetpgrp(self._master) == self._child.pid
        return False

    async def write(self, data: bytes) -> None:
        """Type `data`.

        Raises:
            ToolError: it has ended.
        """
        if not self.has_ended:
            with contextlib.suppress(OSError):
                await to_thread.run_sync(os.write, self._master, data, abandon_on_cancel=True)
                return
        raise ToolError(f"terminal {self.id} has ended", code="TERMINAL_ENDED")

    async def settle(self, wait_ms: int) -> None:
        """Return when the shell is at its prompt, all is quiet, or time is up."""
        seen, quiet = self._count, 0.0
        with anyio.move_on_after(wait_ms / 1000):
            while not self.has_ended:
                await anyio.sleep(_LOOK_S)
                if self._count != seen:
                    seen, quiet = self._count, 0.0
                    continue
                quiet += _LOOK_S
                if quiet >= (_PROMPT_S if self.is_at_prompt else _QUIET_S) and self._unread:
                    return

    def tidy(self) -> str:
        """Put back what must not stay, as `confine_git`; what to tell of it."""
        undone = () if self._watch is None else self._watch.restore()
        return "".join(f"\n{line}" for line in confine_git.told(undone))

    def read(self) -> str:
        """What it printed since the last time."""
        with self._guard:
            data = bytes(self._unread)
            whole = data if self.has_ended else to_boundary(data)
            self._unread = bytearray(data[len(whole) :])
            lost, self._lost = self._lost, False
        return ("[earlier output left out]\n" if lost else "") + readable(decode(whole))

    def lines(self, offset: int, count: int) -> str:
        """Lines of what is still kept, from 1."""
        with self._guard:
            whole = readable(decode(bytes(self._kept)))
            self._unread.clear()
        return "\n".join(whole.split("\n")[offset - 1 : offset - 1 + count])

    def signal(self, number: int) -> None:
        """Signal whatever has the keyboard."""
        with contextlib.suppress(OSError):
            os.killpg(os.tcgetpgrp(self._master), number)

    async def close(self) -> None:
        """End everything in it. Shielded; bounded by a few seconds."""
        with anyio.CancelScope(shield=True):
            with contextlib.suppress(OSError):
                os.killpg(self._child.pid, signal.SIGHUP)  # a shell ignores SIGTERM
            await self._child.stop(1.0, strays=True)
            self._child.close()
            await to_thread.run_sync(self._thread.join, 2.0)
            self.has_ended = True
            os.close(self._master)
            await to_thread.run_sync(self.tidy)


def _tail(data: bytearray) -> bytearray:
    if len(data) <= KEPT_BYTES:
        return data
    return bytearray(from_boundary(bytes(data[-KEPT_BYTES:])))
