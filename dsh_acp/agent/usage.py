"""What a session has cost so far, as a fold of the answers' usage."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final

import msgspec
from msgspec import UNSET, Struct

from dsh_acp.agent import folds
from dsh_acp.llm.provider import Price
from dsh_acp.log.events import Event
from dsh_acp.log.payloads import (
    AssistantMessage,
    RequestContext,
    RequestHeader,
    ToolResultEvent,
    TurnStart,
    UserMessage,
)
from dsh_acp.log.plugin_payloads import CompactionSummary
from dsh_acp.log.surface import derive_event_message
from dsh_acp.log.token_meter import price_header, price_message
from dsh_acp.messages import Usage

PriceOf = Callable[[str, str], Price | None]


class Totals(Struct):
    """Summed tokens, disjoint as in `Usage`, and the number of answers."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    requests: int = 0

    def add(self, usage: Usage) -> None:
        """Count one answer."""
        self.input += usage.input_tokens
        self.output += usage.output_tokens
        self.cache_read += usage.cache_read_tokens or 0
        self.cache_write += usage.cache_write_tokens or 0
        self.reasoning += usage.reasoning_tokens or 0
        self.requests += 1

    def include(self, other: "Totals") -> None:
        """Count all that `other` has counted."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input + self.output + self.cache_read + self.cache_write


def cost(usage: Usage, price: Price) -> float:
    """What one call cost, in the price's currency."""
    cached = price.cache_read if price.cache_read is not None else price.input
    written = price.cache_write if price.cache_write is not None else price.input
    return (
        usage.input_tokens * price.input
        + (usage.cache_read_tokens or 0) * cached
        + (usage.cache_write_tokens or 0) * written
        + usage.output_tokens * price.output
    ) / 1_000_000


class _Route(Struct, frozen=True):
    provider: str
    model: str


class _Sent(Struct, frozen=True):
    source: _Route


class _Answer(Struct, frozen=True):
    turn: int
    step: int
    message: _Sent
    usage: Usage | None = None


_answer: Final = msgspec.json.Decoder(_Answer)
"""An answer without its content, which is the long part of it."""


_RESULT: Final = ToolResultEvent.TYPE
_COUNTED: Final = frozenset({TurnStart.TYPE, RequestContext.TYPE, CompactionSummary.TYPE})
"""Types whose payload matters here; of the others only their place on the surface does."""


class Surface:
    """What the model sees, kept to be priced when some of it is replaced, which is seldom."""

    def __init__(self) -> None:
        self.header: Event | None = None
        self._nodes: list[Event] = []
        self._prices: dict[int, int] = {}
        self.append: Final = self._nodes.append
        """Put an event at the end."""

    def replace(self, event: Event, used: int) -> int:
        """Put `event` in place of what it was made from; what is left of `used` tokens.

        The provider counted what was there before, so that its count is taken in proportion to
        the estimates.
        """
        before = self._estimate() if used else 0
        gone = set(event.source_event_seqs or ())
        self._nodes[:] = [node for node in self._nodes if node.seq not in gone]
        self._nodes.append(event)
        return -(-used * self._estimate() // before) if before else used

    def _estimate(self) -> int:
        logged = self.header.payload if self.header is not None else None
        header = price_header(logged.header) if isinstance(logged, RequestHeader) else 0
        return header + sum(map(self._price, self._nodes))

    def _price(self, event: Event) -> int:
        found = self._prices.get(event.seq)
        if found is None:
            message = derive_event_message(event)
            found = self._prices[event.seq] = 0 if message is None else price_message(message)
        return found


class UsageFold:
    """Totals of the session and of its current turn, the context in use, and the cost.

    `costs` maps a currency to an amount; calls of unknown price are counted in `unpriced`.
    """

    types: ClassVar[tuple[str, ...]] = (
        AssistantMessage.TYPE,
        CompactionSummary.TYPE,
        RequestContext.TYPE,
        RequestHeader.TYPE,
        ToolResultEvent.TYPE,
        TurnStart.TYPE,
        UserMessage.TYPE,
    )

    def __init__(self, price_of: PriceOf) -> None:
        self._price_of = price_of
        self.session = Totals()
        self.turn = Totals()
        self.context_used = 0
        self.context_window: int | None = None
        self.costs: dict[str, float] = {}
        self.unpriced = 0
        self._surface = Surface()

    def apply(self, event: Event) -> Usage | None:
        """Take in one of `types`; the usage of an answer."""
        kind = event.type
        if event.placement == "append":
            self._surface.append(event)
        elif event.placement is not UNSET:
            self.context_used = self._surface.replace(event, self.context_used)
        if kind == _RESULT:  # there are most of them
            return None
        if kind == RequestHeader.TYPE:
            self._surface.header = event
            return None
        if kind == AssistantMessage.TYPE:
            try:
                answer = _answer.decode(event.raw)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return self._general(event)
            if answer.usage is None:
                return None
            self.context_used = answer.usage.total
            route = answer.message.source
            self._count(answer.usage, route.provider, route.model)
            return answer.usage
        return self._general(event) if kind in _COUNTED else None

    def _general(self, event: Event) -> Usage | None:
        match event.payload:
            case TurnStart():
                self.begin_turn()
            case RequestContext(context_window=window):
                self.context_window = window if isinstance(window, int) else None
            case AssistantMessage(usage=Usage() as usage) as answer:
                source = answer.message.source
                self.context_used = usage.total
                self._count(usage, str(source.get("provider")), str(source.get("model")))
                return usage
            case CompactionSummary(usage=Usage() as usage) as summary:
                self._count(usage, summary.provider or "", summary.model or "")
            case _:
                pass
        return None

    def begin_turn(self) -> None:
        """A turn begins: its totals are those of nothing."""
        self.turn = Totals()

    def include(self, other: "UsageFold") -> None:
        """Count what another session has used."""
        self.session.include(other.session)
        self.unpriced += other.unpriced
        for currency, amount in other.costs.items():
            self.costs[currency] = self.costs.get(currency, 0.0) + amount

    def _count(self, usage: Usage, provider: str, model: str) -> None:
        self.session.add(usage)
        self.turn.add(usage)
        price = self._price_of(provider, model)
        if price is None:
            self.unpriced += 1
        else:
            amount = self.costs.get(price.currency, 0.0) + cost(usage, price)
            self.costs[price.currency] = amount


def fold(events: Iterable[Event], price_of: PriceOf) -> UsageFold:
    """The usage after `events`."""
    return folds.run(UsageFold(price_of), events)
