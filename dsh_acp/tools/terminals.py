"""Terminals that live through calls: a shell, a debugger, a prompt that wants an answer.

Each is a pseudo-terminal with a shell in it, at most four per session. What is typed is judged
like a command. A terminal keeps the sandbox that it was opened in; one that was opened without
takes no input that was allowed only because a sandbox would hold it. Whoever forgets a session
must call `close_all` first.
"""

from collections.abc import Mapping
import contextlib
import fcntl
import os
from pathlib import Path
import signal
import struct
import sys
import termios
import threading
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread

from dsh_acp.errors import ToolError
from dsh_acp.tools import belongings, process
from dsh_acp.tools.builtin import Builtin, absolute, resolved, text_outcome
from dsh_acp.tools.intents import danger
from dsh_acp.tools.output import KEPT_BYTES, decode, from_boundary, readable, to_boundary
from dsh_acp.tools.tool import Intent, Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.tools import terminal_arguments as arguments

LIMIT: Final = 4
STATE: Final = "terminals"
WAIT_MS: Final = 5_000
MAX_WAIT_MS: Final = 600_000
_SIZE: Final = struct.pack("HHHH", 40, 120, 0, 0)
_LOOK_S: Final = 0.02
_QUIET_S: Final = 0.5
_PROMPT_S: Final = 0.06
# The shell becomes the terminal's owner. A thread must not fork to run such a thing itself.
_OWN: Final = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
_SHELL: Final = ("bash", "--norc", "--noprofile", "-i")
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
        self.has_ended = False
        self._unread = bytearray()
        self._kept = bytearray()
        self._lost = False
        self._count = 0
        self._guard = threading.Lock()
        self._master, slave = os.openpty()
        try:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, _SIZE)
            argv = (sys.executable, "-I", "-S", "-c", _OWN, *_SHELL)
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
        try:
            await to_thread.run_sync(os.write, self._master, data, abandon_on_cancel=True)
        except OSError as exc:
            self.has_ended = True
            raise ToolError(f"terminal {self.id} has ended", code="TERMINAL_ENDED") from exc

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
            await self._child.stop(1.0, strays=True)
            self._child.close()
            await to_thread.run_sync(self._thread.join, 2.0)
            self.has_ended = True
            os.close(self._master)


def _tail(data: bytearray) -> bytearray:
    if len(data) <= KEPT_BYTES:
        return data
    return bytearray(from_boundary(bytes(data[-KEPT_BYTES:])))


def _open_ones(state: Mapping[str, Any]) -> dict[str, Terminal]:
    return state.get(STATE, {})


def _named(id: str, ctx: ToolContext) -> Terminal:
    found = _open_ones(ctx.state)
    if id not in found:
        known = ", ".join(found) or "there are none"
        raise ToolError(f'unknown terminal "{id}" (open: {known})', code="TERMINAL_NOT_FOUND")
    return found[id]


async def close_all(state: Mapping[str, Any]) -> None:
    """Close every terminal of a session."""
    found = _open_ones(state)
    while found:
        await found.popitem()[1].close()


def _said(terminal: Terminal, text: str) -> Outcome:
    text = text or "(no new output)"
    return text_outcome(f"{text}{'' if text.endswith(chr(10)) else chr(10)}{terminal.state}")


class TerminalOpen(Builtin):
    """Opens a terminal with a shell."""

    name = "terminal_open"

    def intent(self, args: "arguments.TerminalOpen", cwd: str) -> Intent:
        """Executes a shell."""
        folder = cwd if args.cwd is None else resolved(args.cwd, cwd)
        paths = () if args.cwd is None else (folder,)
        return Intent(effect="execute", paths=paths, command=" ".join(_SHELL), cwd=folder)

    async def run(self, args: "arguments.TerminalOpen", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        folder = ctx.cwd if args.cwd is None else absolute(args.cwd, ctx.cwd)
        found: dict[str, Terminal] = ctx.state.setdefault(STATE, {})
        if len(found) >= LIMIT:
            text = f"too many terminals (limit {LIMIT}): {', '.join(found)}; close one first"
            raise ToolError(text, code="TERMINAL_LIMIT")
        if not await to_thread.run_sync(Path(folder).is_dir):
            raise ToolError(f'cannot open a terminal in "{folder}": not a directory')
        number = ctx.state[f"{STATE} opened"] = ctx.state.get(f"{STATE} opened", 0) + 1
        with belongings.marked(ctx.state):
            terminal = Terminal(f"term-{number}", args.name or "shell", folder, ctx)
        found[terminal.id] = terminal
        await terminal.settle(WAIT_MS)
        terminal.read()
        return text_outcome(f"opened terminal {terminal.id} ({terminal.name}) in {folder}")


class TerminalSend(Builtin):
    """Types into a terminal."""

    name = "terminal_send"

    def intent(self, args: "arguments.TerminalSend", cwd: str) -> Intent:
        """Executes what is typed; "always" covers the same text in the same terminal."""
        scope = f"{args.sessionId}: {args.text}"
        reason = danger(args.text)
        return Intent(effect="execute", command=args.text, cwd=cwd, scope=scope, reason=reason)

    async def run(self, args: "arguments.TerminalSend", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        terminal = _named(args.sessionId, ctx)
        if ctx.sandbox is not None and terminal.sandbox is None:
            raise ToolError(
                f"terminal {terminal.id} was opened outside the sandbox that holds calls now; "
                "close it and open another",
                code="TERMINAL_UNCONFINED",
            )
        text = args.text.encode("utf-8", "surrogateescape")
        await terminal.write(text + (b"" if args.submit is False else b"\r"))
        if args.run_in_background:
            return text_outcome(f"sent to {terminal.id}; read what comes with terminal_read")
        await terminal.settle(min(args.timeout_ms or WAIT_MS, MAX_WAIT_MS))
        return _said(terminal, terminal.read())


class TerminalRead(Builtin):
    """Reads what a terminal shows."""

    name = "terminal_read"

    async def run(self, args: "arguments.TerminalRead", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        terminal = _named(args.sessionId, ctx)
        if args.offset is not None or args.count is not None:
            return _said(terminal, terminal.lines(args.offset or 1, args.count or 200))
        return _said(terminal, terminal.read())


class TerminalList(Builtin):
    """The session's terminals."""

    name = "terminal_list"

    async def run(self, args: "arguments.TerminalList", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        found = _open_ones(ctx.state).values()
        lines = [f"{each.id} [{each.name}] in {each.cwd} {each.state}" for each in found]
        return text_outcome("\n".join(lines) or "(no terminals)")


class TerminalSignal(Builtin):
    """Signals what runs in a terminal."""

    name = "terminal_signal"

    async def run(self, args: "arguments.TerminalSignal", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        terminal = _named(args.sessionId, ctx)
        terminal.signal(signal.Signals[args.signal])
        await terminal.settle(1000)
        return _said(terminal, terminal.read())


class TerminalClose(Builtin):
    """Closes a terminal."""

    name = "terminal_close"

    async def run(self, args: "arguments.TerminalClose", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        terminal = _named(args.sessionId, ctx)
        del _open_ones(ctx.state)[terminal.id]
        await terminal.close()
        return text_outcome(f"closed terminal {terminal.id}")
