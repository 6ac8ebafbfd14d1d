"""The answer that a Chat Completions stream adds up to, as chunks.

Blocks begin when their first content comes and end together, at the end: text and thinking may
alternate on the wire, and become one block each.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast
import uuid

import msgspec
from msgspec import UNSET, Raw

from dsh_acp import jsontext
from dsh_acp.llm.call_fragments import CallFragments, PartialCall
from dsh_acp.llm.chat_wire import (
    NOTHING,
    WireCall,
    WireChoice,
    WireDelta,
    WirePiece,
    usage as read_usage,
)
from dsh_acp.llm.content_filter import ContentFilter
from dsh_acp.llm.details import merge_details
from dsh_acp.llm.place import Place
from dsh_acp.messages import (
    BlockEnd,
    BlockStart,
    Chunk,
    Failure,
    Finish,
    FinishKind,
    FinishReason,
    KnownBlock,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolSchema,
    Usage,
    UsageChunk,
)

_FINISHES: Final[Mapping[str, FinishKind]] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), "tool-calls"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length"), "max-tokens"),
}
_REFUSALS: Final = ("content_filter", "safety", "refusal", "sensitive", "recitation", "blocklist")
_TROUBLES: Final = ("insufficient_system_resource", "error", "network_error", "abort")


def new_call_id() -> str:
    """An id for a call that came without one."""
    return f"call_{uuid.uuid4().hex[:24]}"


class ChatAnswer:
    """Feed it decoded pieces; it gives chunks, and the `Finish` when it is told that all came.

    `tools` are those of the request: with them, calls that leaked into the content are read back.
    """

    def __init__(
        self,
        place: Place,
        tools: Sequence[ToolSchema],
        new_id: Callable[[], str],
        taken: Collection[str],
    ) -> None:
        self.is_done = False
        self._place = place
        self._tools = tools
        self._types: dict[str, Mapping[str, str]] | None = None
        self._filter = ContentFilter(self._types_of if tools else None)
        self._calls = CallFragments(new_id, taken)
        self._blocks: list[list[str] | PartialCall] = []
        self._text: int | None = None
        self._thought: int | None = None
        self._texts: list[str] = []
        self._raw: list[str] = []
        self._thoughts: list[str] = []
        self._details: list[Raw] = []
        self._choice: int | None = None
        self._reason: str | None = None
        self._usage: Raw | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the provider has said why the answer ends."""
        return self._reason is not None

    @property
    def is_blank(self) -> bool:
        """Whether nothing came that belongs to an answer."""
        return self._choice is None

    @property
    def is_silent(self) -> bool:
        """Whether nothing came that a person or a tool would act on."""
        return self._text is None and not len(self._calls)

    def feed(self, piece: WirePiece, out: list[Chunk]) -> None:
        """Append the chunks of `piece` to `out`."""
        if piece.usage != NOTHING:
            self._take_usage(piece.usage)
        for choice in piece.choices or ():
            if self._choice is None:
                self._choice = choice.index or 0
            if choice.index is None or choice.index == self._choice:
                self._take_choice(choice, out)

    def finish(self, out: list[Chunk]) -> None:
        """Everything came: append the ends of the blocks, the usage and the `Finish`."""
        self._parts(self._filter.end(), out)
        calls = self._calls.settle()
        for call in calls:
            if call.block is None:
                self._begin(call, out)
        self.close(self._finish_reason(bool(calls)), out)

    def _take_choice(self, choice: WireChoice, out: list[Chunk]) -> None:
        if choice.usage != NOTHING:
            self._take_usage(choice.usage)
        if choice.delta is not None:
            self._delta(choice.delta, bool(choice.finish_reason), out)
        if choice.message is not None:
            self._message(choice.message, out)
        if choice.finish_reason:
            self._reason = choice.finish_reason

    def _delta(self, delta: WireDelta, is_last: bool, out: list[Chunk]) -> None:
        if thought := delta.reasoning_content or delta.reasoning:
            self._filter.no_thinking()
            self._think(thought, out)
        if delta.reasoning_details != NOTHING:
            self._details.append(Raw(bytes(delta.reasoning_details)))
        if text := delta.content or delta.refusal:
            if is_last and len(self._raw) > 1 and text == "".join(self._raw):
                text = ""
            else:
                self._raw.append(text)
            self._content(text, out)
        if delta.tool_calls:
            for fragment in delta.tool_calls:
                self._fragment(fragment, out)
        if delta.function_call is not None:
            self._fragment(WireCall(function=delta.function_call), out)

    def _message(self, message: WireDelta, out: list[Chunk]) -> None:
        """A whole message: an answer by itself, or a repetition of what was streamed."""
        streamed = "".join(self._raw)
        if message.content and streamed:
            rest = message.content.removeprefix(streamed)
            message.content = rest if rest != message.content else None
        if self._thoughts:
            message.reasoning_content = message.reasoning = None
        if len(self._calls):
            message.tool_calls = None
        for number, call in enumerate(message.tool_calls or ()):
            call.index = number if call.index is None else call.index
        self._delta(message, False, out)

    # ---------------------------------------------------------------- blocks

    def _content(self, text: str, out: list[Chunk]) -> None:
        if self._filter.is_idle and "<" not in text:
            self._filter.shown.append(text)
            self._say(text, out)
        else:
            self._parts(self._filter.feed(text), out)

    def _parts(self, parts: Sequence[Any], out: list[Chunk]) -> None:
        for part in parts:
            if isinstance(part, Text):
                self._say(part.text, out)
            elif isinstance(part, Reasoning):
                self._think(part.text, out)
            else:
                self._leaked(part.name, part.arguments, out)

    def _say(self, text: str, out: list[Chunk]) -> None:
        if not text:
            return
        if self._text is None:
            self._text = len(self._blocks)
            self._blocks.append(self._texts)
            out.append(BlockStart(self._text, "text"))
        self._texts.append(text)
        out.append(TextDelta(self._text, text))

    def _think(self, text: str, out: list[Chunk]) -> None:
        if self._thought is None:
            self._thought = len(self._blocks)
            self._blocks.append(self._thoughts)
            out.append(BlockStart(self._thought, "reasoning"))
        self._thoughts.append(text)
        out.append(ReasoningDelta(self._thought, text))

    def _fragment(self, fragment: WireCall, out: list[Chunk]) -> None:
        taken = self._calls.feed(fragment)
        if taken is None:
            return
        call, added = taken
        if call.block is None:
            # An index without a name or arguments may never become a call, so it waits.
            if not call.name:
                return
            added = call.arguments
            self._begin(call, out)
        out.append(
            ToolCallDelta(
                index=call.block or 0, id=call.id, name=call.name or UNSET, arguments_delta=added
            )
        )

    def _begin(self, call: PartialCall, out: list[Chunk]) -> None:
        call.block = len(self._blocks)
        self._blocks.append(call)
        out.append(BlockStart(call.block, "tool-call"))

    def _leaked(self, name: str, arguments: str, out: list[Chunk]) -> None:
        for call in self._calls:
            if call.name == name and _same_json(call.arguments, arguments):
                return
        index = -1 - len(self._calls)
        fragment = msgspec.convert(
            {"index": index, "function": {"name": name, "arguments": arguments}}, WireCall
        )
        self._fragment(fragment, out)

    def _types_of(self, name: str) -> Mapping[str, str] | None:
        if self._types is None:
            self._types = {tool.name: _parameter_types(tool) for tool in self._tools}
        return self._types.get(name)

    # ---------------------------------------------------------------- the end

    def _finish_reason(self, has_calls: bool) -> FinishReason:
        reason = (self._reason or "stop").lower()
        if reason in _REFUSALS:
            text = f"The provider's content filter stopped the answer ({self._reason})."
            return _error("CONTENT_FILTER", f"{text} Rephrase the request or choose another model.")
        if reason in _TROUBLES:
            text = f"{self._place.provider} stopped in the middle of the answer ({self._reason})."
            return _error("SERVER", f"{text} {self._advice('SERVER')}")
        # A reason that nobody knows ends the answer like any other; its text is worth keeping.
        kind = _FINISHES.get(reason, "stop")
        if kind == "max-tokens":
            return FinishReason(kind)
        if has_calls:
            return FinishReason("tool-calls")
        if self._filter.is_broken:
            return self._empty("The model wrote a tool call as text and did not finish it")
        if not any(text and not text.isspace() for text in self._texts):
            return self._empty("The model's answer was empty")
        return FinishReason("stop")

    def close(self, reason: FinishReason, out: list[Chunk]) -> None:
        """Append the end for `reason`; usage that came is kept."""
        self.is_done = True
        ended = [self._block(block) for block in self._blocks] if self._is_answer(reason) else []
        out.extend(BlockEnd(index, block) for index, block in enumerate(ended))
        if self._usage is not None and (found := _usage(self._usage)) is not None:
            out.append(UsageChunk(found))
        state = self._replay_state() if reason.kind in ("stop", "tool-calls") else UNSET
        out.append(Finish(reason, state))

    @staticmethod
    def _is_answer(reason: FinishReason) -> bool:
        # Blocks of a stream that was cut or refused in the middle never ended.
        failure = reason.failure
        return not isinstance(failure, Failure) or failure.code in (
            "EMPTY_RESPONSE",
            "CONTENT_FILTER",
        )

    def _block(self, block: list[str] | PartialCall) -> KnownBlock:
        if isinstance(block, PartialCall):
            return ToolCall(block.id, block.name, block.arguments)
        text = "".join(block)
        return Reasoning(text) if block is self._thoughts else Text(text)

    def _replay_state(self) -> Raw | msgspec.UnsetType:
        """What some gateways want back: signed reasoning, and extras of their tool calls."""
        extras = [
            {"extra_content": block.extra}
            if isinstance(block, PartialCall) and block.extra is not None
            else None
            for block in self._blocks
        ]
        details = merge_details(self._details)
        if not details and not any(extras):
            return UNSET
        response = {"reasoning_details": details} if details else {}
        return Raw(jsontext.encode({"response": response, "blocks": extras}))

    def _empty(self, what: str) -> FinishReason:
        from dsh_acp.llm.failures import from_transport

        return FinishReason("error", from_transport(self._place, "EMPTY_RESPONSE", what))

    def _advice(self, kind: str) -> str:
        from dsh_acp.llm.failures import advise

        return advise(self._place, kind)

    def _take_usage(self, raw: Raw) -> None:
        # Copied, because it is a view of the whole event; the last one that counts is kept.
        if bytes(raw)[:1] == b"{":
            self._usage = raw.copy()


def _error(code: str, message: str) -> FinishReason:
    return FinishReason("error", Failure(message=message, code=code))


def _usage(raw: Raw) -> Usage | None:
    found = read_usage(bytes(raw))
    if found is None:
        return None
    prompt = (found.prompt_tokens or 0) - (found.cached or 0) - (found.written or 0)
    return Usage(
        input_tokens=max(0, prompt),
        output_tokens=found.completion_tokens or 0,
        cache_read_tokens=UNSET if found.cached is None else found.cached,
        cache_write_tokens=found.written or UNSET,
        reasoning_tokens=UNSET if found.reasoning is None else found.reasoning,
    )


def _same_json(one: str, other: str) -> bool:
    try:
        return jsontext.loads(one.encode()) == jsontext.loads(other.encode())
    except jsontext.DecodeError:
        return one == other


def _parameter_types(tool: ToolSchema) -> Mapping[str, str]:
    schema = jsontext.loads(bytes(tool.parameters))
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    types = ((name, value.get("type")) for name, value in properties.items())
    return {name: kind for name, kind in types if isinstance(kind, str)}
