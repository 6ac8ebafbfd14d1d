"""Talk with one server: typed requests, and what it says unasked.

Answers are read with tolerance: an output schema that a server breaks itself is no reason to lose
what it said.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
from mcp import MCPError
from mcp.client.session import ClientRequestContext, ClientSession
import mcp_types as types
from pydantic import TypeAdapter, ValidationError

from dsh_acp import __version__, jsontext
from dsh_acp.errors import McpError
from dsh_acp.mcp import translation
from dsh_acp.mcp.link import Link, Watched, http_words
from dsh_acp.mcp.place import Place
from dsh_acp.mcp.values import Answer, RemotePrompt, RemoteTool, Words

T = TypeVar("T")
Progress = Callable[[str], None]

_RESULTS: Final = TypeAdapter[types.CallToolResult | types.InputRequiredResult](
    types.CallToolResult | types.InputRequiredResult
)
_PAGES: Final = 100
_NOT_FOUND: Final = 404
_FROM_HTTP: Final = ("Server returned an error response", "Not Found")
"""What the SDK says for an HTTP status without words of the server's own."""


@asynccontextmanager
async def connect(link: Link, place: Place) -> "AsyncGenerator[Wire]":
    """A connection over `link`; nothing is negotiated yet."""
    async with link.open() as (read, write):
        wire = Wire(link, place, read)
        async with ClientSession(
            read,
            write,
            client_info=types.Implementation(name="dsh-acp", version=__version__),
            list_roots_callback=wire.roots,
            message_handler=wire.hear,
        ) as wire.session:
            yield wire


class Wire:
    """A connection to a server."""

    session: ClientSession

    def __init__(self, link: Link, place: Place, stream: Watched) -> None:
        self._link: Final = link
        self._place: Final = place
        self._stream: Final = stream
        self.tools_changed = False
        self.prompts_changed = False

    # ------------------------------------------------------------ what comes in

    @property
    def ended(self) -> bool:
        """Whether nothing more comes from the server."""
        return self._stream.ended

    async def news(self) -> None:
        """Wait until it ended, or offers something else."""
        await self._stream.news.wait()
        if not self.ended:
            self._stream.news = anyio.Event()

    async def hear(self, message: types.ServerNotification | Exception) -> None:
        """A notification of the server."""
        if isinstance(message, types.ToolListChangedNotification):
            self.tools_changed = True
        elif isinstance(message, types.PromptListChangedNotification):
            self.prompts_changed = True
        else:
            return
        self._stream.news.set()

    async def roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        """Where the session works."""
        return types.ListRootsResult(
            roots=[
                types.Root.model_validate({"uri": Path(root).as_uri(), "name": Path(root).name})
                for root in self._place.roots
            ]
        )

    # ------------------------------------------------------------ what goes out

    async def _ask(self, request: Awaitable[T]) -> T:
        """What a request is answered.

        Raises:
            McpError: `REFUSED` with the server's words, `ENDED`, `EXPIRED`, `MALFORMED`.
        """
        self._link.forget_status()
        try:
            return await request
        except MCPError as exc:
            if exc.code == types.CONNECTION_CLOSED and exc.message == "Connection closed":
                self._stream.end()
                raise McpError("the connection was closed", code="ENDED") from exc
            if self._link.http_status == _NOT_FOUND and exc.code != types.METHOD_NOT_FOUND:
                # A server that was started anew does not know the session; it did nothing.
                self._stream.end()
                raise McpError("it was started anew", code="EXPIRED") from exc
            words = exc.message or "it refused without a word"
            if self._link.http_status and words in _FROM_HTTP:
                words = http_words(self._link.http_status)
            raise McpError(words, code="REFUSED") from exc
        except ValidationError as exc:
            raise McpError("its answer is not valid MCP", code="MALFORMED") from exc
        except RuntimeError as exc:
            raise McpError(str(exc), code="MALFORMED") from exc

    async def initialize(self) -> None:
        """Agree on a version of the protocol.

        The handshake that all servers know comes first: an older one may take anything before it
        for an error, or not answer at all.

        Raises:
            McpError: as `_ask`.
        """
        try:
            await self._ask(self.session.initialize())
        except McpError as exc:
            cause = exc.__cause__
            known = (types.METHOD_NOT_FOUND, types.UNSUPPORTED_PROTOCOL_VERSION)
            if not isinstance(cause, MCPError) or cause.code not in known or self.ended:
                raise
            await self._ask(self.session.discover())

    async def tools(self) -> list[RemoteTool]:
        """Every tool that it offers.

        Raises:
            McpError: as `_ask`.
        """
        capabilities = self.session.server_capabilities
        if capabilities is None or capabilities.tools is None:
            return []
        found: list[RemoteTool] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await self._ask(self.session.list_tools(params=params))
            found += [translation.tool(tool) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
        return found

    async def prompts(self) -> list[RemotePrompt]:
        """Every prompt that it offers.

        Raises:
            McpError: as `_ask`.
        """
        capabilities = self.session.server_capabilities
        if capabilities is None or capabilities.prompts is None:
            return []
        found: list[RemotePrompt] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await self._ask(self.session.list_prompts(params=params))
            found += [translation.prompt(prompt) for prompt in page.prompts]
            cursor = page.next_cursor
            if not cursor:
                break
        return found

    async def call(self, name: str, arguments: dict[str, Any], show: Progress) -> Answer:
        """Call a tool. Cancellation is told to the server.

        Raises:
            McpError: as `_ask`.
        """

        # The names are those that the SDK passes.
        async def tell(progress: float, total: float | None, message: str | None) -> None:
            show(translation.progress(progress, total, message))

        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=name, arguments=arguments)
        )
        result = await self._ask(
            self.session.send_request(request, _RESULTS, progress_callback=tell)
        )
        if isinstance(result, types.InputRequiredResult):
            raise McpError("it wants to ask something, which is not supported", code="REFUSED")
        pieces = translation.pieces(result.content)
        has_text = any(isinstance(piece, Words) and piece.text for piece in pieces)
        if result.structured_content is not None and not has_text:
            text = jsontext.encode(translation.clean(result.structured_content))
            pieces.append(Words(text.decode()))
        return Answer(tuple(pieces), result.is_error is True)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> Answer:
        """What a prompt says for these arguments.

        Raises:
            McpError: as `_ask`.
        """
        result = await self._ask(self.session.get_prompt(name, dict(arguments)))
        return Answer(tuple(translation.pieces([message.content for message in result.messages])))
