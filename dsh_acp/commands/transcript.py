"""A session as a person reads it: what was said and done, and what each answer cost.

The conversation is built from events as they were appended. What replaced them later, for the
model only, shows as one line where it happened.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, UnsetType

from dsh_acp.agent.usage import UsageFold, cost
from dsh_acp.commands.caching import CacheRead, Caching, changed_fields
from dsh_acp.llm.provider import Price
from dsh_acp.log.events import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantMessage,
    CompactionEnd,
    CompactionSummary,
    EndSeed,
    Event,
    LlmRetry,
    RequestHeader,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from dsh_acp.log.packed import ChunkRow, Entry
from dsh_acp.messages import (
    Audio,
    Block,
    Image,
    Message,
    Opaque,
    Reasoning,
    Text,
    ToolResult,
    Usage,
    source_kind,
)

Kind: TypeAlias = Literal[
    "turn",
    "user",
    "note",
    "header",
    "thought",
    "answer",
    "call",
    "result",
    "failed",
    "usage",
    "cache",
    "event",
    "end",
]


class Item(Struct, frozen=True, omit_defaults=True):
    """One piece; `facts` are its figures, for programs."""

    kind: Kind
    seq: int
    text: str
    facts: dict[str, Any] = {}


class Transcript(Struct, frozen=True):
    """All pieces in order, and the totals."""

    items: tuple[Item, ...]
    usage: UsageFold


def read(entries: Iterable[Entry], price_of: Callable[[str, str], Price | None]) -> Transcript:
    """The transcript of a log's entries."""
    teller = _Teller(price_of)
    items = [
        item
        for entry in entries
        if not isinstance(entry, ChunkRow) and entry.type != "assistant/chunk"
        for item in teller.tell(entry)
    ]
    return Transcript(tuple(items), teller.usage)


def content_text(blocks: Iterable[Block | Opaque]) -> str:
    """What blocks say; images, recordings and unknown blocks in words."""
    return "\n".join(text for block in blocks if (text := _block_text(block)))


def money(amount: float, currency: str) -> str:
    """An amount with as many decimals as say something."""
    return f"{amount:.{2 if amount >= 1 else 4 if amount >= 0.01 else 6}f} {currency}"


def out(tokens: int, reasoning: int) -> str:
    """How much a model wrote, and how much of it were thoughts."""
    return f"{tokens:,} out" + (f" ({reasoning:,} of them thoughts)" if reasoning else "")


def _block_text(block: Block | Opaque) -> str:
    match block:
        case Text(text=text) | Reasoning(text=text):
            return text
        case Image(attachment=ref):
            return f"[image {ref.width}x{ref.height}, {ref.media_type}, {ref.bytes:,} bytes]"
        case Audio(attachment=ref):
            return f"[recording, {ref.media_type}, {ref.bytes:,} bytes]"
        case ToolResult(content=content):
            return content_text(content)
        case Opaque():
            return "[a block of an unknown kind]"
        case _:
            return ""


class _Teller:
    def __init__(self, price_of: Callable[[str, str], Price | None]) -> None:
        self.usage = UsageFold(price_of)
        self._price_of = price_of
        self._caching = Caching()

    def tell(self, event: Event) -> Iterator[Item]:
        before = self._caching.header
        read = self._caching.feed(event)
        self.usage.apply(event)
        payload, seq = event.payload, event.seq
        match payload:
            case TurnStart(turn=turn):
                yield Item("turn", seq, f"turn {turn}", {"turn": turn, "time": event.time})
            case UserMessage(message=message) if event.surface_op == "append":
                yield _input(seq, message)
            case RequestHeader(reason=reason, header=header):
                changes = ", ".join(changed_fields(before, header)) or "the same as before"
                yield Item("header", seq, f"request header, {reason}: {changes}")
            case AssistantMessage():
                yield from self._answer(seq, payload, read)
            case ToolCallEvent(name=name, arguments=arguments):
                yield Item("call", seq, f"{name} {arguments}", {"name": name})
            case ToolResultEvent(message=message) if event.surface_op == "append":
                yield _result(seq, message)
            case TurnEnd(reason=reason):
                text = reason.kind
                if not isinstance(reason.error, UnsetType):
                    text += f": {reason.error.message} ({reason.error.code})"
                yield Item("end", seq, text, {"kind": reason.kind})
            case _:
                text = _aside(event)
                if text:
                    yield Item("event", seq, text)

    def _answer(
        self, seq: int, payload: AssistantMessage, read: CacheRead | None
    ) -> Iterator[Item]:
        for block in payload.message.content:
            if isinstance(block, Reasoning):
                yield Item("thought", seq, block.text)
            elif isinstance(block, Text | Image | Audio | Opaque):
                yield Item("answer", seq, _block_text(block))
        if payload.interrupted is True:
            yield Item("event", seq, "the answer was cut off here")
        usage = payload.usage
        if not isinstance(usage, Usage) or read is None:
            return
        source = payload.message.source
        price = self._price_of(str(source.get("provider")), str(source.get("model")))
        yield _usage(seq, payload, usage, read, price)
        if read.drop:
            yield Item("cache", seq, f"read {read.rate:.0%} from the cache: {read.drop}")


def _input(seq: int, message: Message) -> Item:
    text = content_text(message.content)
    kind = source_kind(message)
    if kind == "user":
        return Item("user", seq, text)
    source = message.source
    return Item("note", seq, text, {"source": source.get("plugin") or kind})


def _result(seq: int, message: Message) -> Item:
    blocks = [block for block in message.content if isinstance(block, ToolResult)]
    failed = any(block.is_error is True for block in blocks)
    return Item("failed" if failed else "result", seq, content_text(blocks))


def _usage(
    seq: int, payload: AssistantMessage, usage: Usage, read: CacheRead, price: Price | None
) -> Item:
    amount = None if price is None else cost(usage, price)
    facts: dict[str, Any] = {
        "turn": payload.turn,
        "step": payload.step,
        "model": payload.message.source.get("model"),
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadTokens": usage.cache_read_tokens or 0,
        "cacheWriteTokens": usage.cache_write_tokens or 0,
        "cacheReadRate": round(read.rate, 4),
        "cost": amount,
        "currency": None if price is None else price.currency,
        "explanation": read.drop or None,
    }
    written = out(usage.output_tokens, usage.reasoning_tokens or 0)
    text = (
        f"step {payload.turn}.{payload.step}: {read.prompt:,} in,"
        f" {read.rate:.0%} of it from the cache, {written}"
    )
    if price is not None:
        text += f", {money(cast(float, amount), price.currency)}"
    return Item("usage", seq, text, facts)


def _aside(event: Event) -> str:
    match event.payload:
        case EndSeed():
            return "the session was resumed or forked here"
        case LlmRetry() as retry:
            return (
                f"attempt failed: {retry.failure.message} ({retry.failure.code});"
                f" retry {retry.retry} after {retry.delay_ms / 1000:.1f} s"
            )
        case ApprovalAsked(tool_name=name, reason=reason):
            return f"asked to allow {name}" + (f": {reason}" if isinstance(reason, str) else "")
        case ApprovalDecided(outcome=outcome):
            return f"answered: {outcome}"
        case CompactionSummary() as summary:
            return (
                f"compacted {len(summary.shadowed_seqs)} messages"
                f" (about {summary.shadowed_token_count:,} tokens) for the model"
            )
        case CompactionEnd(error=str() as error):
            return f"compaction failed: {error}"
        case _:
            return ""
