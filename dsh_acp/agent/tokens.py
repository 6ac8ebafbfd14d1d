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
        self._generation = 0
        self._surface = 0
        self._usage: tuple[int, Usage] | None = None
        self._anchor: tuple[int, int] | None = None
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
    def total(self) -> int:
        """Tokens that the next request will take, before anything is added to it."""
        surface = self._log.surface
        if surface.generation != self._generation:
            self._generation = surface.generation
            self._counted = self._surface = 0
        nodes = surface.nodes
        for position in range(self._counted, len(nodes)):
            self._surface += self.price(nodes[position])
        self._counted = len(nodes)
        if self._usage is not None and self._anchor is None:
            seq, usage = self._usage
            since = sum(self.price(node) for node in reversed(nodes) if node > seq)
            estimate = self._header + self._surface - since
            self._anchor = (self._surface - since, max(usage.total, estimate))
        if self._anchor is None:
            return self._header + self._surface
        at, baseline = self._anchor
        return max(0, baseline + self._surface - at)


def follow(log: SessionLog, following: Folds) -> TokenFold:
    """The meter of a live session."""
    return following.add(TokenFold(log))
