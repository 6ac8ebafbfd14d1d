"""An Anthropic Messages response, from bytes to chunks."""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from msgspec import UNSET, Raw, Struct, UnsetType

from dsh_acp import jsontext
from dsh_acp.llm.chat_answer import new_call_id
from dsh_acp.llm.chat_wire import values
from dsh_acp.llm.place import Place
from dsh_acp.llm.sse import BodyReader
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
    Usage,
    UsageChunk,
)

_STOPS: Final[Mapping[str, FinishKind]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "max-tokens",
    "model_context_window_exceeded": "max-tokens",
}
_KINDS: Final = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "tool-call",
}


class _Part(Struct, eq=False):
    kind: str
    parts: list[str]
    id: str = ""
    name: str = ""
    signature: str = ""
    data: str | None = None

    def block(self) -> KnownBlock:
        text = "".join(self.parts)
        if self.kind == "text":
            return Text(text)
        return Reasoning(text) if self.kind == "reasoning" else ToolCall(self.id, self.name, text)

    def entry(self) -> dict[str, Any] | None:
        """What the provider wants back with this block."""
        if self.data is not None:
            return {"data": self.data}
        return {"signature": self.signature} if self.signature else None


class AnthropicStream:
    """Feed it the body; it gives chunks. Nothing follows the `Finish`, and there is always one.

    `is_settled` becomes true with the stop reason; the usage comes with it.
    """

    def __init__(self, place: Place, new_id: Callable[[], str] = new_call_id) -> None:
        self.is_done = False
        self.request_id: str | None = None
        self._place = place
        self._new_id = new_id
        self._body = BodyReader()
        self._parts: list[_Part] = []
        self._by_wire: dict[Any, int] = {}
        self._usage: dict[str, int] = {}
        self._stop: str | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the stop reason came."""
        return self._stop is not None

    def feed(self, piece: bytes) -> list[Chunk]:
        """The chunks that `piece` completes."""
        out: list[Chunk] = []
        if not self.is_done:
            for event in self._body.feed(piece):
                self._data(event.data, out)
        return out

    def end(self) -> list[Chunk]:
        """The chunks at the end of the body, up to and with the `Finish`."""
        out: list[Chunk] = []
        if self.is_done:
            return out
        if self._body.kind == "page":
            from dsh_acp.llm.failures import from_page

            page = self._body.whole[:100_000].decode("utf-8", "replace")
            return self.fail(from_page(self._place, page, self.request_id))
        if self._body.kind == "json":
            self._data(self._body.whole, out)
        else:
            for event in self._body.sse.end():
                self._data(event.data, out)
        if not self.is_done:
            if self._stop is not None:
                self._finish(out)
            else:
                self._cut(out)
        return out

    def fail(self, failure: Failure) -> list[Chunk]:
        """End the stream with `failure`; usage that came is kept."""
        out: list[Chunk] = []
        if not self.is_done:
            self._close(FinishReason("error", failure), False, out)
        return out

    # ---------------------------------------------------------------- events

    def _data(self, data: bytes, out: list[Chunk]) -> None:
        if self.is_done or not data.strip():
            return
        try:
            found = [jsontext.loads(data)]
        except jsontext.DecodeError:
            found, rest = values(data)
            if rest:
                shown = rest.decode("utf-8", "replace")[:120]
                text = f"{self._place.provider} sent an event that is not JSON: {shown}"
                out.extend(self._failed("MALFORMED_RESPONSE", text))
                return
        for value in found:
            if isinstance(value, dict) and not self.is_done:
                self._event(cast("dict[str, Any]", value), out)

    def _event(self, event: dict[str, Any], out: list[Chunk]) -> None:
        match event.get("type"):
            case "content_block_delta":
                self._delta(event.get("index"), _dict(event, "delta"), out)
            case "content_block_start":
                self._start(event.get("index"), _dict(event, "content_block"), out)
            case "message_start":
                self._count(_dict(_dict(event, "message"), "usage"))
            case "message_delta":
                self._count(_dict(event, "usage"))
                stop = _dict(event, "delta").get("stop_reason")
                self._stop = stop if isinstance(stop, str) else self._stop
            case "message_stop":
                self._finish(out)
            case "message":
                self._message(event, out)
            case "error":
                self._complain(event, out)
            case _:
                if event.get("error"):
                    self._complain(event, out)

    def _start(self, index: Any, block: dict[str, Any], out: list[Chunk]) -> None:
        kind = _KINDS.get(str(block.get("type")))
        if kind is None or index in self._by_wire:
            return
        part = _Part(kind, [], id=_text(block, "id"), name=_text(block, "name"))
        at = self._by_wire[index] = len(self._parts)
        self._parts.append(part)
        out.append(BlockStart(at, kind))
        if block.get("type") == "redacted_thinking":
            part.data = _text(block, "data")
        part.signature = _text(block, "signature")
        begun = _text(block, "text") or _text(block, "thinking")
        given = block.get("input")
        if kind == "tool-call":
            begun = jsontext.encode(given).decode() if given else ""
            part.id = part.id or self._new_id()
        if begun or kind == "tool-call":
            self._more(at, begun, out)

    def _delta(self, index: Any, delta: dict[str, Any], out: list[Chunk]) -> None:
        at = self._by_wire.get(index)
        if at is None:
            kinds = {"text_delta": "text", "thinking_delta": "thinking"}
            kind = kinds.get(str(delta.get("type")))
            if kind is None:
                return
            self._start(index, {"type": kind}, out)
            at = self._by_wire[index]
        match delta.get("type"):
            case "text_delta":
                self._more(at, _text(delta, "text"), out)
            case "thinking_delta":
                self._more(at, _text(delta, "thinking"), out)
            case "input_json_delta":
                self._more(at, _text(delta, "partial_json"), out)
            case "signature_delta":
                self._parts[at].signature += _text(delta, "signature")
            case _:
                return

    def _more(self, at: int, text: str, out: list[Chunk]) -> None:
        part = self._parts[at]
        if text:
            part.parts.append(text)
        match part.kind:
            case "text" if text:
                out.append(TextDelta(at, text))
            case "reasoning" if text:
                out.append(ReasoningDelta(at, text))
            case "tool-call":
                out.append(
                    ToolCallDelta(index=at, id=part.id, name=part.name, arguments_delta=text)
                )
            case _:
                return

    def _message(self, message: dict[str, Any], out: list[Chunk]) -> None:
        """A whole message instead of events."""
        self._count(_dict(message, "usage"))
        content = message.get("content")
        for index, block in enumerate(cast("list[Any]", content or [])):
            if isinstance(block, dict):
                self._start(index, cast("dict[str, Any]", block), out)
        self._stop = _text(message, "stop_reason") or "end_turn"

    def _count(self, usage: dict[str, Any]) -> None:
        for name, value in usage.items():
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                self._usage[name] = value

    # ---------------------------------------------------------------- the end

    def _finish(self, out: list[Chunk]) -> None:
        reason = self._stop or "end_turn"
        said = [p for p in self._parts if p.kind == "text" and "".join(p.parts).strip()]
        calls = [part for part in self._parts if part.kind == "tool-call"]
        if reason == "refusal":
            text = "The provider's content filter stopped the answer (refusal)."
            failure = Failure(
                message=f"{text} Rephrase the request or choose another model.",
                code="CONTENT_FILTER",
            )
            self._close(FinishReason("error", failure), True, out)
        elif not said and not calls and _STOPS.get(reason) != "max-tokens":
            from dsh_acp.llm.failures import from_transport

            failure = from_transport(self._place, "EMPTY_RESPONSE", "The model's answer was empty")
            self._close(FinishReason("error", failure), True, out)
        else:
            kind = _STOPS.get(reason, "stop")
            self._close(FinishReason("tool-calls" if calls and kind == "stop" else kind), True, out)

    def _close(self, reason: FinishReason, is_whole: bool, out: list[Chunk]) -> None:
        self.is_done = True
        if is_whole:
            out.extend(BlockEnd(at, part.block()) for at, part in enumerate(self._parts))
        if "output_tokens" in self._usage or "input_tokens" in self._usage:
            get = self._usage.get
            out.append(
                UsageChunk(
                    Usage(
                        input_tokens=get("input_tokens", 0),
                        output_tokens=get("output_tokens", 0),
                        cache_read_tokens=get("cache_read_input_tokens", UNSET),
                        cache_write_tokens=get("cache_creation_input_tokens", UNSET),
                    )
                )
            )
        out.append(Finish(reason, self._replay_state() if reason.kind != "error" else UNSET))

    def _replay_state(self) -> Raw | UnsetType:
        entries = [part.entry() for part in self._parts]
        if not any(entries):
            return UNSET
        return Raw(jsontext.encode({"response": {}, "blocks": entries}))

    def _cut(self, out: list[Chunk]) -> None:
        text = f"the stream from {self._place.provider} ended before the answer did"
        if self._body.sse.stray:
            text += f": {self._body.sse.stray}"
        is_silent = all(part.kind == "reasoning" for part in self._parts)
        out.extend(self._failed("TRANSPORT" if is_silent else "STREAM_CLOSED", text))

    def _failed(self, code: str, message: str) -> list[Chunk]:
        from dsh_acp.llm.failures import from_transport

        return self.fail(from_transport(self._place, code, message, self.request_id))

    def _complain(self, event: dict[str, Any], out: list[Chunk]) -> None:
        from dsh_acp.llm.failures import from_stream

        out.extend(self.fail(from_stream(self._place, event, self.request_id)))


def _dict(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""
