"""How many tokens the next request will take.

That is what the provider counted for the last answer, plus an estimate of what came since.
Prices are a fixed heuristic over UTF-16 lengths, so that everybody who reads the log arrives at the
same numbers.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, UnsetType

from dsh_acp import jsontext
from dsh_acp.log import header as headers
from dsh_acp.log.envelope import Event
from dsh_acp.log.history import History
from dsh_acp.log.packed import ChunkRow
from dsh_acp.log.payloads import AssistantChunk, AssistantMessage
from dsh_acp.log.surface import derive_event_message
from dsh_acp.messages import (
    Block,
    BlockEnd,
    EpochHeader,
    Message,
    Opaque,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
)


def length(text: str) -> int:
    """UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _quarter(text: str) -> int:
    return -(-length(text) // 4)


def price_block(block: Block | Opaque) -> int:
    """The estimate for one block."""
    if isinstance(block, Text | Reasoning):
        return _quarter(block.text) + 4
    if isinstance(block, ToolCall):
        return _quarter(block.name) + _quarter(block.arguments) + 4
    if isinstance(block, ToolResult):
        return sum(price_block(inner) for inner in block.content) + 4
    text = block.json if isinstance(block, Opaque) else jsontext.encode(block)
    return 4 + _quarter(text.decode("utf-8", "replace"))


def price_message(message: Message) -> int:
    """The estimate for one message."""
    return sum(price_block(block) for block in message.content) + 4


def price_header(header: EpochHeader | None) -> int:
    """The estimate for system prompt, tools and framing."""
    if header is None:
        return 0
    total = 0
    if not isinstance(header.system, UnsetType):
        total += _quarter(header.system) + 4
    if not isinstance(header.tools, UnsetType):
        total += _quarter(jsontext.encode(header.tools).decode()) + 4
    return total + sum(price_message(message) for message in (*header.prefix, *header.suffix))


class NodePrice(Struct, frozen=True):
    """The estimate for one surface node."""

    seq: int
    tokens: int


class Baseline(Struct, frozen=True):
    """What the last answer anchors: the provider's own count, or the estimate if that is more."""

    kind: Literal["usage", "estimated"]
    tokens: int


class Measurement(Struct, frozen=True):
    """The size of the next request; `total_tokens` is the figure to act on."""

    log_revision: int
    baseline: Baseline | None
    surface_delta_tokens: int
    total_tokens: int
    surface_tokens: int
    nodes: tuple[NodePrice, ...]


class _Anchor(Struct, frozen=True):
    header: EpochHeader | None
    surface_tokens: int
    baseline: Baseline


class TokenMeter:
    """Measures one log; each call costs what came since the last one."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._next = 0
        self._prices: dict[int, int] = {}
        self._surface = 0
        self._at_step = 0
        self._anchor: _Anchor | None = None
        self._header: EpochHeader | None = None

    def measure(self) -> Measurement:
        """The size of a request made now."""
        for entry in self._history.entries(self._next):
            if isinstance(entry, Event):
                self._feed(entry)
        self._next = self._history.seq
        nodes = tuple(
            NodePrice(seq, self._prices.get(seq, 0)) for seq in self._history.surface.nodes
        )
        surface = sum(node.tokens for node in nodes)
        header, anchor = self._history.request_header(), self._anchor
        baseline: Baseline | None = None
        delta = surface
        if anchor is not None and headers.equal(anchor.header, header):
            baseline, delta = anchor.baseline, surface - anchor.surface_tokens
            total = max(0, baseline.tokens + delta)
        elif header is None and not nodes:
            total = 0
        else:
            total = price_header(header) + surface
        return Measurement(self._history.seq, baseline, delta, total, surface, nodes)

    def _feed(self, event: Event) -> None:
        if event.type == "request/header":
            self._header = event.payload.header
            return
        if event.type == "step/start":
            self._at_step = self._surface
            return
        operation = event.surface_op
        if operation is None:
            return
        message = derive_event_message(event)
        price = 0 if message is None else price_message(message)
        self._prices[event.seq] = price
        if operation == "append":
            self._surface += price
        else:
            # Nodes that a later replacement hid are priced through what the surface shows now.
            shadowed = event.source_event_seqs or ()
            self._surface += price - sum(self._prices.get(seq, 0) for seq in shadowed)
        payload = event.payload
        if isinstance(payload, AssistantMessage) and operation == "append":
            self._set_anchor(event, payload)

    def _set_anchor(self, event: Event, payload: AssistantMessage) -> None:
        output = sum(price_block(block) for block in self._output(event, payload)) + 4
        surface = self._at_step + output
        estimate = price_header(self._header) + surface
        usage = payload.usage
        if not isinstance(usage, UnsetType) and usage.total >= estimate:
            baseline = Baseline("usage", usage.total)
        else:
            baseline = Baseline("estimated", estimate)
        self._anchor = _Anchor(self._header, surface, baseline)

    def _output(self, event: Event, payload: AssistantMessage) -> Iterable[Block | Opaque]:
        """What the provider produced: the message may hold less of it."""
        cited = event.source_event_seqs
        if not cited:
            return payload.message.content
        blocks: dict[int, Block] = {}
        texts: dict[int, list[str]] = {}
        kinds: dict[int, str] = {}
        names: dict[int, str] = {}
        for entry in self._history.entries(cited[0]):
            if entry.seq > cited[-1]:
                break
            chunks = (
                entry.chunks()
                if isinstance(entry, ChunkRow)
                else ([entry.payload.chunk] if isinstance(entry.payload, AssistantChunk) else [])
            )
            for chunk in chunks:
                if isinstance(chunk, BlockEnd):
                    blocks.setdefault(chunk.index, chunk.block)
                elif isinstance(chunk, TextDelta | ReasoningDelta):
                    kinds[chunk.index] = "text"
                    texts.setdefault(chunk.index, []).append(chunk.text)
                elif isinstance(chunk, ToolCallDelta):
                    kinds[chunk.index] = "call"
                    names[chunk.index] = chunk.name or names.get(chunk.index, "")
                    texts.setdefault(chunk.index, []).append(chunk.arguments_delta)
        for index, kind in kinds.items():
            text = "".join(texts[index])
            rest = Text(text) if kind == "text" else ToolCall("", names.get(index, ""), text)
            blocks.setdefault(index, rest)
        return blocks.values()
