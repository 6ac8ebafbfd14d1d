"""Chunks put together into blocks."""

import json

import msgspec
import pytest

from dsh_acp.llm.assemble import Assembler
from dsh_acp.messages import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishReason,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageChunk,
)


def fed(*chunks: Chunk) -> Assembler:
    assembler = Assembler()
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler


def fragment(index: int, text: str, id: str = "", name: str = "") -> ToolCallDelta:
    return ToolCallDelta(index=index, id=id, name=name or msgspec.UNSET, arguments_delta=text)


def test_blocks_are_in_the_order_of_their_first_index() -> None:
    found = fed(TextDelta(3, "a"), ReasoningDelta(1, "b"), TextDelta(3, "c")).blocks()
    assert found == (Text("ac"), Reasoning("b"))


def test_the_first_block_end_is_authoritative() -> None:
    found = fed(
        BlockStart(0, "text"),
        TextDelta(0, "draft"),
        BlockEnd(0, Text("final")),
        TextDelta(0, "late"),
        BlockEnd(0, Text("later")),
        BlockStart(0, "reasoning"),
    )
    assert found.blocks() == (Text("final"),)


def test_an_unclosed_call_is_put_together_from_its_fragments() -> None:
    found = fed(fragment(0, '{"a"'), fragment(0, ":1}", "id", "name"), fragment(2, ""))
    assert found.blocks() == (ToolCall("id", "name", '{"a":1}'), ToolCall("call-2", "", ""))


def test_an_unclosed_block_of_unknown_type_cannot_be_put_together() -> None:
    found = fed(BlockStart(0, "hologram"))
    with pytest.raises(ValueError, match='cannot assemble incomplete block of type "hologram"'):
        found.blocks()
    assert found.interrupted_blocks() == ()


def test_the_last_usage_and_the_last_finish_count() -> None:
    assert fed().finish == FinishReason("stop") and fed().usage is None
    found = fed(
        UsageChunk(Usage(1, 1)),
        UsageChunk(Usage(2, 2)),
        Finish(FinishReason("stop")),
        Finish(FinishReason("max-tokens")),
    )
    assert found.usage == Usage(2, 2) and found.finish.kind == "max-tokens"


def test_an_answer_that_was_too_long_has_no_calls() -> None:
    state = msgspec.Raw(b'{"response":{"x":1},"blocks":[{"s":1},{"t":2}]}')
    found = fed(TextDelta(0, "a"), fragment(1, "{"), Finish(FinishReason("max-tokens"), state))
    assert found.blocks() == (Text("a"),)
    kept = found.replay_state()
    assert kept is not None
    assert json.loads(bytes(kept)) == {"response": {"x": 1}, "blocks": [{"s": 1}]}


@pytest.mark.parametrize("state", [b'{"blocks":[1,2,3]}', b'{"blocks":7}', b"[]", b"nonsense"])
def test_a_replay_state_that_does_not_fit_is_discarded(state: bytes) -> None:
    found = fed(TextDelta(0, "a"), Finish(FinishReason("stop"), msgspec.Raw(state)))
    assert found.replay_state() is None


def test_a_replay_state_without_blocks_is_kept_as_it_is() -> None:
    state = msgspec.Raw(b'{"response":{}}')
    assert fed(TextDelta(0, "a"), Finish(FinishReason("stop"), state)).replay_state() == state


def test_a_cancelled_answer_leaves_what_says_something() -> None:
    found = fed(
        ReasoningDelta(0, " \n"),
        TextDelta(1, "partial"),
        fragment(2, "{", "id", "read"),
        BlockStart(3, "hologram"),
        BlockEnd(4, Reasoning("thought")),
    )
    assert found.interrupted_blocks() == (Text("partial"), Reasoning("thought"))
