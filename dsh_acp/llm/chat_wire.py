"""The pieces of a Chat Completions stream, read tolerantly.

The common shape is decoded straight into structs. Anything odd (a number where a string belongs,
an object for arguments, a list for content) is read again field by field, so that one odd field
never costs the piece it came in.
"""

import json
from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct

from dsh_acp import jsontext

DONE: Final = "[DONE]"
NOTHING: Final = Raw(b"null")
"""A field that is not there, or `null`. Kept raw, because msgspec takes no `Raw | None`."""

_NO_COMPLAINT: Final = frozenset((b"null", b"{}", b"[]", b'""', b"false", b"0"))

_LOADS: Final = json.JSONDecoder(strict=False)


class WireFunction(Struct):
    """The name or a fragment of the arguments."""

    name: str | None = None
    arguments: str | None = None


class WireCall(Struct):
    """A fragment of a tool call; every field may be missing, `null` or empty."""

    index: int | None = None
    id: str | None = None
    function: WireFunction | None = None
    extra_content: Raw = NOTHING


class WireDelta(Struct):
    """What is new, under any of the names that servers use."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[WireCall] | None = None
    function_call: WireFunction | None = None
    reasoning_details: Raw = NOTHING
    refusal: str | None = None


class WireChoice(Struct):
    """One choice; `message` is a whole answer instead of a delta."""

    index: int | None = None
    delta: WireDelta | None = None
    message: WireDelta | None = None
    finish_reason: str | None = None
    usage: Raw = NOTHING


class WirePiece(Struct):
    """One event's payload. `error` holds the JSON of a complaint, wherever it was."""

    choices: list[WireChoice] | None = None
    usage: Raw = NOTHING
    error: Raw = NOTHING
    error_message: str | None = None
    error_type: str | None = None
    object: str | None = None
    type: str | None = None

    @property
    def complains(self) -> bool:
        """Whether this is an error and not a piece of an answer."""
        if bytes(self.error) not in _NO_COMPLAINT:
            return True
        return bool(self.error_message or self.error_type) or "error" in (self.object, self.type)


decode: Final = msgspec.json.Decoder(WirePiece).decode
"""The common shape, fast. Raises msgspec's errors; `tolerant` and `values` are for the rest."""


def tolerant(value: Any) -> WirePiece:
    """A piece from any decoded JSON value; what does not fit is left out."""
    piece = WirePiece()
    if not isinstance(value, dict):
        return piece
    body = cast("dict[str, Any]", value)
    choices = body.get("choices")
    if isinstance(choices, list):
        found = (_choice(choice) for choice in cast("list[Any]", choices))
        piece.choices = [choice for choice in found if choice is not None]
    piece.usage = _raw(body.get("usage"))
    piece.error = _raw(body.get("error"))
    piece.error_message = _text(body.get("error_message"))
    piece.error_type = _text(body.get("error_type"))
    piece.object = _text(body.get("object"))
    piece.type = _text(body.get("type"))
    return piece


def _choice(value: Any) -> WireChoice | None:
    if not isinstance(value, dict):
        return None
    body = cast("dict[str, Any]", value)
    choice = WireChoice(index=_integer(body.get("index")))
    choice.finish_reason = _text(body.get("finish_reason")) or None
    choice.usage = _raw(body.get("usage"))
    choice.delta = _delta(body.get("delta"))
    choice.message = _delta(body.get("message"))
    if choice.delta is None and isinstance(text := body.get("text"), str):
        choice.delta = WireDelta(content=text)
    return choice


def _delta(value: Any) -> WireDelta | None:
    if not isinstance(value, dict):
        return None
    body = cast("dict[str, Any]", value)
    content, thinking = _content(body.get("content"))
    delta = WireDelta(content=content)
    delta.reasoning_content = _text(body.get("reasoning_content")) or thinking
    delta.reasoning = (
        _text(body.get("reasoning"))
        or _text(body.get("thinking"))
        or _text(body.get("reasoning_text"))
    )
    delta.refusal = _text(body.get("refusal"))
    delta.reasoning_details = _raw(body.get("reasoning_details"))
    delta.function_call = _function(body.get("function_call"))
    calls: Any = body.get("tool_calls")
    if isinstance(calls, dict):
        calls = [calls]
    if isinstance(calls, list):
        found = (_call(call) for call in cast("list[Any]", calls))
        delta.tool_calls = [call for call in found if call is not None]
    return delta


def _content(value: Any) -> tuple[str | None, str | None]:
    """Text and thinking of a content that is a string or a list of parts."""
    if not isinstance(value, list):
        return _text(value), None
    text: list[str] = []
    thinking: list[str] = []
    for part in cast("list[Any]", value):
        if isinstance(part, str):
            text.append(part)
        elif isinstance(part, dict):
            body = cast("dict[str, Any]", part)
            thought = body.get("thinking")
            if isinstance(thought, list):
                thought = _content(thought)[0]
            thinking.append(_text(thought) or "")
            text.append(_text(body.get("text")) or "")
    return "".join(text) or None, "".join(thinking) or None


def _call(value: Any) -> WireCall | None:
    if not isinstance(value, dict):
        return None
    body = cast("dict[str, Any]", value)
    call = WireCall(index=_integer(body.get("index")))
    identity = body.get("id")
    call.id = str(identity) if isinstance(identity, int) else _text(identity)
    call.function = _function(body.get("function")) or _function(body)
    call.extra_content = _raw(body.get("extra_content"))
    return call


def _function(value: Any) -> WireFunction | None:
    if not isinstance(value, dict):
        return None
    body = cast("dict[str, Any]", value)
    arguments = body.get("arguments", body.get("input"))
    if arguments is not None and not isinstance(arguments, str):
        arguments = jsontext.encode(arguments).decode()
    name = _text(body.get("name"))
    if name is None and arguments is None:
        return None
    return WireFunction(name, arguments)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _raw(value: Any) -> Raw:
    return NOTHING if value is None else Raw(jsontext.encode(value))


def values(data: bytes) -> tuple[list[Any], bytes]:
    """The JSON values in `data`, and what is left where no value begins.

    Relays glue events together (`{…}data: {…}`), so a `data:` between values is skipped. The
    terminator comes back as the string `DONE`.
    """
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    found: list[Any] = []
    at = 0
    while True:
        rest = text[at:].lstrip()
        if rest.startswith("data:"):
            rest = rest[5:].lstrip()
        if not rest:
            return found, b""
        at = len(text) - len(rest)
        if rest.startswith(DONE):
            found.append(DONE)
            at += len(DONE)
            continue
        try:
            value, at = _LOADS.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found, rest.encode("utf-8", "replace")
        # Once more through our own reader, which replaces lone surrogates.
        found.append(jsontext.loads(json.dumps(value).encode()))


class WireUsage(Struct):
    """Token counts under the names that servers use; absent is `None`."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached: int | None = None
    written: int | None = None
    reasoning: int | None = None


def usage(raw: bytes) -> WireUsage | None:
    """Token counts from a `usage` object; `None` when it counts nothing."""
    value = jsontext.loads(raw)
    if not isinstance(value, dict):
        return None
    body = cast("dict[str, Any]", value)

    def count(source: Any, *names: str) -> int | None:
        if isinstance(source, dict):
            for name in names:
                number = _integer(cast("dict[str, Any]", source).get(name))
                if number is not None and number >= 0:
                    return number
        return None

    prompt = body.get("prompt_tokens_details", body.get("input_tokens_details"))
    answer = body.get("completion_tokens_details", body.get("output_tokens_details"))
    found = WireUsage(
        prompt_tokens=count(body, "prompt_tokens", "input_tokens"),
        completion_tokens=count(body, "completion_tokens", "output_tokens"),
        cached=count(prompt, "cached_tokens"),
        written=count(prompt, "cache_write_tokens"),
        reasoning=count(answer, "reasoning_tokens"),
    )
    if found.cached is None:
        found.cached = count(body, "prompt_cache_hit_tokens", "cached_tokens")
    if found.reasoning is None:
        found.reasoning = count(body, "reasoning_tokens")
    if found.prompt_tokens is None and found.completion_tokens is None:
        return None
    return found
