"""Running commands: `bash`."""

from typing import TYPE_CHECKING, Final

from dsh_acp.messages import ToolSchema
from dsh_acp.tools import belongings, confine_git, schemas
from dsh_acp.tools.builtin import Builtin, absolute, resolved, text_outcome
from dsh_acp.tools.confine import Confinement
from dsh_acp.tools.files import escalation
from dsh_acp.tools.intents import danger, leaves, scope_of
from dsh_acp.tools.output import decode, readable, to_boundary
from dsh_acp.tools.sandbox import told
from dsh_acp.tools.tool import CommandEnd, Intent, Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.tools import arguments

MAX_TIMEOUT_MS: Final = 600_000
_LEFT: Final = (
    "[processes that this command left running were stopped; "
    "use run_in_background for one that must go on]"
)


class Bash(Builtin):
    """Runs a command to its end, or starts a background job."""

    name = "bash"

    def __init__(self, timeout_ms: int, confinement: Confinement) -> None:
        self._timeout_ms = timeout_ms
        self._confinement = confinement

    @property
    def schema(self) -> ToolSchema:
        """As the model sees it; it may ask for more only where something confines."""
        if self._confinement.means is None:
            return super().schema
        return schemas.escalating(self.name)

    def intent(self, args: "arguments.Bash", cwd: str) -> Intent:
        """Executes; `paths` holds the folder only when the call names one."""
        folder = cwd if args.workdir is None else resolved(args.workdir, cwd)
        scope = scope_of(args.command)
        if scope != args.command.strip() and leaves(args.command, folder):
            scope = args.command.strip()
        return Intent(
            effect="execute",
            paths=() if args.workdir is None else (folder,),
            command=args.command,
            cwd=folder,
            scope=scope,
            reason=escalation(args) or danger(args.command),
            escalate=args.sandbox_permissions,
        )

    async def run(self, args: "arguments.Bash", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        with belongings.marked(ctx.state):
            return await self._run(args, ctx)

    async def _run(self, args: "arguments.Bash", ctx: ToolContext) -> Outcome:
        folder = ctx.cwd if args.workdir is None else absolute(args.workdir, ctx.cwd)
        if args.run_in_background:
            from dsh_acp.tools import jobs

            job = await jobs.start(args.command, folder, ctx)
            return text_outcome(f"started background job {job.id}")
        timeout_ms = min(int(args.timeoutMs or self._timeout_ms) or 1, MAX_TIMEOUT_MS)
        live = _Live(ctx)
        ended = await ctx.world.run(
            args.command,
            cwd=folder,
            timeout_ms=timeout_ms,
            output=live.feed,
            spill_dir=ctx.spill_dir,
            sandbox=ctx.sandbox,
        )
        return text_outcome(render(ended, timeout_ms))


class _Live:
    """Passes output on as text, whole characters at a time."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._rest = b""

    def feed(self, data: bytes) -> None:
        data = self._rest + data
        whole = to_boundary(data)
        self._rest = data[len(whole) :]
        if whole:
            self._ctx.progress(whole.decode("utf-8", "replace"))


def render(ended: CommandEnd, timeout_ms: int) -> str:
    """What the model sees of a command that ended."""
    cut = ended.signal is not None
    text = _stream(ended.stdout, cut, ended.stdout_truncated, ended.full_stdout)
    errors = _stream(ended.stderr, cut, ended.stderr_truncated, ended.full_stderr)
    if errors:
        text = f"{_line_end(text)}[stderr]\n{errors}"
    text = text or "(no output)"
    markers: list[str] = []
    if ended.left_behind:
        markers.append(_LEFT)
    markers += told(ended.denied, confine_git.told(ended.undone))
    if ended.timed_out:
        markers.append(f"[timed out after {timeout_ms}ms]")
    if ended.signal is not None:
        markers.append(f"[killed by signal: {ended.signal}]")
    elif ended.exit_code:
        markers.append(f"[exit code: {ended.exit_code}]")
    return _line_end(text) + "\n".join(markers) if markers else text


def _stream(data: bytes, cut: bool, truncated: bool, full: str | None) -> str:
    text = readable(decode(to_boundary(data) if cut else data))
    if truncated:
        text += f"\n[output truncated; full output: {full or '(unavailable)'}]"
    return text


def _line_end(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
