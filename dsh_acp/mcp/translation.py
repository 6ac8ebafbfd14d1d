"""The SDK's types as plain values."""

from base64 import b64decode
from collections.abc import Sequence
from typing import Any, cast

import mcp_types as types

from dsh_acp import jsontext
from dsh_acp.mcp.values import (
    Attached,
    Picture,
    Piece,
    PromptArgument,
    RemotePrompt,
    RemoteTool,
    Words,
)


def progress(done: float, total: float | None, message: str | None) -> str:
    """A step of a long call, as a line."""
    count = f"{done:g}/{total:g}" if total else f"{done:g}"
    return f"{count} {message}\n" if message else f"{count}\n"


def clean(value: Any) -> Any:
    """JSON that can be written as UTF-8."""
    if isinstance(value, str):
        return jsontext.clean(value)
    if isinstance(value, list):
        return [clean(item) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        return {jsontext.clean(k): clean(v) for k, v in cast(dict[str, Any], value).items()}
    return value


def tool(offered: types.Tool) -> RemoteTool:
    """A tool; its schema made such that model APIs take it."""
    # What model APIs insist on, and servers without arguments leave out.
    schema: dict[str, Any] = {"type": "object", "properties": {}, **clean(offered.input_schema)}
    schema.pop("$schema", None)
    hints = offered.annotations
    return RemoteTool(
        name=offered.name,
        title=jsontext.clean(offered.title or (hints and hints.title) or ""),
        description=jsontext.clean(offered.description or ""),
        parameters=jsontext.encode(schema),
        read_only=hints.read_only_hint if hints else None,
        destructive=hints.destructive_hint if hints else None,
    )


def prompt(offered: types.Prompt) -> RemotePrompt:
    """A prompt."""
    return RemotePrompt(
        name=offered.name,
        description=jsontext.clean(offered.description or offered.title or ""),
        arguments=tuple(
            PromptArgument(argument.name, argument.required is True)
            for argument in offered.arguments or ()
        ),
    )


def pieces(content: Sequence[types.ContentBlock]) -> list[Piece]:
    """Content blocks, one piece for each."""
    return [_piece(block) for block in content]


def _piece(block: types.ContentBlock) -> Piece:
    match block:
        case types.TextContent(text=text):
            return Words(jsontext.clean(text))
        case types.ImageContent():
            return Picture(_bytes(block.data), block.mime_type)
        case types.AudioContent():
            return Attached(_bytes(block.data), block.mime_type)
        case types.ResourceLink():
            about = f": {block.description}" if block.description else ""
            return Words(jsontext.clean(f"[{block.title or block.name}]({block.uri}){about}"))
        case types.EmbeddedResource():
            return _resource(block.resource)


def _resource(resource: types.TextResourceContents | types.BlobResourceContents) -> Piece:
    kind = resource.mime_type or ""
    if isinstance(resource, types.TextResourceContents):
        return Words(jsontext.clean(f"{resource.uri}:\n{resource.text}"))
    data = _bytes(resource.blob)
    if kind.startswith("image/"):
        return Picture(data, kind)
    return Attached(data, kind or "application/octet-stream", str(resource.uri))


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text)
    except ValueError:
        return b""
