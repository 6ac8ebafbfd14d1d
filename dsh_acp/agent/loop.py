"""A turn: from claiming input until nothing is owed.

A turn opens before it claims, so that whatever happens to the claimed input happens inside it. A
step enters its messages into the log before anything is derived from it, builds its request from
the log alone, and records the answer before a call of it runs.
"""

from collections.abc import Sequence
import logging
from typing import Final

import anyio
from msgspec import Struct

from dsh_acp import errors
from dsh_acp.agent import hooks, instructions, skill_catalogue, surroundings
from dsh_acp.agent.activity import Activity
from dsh_acp.agent.calls import Calls
from dsh_acp.agent.hooks import (
    Enter,
    Middleware,
    PreStep,
    Recovery,
    Reject,
    RequestFailed,
    TurnStopping,
)
from dsh_acp.agent.inbox import Target
from dsh_acp.agent.parts import Parts
from dsh_acp.agent.prompt import SystemPrompt
from dsh_acp.agent.reminders import Repetition
from dsh_acp.agent.request import Prepared
from dsh_acp.agent.services import DISPOSED
from dsh_acp.errors import InvariantError, LlmError
from dsh_acp.llm.assemble import Assembler
from dsh_acp.llm.provider import Body
from dsh_acp.log.payloads import (
    AssistantMessage,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
)
from dsh_acp.log.store import SUBAGENT
from dsh_acp.messages import (
    UNSET,
    Failure,
    Message,
    ToolCall,
    ToolSchema,
    source_kind,
)

_log = logging.getLogger(__name__)

COMPLETED: Final = TurnEndReason("completed")
BLOCKED: Final = TurnEndReason("blocked")
MAX_TOKENS: Final = TurnEndReason("max-tokens")
MAX_REQUESTS: Final = TurnEndReason("max-turn-requests")


class RequestFailure(LlmError):
    """An attempt that failed for good, with the failure as the provider reported it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message, code=failure.code)
        self.failure: Final = failure


class _Assembly(Struct, frozen=True):
    """What the request of a step is made of besides its messages."""

    system: str
    tools: tuple[ToolSchema, ...]


class Loop:
    """Runs the turns of one session, one at a time."""

    def __init__(
        self,
        parts: Parts,
        pre_step: Sequence[Middleware[PreStep, Enter | Reject]],
        request_error: Sequence[Middleware[RequestFailed, Recovery]],
    ) -> None:
        self._parts = parts
        self._log = parts.log
        self._pre_step_chain = tuple(pre_step)
        self._request_error_chain = tuple(request_error)
        self._repetition = Repetition()
        self._calls = Calls(parts, self._repetition)
        self._prompt = SystemPrompt(parts.services.settings.instructions)
        self._instructions = instructions.Project(parts.options.cwd)

    async def turn(self, activity: Activity) -> bool:
        """Run one turn; `True` when input is pending and the next may follow at once.

        A failure ends the turn and is recorded as its reason. Cancellation is recorded, with its
        cause, and re-raised.

        Raises:
            LogError: the log cannot be written; the turn may have no end in it.
        """
        await activity.check()
        self._parts.services.hooks.load_plugins()
        turn = self._log.last_turn + 1
        self._log.append(TurnStart(turn))
        ends = TurnEndReason("aborted", reason=dict(DISPOSED))
        try:
            ends = await self._steps(turn, activity)
        except anyio.get_cancelled_exc_class():
            ends = TurnEndReason("aborted", reason=dict(activity.cancelled()))
            raise
        except Exception as exc:  # noqa: BLE001 - whatever fails, the turn gets its end
            if not isinstance(exc, errors.DshError):
                _log.error("turn %d failed", turn, exc_info=exc)
            ends = _failed(exc)
        finally:
            self._log.append(TurnEnd(turn, ends))
        # What a runaway turn left for its next step must not become a turn of its own.
        stops = ends is BLOCKED or ends is MAX_REQUESTS or ends.kind == "error"
        return not stops and bool(self._parts.inbox.pending())

    async def _steps(self, turn: int, activity: Activity) -> TurnEndReason:
        inbox = self._parts.inbox
        target: Target = "next-turn"
        ends: TurnEndReason | None = None
        step = 0
        while True:
            await activity.check()
            if step >= self._parts.services.settings.max_requests_per_turn:
                return MAX_REQUESTS
            must_run = step > 0 and ends is None
            decision, assembly = await self._pre_step(target, turn, step + 1, must_run, activity)
            if isinstance(decision, Reject):
                return BLOCKED
            if not decision.messages and not must_run:
                return ends or COMPLETED
            step += 1
            reason = await self._step(turn, step, decision.messages, assembly, activity)
            if ends is not MAX_TOKENS:
                ends = reason
            await activity.check()
            if ends is not None and not inbox.pending("next-step"):
                for stopping in self._parts.services.hooks.turn_stopping:
                    await stopping(TurnStopping(self._parts.live, turn))
                await activity.check()
                if not inbox.pending("next-step"):
                    return ends
            target = "next-step"

    # ------------------------------------------------------------ before a step

    async def _pre_step(
        self, target: Target, turn: int, step: int, must_run: bool, activity: Activity
    ) -> tuple[Enter | Reject, _Assembly]:
        parts = self._parts
        has_prompt = target == "next-turn" and bool(parts.inbox.pending("next-turn"))
        claimed = parts.inbox.claim(target)
        if any(source_kind(message) == "user" for message in claimed):
            self._repetition.reset()
        parts.options.settle(has_prompt=has_prompt)
        assembly = _Assembly(*self._prompt.of(parts.services.tools))
        # What surrounds the session is told along with something, and is no reason for a step.
        proposed = (*claimed, *self._contexts(claimed)) if claimed or must_run else claimed

        async def default() -> Enter | Reject:
            return Enter(proposed)

        chain = (*parts.services.hooks.pre_step, *self._pre_step_chain)
        payload = PreStep(parts.live, turn, step, claimed)
        decision = await hooks.through(chain, payload, default)
        await activity.check()
        return decision, assembly

    def _contexts(self, claimed: Sequence[Message]) -> list[Message]:
        parts = self._parts
        parts.folds.catch_up()
        options = parts.options
        confined = options.preset == "workspace-write"
        sandbox = parts.services.sandbox(options.roots) if confined else None
        around = surroundings.parts(
            options.cwd,
            options.additional_directories,
            options.preset,
            sandbox=sandbox,
            is_subagent=parts.log.header.origin == SUBAGENT,
        )
        owed = [
            surroundings.project(around, parts.seen.snapshot),
            instructions.owed(self._instructions.current(), parts.seen.instructions),
        ]
        if "skill" in parts.services.tools:
            found = parts.shelf.skills()
            owed.append(skill_catalogue.owed(found, parts.seen.skills))
            # A subagent's prompt is a model's: it names no skill that only people may load.
            if parts.log.header.origin != SUBAGENT:
                owed += skill_catalogue.invoked(claimed, found)
        return [message for message in owed if message is not None]

    # ------------------------------------------------------------ a step

    async def _step(
        self,
        turn: int,
        step: int,
        messages: Sequence[Message],
        assembly: _Assembly,
        activity: Activity,
    ) -> TurnEndReason | None:
        """One model call and its tools; `None` when the model is owed another step."""
        self._log.append(StepStart(turn, step))
        try:
            for message in messages:
                event = self._log.append(UserMessage(message))
                self._parts.titles.entitle(self._parts.folds, self._log, event, message)
            if self._log.header_in_this_life:
                # Nothing else is owed to the log as a rule: the disk works while the request is
                # built and proved.
                self._log.begin_sync()
            calls = await self._ask(turn, step, assembly, activity)
            if isinstance(calls, TurnEndReason):
                return calls
            concluded = await self._calls.run(turn, step, calls, activity)
            return COMPLETED if concluded else None
        finally:
            self._log.append(StepEnd(turn, step))

    async def _ask(
        self, turn: int, step: int, assembly: _Assembly, activity: Activity
    ) -> TurnEndReason | list[ToolCall]:
        """The model's answer: how the turn ends, or the calls that it wants."""
        requests = self._parts.requests
        attempt = 0
        while True:
            attempt += 1
            prepared = await requests.build(turn, step, assembly.system, assembly.tools)
            await activity.check()
            body = await requests.release(prepared, turn, step, attempt)
            await activity.check()
            answer = await self._stream(prepared, body, turn, step, activity)
            finish = answer.assembler.finish
            if finish.kind in ("error", "aborted"):
                failure = finish.failure or Failure("the model's answer failed", "UNKNOWN")
                await self._recover(prepared, turn, step, failure, activity)
                continue
            return self._record(prepared, answer, turn, step)

    async def _recover(
        self, prepared: Prepared, turn: int, step: int, failure: Failure, activity: Activity
    ) -> None:
        """Return when the attempt is to be repeated; raise its failure otherwise."""

        async def default() -> Recovery:
            return None

        payload = RequestFailed(
            self._parts.live,
            turn,
            step,
            prepared.request.config.provider,
            failure,
            prepared.provider.retry,
        )
        chain = (*self._parts.services.hooks.request_error, *self._request_error_chain)
        recovery = await hooks.through(chain, payload, default)
        await activity.check()
        if recovery != "retry":
            raise RequestFailure(failure)

    async def _stream(
        self, prepared: Prepared, body: Body, turn: int, step: int, activity: Activity
    ) -> "_Answer":
        answer = _Answer()
        stream = prepared.provider.stream(prepared.request, body)
        try:
            async for batch in stream:
                answer.seqs.extend(self._log.append_chunks(turn, step, batch))
                for chunk in batch:
                    answer.assembler.feed(chunk)
                if activity.is_aborted:
                    await activity.check()
            await activity.check()
        except anyio.get_cancelled_exc_class():
            self._keep(prepared, answer, turn, step)
            raise
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                with anyio.CancelScope(shield=True):
                    await close()
        return answer

    def _record(
        self, prepared: Prepared, answer: "_Answer", turn: int, step: int
    ) -> TurnEndReason | list[ToolCall]:
        assembler = answer.assembler
        blocks = assembler.blocks()
        config = prepared.request.config
        message = Message.assistant(
            blocks, config.provider, config.model, replay_state=assembler.replay_state()
        )
        usage = UNSET if assembler.usage is None else assembler.usage
        self._log.append(AssistantMessage(turn, step, message, usage), sources=answer.seqs)
        if assembler.finish.kind == "max-tokens":
            return MAX_TOKENS
        calls = [block for block in blocks if isinstance(block, ToolCall)]
        return calls or COMPLETED

    def _keep(self, prepared: Prepared, answer: "_Answer", turn: int, step: int) -> None:
        """Record what a cancelled answer already said; the calls in it never happened."""
        blocks = answer.assembler.interrupted_blocks()
        if not blocks:
            return
        config = prepared.request.config
        message = Message.assistant(blocks, config.provider, config.model)
        usage = UNSET if answer.assembler.usage is None else answer.assembler.usage
        self._log.append(
            AssistantMessage(turn, step, message, usage, interrupted=True), sources=answer.seqs
        )


class _Answer:
    """An answer as it arrives: its chunks' seqs, and what they amount to."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.assembler = Assembler()


def _failed(exc: Exception) -> TurnEndReason:
    if isinstance(exc, RequestFailure):
        return TurnEndReason("error", error=exc.failure)
    if isinstance(exc, LlmError):
        failure = Failure(
            str(exc),
            exc.code,
            status=UNSET if exc.status is None else exc.status,
            provider_retry_after_ms=UNSET if exc.retry_after_ms is None else exc.retry_after_ms,
            request_id=UNSET if exc.request_id is None else exc.request_id,
        )
        return TurnEndReason("error", error=failure)
    text = str(exc) if isinstance(exc, InvariantError) else errors.chain(exc)
    return TurnEndReason("error", error=Failure(text, "UNKNOWN"))
