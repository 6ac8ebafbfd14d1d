"""Chunks put together into the blocks of a message."""

import msgspec
from msgspec import Raw, Struct

from dsh_acp import jsontext
from dsh_acp.messages import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishReason,
    KnownBlock,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageChunk,
)


class _Open(Struct):
    kind: str
    parts: list[str]
    id: str = ""
    name: str = ""
    block: KnownBlock | None = None


class Assembler:
    """Feed it every chunk of one attempt.

    Blocks are ordered by the first sight of their index. The first `block-end` of an index is
    authoritative and freezes it; an index that never got one is put together from its deltas.
    The last usage and the last finish count.
    """

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.last: Finish | None = None
        self._open: dict[int, _Open] = {}

    @property
    def finish(self) -> FinishReason:
        """Why the stream ended; `stop` when it never said."""
        return self.last.reason if self.last is not None else FinishReason("stop")

    def feed(self, chunk: Chunk) -> None:
        """Take one chunk."""
        match chunk:
            case TextDelta(index, text):
                self._at(index, "text").parts.append(text)
            case ReasoningDelta(index, text):
                self._at(index, "reasoning").parts.append(text)
            case ToolCallDelta():
                found = self._at(chunk.index, "tool-call")
                found.id = chunk.id or found.id
                found.name = chunk.name or found.name
                found.parts.append(chunk.arguments_delta)
            case BlockStart(index, block_type):
                self._at(index, block_type)
            case BlockEnd(index, block):
                found = self._at(index, str(block.__struct_config__.tag))
                if found.block is None:
                    found.block = block
            case UsageChunk(usage):
                self.usage = usage
            case Finish():
                self.last = chunk

    def blocks(self) -> tuple[KnownBlock, ...]:
        """The message's content. An answer cut by `max-tokens` has no tool calls.

        Raises:
            ValueError: a block of a type this version cannot put together never ended.
        """
        cut = self.finish.kind == "max-tokens"
        found = (self._block(index, item) for index, item in self._open.items())
        return tuple(block for block in found if not (cut and isinstance(block, ToolCall)))

    def interrupted_blocks(self) -> tuple[KnownBlock, ...]:
        """What a cancelled stream leaves: text and thinking that say something, in order."""
        found = (
            self._block(index, item)
            for index, item in self._open.items()
            if item.kind in ("text", "reasoning")
        )
        return tuple(
            block for block in found if isinstance(block, Text | Reasoning) and block.text.strip()
        )

    def replay_state(self) -> Raw | None:
        """What the provider wants back with this message, for its `source`.

        Its `blocks` run parallel to the message's; tool calls that were dropped take theirs along,
        and a state that does not fit the blocks is worth nothing.
        """
        if self.last is None or not isinstance(self.last.replay_state, Raw):
            return None
        try:
            state = msgspec.json.decode(self.last.replay_state, type=dict[str, Raw])
            if "blocks" not in state:
                return self.last.replay_state
            entries = msgspec.json.decode(state["blocks"], type=list[Raw])
        except msgspec.DecodeError:
            return None
        if len(entries) != len(self._open):
            return None
        if self.finish.kind == "max-tokens":
            kinds = (item.kind for item in self._open.values())
            entries = [raw for raw, kind in zip(entries, kinds, strict=True) if kind != "tool-call"]
        return Raw(jsontext.encode({**state, "blocks": entries}))

    def _at(self, index: int, kind: str) -> _Open:
        found = self._open.get(index)
        if found is None:
            found = self._open[index] = _Open(kind, [])
        return found

    def _block(self, index: int, item: _Open) -> KnownBlock:
        if item.block is not None:
            return item.block
        text = "".join(item.parts)
        match item.kind:
            case "text":
                return Text(text)
            case "reasoning":
                return Reasoning(text)
            case "tool-call":
                return ToolCall(item.id or f"call-{index}", item.name, text)
            case _:
                raise ValueError(f'cannot assemble incomplete block of type "{item.kind}"')
