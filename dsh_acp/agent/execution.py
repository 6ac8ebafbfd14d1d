"""One tool call, from the model's text to the result that is recorded.

Whatever goes wrong becomes a result that the model can read: an unknown tool, arguments that do
not fit, a refusal, a failure. Only cancellation and a log that cannot be written end the turn.
"""

from collections.abc import Mapping, Sequence
import logging
from typing import Any, Final

import anyio
from msgspec import Struct

from dsh_acp import errors
from dsh_acp.agent import hooks, instructions, policy
from dsh_acp.agent.activity import Activity
from dsh_acp.agent.hooks import (
    Accept,
    Allow,
    Approve,
    Ask,
    Deny,
    Finished,
    Refuse,
    ToolUse,
    Verdict,
)
from dsh_acp.agent.parts import Parts
from dsh_acp.agent.permission import PermissionQuestion
from dsh_acp.agent.services import CHOICES, USER, Errand, LiveOutput
from dsh_acp.errors import ToolError
from dsh_acp.log.payloads import ErrorInfo
from dsh_acp.messages import Block, Message, Opaque, Text, ToolCall
from dsh_acp.tools.cards import short
from dsh_acp.tools.sandbox import Sandbox
from dsh_acp.tools.tool import Agents, Intent, Outcome, Tool, World

_log = logging.getLogger(__name__)


class Result(Struct, frozen=True, kw_only=True):
    """What is recorded of a call."""

    content: tuple[Block | Opaque, ...]
    is_error: bool = False
    error: ErrorInfo | None = None
    meta: dict[str, Any] | None = None
    concludes_turn: bool = False


def failed(message: str, error: ErrorInfo | None = None) -> Result:
    """A failure in words for the model."""
    return Result(content=(Text(f"Error: {message}"),), is_error=True, error=error)


ABORTED: Final = failed("tool call aborted", ErrorInfo("AbortError", "ABORTED"))
BEFORE_DISPATCH: Final = failed(
    "tool call aborted before dispatch", ErrorInfo("AbortError", "ABORTED_BEFORE_DISPATCH")
)


class Slot:
    """A call on its way. `result` is set once it is known, `seq` once the call is recorded.

    Once it may run, `allowed` holds the paths that were judged, and `sandbox` what holds it.
    `may_differ`: time has passed since, in which those paths may have come to lead elsewhere.
    """

    def __init__(
        self, use: ToolUse, tool: Tool | None, args: Any, refusal: Result | None, parallel: bool
    ) -> None:
        self.use = use
        self.tool = tool
        self.args = args
        self.refusal = refusal
        self.is_parallel = parallel
        self.seq = -1
        self.intent: Intent | None = None
        self.is_approved = False
        self.result: Result | None = None
        self.is_committed = False
        self.done = anyio.Event()
        self.contexts: list[Message] = []
        self.allowed: tuple[str, ...] = ()
        self.sandbox: Sandbox | None = None
        self.may_differ = False
        self.roots: tuple[str, ...] = ()

    @property
    def only_looks(self) -> bool:
        """Whether the call leaves no trace: what is lost with it, nobody saw."""
        return self.intent is not None and self.intent.effect == "read"

    def settle(self, result: Result) -> None:
        """Fix the result; the first one stays."""
        if self.result is None:
            self.result = result
        self.done.set()


class _Context:
    """What the running tool may use."""

    def __init__(self, parts: Parts, slot: Slot) -> None:
        self._parts = parts
        self._slot = slot

    @property
    def call_id(self) -> str:
        return self._slot.use.call_id

    @property
    def cwd(self) -> str:
        return self._parts.options.cwd

    @property
    def roots(self) -> tuple[str, ...]:
        return self._parts.options.roots

    @property
    def world(self) -> World:
        return self._parts.services.world

    @property
    def sandbox(self) -> Sandbox | None:
        return self._slot.sandbox

    @property
    def allowed(self) -> tuple[str, ...]:
        return self._slot.allowed

    @property
    def state(self) -> dict[str, Any]:
        return self._parts.tool_state

    @property
    def spill_dir(self) -> str:
        return self._parts.spill_dir

    def append(self, event: Any) -> None:
        self._parts.log.append(event)

    def progress(self, text: str) -> None:
        self._parts.show(LiveOutput(self._slot.use.call_id, text))

    def add_context(self, message: Message) -> None:
        # A background job speaks up when its call is long over.
        if not self._slot.is_committed:
            self._slot.contexts.append(message)
        elif self._parts.log.writable:
            self._parts.live.inject(message)

    async def ask(self, questions: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        return await self._parts.services.asker.questions(questions)

    async def delegate(self, label: str, prompt: str, *, inherits: bool) -> str:
        return await self._parts.delegate(Errand(label, prompt, inherits), self._slot.use.call_id)

    @property
    def agents(self) -> Agents:
        return self._parts.agents()

    @property
    def is_approved(self) -> bool:
        return self._slot.is_approved

    @property
    def in_plan_mode(self) -> bool:
        return self._parts.options.in_plan_mode

    def leave_plan_mode(self) -> None:
        self._parts.options.leave_plan_mode()


class Execution:
    """Carries calls through policy, body and hooks."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._told: dict[str, str] = {}
        self._told_at = 0

    def resolve(self, turn: int, step: int, call: ToolCall) -> Slot:
        """The tool and its arguments; a call that cannot run comes with its refusal."""
        use = ToolUse(self._parts.live, turn, step, call.id, call.name, call.arguments)
        tools = self._parts.services.tools
        tool = tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(tools)) or "none"
            refusal = failed(
                f'unknown tool "{call.name}"; the tools are: {known}',
                ErrorInfo("ToolNotFoundError", "UNKNOWN_TOOL"),
            )
            return Slot(use, None, None, refusal, False)
        try:
            args = tool.parse(call.arguments)
            return Slot(use, tool, args, None, tool.is_concurrency_safe(args) is True)
        except Exception as exc:  # noqa: BLE001 - the border: see the module's docstring
            return Slot(use, tool, None, self._from_exception(exc), False)

    async def admit(self, slot: Slot, activity: Activity) -> Result | None:
        """Ask hooks, rules and person; a result when the call may not run."""
        try:
            verdict = await self._hooked(slot.use)
            if isinstance(verdict, Deny):
                return failed(verdict.reason)
            if slot.refusal is not None or slot.tool is None:
                return slot.refusal
            return await self._permitted(slot, slot.tool, verdict, activity)
        except Exception as exc:  # noqa: BLE001 - the border: see the module's docstring
            return self._from_exception(exc)

    async def _hooked(self, use: ToolUse) -> Verdict:
        if not self._parts.services.hooks.tool_pre:
            return Allow()

        async def default() -> Verdict:
            return Allow()

        return await hooks.through(self._parts.services.hooks.tool_pre, use, default)

    async def _permitted(
        self, slot: Slot, tool: Tool, verdict: Verdict, activity: Activity
    ) -> Result | None:
        parts = self._parts
        intent = slot.intent = tool.intent(slot.args, parts.options.cwd)
        parts.folds.catch_up()
        roots = slot.roots = parts.options.roots
        slot.allowed = intent.paths
        slot.sandbox = self._sandbox(intent, roots)
        confined = slot.sandbox is not None
        ruled = policy.rule(slot.use.name, intent, parts.policy, roots, confined)
        if ruled.kind == "deny":
            return failed(ruled.text or "not permitted")
        key = policy.grant_key(slot.use.name, intent)
        slot.is_approved = parts.policy.grants.get(key) == "allow"
        if isinstance(verdict, Approve) or (ruled.kind == "allow" and not isinstance(verdict, Ask)):
            return None
        reason = (verdict.reason if isinstance(verdict, Ask) else None) or ruled.text
        slot.may_differ = True
        question = await self._question(slot, tool, intent, reason)
        try:
            ruling = await parts.gate.ask(question)
        except anyio.get_cancelled_exc_class():
            slot.settle(failed(f'approval for tool "{slot.use.name}" was cancelled'))
            raise
        if ruling.cancelled:
            activity.abort(USER)
        slot.is_approved = ruling.denial is None
        return None if ruling.denial is None else failed(ruling.denial)

    def _sandbox(self, intent: Intent, roots: tuple[str, ...]) -> Sandbox | None:
        """What would hold a command of this intent; a yes to an escalation widens it."""
        mode = intent.escalate or self._parts.policy.knobs.sandbox
        if intent.effect != "execute" or mode != "workspace-write":
            return None
        return self._parts.services.sandbox(roots)

    async def _question(
        self, slot: Slot, tool: Tool, intent: Intent, reason: str | None
    ) -> PermissionQuestion:
        # The diff is part of the question; an edit that cannot be made fails here, unasked.
        diffs = await tool.preview(slot.args, _Context(self._parts, slot))
        cwd = self._parts.options.cwd
        return PermissionQuestion(
            call_id=slot.use.call_id,
            tool=slot.use.name,
            intent=intent,
            card=tool.call_card(slot.use.arguments, cwd),
            diffs=diffs,
            reason=reason,
            # Answers are buttons, and a path from the root is too wide for one.
            scope=intent.scope if intent.command is not None else short(intent.scope, cwd),
            # An escalation is granted to one call, never to the next.
            choices=("allow_once", "reject_once") if intent.escalate else CHOICES,
        )

    async def body(self, slot: Slot, activity: Activity) -> None:
        """Run an admitted call and settle its slot.

        Everything logged is durable before it acts. A call that only looks does not wait for the
        disk: the model hears of it with the next request, before which everything is durable.

        Raises:
            LogError: the disk refused; the call did not run.
        """
        tool = slot.tool
        assert tool is not None
        try:
            if not slot.only_looks:
                await self._parts.log.sync()
                slot.may_differ = True
            if slot.may_differ:
                self._check_paths(tool, slot)
            outcome = await self._run(tool, slot)
            result = ABORTED if activity.is_aborted else _from_outcome(outcome)
        except anyio.get_cancelled_exc_class():
            slot.settle(ABORTED)
            raise
        except Exception as exc:  # noqa: BLE001 - the border: see the module's docstring
            result = self._from_exception(exc)
        slot.settle(result)

    def _check_paths(self, tool: Tool, slot: Slot) -> None:
        """Refuse a call whose symlinks lead elsewhere than when it was judged.

        Raises:
            ToolError: they do.
        """
        found = tool.intent(slot.args, self._parts.options.cwd).paths
        for before, now in zip(slot.allowed, found, strict=False):
            if before != now:
                raise ToolError(
                    f"{now} is not what was allowed: the path led to {before} then; "
                    "nothing was done",
                    code="FS_STALE_VERSION",
                    name="FsError",
                )

    async def _run(self, tool: Tool, slot: Slot) -> Outcome:
        context = _Context(self._parts, slot)
        if not self._parts.services.hooks.tool_execute:
            return await tool.run(slot.args, context)

        async def default() -> Outcome:
            return await tool.run(slot.args, context)

        return await hooks.through(self._parts.services.hooks.tool_execute, slot.use, default)

    async def finish(self, slot: Slot) -> tuple[Result, list[Message]]:
        """The result to record, after the hooks, and the contexts to deliver after it."""
        result = slot.result or ABORTED
        contexts = list(slot.contexts)
        if self._parts.services.hooks.tool_post:

            async def default() -> Accept | Refuse:
                return Accept()

            finished = Finished(slot.use, result.content, result.is_error)
            try:
                answer = await hooks.through(
                    self._parts.services.hooks.tool_post, finished, default
                )
            except Exception as exc:  # noqa: BLE001 - the border: see the module's docstring
                return self._from_exception(exc), contexts
            if isinstance(answer, Refuse):
                return Result(content=answer.feedback, is_error=True), list(answer.contexts)
            if answer.content is not None:
                result = Result(
                    content=answer.content,
                    is_error=result.is_error,
                    error=result.error,
                    meta=result.meta,
                    concludes_turn=result.concludes_turn,
                )
            contexts.extend(answer.contexts)
        if not result.is_error:
            contexts.extend(self._instructions(slot))
        return result, contexts

    def _instructions(self, slot: Slot) -> list[Message]:
        """The instructions of the sub-folders that the call has entered."""
        parts = self._parts
        intent = slot.intent
        if intent is None or intent.effect not in ("read", "write") or not intent.paths:
            return []
        parts.folds.catch_up()
        if self._told_at != parts.seen.lost_instructions:
            self._told.clear()
            self._told_at = parts.seen.lost_instructions
        found: list[Message] = []
        for path in intent.paths:
            seen = {**self._told, **parts.seen.nested}
            found += instructions.on_the_way(slot.roots[0], path, seen)
            for message in found:
                self._told.update(instructions.seen_in(message.source) or {})
        return found

    def _from_exception(self, exc: Exception) -> Result:
        if not self._parts.log.writable:
            raise exc
        if isinstance(exc, ToolError):
            return failed(str(exc), ErrorInfo(exc.name, exc.code) if exc.code else None)
        _log.error("a tool failed unexpectedly", exc_info=exc)
        return failed(errors.chain(exc))


def _from_outcome(outcome: Outcome) -> Result:
    return Result(
        content=outcome.content,
        is_error=outcome.is_error,
        meta=outcome.meta,
        concludes_turn=outcome.concludes_turn and not outcome.is_error,
    )
