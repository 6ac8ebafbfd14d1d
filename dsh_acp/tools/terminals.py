"""Terminals that live through calls: a shell, a debugger, a prompt that wants an answer.

Each is a pseudo-terminal with a shell in it, at most four per session. What is typed is judged
like a command. A terminal keeps the sandbox that it was opened in; one that was opened without
takes no input that was allowed only because a sandbox would hold it. Whoever forgets a session
must call `close_all` first.
"""

from collections.abc import Mapping
from pathlib import Path
import signal
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread
from anyio.lowlevel import checkpoint

from dsh_acp.errors import ToolError
from dsh_acp.tools import belongings
from dsh_acp.tools.builtin import Builtin, absolute, resolved, text_outcome
from dsh_acp.tools.intents import danger
from dsh_acp.tools.tool import Intent, Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.tools import terminal_arguments as arguments
    from dsh_acp.tools.terminal import Terminal

LIMIT: Final = 4
STATE: Final = "terminals"
WAIT_MS: Final = 5_000
MAX_WAIT_MS: Final = 600_000
_SHELL: Final = "bash --norc --noprofile -i"


def _open_ones(state: Mapping[str, Any]) -> dict[str, "Terminal"]:
    return state.get(STATE, {})


def _named(id: str, ctx: ToolContext) -> "Terminal":
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


def _said(terminal: "Terminal", text: str) -> Outcome:
    text = text or "(no new output)"
    return text_outcome(f"{text}{'' if text.endswith(chr(10)) else chr(10)}{terminal.state}")


class TerminalOpen(Builtin):
    """Opens a terminal with a shell."""

    name = "terminal_open"

    def intent(self, args: "arguments.TerminalOpen", cwd: str) -> Intent:
        """Executes a shell."""
        folder = cwd if args.cwd is None else resolved(args.cwd, cwd)
        paths = () if args.cwd is None else (folder,)
        return Intent(effect="execute", paths=paths, command=_SHELL, cwd=folder)

    async def run(self, args: "arguments.TerminalOpen", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        from dsh_acp.tools.terminal import Terminal

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
        return _said(terminal, terminal.read() + await to_thread.run_sync(terminal.tidy))


class TerminalRead(Builtin):
    """Reads what a terminal shows."""

    name = "terminal_read"

    async def run(self, args: "arguments.TerminalRead", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        terminal = _named(args.sessionId, ctx)
        # Whoever reads again and again must let the terminal say something in between.
        await checkpoint()
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
