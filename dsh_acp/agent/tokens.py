"""How much of the window the history takes: the provider's count, or else an estimate.

The provider's last usage is taken over an estimate when it is higher, and only what came after is
estimated. Unlike the whole measurement of `log.token_meter`, whose prices it uses, this figure
costs what is new: it is asked for before every step.
"""

from typing import ClassVar

from dsh_acp.agent.folds import Folds
from dsh_acp.log.events import Event
from dsh_acp.log.payloads import AssistantMessage, RequestHeader
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.surface import derive_event_message
from dsh_acp.log.token_meter import price_header, price_message
from dsh_acp.messages import Usage


class TokenFold:
    """The size of a live session's history, kept up to date as it grows."""

    types: ClassVar[tuple[str, ...]] = (AssistantMessage.TYPE, RequestHeader.TYPE)

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._prices: dict[int, int] = {}
        self._counted = 0
        self._generation: int = 0
        self._surface = 0
        self._usage: tuple[int, Usage] | None = None
        self._anchor: tuple[int, int, int] | None = None
        self._header = 0

    def apply(self, event: Event) -> None:
        """Take in an answer, or a header that makes earlier counts worthless."""
        match event.payload:
            case AssistantMessage(usage=Usage() as usage):
                self._usage = (event.seq, usage)
            case RequestHeader(header=header):
                self._usage = None
                self._header = price_header(header)
            case _:
                pass
        self._anchor = None

    def price(self, seq: int) -> int:
        """The price of the surface node at `seq`."""
        found = self._prices.get(seq)
        if found is None:
            message = derive_event_message(self._log.event(seq))
            found = self._prices[seq] = 0 if message is None else price_message(message)
        return found

    @property
    def surface(self) -> int:
        """The estimate for the messages alone."""
        self._count()
        return self._surface

    def _count(self) -> None:
        surface = self._log.surface
        if surface.generation != self._generation:
            self._generation = surface.generation
            self._counted = self._surface = 0
        nodes = surface.nodes
        for position in range(self._counted, len(nodes)):
            self._surface += self.price(nodes[position])
        self._counted = len(nodes)

    @property
    def total(self) -> int:
        """Tokens that the next request will take, before anything is added to it."""
        self._count()
        estimate = self._header + self._surface
        if self._usage is not None and self._anchor is None:
            self._anchor = self._anchored(*self._usage)
        if self._anchor is None:
            return estimate
        at, baseline, generation = self._anchor
        if generation != self._generation:
            # What was replaced had been counted by the provider too, at the rate of the whole.
            return -(-estimate * baseline // max(1, at))
        return max(0, baseline + estimate - at)

    def _anchored(self, seq: int, usage: Usage) -> tuple[int, int, int]:
        """The estimate up to the answer at `seq`, the better of it and the count, and when."""
        since = sum(self.price(node) for node in self._log.surface.nodes if node > seq)
        at = self._header + self._surface - since
        return at, max(usage.total, at), self._generation


def follow(log: SessionLog, following: Folds) -> TokenFold:
    """The meter of a live session."""
    return following.add(TokenFold(log))
