"""Requests of Chat Completions as bytes.

Key order is fixed, and nothing volatile comes before the messages, so a conversation's next body
extends its last one.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.llm.dialects import Dialect
from dsh_acp.llm.media import (
    LEFT_OUT,
    Media,
    Senses,
    data_url,
    input_audio,
    placeholder,
    senses_of,
)
from dsh_acp.llm.provider import ModelInfo
from dsh_acp.messages import (
    Audio,
    AudioRef,
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
    ToolSchema,
)

FROM_TOOLS = "Attached image(s) from tool result:"


class ChatKey(Struct, frozen=True):
    """What decides the encoding of messages, besides the messages."""

    model: str
    senses: Senses
    thinks: bool
    has_system: bool


class ChatFormat:
    """Bodies of one provider in one dialect. `info` tells what a model takes."""

    def __init__(
        self, provider: str, dialect: Dialect, info: Callable[[str], ModelInfo], media: Media | None
    ) -> None:
        self._provider = provider
        self._dialect = dialect
        self._info = info
        self._media = media

    def key(self, request: Request) -> ChatKey:
        model = request.config.model
        senses = senses_of(self._info(model), self._media)
        has_system = bool(request.header.system)
        return ChatKey(model, senses, self._effort(request) != "off", has_system)

    def head(self, key: ChatKey, request: Request) -> bytes:
        head = b'{"model":%b,"messages":[' % jsontext.encode(key.model)
        if key.has_system:
            system = {"role": "system", "content": request.header.system}
            head += jsontext.encode(system)
        return head

    def encoder(self, key: ChatKey, dropped: int) -> "ChatEncoder":
        return ChatEncoder(self._provider, self._dialect, key, self._media, dropped)

    def foot(self, key: ChatKey, request: Request) -> bytes:
        config = request.config
        body: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
        body |= self._dialect.effort_fields(self._effort(request))
        if isinstance(request.header.tools, tuple) and request.header.tools:
            body["tools"] = [_tool(tool) for tool in request.header.tools]
        if isinstance(config.temperature, float | int):
            body["temperature"] = config.temperature
        if isinstance(config.max_tokens, int):
            body[self._dialect.max_tokens_field] = config.max_tokens
        if isinstance(config.stop, tuple) and config.stop:
            body["stop"] = config.stop
        for prefix, fields in self._dialect.extras.items():
            if key.model.startswith(prefix):
                body |= fields
        return b"]," + jsontext.encode(body)[1:]

    def _effort(self, request: Request) -> str | None:
        if request.purpose == "session-title" and "off" in self._dialect.efforts:
            return "off"
        effort = request.config.reasoning_effort
        return effort if isinstance(effort, str) else None


def _tool(tool: ToolSchema) -> dict[str, Any]:
    return {"type": "function", "function": tool}


class ChatEncoder:
    """Messages of one body, in order. What tool results show waits for the end of their run."""

    def __init__(
        self,
        provider: str,
        dialect: Dialect,
        key: ChatKey,
        media: Media | None,
        dropped: int,
    ) -> None:
        self._provider = provider
        self._dialect = dialect
        self._key = key
        self._media = media
        self._dropped = dropped
        self.call_ids: set[str] = set()
        self._seen = 0
        self._waiting: list[dict[str, Any]] = []
        self._comma = b"," if key.has_system else b""

    def add(self, message: Message) -> bytes:
        content = message.content
        found: list[dict[str, Any]] = []
        if message.role == "assistant":
            if (encoded := self._assistant(message, content)) is not None:
                found.append(encoded)
        else:
            found += self._user(message.role, content)
        if not found:
            return b""
        if self._waiting and found[0]["role"] != "tool":
            found.insert(0, self._attached())
        return b"".join(self._piece(item) for item in found)

    def tail(self) -> bytes:
        if not self._waiting:
            return b""
        return self._comma + jsontext.encode(self._attached_view())

    def _piece(self, item: dict[str, Any]) -> bytes:
        piece = self._comma + jsontext.encode(item)
        self._comma = b","
        return piece

    # ---------------------------------------------------------------- the model's side

    def _assistant(
        self, message: Message, content: Sequence[Block | Opaque]
    ) -> dict[str, Any] | None:
        item: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(block.text for block in content if isinstance(block, Text)),
        }
        thought = "".join(block.text for block in content if isinstance(block, Reasoning))
        field = self._dialect.reasoning_field
        always = self._dialect.always_reasoning and self._key.thinks
        if field and (thought or always):
            item[field] = thought
        state = self._replay_state(message)
        if (details := state.get("reasoning_details")) is not None:
            item["reasoning_details"] = details
        calls = [block for block in content if isinstance(block, ToolCall)]
        self.call_ids.update(call.id for call in calls)
        if calls:
            extras = self._extras(content, state)
            item["tool_calls"] = [self._call(call, extras.get(call.id)) for call in calls]
        # An answer of nothing but thinking is refused where thinking does not go back.
        return item if calls or item["content"] or (field and thought) else None

    def _call(self, call: ToolCall, extra: Any) -> dict[str, Any]:
        function = {"name": call.name, "arguments": self._arguments(call.arguments)}
        item: dict[str, Any] = {"id": call.id, "type": "function", "function": function}
        if extra is not None:
            item["extra_content"] = extra
        return item

    def _arguments(self, text: str) -> str:
        if not text.strip():
            return "{}"
        if self._dialect.parses_arguments:
            try:
                if isinstance(jsontext.loads(text.encode()), dict):
                    return text
            except jsontext.DecodeError:
                pass
            return jsontext.encode({"invalid_arguments": text}).decode()
        return text

    def _replay_state(self, message: Message) -> dict[str, Any]:
        if b'"replayState"' not in message.json:
            return {}
        source = message.source
        state = source.get("replayState")
        if source.get("provider") != self._provider or not isinstance(state, dict):
            return {}
        state = cast("dict[str, Any]", state)
        response = cast("dict[str, Any]", state.get("response") or {})
        found: dict[str, Any] = {"blocks": state.get("blocks") or []}
        if self._dialect.replays_details and response.get("reasoning_details"):
            found["reasoning_details"] = response["reasoning_details"]
        return found

    @staticmethod
    def _extras(content: Sequence[Block | Opaque], state: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for block, entry in zip(content, cast("list[Any]", state.get("blocks", [])), strict=False):
            if isinstance(block, ToolCall) and isinstance(entry, dict):
                found[block.id] = cast("dict[str, Any]", entry).get("extra_content")
        return found

    # ---------------------------------------------------------------- our side

    def _user(self, role: str, content: Sequence[Block | Opaque]) -> list[dict[str, Any]]:
        found = [self._result(block) for block in content if isinstance(block, ToolResult)]
        parts = self._parts(content)
        if all(isinstance(part, str) for part in parts):
            text: Any = "".join(cast("list[str]", parts))
        else:
            text = [_text_part(part) if isinstance(part, str) else part for part in parts if part]
        if text or not found:
            found.append({"role": role, "content": text})
        return found

    def _result(self, block: ToolResult) -> dict[str, Any]:
        parts = self._parts(block.content)
        text = "".join(part for part in parts if isinstance(part, str))
        self._waiting += [part for part in parts if not isinstance(part, str)]
        return {
            "role": "tool",
            "tool_call_id": block.tool_call_id,
            "content": text or "(no output)",
        }

    def _parts(self, content: Sequence[Block | Opaque]) -> list[str | dict[str, Any]]:
        """Text, and attachments as parts where the model takes them, else in words."""
        found: list[str | dict[str, Any]] = []
        for block in content:
            if isinstance(block, Text):
                found.append(block.text)
            elif isinstance(block, Image | Audio):
                part = self._medium(block.attachment)
                is_glued = isinstance(part, str) and found and not str(found[-1]).endswith("\n")
                found.append(f"\n{part}" if is_glued else part)
        return found

    def _medium(self, ref: MediaRef) -> str | dict[str, Any]:
        if not self._key.senses.takes(ref) or self._media is None:
            return placeholder(ref)
        self._seen += 1
        if self._seen <= self._dropped:
            return placeholder(ref, LEFT_OUT)
        data = self._media.get(ref)
        if isinstance(ref, AudioRef):
            sound = input_audio(ref, data, self._key.senses.form)
            return {"type": "input_audio", "input_audio": sound}
        return {"type": "image_url", "image_url": {"url": data_url(ref, data)}}

    def _attached(self) -> dict[str, Any]:
        item = self._attached_view()
        self._waiting = []
        return item

    def _attached_view(self) -> dict[str, Any]:
        return {"role": "user", "content": [_text_part(FROM_TOOLS), *self._waiting]}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
