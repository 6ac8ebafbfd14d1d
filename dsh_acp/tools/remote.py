"""Tools of MCP servers, under the same approval as any other.

Their cards are made of a call's name and arguments alone, so that a session that is loaded without
its servers shows what it showed live.
"""

from collections.abc import Awaitable, Callable, Sequence
import os
from pathlib import Path
from typing import Any, Final, Protocol, cast

from anyio import to_thread
from msgspec import Raw

from dsh_acp import jsontext
from dsh_acp.errors import DshError, McpError, ToolError
from dsh_acp.mcp import naming
from dsh_acp.mcp.values import Answer, Attached, Picture, RemoteTool, Words
from dsh_acp.messages import Block, Image, ImageRef, Text, ToolSchema
from dsh_acp.tools.tool import Card, FileDiff, Intent, Outcome, ToolContext

KEPT: Final = 64_000
"""Characters of text in one result; the rest goes to a file."""

_DESCRIPTION: Final = 8_000

Put = Callable[[bytes, str, str], Awaitable[ImageRef]]
"""Keeps an image: its bytes, media type and name. It must be durable before the call returns."""


class Server(Protocol):
    """Who runs the tool (`dsh_acp.mcp.connection.Connection`)."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    async def call(
        self, tool: str, arguments: dict[str, Any], show: Callable[[str], None]
    ) -> Answer:
        """The answer.

        Raises:
            McpError: there is none.
        """
        ...


class Remote:
    """One tool of one server."""

    def __init__(self, name: str, tool: RemoteTool, server: Server, put: Put) -> None:
        self._tool: Final = tool
        self._server: Final = server
        self._put: Final = put
        self._schema: Final = ToolSchema(name, _description(tool), Raw(tool.parameters))

    @property
    def schema(self) -> ToolSchema:
        """The tool as the model sees it."""
        return self._schema

    def parse(self, arguments: str) -> dict[str, Any]:
        """The arguments; whether they fit is for the server to say.

        Raises:
            ToolError: `INVALID_ARGS`, they are no JSON object.
        """
        try:
            found: Any = jsontext.loads(arguments.encode("utf-8", "replace")) if arguments else {}
        except jsontext.DecodeError as exc:
            text = f"the arguments are not valid JSON: {exc}"
            raise ToolError(text, code="INVALID_ARGS") from exc
        if not isinstance(found, dict):
            raise ToolError("the arguments must be a JSON object", code="INVALID_ARGS")
        return cast(dict[str, Any], found)

    def intent(self, args: dict[str, Any], cwd: str) -> Intent:
        """Anything at all; what the server says of it is shown, and not relied upon."""
        hint = ""
        if self._tool.read_only:
            hint = ", which says that this only reads"
        elif self._tool.destructive:
            hint = ", which says that this may delete or overwrite"
        reason = f'runs on the MCP server "{self._server.name}"{hint}'
        return Intent(effect="other", cwd=cwd, reason=reason)

    def is_concurrency_safe(self, args: dict[str, Any]) -> bool:
        """As the server says; one that says nothing gets its calls one by one."""
        return self._tool.read_only is True

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        try:
            answer = await self._server.call(self._tool.name, args, ctx.progress)
        except McpError as exc:
            text = f'the MCP server "{self._server.name}" failed: {exc}'
            raise ToolError(text, code=f"MCP_{exc.code}", name="McpError") from exc
        return Outcome(content=await self._blocks(answer, ctx), is_error=answer.is_error)

    async def preview(self, args: dict[str, Any], ctx: ToolContext) -> tuple[FileDiff, ...]:
        """Nothing to show."""
        return ()

    def call_card(self, arguments: str, cwd: str) -> Card:
        """See `Tool.call_card`."""
        return call_card(self._schema.name, arguments)

    def result_card(
        self, arguments: str, content: Sequence[Block], is_error: bool, meta: Any, cwd: str
    ) -> Card:
        """See `Tool.result_card`."""
        return Card(content=tuple(content))

    # ------------------------------------------------------------ answers

    async def _blocks(self, answer: Answer, ctx: ToolContext) -> tuple[Block, ...]:
        found: list[Block] = []
        left = KEPT
        for piece in answer.pieces:
            match piece:
                case Words(text=text) if text:
                    shown = await _bounded(text, left, ctx.spill_dir)
                    left = max(0, left - len(text))
                    found.append(Text(shown))
                case Words():
                    pass
                case Picture():
                    found.append(await self._picture(piece))
                case Attached():
                    found.append(Text(await _kept(piece, ctx.spill_dir)))
        return tuple(found) or (Text("(no output)"),)

    async def _picture(self, picture: Picture) -> Block:
        try:
            return Image(await self._put(picture.data, picture.media_type, self._tool.name))
        except DshError as exc:
            return Text(f"[{picture.media_type}, {len(picture.data)} bytes, not shown: {exc}]")


def call_card(name: str, arguments: str) -> Card:
    """The card of a call of a remote tool; never raises."""
    parts = naming.parts(name)
    title = name if parts is None else f"{parts[1]} ({parts[0]})"
    try:
        shown: Any = jsontext.loads(arguments.encode("utf-8", "replace")) if arguments else {}
    except jsontext.DecodeError:
        shown = arguments
    return Card(title=title, kind="other", raw_input=shown)


def _description(tool: RemoteTool) -> str:
    text = tool.description.strip() or tool.title or tool.name
    return text if len(text) <= _DESCRIPTION else f"{text[: _DESCRIPTION - 1]}…"


async def _bounded(text: str, limit: int, folder: str) -> str:
    if len(text) <= limit:
        return text
    path = await to_thread.run_sync(_spill, text.encode(), folder, ".txt")
    where = f"all of it is in {path}" if path else "and could not be kept"
    return f"{text[:limit]}\n[… {len(text) - limit} characters left out; {where}]"


async def _kept(attached: Attached, folder: str) -> str:
    path = await to_thread.run_sync(_spill, attached.data, folder, Path(attached.name).suffix)
    name = f"{attached.name}, " if attached.name else ""
    where = f"saved as {path}" if path else "could not be saved"
    return f"[{name}{attached.media_type}, {len(attached.data)} bytes: {where}]"


def _spill(data: bytes, folder: str, suffix: str) -> str | None:
    suffix = suffix if suffix[1:].isalnum() and len(suffix) <= 10 else ""
    path = Path(folder) / f"mcp-{os.urandom(6).hex()}{suffix}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(0o600)
        path.write_bytes(data)
    except OSError:
        return None
    return str(path)
