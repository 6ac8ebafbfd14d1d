"""Requests of Anthropic Messages as bytes.

The order is that of the provider's cache: tools, system, messages. Breakpoints stand at the end
of what never changes, at the end of the last user turn, and at the end of the one before, where
the previous request's was. They are no part of what is cached, so they may move.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
import re
from typing import Any, Final, cast

from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.llm.dialects import AUTO
from dsh_acp.llm.media import LEFT_OUT, Media, Senses, placeholder, senses_of
from dsh_acp.llm.models import find
from dsh_acp.llm.provider import ModelInfo
from dsh_acp.messages import (
    Audio,
    Block,
    Image,
    MediaRef,
    Message,
    Opaque,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
)

BREAKPOINT: Final = {"cache_control": {"type": "ephemeral"}}
MAX_TOKENS: Final = 8192
"""For models that nobody describes: the field is not optional."""

_BUDGETS: Final[Mapping[str, int]] = {"low": 4096, "medium": 12_288, "high": 24_576}
_LEAST_BUDGET: Final = 1024


class AnthropicKey(Struct, frozen=True):
    """What decides the encoding of messages, besides the messages."""

    model: str
    senses: Senses


class AnthropicFormat:
    """Bodies of one provider. `info` tells what a model takes; recordings are not among it."""

    def __init__(
        self, provider: str, info: Callable[[str], ModelInfo], media: Media | None
    ) -> None:
        self._provider = provider
        self._info = info
        self._media = media

    def key(self, request: Request) -> AnthropicKey:
        model = request.config.model
        sees = senses_of(self._info(model), self._media).sees
        return AnthropicKey(model, Senses(sees))

    def head(self, key: AnthropicKey, request: Request) -> bytes:
        config, header = request.config, request.header
        most = config.max_tokens if isinstance(config.max_tokens, int) else MAX_TOKENS
        body: dict[str, Any] = {"model": key.model, "max_tokens": most}
        system = [{"type": "text", "text": header.system}] if header.system else []
        tools: list[dict[str, Any]] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in header.tools or ()
        ]
        if system:
            system[-1] |= cast("Any", BREAKPOINT)
        elif tools:
            tools[-1] |= BREAKPOINT
        if tools:
            body["tools"] = tools
        if system:
            body["system"] = system
        return jsontext.encode(body)[:-1] + b',"messages":['

    def encoder(self, key: AnthropicKey, dropped: int) -> "AnthropicEncoder":
        return AnthropicEncoder(self._provider, key, self._media, dropped)

    def foot(self, key: AnthropicKey, request: Request) -> bytes:
        config = request.config
        body: dict[str, Any] = {"stream": True}
        body |= self._thinking(key.model, request)
        if isinstance(config.temperature, float | int) and "thinking" not in body:
            body["temperature"] = config.temperature
        if isinstance(config.stop, tuple) and config.stop:
            body["stop_sequences"] = config.stop
        return b"]," + jsontext.encode(body)[1:]

    def _thinking(self, model: str, request: Request) -> dict[str, Any]:
        """The fields that ask for thinking. Not asking means none; no model refuses that."""
        effort = request.config.reasoning_effort
        if not isinstance(effort, str) or effort in (*AUTO, "off"):
            return {}
        if request.purpose == "session-title":
            return {}
        entry = find(model, "anthropic")
        if entry is None or entry.thinking != "budget":
            return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
        most = request.config.max_tokens
        room = (most if isinstance(most, int) else MAX_TOKENS) - _LEAST_BUDGET
        budget = min(_BUDGETS.get(effort, _BUDGETS["high"]), room)
        if budget < _LEAST_BUDGET or not self._may_think(request.messages):
            return {}
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}

    def _may_think(self, messages: Sequence[Message]) -> bool:
        """With a budget, an open tool round must have begun with this provider's own thinking."""
        last = next((m for m in reversed(messages) if m.role == "assistant"), None)
        if last is None or not any(isinstance(block, ToolCall) for block in last.content):
            return True
        after = messages[len(messages) - 1]
        if not any(isinstance(block, ToolResult) for block in after.content):
            return True
        return any(entry is not None for entry in replayed(last, self._provider))


def replayed(message: Message, provider: str) -> list[dict[str, Any] | None]:
    """What this provider wants back with the blocks of `message`, parallel to them."""
    if b'"replayState"' not in message.json:
        return []
    source = message.source
    state = source.get("replayState")
    if source.get("provider") != provider or not isinstance(state, dict):
        return []
    entries = cast("list[Any]", cast("dict[str, Any]", state).get("blocks") or [])
    return [cast("dict[str, Any]", e) if isinstance(e, dict) else None for e in entries]


class _Turn(Struct):
    role: str
    blocks: list[dict[str, Any]]

    def encode(self, with_breakpoint: bool = False) -> bytes:
        # Results come first: the provider demands them right after the calls.
        blocks = [b for b in self.blocks if b["type"] == "tool_result"]
        blocks += [b for b in self.blocks if b["type"] != "tool_result"]
        if with_breakpoint:
            blocks[-1] = {**blocks[-1], **BREAKPOINT}
        return jsontext.encode({"role": self.role, "content": blocks})


class AnthropicEncoder:
    """Messages of one body as turns that alternate; neighbours of one role are one turn.

    The last two user turns and what follows the first of them may still change: they carry the
    breakpoints, and the last one may grow.
    """

    def __init__(self, provider: str, key: AnthropicKey, media: Media | None, dropped: int) -> None:
        self._provider = provider
        self._key = key
        self._media = media
        self._dropped = dropped
        self.call_ids: set[str] = set()
        self._seen = 0
        self._open: list[_Turn] = []
        self._comma = b""

    def add(self, message: Message) -> bytes:
        is_model = message.role == "assistant"
        blocks = self._said(message) if is_model else self._given(message.content)
        if not blocks:
            return b""
        role = "assistant" if is_model else "user"
        if self._open and self._open[-1].role == role:
            self._open[-1].blocks += blocks
            return b""
        self._open.append(_Turn(role, blocks))
        users = [at for at, turn in enumerate(self._open) if turn.role == "user"]
        done = users[-2] if len(users) > 1 else 0
        settled, self._open = self._open[:done], self._open[done:]
        return b"".join(self._piece(turn.encode()) for turn in settled)

    def tail(self) -> bytes:
        pieces = [turn.encode(turn.role == "user") for turn in self._open]
        return (self._comma if pieces else b"") + b",".join(pieces)

    def _piece(self, encoded: bytes) -> bytes:
        piece, self._comma = self._comma + encoded, b","
        return piece

    def _said(self, message: Message) -> list[dict[str, Any]]:
        entries = replayed(message, self._provider)
        found: list[dict[str, Any]] = []
        for at, block in enumerate(message.content):
            entry = entries[at] if at < len(entries) else None
            if isinstance(block, Reasoning):
                # Thinking without its signature is refused, so that of others stays here.
                if entry is not None and "data" in entry:
                    found.append({"type": "redacted_thinking", "data": entry["data"]})
                elif entry is not None and "signature" in entry:
                    signature = entry["signature"]
                    thinking = {"type": "thinking", "thinking": block.text}
                    found.append({**thinking, "signature": signature})
            elif isinstance(block, Text) and block.text.strip():
                found.append({"type": "text", "text": block.text})
            elif isinstance(block, ToolCall):
                self.call_ids.add(block.id)
                call = {"type": "tool_use", "id": _id(block.id), "name": block.name}
                found.append({**call, "input": _input(block.arguments)})
        return found

    def _given(self, content: Sequence[Block | Opaque]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for block in content:
            if isinstance(block, ToolResult):
                inner = self._given(block.content) or [{"type": "text", "text": "(no output)"}]
                result = {"type": "tool_result", "tool_use_id": _id(block.tool_call_id)}
                result |= {"content": inner}
                found.append({**result, "is_error": True} if block.is_error is True else result)
            elif isinstance(block, Text) and block.text.strip():
                found.append({"type": "text", "text": block.text})
            elif isinstance(block, Image | Audio):
                found.append(self._medium(block.attachment))
        return found

    def _medium(self, ref: MediaRef) -> dict[str, Any]:
        if not self._key.senses.takes(ref) or self._media is None:
            return {"type": "text", "text": placeholder(ref)}
        self._seen += 1
        if self._seen <= self._dropped:
            return {"type": "text", "text": placeholder(ref, LEFT_OUT)}
        data = b64encode(self._media.get(ref)).decode()
        source = {"type": "base64", "media_type": ref.media_type, "data": data}
        return {"type": "image", "source": source}


def _id(text: str) -> str:
    """An id that the provider accepts, also for a call that another provider named."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", text) or "_"


def _input(arguments: str) -> dict[str, Any]:
    """The arguments as an object; text that is none goes in as it was written."""
    if not arguments.strip():
        return {}
    try:
        value = jsontext.loads(arguments.encode())
    except jsontext.DecodeError:
        return {"invalid_arguments": arguments}
    is_object = isinstance(value, dict)
    return cast("dict[str, Any]", value) if is_object else {"invalid_arguments": arguments}
