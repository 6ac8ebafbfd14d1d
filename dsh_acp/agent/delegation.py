"""Subagents: sessions that work for a call of another session.

A subagent has a log of its own, one level deeper than its parent's. The parent's permissions hold
for it; what they leave open is asked through the parent's front end. It ends with the call: by its
own last message, or because the call is cancelled. One in the background (`companions`) goes on
when its call has ended, and takes more messages.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
import logging
from typing import Any, Final, Protocol

import anyio
import anyio.abc
from msgspec import Struct
from msgspec.structs import replace

from dsh_acp.agent import policy
from dsh_acp.agent.hooks import Enter, PreStep, Reject
from dsh_acp.agent.inbox import Target
from dsh_acp.agent.parts import Parts
from dsh_acp.agent.services import (
    Asker,
    Cause,
    Decision,
    Errand,
    LiveCall,
    LiveOutput,
    PermissionQuestion,
    Services,
    SessionOptions,
)
from dsh_acp.errors import DshError, ToolError
from dsh_acp.log.events import Event
from dsh_acp.log.packed import ChunkRow, Entry
from dsh_acp.log.payloads import AssistantMessage, ToolCallEvent, ToolResultEvent, TurnEnd
from dsh_acp.log.plugin_payloads import (
    ApprovalPolicy,
    PermissionGrant,
    PermissionPreset,
    PermissionRevoke,
    PlanMode,
    SandboxMode,
    SubagentDescriptor,
)
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.store import SUBAGENT
from dsh_acp.messages import Failure, Message, Text, ToolResult

_log = logging.getLogger(__name__)

MAX_DEPTH: Final = 3
_PARENT: Final[Cause] = {"kind": "parent"}
_SOURCE: Final = "delegation"
_SEPARATOR: Final = "/"


class Child(Protocol):
    """A session, as its parent sees it."""

    @property
    def log(self) -> SessionLog: ...

    failure: DshError | None

    @property
    def status(self) -> str: ...
    def abort(self, cause: Cause, *, keep_inbox: bool = False) -> None: ...
    def send(self, message: Message, target: Target, wake: bool) -> None: ...
    def start(self, group: anyio.abc.TaskGroup) -> None: ...
    def followup(self, message: Message) -> None: ...
    def select(self, option: str, value: str) -> None: ...
    async def when_idle(self) -> None: ...
    async def cancel(self, cause: Cause) -> None: ...
    async def close(self, cause: Cause) -> None: ...


OpenSession = Callable[[SessionLog, Services, SessionOptions], Child]


class Delegation:
    """The subagents of one live session."""

    def __init__(self, parts: Parts, open_session: OpenSession) -> None:
        self._parts = parts
        self._open = open_session
        self._children: set[Child] = set()
        self.group: anyio.abc.TaskGroup | None = None
        """Where subagents run; set when the session is started."""

    def select_preset(self, preset: str) -> None:
        """The person chose other permissions; they hold for running subagents too."""
        for child in self._children:
            child.select("preset", preset)

    async def run(self, errand: Errand, call_id: str, group: anyio.abc.TaskGroup) -> str:
        """Have `errand` done for a call; the subagent's last message.

        The subagent runs in `group`, so that cancelling the call gives it time to end in order.

        Raises:
            ToolError: it is too deep, or the subagent did not finish; with what it said before.
        """
        descriptor = _Descriptor(errand)
        child, asker = self.open(errand, call_id, [descriptor.pre_step], None)
        try:
            child.start(group)
            child.followup(Message.user((Text(errand.prompt),)))
            await self.see_through(child, asker, call_id)
            return result_of(closing(child), child)
        finally:
            await self.close_child(child)

    def open(
        self,
        errand: Errand,
        call_id: str,
        pre_step: Sequence[Any],
        descriptor: SubagentDescriptor | None,
    ) -> "tuple[Child, ParentAsker]":
        """A subagent that has not been started, and who asks for it.

        Raises:
            ToolError: it would be too deep.
        """
        parts = self._parts
        depth = parts.log.header.delegation_depth + 1
        if depth > MAX_DEPTH:
            raise ToolError(f"subagent depth {depth} exceeds maxDepth {MAX_DEPTH}")
        log = self._log_of(errand, depth, descriptor)
        asker = ParentAsker(parts, call_id)
        services = replace(
            parts.services,
            asker=asker,
            hooks=replace(
                parts.services.hooks, pre_step=[*pre_step, *parts.services.hooks.pre_step]
            ),
        )
        child = self._open(log, services, self._options())
        self._children.add(child)
        return child, asker

    async def close_child(self, child: Child) -> None:
        """End a subagent. Shielded."""
        self._children.discard(child)
        with anyio.CancelScope(shield=True):
            await child.close(_PARENT)

    def _options(self) -> SessionOptions:
        options = self._parts.options
        return SessionOptions(
            cwd=options.cwd,
            provider=options.provider,
            model=options.model,
            effort=options.effort,
            additional_directories=options.additional_directories or None,
            max_tokens=self._parts.services.settings.max_tokens,
        )

    def _log_of(
        self, errand: Errand, depth: int, descriptor: SubagentDescriptor | None
    ) -> SessionLog:
        parent = self._parts.log
        seed = list(_finished(parent)) if errand.inherits else []
        log = self._parts.services.store.create(
            self._parts.options.cwd,
            parent=parent.header.id,
            seed=seed,
            seed_length=seed[-1].end_seq if seed else None,
            origin=SUBAGENT,
            delegation_depth=depth,
        )
        if descriptor is not None:
            log.append(descriptor)
        self._parts.folds.catch_up()
        for event in _delegated(self._parts.policy, policy.fold(log.events())):
            log.append(event)
        return log

    async def see_through(self, child: Child, asker: "ParentAsker", call_id: str) -> None:
        """Follow a subagent until it is idle; cancellation stops it."""
        follower = child.log.follow(child.log.seq)

        def catch_up() -> None:
            for entry in follower.take():
                try:
                    self._show(entry, asker, call_id)
                except Exception:  # noqa: BLE001 - a display fault must not end the subagent
                    _log.exception("progress of a subagent cannot be shown")

        async def watch() -> None:
            while not follower.closed:
                catch_up()
                await follower.wait()

        # A question comes after what the subagent did before it.
        asker.catch_up = catch_up
        try:
            async with anyio.create_task_group() as watching:
                watching.start_soon(watch)
                await child.when_idle()
                catch_up()
                watching.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await child.cancel(_PARENT)
            raise
        finally:
            asker.close()

    def _show(self, entry: Entry, asker: "ParentAsker", call_id: str) -> None:
        """Show what the subagent does in the card of the call."""
        if not isinstance(entry, Event):
            return
        match entry.payload:
            case ToolCallEvent() as call if call_id:
                tool = self._parts.services.tools.get(call.name)
                cwd = self._parts.options.cwd
                title = tool.call_card(call.arguments, cwd).title if tool is not None else None
                first = (title or call.name).strip().partition("\n")[0]
                self._parts.show(LiveOutput(call_id, f"- {first}\n"))
            case ToolResultEvent(message=message):
                for block in message.content:
                    if isinstance(block, ToolResult):
                        asker.finished(block.tool_call_id, block.is_error is True)
            case _:
                pass


def _finished(log: SessionLog) -> Iterator[Entry]:
    """Everything up to the end of the last turn that has one."""
    entries = list(log.entries(0))
    ends = [position for position, entry in enumerate(entries) if entry.type == TurnEnd.TYPE]
    yield from entries[: ends[-1] + 1] if ends else ()


def _delegated(parent: policy.PolicyFold, child: policy.PolicyFold) -> Iterator[Any]:
    """The events that give `child` the permissions of `parent`."""
    knobs = parent.knobs
    if parent.chosen is not None and parent.chosen != child.chosen:
        yield PermissionPreset(parent.chosen)
    if child.sandbox != knobs.sandbox:
        yield SandboxMode(knobs.sandbox, _SOURCE)
    if child.approval != knobs.approval:
        yield ApprovalPolicy(knobs.approval, _SOURCE)
    if child.plan != knobs.plan:
        yield PlanMode(knobs.plan)
    for key in child.grants.keys() - parent.grants.keys():
        yield PermissionRevoke(scope_kind=key.scope_kind, tool=key.tool, scope=key.scope)
    for key, decision in parent.grants.items():
        if child.grants.get(key) != decision:
            yield PermissionGrant(
                scope_kind=key.scope_kind, tool=key.tool, scope=key.scope, decision=decision
            )


class _Descriptor:
    """Records what kind of subagent this is, once, at its first step."""

    def __init__(self, errand: Errand) -> None:
        self._owed: SubagentDescriptor | None = SubagentDescriptor(
            {
                "version": 2,
                "mode": "one-shot",
                "provider": "fork" if errand.inherits else "spawn",
                "label": errand.label,
            }
        )

    async def pre_step(
        self, payload: PreStep, proceed: Callable[[], Awaitable[Enter | Reject]]
    ) -> Enter | Reject:
        decision = await proceed()
        if self._owed is not None and isinstance(decision, Enter):
            payload.session.log.append(self._owed)
            self._owed = None
        return decision


class ParentAsker:
    """Asks the parent's person, under ids that name the parent's call first."""

    def __init__(self, parts: Parts, call_id: str) -> None:
        self._parts = parts
        self._asker: Asker = parts.services.asker
        self._prefix = call_id + _SEPARATOR
        self._used: set[str] = set()
        self._shown: dict[str, str] = {}
        self.catch_up: Callable[[], None] = lambda: None
        """Shows everything that the subagent did so far."""

    async def permission(self, question: PermissionQuestion) -> Decision:
        """As `Asker.permission`; an answer for good holds for the parent too."""
        self.catch_up()
        id = self._prefix + question.call_id
        while id in self._used:
            id += "+"
        self._used.add(id)
        self._shown[question.call_id] = id
        self._parts.show(LiveCall(id, "pending", question.tool, question.card))
        try:
            decision = await self._asker.permission(replace(question, call_id=id))
        except anyio.get_cancelled_exc_class():
            self.finished(question.call_id, True)
            raise
        if decision in ("allow_always", "reject_always"):
            self._parts.gate.remember(question, decision)
        if decision in ("allow_once", "allow_always"):
            self._parts.show(LiveCall(id, "in_progress"))
        return decision

    async def questions(
        self, questions: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        """Refused: whoever gave the task has to decide what to ask.

        Raises:
            ToolError: `DELEGATED_CALLER`, always.
        """
        raise ToolError(
            "a subagent cannot ask the user; say in your last message what has to be decided",
            code="DELEGATED_CALLER",
            name="UserQuestionError",
        )

    def finished(self, call_id: str, is_error: bool) -> None:
        """A call of the subagent has its result; its card is closed if it had one."""
        id = self._shown.pop(call_id, None)
        if id is not None:
            self._parts.show(LiveCall(id, "failed" if is_error else "completed"))

    def close(self) -> None:
        """The subagent is done; no card of its calls stays open."""
        for call_id in list(self._shown):
            self.finished(call_id, True)


# ---------------------------------------------------------------- results


class Closing(Struct):
    """How a subagent ended and what it said last."""

    end: TurnEnd | None = None
    said: str = ""
    streamed: str = ""


def closing(child: Child, since: int = 0) -> Closing:
    """How the last turn of a subagent ended, and what it said from event `since` on."""
    log, found = child.log, Closing()
    pieces: list[str] = []
    for entry in log.entries(max(since, log.header.seed_length or 0)):
        if isinstance(entry, ChunkRow):
            if entry.kind == "text":
                pieces.append(entry.text)
            continue
        match entry.payload:
            case AssistantMessage(message=message) if message.text.strip():
                found.said = message.text
            case TurnEnd() as end:
                found.end = end
            case payload:
                delta = getattr(getattr(payload, "chunk", None), "text", None)
                pieces.append(delta if isinstance(delta, str) else "")
    found.streamed = "".join(pieces)
    return found


def result_of(closing: Closing, child: Child) -> str:
    """The last message of a subagent that finished.

    Raises:
        ToolError: it did not; the text says why and what it said before.
    """
    said = closing.said or closing.streamed
    reason = closing.end.reason if closing.end is not None else None
    diagnostic = ""
    match reason.kind if reason is not None and child.failure is None else "error":
        case "completed":
            return said or "(the subagent said nothing)"
        case "max-tokens":
            failure = "subagent run hit its token limit before finishing"
        case "aborted" | "interrupted":
            failure = "subagent run was cancelled"
        case "blocked":
            failure = "subagent declined the task"
        case "max-turn-requests":
            failure, diagnostic = "subagent run failed", "it made too many requests in one turn"
        case _:
            failure = "subagent run failed"
            error = reason.error if reason is not None else None
            diagnostic = error.message if isinstance(error, Failure) else str(child.failure or "")
    text = failure
    if diagnostic:
        text += f"\nDiagnostic: {diagnostic}"
    if said.strip():
        text += f"\nPartial output before the run ended:\n{said}"
    raise ToolError(text)
