"""What is behind `lsp`, and what language servers say of a change.

A server runs in a sandbox that lets it write to a folder of its own only, where this machine has
one; it reads the project, and may run parts of it. Without one, starting a server that runs parts
of a project is asked about like a command.
"""

from collections.abc import Mapping, Sequence
import contextlib
from pathlib import Path
import shlex
import subprocess
from typing import TYPE_CHECKING, Any, Final

import anyio

from dsh_acp.config import Settings
from dsh_acp.errors import LspError, ToolError
from dsh_acp.lsp import pool
from dsh_acp.lsp.place import Limits, Place
from dsh_acp.lsp.servers import Found, Servers
from dsh_acp.tools import language_text as told, process, reaper
from dsh_acp.tools.builtin import resolved, text_outcome
from dsh_acp.tools.confine import Confinement
from dsh_acp.tools.files import EDITED_BYTES, decoded
from dsh_acp.tools.tool import Intent, Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.lsp.findings import Finding
    from dsh_acp.lsp.server import Read, Server
    from dsh_acp.tools import language_arguments

STATE: Final = "language"
_TIMEOUT_S: Final = 60
_CHECKING_S: Final = 15.0
_REMARKS_S: Final = 1.0


class Office:
    """What the tool does; made at its first use."""

    def __init__(self, settings: Settings, confinement: Confinement, limits: Limits) -> None:
        self._servers: Final = Servers(settings.lsp_servers)
        self._cache: Final = settings.home / "language-servers"
        self._max_places: Final = settings.lsp_max_places
        self._confinement: Final = confinement
        self._limits: Final = limits

    def intent(self, args: "language_arguments.Lsp", cwd: str) -> Intent:
        """See `language.Lsp`."""
        path = resolved(args.file_path, cwd)
        for found in self._servers.of(path, (resolved(cwd, cwd),)):
            if found.known.runs_projects and self._confinement.means is None:
                name = found.known.name
                return Intent(
                    effect="execute",
                    paths=(path,),
                    command=shlex.join(found.argv),
                    cwd=cwd,
                    scope=f"language server {name}",
                    reason=f"the language server {name} may run code of this project",
                )
        return Intent(effect="read", paths=(path,), cwd=cwd, scope=path)

    async def run(self, args: "language_arguments.Lsp", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        path = resolved(args.file_path, ctx.cwd)
        found = self._servers.of(path, ctx.roots)
        if not found:
            raise _nobody(path, self._servers.names(path))
        desk = _desk(ctx)
        try:
            with anyio.fail_after(_TIMEOUT_S):
                if args.operation == "diagnostics":
                    return text_outcome(await self._diagnostics(path, found, desk, ctx))
                server = await self._use(found[0], path, desk, ctx)
                return text_outcome(await _answer(server, args, path, ctx, self._max_places))
        except TimeoutError as exc:
            raise ToolError(
                f"tool call timed out after {_TIMEOUT_S * 1000}ms",
                code="TOOL_TIMEOUT",
                name="ToolTimeoutError",
            ) from exc
        except LspError as exc:
            raise _failed(found[0].known.name, exc) from exc

    async def _use(self, found: Found, path: str, desk: "Desk", ctx: ToolContext) -> "Server":
        root = _root(path, ctx)
        desk.servers[root, found.known.name] = None
        with contextlib.suppress(OSError):
            self._cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        place = Place(
            start=self._start,
            environment=process.environment(),
            cache=str(self._cache),
            guard=reaper,
        )
        return await pool.current().use(found, root, desk, place, self._limits)

    def _start(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        def launch(whole: Sequence[str]) -> "subprocess.Popen[bytes]":
            return subprocess.Popen(
                whole,
                cwd=cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )

        sandbox = self._confinement.private(str(self._cache))
        return launch(argv) if sandbox is None else sandbox.start(argv, cwd, launch)

    async def _diagnostics(
        self, path: str, found: Sequence[Found], desk: "Desk", ctx: ToolContext
    ) -> str:
        """The findings of every server for the file; one that fails spoils nothing."""
        findings: list[Finding] = []
        unfinished: list[str] = []
        failures: list[ToolError] = []
        for each in found:
            try:
                server = await self._use(each, path, desk, ctx)
                some, is_current = await server.check(path, _reader(ctx), _CHECKING_S)
            except LspError as exc:
                failures.append(_failed(each.known.name, exc))
            else:
                findings += some
                if not is_current:
                    unfinished.append(server.name)
        if len(failures) == len(found):
            raise failures[0]
        return told.diagnostics(findings, resolved(ctx.cwd, ctx.cwd), unfinished)


async def _answer(
    server: "Server", args: "language_arguments.Lsp", path: str, ctx: ToolContext, max_places: int
) -> str:
    read, cwd = _reader(ctx), resolved(ctx.cwd, ctx.cwd)
    line, character = args.line or 1, args.character or 1
    match args.operation:
        case "hover":
            return told.hover(await server.hover(path, line, character, read))
        case "documentSymbol":
            return told.outline(await server.outline(path, read))
        case "workspaceSymbol":
            return told.symbols(await server.symbols(args.query or "", path, read), cwd)
        case _:
            found = await server.locations(args.operation, path, line, character, read)
            return told.locations(found, cwd, max_places)


class Desk:
    """The servers that one session has asked, kept in the state of its tools."""

    def __init__(self) -> None:
        self.servers: dict[tuple[str, str], None] = {}

    async def remarks(self, path: str, ctx: ToolContext) -> str:
        """What running servers say of a file that was just changed; `""` for nothing.

        Waits a second at most, and never fails: the change is made.
        """
        path = resolved(path, ctx.cwd)
        findings: list[Finding] = []
        asked = [
            server
            for root, name in self.servers
            for server in pool.current().running(root, (name,))
            if Path(path).suffix.lower() in server.found.known.languages
            and Path(path).is_relative_to(root)
        ]

        async def check(server: "Server") -> None:
            try:
                some, is_current = await server.check(path, _reader(ctx), _REMARKS_S)
            except (LspError, ToolError):
                return
            if is_current:
                findings.extend(some)

        with anyio.move_on_after(_REMARKS_S):
            async with anyio.create_task_group() as group:
                for server in asked:
                    group.start_soon(check, server)
        return told.remarks(findings, resolved(ctx.cwd, ctx.cwd))


def _desk(ctx: ToolContext) -> Desk:
    return ctx.state.setdefault(STATE, Desk())


async def release(state: Mapping[str, Any]) -> None:
    """Let go of a session's servers; those that nobody else uses end. Bounded in time."""
    desk = state.get(STATE)
    if desk is not None:
        await pool.current().release(desk)


def _root(path: str, ctx: ToolContext) -> str:
    """The workspace directory that the file is in, else the session's."""
    inside = [root for root in ctx.roots if Path(path).is_relative_to(root)]
    return max(inside, key=len, default=resolved(ctx.cwd, ctx.cwd))


def _reader(ctx: ToolContext) -> "Read":
    real = resolved(ctx.cwd, ctx.cwd)

    async def read(path: str) -> str:
        # An editor knows its files by the names under which they were opened.
        if Path(path).is_relative_to(real):
            path = str(Path(ctx.cwd, Path(path).relative_to(real)))
        return decoded("read", path, await ctx.world.read(path, EDITED_BYTES))[0]

    return read


def _failed(name: str, exc: LspError) -> ToolError:
    text = f'the language server "{name}" failed: {exc}'
    return ToolError(text, code=f"LSP_{exc.code}", name="LspError")


def _nobody(path: str, programs: Sequence[str]) -> ToolError:
    if programs:
        text = f'no language server for "{path}" is installed; any of these would do: '
        text += ", ".join(programs)
    else:
        text = f'no language server is known for files like "{path}"'
    return ToolError(text, code="LSP_UNAVAILABLE", name="LspError")
