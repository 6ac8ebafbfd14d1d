"""How much of the window the history takes: the provider's count, or else an estimate.

An estimate prices a piece of text at a quarter of its length in UTF-16 units. The provider's last
usage is taken over it when it is higher, and only what came after is estimated.
"""

from typing import ClassVar

from dsh_acp import jsontext
from dsh_acp.agent.folds import Folds
from dsh_acp.log.events import Event
from dsh_acp.log.payloads import AssistantMessage, RequestHeader
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.surface import derive_event_message
from dsh_acp.messages import (
    Block,
    EpochHeader,
    Message,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)

_EACH = 4
"""What a block, a message, the system prompt and the tool list cost beside their text."""


def _quarter(text: str) -> int:
    units = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    return -(-units // 4)


def block_tokens(block: Block | Opaque) -> int:
    """The price of one block."""
    match block:
        case Text(text) | Reasoning(text):
            return _quarter(text) + _EACH
        case ToolCall():
            return _quarter(block.name) + _quarter(block.arguments) + _EACH
        case ToolResult():
            return sum(map(block_tokens, block.content)) + _EACH
        case Opaque():
            return _EACH + _quarter(block.json.decode("utf-8", "replace"))
        case _:
            return _EACH + _quarter(jsontext.encode(block).decode())


def message_tokens(message: Message) -> int:
    """The price of one message."""
    return sum(map(block_tokens, message.content)) + _EACH


def header_tokens(header: EpochHeader | None) -> int:
    """The price of system prompt, tools and framing."""
    if header is None:
        return 0
    system = _quarter(header.system) + _EACH if header.system else 0
    tools = _quarter(jsontext.encode(header.tools).decode()) + _EACH if header.tools else 0
    return system + tools + sum(map(message_tokens, (*header.prefix, *header.suffix)))


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
                self._header = header_tokens(header)
            case _:
                pass
        self._anchor = None

    def price(self, seq: int) -> int:
        """The price of the surface node at `seq`."""
        found = self._prices.get(seq)
        if found is None:
            message = derive_event_message(self._log.event(seq))
            found = self._prices[seq] = 0 if message is None else message_tokens(message)
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
