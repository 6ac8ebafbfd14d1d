"""One live conversation: its inbox, the driver that runs its turns, and how to stop it.

Input reaches the driver only through the durable inbox. At most one activity runs at a time: a
turn, or one job between turns. A session needs a task group to run in (`running` or `start`);
the log outlives it, so opening the same log again continues the conversation.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
import logging
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import anyio
import anyio.abc

from dsh_acp.agent import naming
from dsh_acp.agent.activity import Activity
from dsh_acp.agent.builtin_commands import Builtin
from dsh_acp.agent.commands import Commands
from dsh_acp.agent.compaction import Compaction
from dsh_acp.agent.delegation import Delegation
from dsh_acp.agent.folds import Folds
from dsh_acp.agent.inbox import Inbox, Target
from dsh_acp.agent.loop import Loop
from dsh_acp.agent.options import Options
from dsh_acp.agent.parts import Parts
from dsh_acp.agent.permission import Gate
from dsh_acp.agent.policy import PolicyFold
from dsh_acp.agent.recovery import Retries
from dsh_acp.agent.request import Requests
from dsh_acp.agent.seen import SeenFold
from dsh_acp.agent.services import (
    DISPOSED,
    USER,
    Cause,
    Errand,
    LiveCall,
    LiveOutput,
    Services,
    SessionOptions,
)
from dsh_acp.agent.titles import TitleFold
from dsh_acp.agent.usage import UsageFold
from dsh_acp.config import Preset
from dsh_acp.errors import DshError, LogError, PromptError
from dsh_acp.llm.provider import Price
from dsh_acp.log.collector import collector_paused
from dsh_acp.log.session_log import SessionLog
from dsh_acp.messages import Message
from dsh_acp.tools.skills import Shelf
from dsh_acp.tools.tool import Agents

if TYPE_CHECKING:
    from dsh_acp.agent.companions import Companions

_log = logging.getLogger(__name__)
T = TypeVar("T")

_STOP_SECONDS: Final = 5.0


class Session:
    """A conversation that can be talked to.

    `live` receives output of running calls as it appears; it is not logged. `failure` is set when
    the log can no longer be written: the session then takes no more input.
    """

    def __init__(self, log: SessionLog, *, services: Services, options: SessionOptions) -> None:
        self.log: Final = log
        self.live: Callable[[LiveOutput | LiveCall], None] | None = None
        self.failure: DshError | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._activity: Activity | None = None
        self._is_maintenance = False
        self._wake_requested = False
        self._is_closed = False
        self._companions: Companions | None = None
        self._changed = anyio.Event()
        self._scopes: set[anyio.CancelScope] = set()
        self._is_flush_owed = anyio.Event()
        self._flush_delay_s = 0.0
        self._llm_titles = options.llm_titles
        self.parts: Final = self._assemble(services, options)
        self._delegation: Final = Delegation(
            self.parts, lambda log, given, chosen: Session(log, services=given, options=chosen)
        )
        self._loop = Loop(
            self.parts,
            (self.compaction.pre_step,),
            (self.compaction.request_error, self._retries.request_error),
        )
        self.commands: Final = Commands(
            self.log, options.cwd, Builtin(self).all(), self.parts.shelf
        )

    def _assemble(self, services: Services, options: SessionOptions) -> Parts:
        # What an editor is told first, and what can make a log unfit to go on from. The rest is
        # caught up with when the session starts.
        early = Folds(self.log)
        policy = early.add(PolicyFold())
        chosen = Options(self.log, services, options, early, policy)
        inbox = Inbox(self.log, early)
        with collector_paused():
            early.catch_up()
        chosen.resume()
        folds = Folds(self.log, early)
        self.compaction = Compaction(self.log, services, chosen, folds)
        self._retries = Retries(self.log, folds, services.clock)

        def price(provider: str, model: str) -> Price | None:
            found = services.providers.get(provider)
            return None if found is None else found.model(model).price

        return Parts(
            live=self,
            log=self.log,
            services=services,
            folds=folds,
            inbox=inbox,
            options=chosen,
            policy=policy,
            gate=Gate(self.log, services.asker),
            requests=Requests(self, self.log, services.providers, chosen, services.hooks),
            seen=folds.add(SeenFold()),
            titles=folds.add(TitleFold()),
            usage=folds.add(UsageFold(price)),
            shelf=Shelf(options.cwd, services.settings.config_dir),
            spill_dir=str(services.settings.home / "output" / self.log.header.id),
            show=self._show,
            delegate=self._delegate,
            agents=self._agents,
        )

    def _show(self, output: LiveOutput | LiveCall) -> None:
        if self.live is not None:
            self.live(output)

    async def _delegate(self, errand: Errand, call_id: str) -> str:
        if self._group is None:
            raise PromptError("the session is not running", code="SESSION_CLOSED")
        return await self._delegation.run(errand, call_id, self._group)

    def _agents(self) -> Agents:
        if self._companions is None:
            from dsh_acp.agent.companions import Companions

            self._companions = Companions(self.parts, self._delegation)
        return self._companions

    # ------------------------------------------------------------ state

    @property
    def companions(self) -> Agents | None:
        """The subagents in the background; `None` when there has been none."""
        return self._companions

    @property
    def id(self) -> str:
        """The session's id."""
        return self.log.header.id

    @property
    def status(self) -> Literal["idle", "running"]:
        """`running` while a turn runs; a job between turns does not count."""
        return "idle" if self._activity is None or self._is_maintenance else "running"

    def pending(self) -> tuple[Message, ...]:
        """Input that waits, in the order in which a step would take it."""
        return self.parts.inbox.pending()

    @property
    def preset(self) -> Preset:
        """The permission preset, one that waits for the next prompt included."""
        return self.parts.options.preset

    @property
    def model(self) -> str:
        """`provider/model`, or `""` while none is known."""
        return self.parts.options.spec

    @property
    def effort(self) -> str | None:
        """The reasoning effort; `None` leaves it to the model."""
        return self.parts.options.effort

    @property
    def title(self) -> str:
        """The title, `""` before the first prompt."""
        self.parts.folds.catch_up()
        return self.parts.titles.title

    @property
    def usage(self) -> UsageFold:
        """Tokens and costs up to now."""
        self.parts.folds.catch_up()
        return self.parts.usage

    def select(self, option: str, value: str) -> None:
        """Choose `value` for `model`, `effort` or `preset`; see `Options.select`."""
        in_turn = self.status == "running"
        self.parts.options.select(option, value, in_turn=in_turn)
        if option == "preset" and in_turn:
            self._delegation.select_preset(value)

    # ------------------------------------------------------------ running

    def start(self, group: anyio.abc.TaskGroup) -> None:
        """Run in `group` from now on. Input that already waits stays until something wakes it."""
        self._group = self._delegation.group = group
        self.log.on_pending = self._flush_after
        self.background(self._flush_in_time)
        self.background(self._catch_up)

    async def _catch_up(self) -> None:
        with collector_paused():
            self.parts.folds.catch_up()

    def _flush_after(self, delay: float) -> None:
        self._flush_delay_s = delay
        self._is_flush_owed.set()

    async def _flush_in_time(self) -> None:
        # One task for all: while it sleeps, what comes meanwhile is part of its next flush.
        while True:
            await self._is_flush_owed.wait()
            self._is_flush_owed = anyio.Event()
            await anyio.sleep(self._flush_delay_s)
            self.log.flush_due()

    def background(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run `job` beside the turns until it ends or the session closes."""

        if self._group is None or self._is_closed:
            return
        scope = anyio.CancelScope()
        # From now on, so that a close before the job's first step is seen by it as well.
        self._scopes.add(scope)

        async def run() -> None:
            with scope:
                try:
                    await job()
                except Exception:  # noqa: BLE001 - a side job never takes the session with it
                    _log.exception("session %s: a background job failed", self.id)
                finally:
                    self._scopes.discard(scope)

        self._group.start_soon(run)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Session"]:
        """Run for the duration of the block, and close at its end."""
        async with anyio.create_task_group() as group:
            self.start(group)
            try:
                yield self
            finally:
                with anyio.CancelScope(shield=True):
                    await self.close()

    # ------------------------------------------------------------ input

    def send(self, message: Message, target: Target, wake: bool) -> None:
        """Put `message` into the inbox and the log, and wake the driver when asked to.

        Waking input for an activity that is being stopped becomes a turn of its own after it.

        Raises:
            PromptError: `SESSION_CLOSED`, `READ_ONLY`.
            DshError: `PENDING`, the message is waiting already.
            LogError: the log cannot be written.
        """
        if self._is_closed:
            raise PromptError("the session is closed", code="SESSION_CLOSED")
        if self.failure is not None:
            raise PromptError(
                f"the session's log cannot be written any more: {self.failure}", code="READ_ONLY"
            )
        stopping = wake and self._activity is not None and self._activity.is_aborted
        self.parts.options.record_defaults()
        self.parts.inbox.insert("next-turn" if stopping else target, message)
        if wake:
            self._wake(after_abort=stopping)

    def followup(self, message: Message) -> None:
        """A prompt: it gets a turn of its own, after those that wait."""
        self.send(message, "next-turn", True)

    def steer(self, message: Message) -> None:
        """Input for the running turn's next step; wakes an idle session."""
        self.send(message, "next-step", True)

    def inject(self, message: Message) -> None:
        """Context for the next step, whenever that is; wakes nobody."""
        self.send(message, "next-step", False)

    def wake(self) -> None:
        """Run what waits, if nothing runs; a failed or stopped turn leaves it waiting."""
        if self._activity is None and not self._is_closed and self.failure is None:
            if self.pending():
                self._wake(after_abort=False)

    def _wake(self, *, after_abort: bool) -> None:
        if self._activity is None:
            if self._group is None:
                raise PromptError("the session is not running", code="SESSION_CLOSED")
            self._activity = Activity()
            self._group.start_soon(self._drive)
        elif self._is_maintenance or after_abort:
            if self._activity.cause is None or self._activity.cause.get("kind") != "disposed":
                self._wake_requested = True

    # ------------------------------------------------------------ the driver

    async def _drive(self) -> None:
        try:
            while await self._turn():
                self._activity = Activity()
                self._wake_requested = False
            stopped = self._activity is not None and self._activity.is_aborted
            if self._llm_titles and not stopped and naming.is_owed(self.parts):
                self._llm_titles = False
                self.background(lambda: naming.improve(self.parts))
        finally:
            self._rest()

    async def _turn(self) -> bool:
        activity = self._activity
        assert activity is not None
        again = False
        try:
            with activity.scope:
                again = await self._loop.turn(activity)
        except Exception as exc:  # noqa: BLE001 - the driver's border: other sessions go on
            self._fail(exc)
        finally:
            activity.ended.set()
        return again and not activity.is_aborted

    def _fail(self, exc: Exception) -> None:
        if isinstance(exc, DshError):
            _log.error("session %s: %s", self.id, exc)
            self.failure = exc
        else:
            _log.error("session %s failed", self.id, exc_info=exc)
            self.failure = DshError("the session failed unexpectedly", code="INTERNAL")

    def _rest(self) -> None:
        self._activity = None
        self._is_maintenance = False
        wake = self._wake_requested and not self._is_closed and self.failure is None
        self._wake_requested = False
        if wake and self.pending():
            self._wake(after_abort=False)
        self._changed.set()
        self._changed = anyio.Event()

    async def run_maintenance(self, job: Callable[[Activity], Awaitable[T]]) -> T:
        """Run `job` between turns; input that arrives meanwhile waits for its end.

        Raises:
            DshError: `BUSY`, something runs already; `CANCELLED`, the job was stopped.
        """
        if self._activity is not None:
            raise DshError(f'agent "{self.id}" already has active work', code="BUSY")
        activity = self._activity = Activity()
        self._is_maintenance = True
        try:
            with activity.scope:
                return await job(activity)
        finally:
            activity.ended.set()
            self._rest()
        raise DshError("the job was cancelled", code="CANCELLED")

    # ------------------------------------------------------------ stopping

    def abort(self, cause: Cause = USER, *, keep_inbox: bool = False) -> None:
        """Stop the activity, if there is one, and cancel all waiting input unless told to keep it.

        Returns at once; the turn ends a moment later.
        """
        if not keep_inbox:
            self._wake_requested = False
            try:
                self.parts.inbox.clear()
            except LogError as exc:
                self._fail(exc)
        if self._companions is not None and not keep_inbox:
            self._companions.stop(cause)
        if self._activity is not None:
            self._activity.abort(cause)

    async def cancel(self, cause: Cause = USER, *, keep_inbox: bool = False) -> None:
        """Stop, and return when the activity has ended, after five seconds at the latest."""
        activity = self._activity
        self.abort(cause, keep_inbox=keep_inbox)
        if activity is not None:
            with anyio.move_on_after(_STOP_SECONDS):
                await activity.ended.wait()

    async def when_idle(self) -> None:
        """Return when nothing runs, following turns that begin meanwhile."""
        while self._activity is not None:
            await self._changed.wait()

    async def close(self, cause: Cause = DISPOSED) -> None:
        """Stop for good and release the log. Waiting input stays for the next life."""
        self._is_closed = True
        await self.cancel(cause, keep_inbox=True)
        if self._companions is not None:
            await self._companions.close()
        for scope in tuple(self._scopes):
            scope.cancel()
        if "jobs" in self.parts.tool_state:
            from dsh_acp.tools import jobs

            await jobs.stop_all(self.parts.tool_state)
        if "terminals" in self.parts.tool_state:
            from dsh_acp.tools import terminals

            await terminals.close_all(self.parts.tool_state)
        if "belongings" in self.parts.tool_state:
            from dsh_acp.tools import belongings

            await belongings.end_session(self.parts.tool_state)
        if "language" in self.parts.tool_state:
            from dsh_acp.tools import language_desk

            await language_desk.release(self.parts.tool_state)
        self.log.on_pending = None
        self.log.close()
