"""Making room in the window: trim long results, then put a checkpoint in place of the oldest part.

It happens before a step when the history presses against the budget, after an attempt that the
provider found too long, and when the user asks. Nothing is deleted from the log. A compaction that
fails is reported and changes nothing else: no turn fails because of it.

The budget is the window minus what the model may answer.
"""

from collections.abc import Sequence
import logging
from typing import ClassVar, Final

import msgspec
from msgspec import Struct

from dsh_acp import errors
from dsh_acp.agent import summary, tokens, trimming
from dsh_acp.agent.folds import Folds
from dsh_acp.agent.hooks import Enter, PreStep, Proceed, Recovery, Reject, RequestFailed
from dsh_acp.agent.options import Options
from dsh_acp.agent.services import Services
from dsh_acp.agent.summarising import Summarised, Summariser
from dsh_acp.errors import DshError
from dsh_acp.log.events import Event, Replace
from dsh_acp.log.payloads import AssistantMessage, EndSeed, TurnEnd, UserMessage
from dsh_acp.log.plugin_payloads import (
    CompactionEnd,
    CompactionStart,
    CompactionSummary,
    ShadowedRange,
)
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.surface import derive_event_message
from dsh_acp.log.token_meter import price_message
from dsh_acp.messages import UNSET, Message, new_id, source_kind

_log = logging.getLogger(__name__)

RETAIN_RATIO: Final = 0.16
_ATTEMPTS: Final = 2
_OVERFLOWS: Final = 1


class CompactionError(DshError):
    """A compaction that could not be made; `code` says why."""


class _Node(Struct, frozen=True):
    seq: int
    message: Message | None
    tokens: int


class _Span(Struct, frozen=True):
    """The surface nodes to replace, from the first on, and whether the newest prompt is in it."""

    nodes: tuple[_Node, ...]
    latest_request: Message | None

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(node.seq for node in self.nodes)

    @property
    def tokens(self) -> int:
        return sum(node.tokens for node in self.nodes)

    @property
    def messages(self) -> list[Message]:
        return [node.message for node in self.nodes if node.message is not None]


class CompactionFold:
    """Whether a compaction is open; a new life voids one that was left open."""

    types: ClassVar[tuple[str, ...]] = (CompactionStart.TYPE, CompactionEnd.TYPE, EndSeed.TYPE)

    def __init__(self) -> None:
        self.is_open = False

    def apply(self, event: Event) -> None:
        """Take in a boundary of a compaction or of a life."""
        self.is_open = event.type == CompactionStart.TYPE


class OverflowFold:
    """How many overflowing attempts were compacted since the last answer."""

    types: ClassVar[tuple[str, ...]] = (AssistantMessage.TYPE, TurnEnd.TYPE)

    def __init__(self) -> None:
        self.used = 0

    def apply(self, event: Event) -> None:
        """An answer, or the end of a turn, begins the count anew."""
        self.used = 0


class Compaction:
    """Compacts one live session."""

    def __init__(
        self, log: SessionLog, services: Services, options: Options, following: Folds
    ) -> None:
        self._log = log
        self._services = services
        self._options = options
        self._following = following
        self._lock = following.add(CompactionFold())
        self._meter = tokens.follow(log, following)
        self._overflow = following.add(OverflowFold())
        self._summariser = Summariser(log, services.providers, options)
        self._warned: set[str] = set()

    # ------------------------------------------------------------ triggers

    async def pre_step(self, proposed: PreStep, proceed: Proceed[Enter | Reject]) -> Enter | Reject:
        """Make room before a step, if the history presses against the budget."""
        budget = self._budget() if self._services.settings.auto_compact else None
        if budget is not None:
            try:
                await self._relieve(budget, proposed.turn)
            except Exception as exc:  # noqa: BLE001 - compaction never fails a turn
                self._report(exc)
        return await proceed()

    async def _relieve(self, budget: int, turn: int) -> None:
        threshold = int(budget * self._services.settings.compact_threshold)
        if self._tokens() < threshold:
            return
        trimming.trim(self._log, self._answered())
        for _ in range(_ATTEMPTS):
            if self._tokens() < threshold:
                return
            await self._compact(self._retained(budget), turn)
        if (tokens := self._tokens()) >= threshold:
            raise CompactionError(
                f"compaction still above threshold after {_ATTEMPTS} compaction attempts "
                f"({tokens} estimated tokens >= threshold {threshold})",
                code="COMPACTION",
            )

    async def request_error(self, failed: RequestFailed, proceed: Proceed[Recovery]) -> Recovery:
        """Make room after an attempt that was too long, once, and have it repeated."""
        self._following.catch_up()
        if failed.failure.code != "CONTEXT_WINDOW_EXCEEDED" or self._overflow.used >= _OVERFLOWS:
            return await proceed()
        generation = self._log.surface.generation
        try:
            trimming.trim(self._log, tuple(self._log.surface.nodes))
            await self._compact(0, failed.turn)
        except Exception as exc:  # noqa: BLE001 - compaction never fails a turn
            self._report(exc)
        if self._log.surface.generation == generation:
            return await proceed()
        self._overflow.used += 1
        return "retry"

    async def compact_now(self, command_id: str | None = None, focus: str = "") -> int:
        """Compact everything that can be, between turns; the tokens that this saved.

        Raises:
            DshError: it could not be done; nothing changed.
        """
        before = self._tokens()
        await self._compact(0, None, command_id, focus)
        await self._log.sync()
        return max(0, before - self._tokens())

    def _report(self, exc: Exception) -> None:
        if not self._log.writable:
            raise exc
        _log.warning("session %s: compaction failed: %s", self._log.header.id, errors.chain(exc))

    # ------------------------------------------------------------ measuring

    def _budget(self) -> int | None:
        """What the history may take; `None` when the window is not known or nothing was sent."""
        header = self._log.request_header()
        if header is None:
            return None
        provider = self._services.providers.get(header.config.provider)
        info = provider.model(header.config.model) if provider is not None else None
        window = info.context_window if info is not None else None
        if info is None or not window:
            route = f"{header.config.provider}/{header.config.model}"
            if route not in self._warned:
                self._warned.add(route)
                _log.info("the context window of %s is not known; it is not compacted", route)
            return None
        ceiling = header.config.max_tokens or info.default_max_output or info.max_output or 0
        return max(window - ceiling, window // 4)

    def _tokens(self) -> int:
        self._following.catch_up()
        return self._meter.total

    def _retained(self, budget: int) -> int:
        """The estimate to keep. Where the provider counts more than we do, less is kept."""
        total = self._tokens()
        share = min(1.0, self._meter.surface / total) if total else 1.0
        return int(budget * RETAIN_RATIO * share)

    def _answered(self) -> tuple[int, ...]:
        """The surface up to the last answer: what the model has seen."""
        nodes = tuple(self._log.surface.nodes)
        for position in range(len(nodes) - 1, -1, -1):
            if self._log.event(nodes[position]).type == AssistantMessage.TYPE:
                return nodes[:position]
        return ()

    # ------------------------------------------------------------ the transaction

    async def _compact(
        self, retain: int, turn: int | None, command_id: str | None = None, focus: str = ""
    ) -> None:
        self._following.catch_up()
        if self._lock.is_open:
            raise CompactionError(
                "compaction already in progress; the session compaction lock is already active",
                code="BUSY",
            )
        span = self._select(retain)
        if span is None:
            raise CompactionError("there is nothing to compact yet", code="NOTHING")
        compaction_id = new_id()
        command = UNSET if command_id is None else command_id
        start = self._log.append(
            CompactionStart(compaction_id=compaction_id, source_command_id=command, turn=turn)
        )
        error = "cancelled"
        try:
            await self._replace(span, start.seq, compaction_id, command_id, focus)
            error = ""
        except Exception as exc:
            error = errors.chain(exc)
            raise
        finally:
            if self._log.writable:
                self._log.append(
                    CompactionEnd(
                        compaction_id=compaction_id,
                        source_command_id=command,
                        turn=turn,
                        error=error or UNSET,
                    )
                )

    async def _replace(
        self, span: _Span, start: int, compaction_id: str, command_id: str | None, focus: str
    ) -> None:
        surface = tuple(self._log.surface.nodes)
        found = await self._summariser.summarise(span.messages, focus)
        message = summary.checkpoint(found.texts, compaction_id, command_id, span.latest_request)
        price = price_message(message)
        if price >= span.tokens:
            raise CompactionError(
                "summary is not smaller than the shadowed content "
                f"({price} estimated framed tokens >= {span.tokens})",
                code="SUMMARY",
            )
        if tuple(self._log.surface.nodes)[: len(surface)] != surface:
            raise CompactionError("the history changed while it was summarised", code="CHANGED")
        summarised = self._log.append(_summary_event(found, span, compaction_id, command_id))
        self._log.append(
            UserMessage(message),
            surface=Replace(span.seqs[0], span.seqs[-1]),
            sources=(start, summarised.seq, *span.seqs),
        )

    def _select(self, retain: int) -> _Span | None:
        """The oldest part of the surface that may go, keeping about `retain` tokens of the newest.

        It ends where no call is separated from its result, and before a prompt that was not
        answered yet.
        """
        nodes = [self._node(seq) for seq in self._log.surface.nodes]
        if not nodes:
            return None
        cut, kept = len(nodes), 0
        while cut > 0 and (cut == len(nodes) or kept < retain):
            cut -= 1
            kept += nodes[cut].tokens
        prompt = _latest_prompt(nodes)
        if prompt is not None and not _is_answered(nodes, prompt):
            cut = min(cut, prompt)
        cuts = summary.balanced_cuts([node.message for node in nodes])
        cut = max((at for at in cuts if at <= cut), default=0)
        if cut == 0:
            return None
        latest = nodes[prompt].message if prompt is not None and prompt < cut else None
        return _Span(tuple(nodes[:cut]), latest)

    def _node(self, seq: int) -> _Node:
        message = derive_event_message(self._log.event(seq))
        return _Node(seq, message, self._meter.price(seq))


def _latest_prompt(nodes: Sequence[_Node]) -> int | None:
    for position in range(len(nodes) - 1, -1, -1):
        message = nodes[position].message
        if message is not None and message.role == "user" and source_kind(message) == "user":
            return position
    return None


def _is_answered(nodes: Sequence[_Node], position: int) -> bool:
    return any(
        node.message is not None and node.message.role == "assistant"
        for node in nodes[position + 1 :]
    )


def _summary_event(
    found: Summarised, span: _Span, compaction_id: str, command_id: str | None
) -> CompactionSummary:
    return CompactionSummary(
        compaction_id=compaction_id,
        source_command_id=UNSET if command_id is None else command_id,
        summary=tuple(msgspec.to_builtins(text) for text in found.texts),
        raw_output=tuple(msgspec.to_builtins(block) for block in found.blocks),
        llm_stream_call=True,
        shadowed_range=ShadowedRange(span.seqs[0], span.seqs[-1]),
        shadowed_seqs=span.seqs,
        shadowed_token_count=span.tokens,
        provider=found.config.provider,
        model=found.config.model,
        max_tokens=found.config.max_tokens,
        usage=UNSET if found.usage is None else found.usage,
    )
