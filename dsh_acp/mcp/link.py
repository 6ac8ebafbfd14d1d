"""A way to a server: its process, or HTTP, as the SDK's streams of messages.

Faults are reported by the connection, once and in words; the SDK's own log of them is not shown.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
import logging
import os
import sys
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.message import SessionMessage
import mcp_types as types
from pydantic import ValidationError

from dsh_acp.config import McpServerSettings
from dsh_acp.errors import McpError
from dsh_acp.mcp.place import Place
from dsh_acp.mcp.stdio import ServerProcess

for _name in ("mcp", "client", "httpx2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False


class Watched:
    """A stream of messages that notes its end in `ended` and sets `news` then."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.ended = False
        self.news = anyio.Event()

    @property
    def last_context(self) -> Any:
        """What the sender's context was, where the transport keeps it."""
        return getattr(self._stream, "last_context", None)

    def end(self) -> None:
        """Nothing more comes."""
        self.ended = True
        self.news.set()

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self.end()
            raise

    async def aclose(self) -> None:
        self.end()
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class Link:
    """A way to one server, used once. What it learned of the end outlives it."""

    def __init__(self, settings: McpServerSettings, place: Place) -> None:
        self._settings: Final = settings
        self._place: Final = place
        self._process: ServerProcess | None = None
        self._ended_by_itself = False
        self._noise = ""
        self.http_status = 0
        """The last status that was no success; 0 while there was none."""

    def forget_status(self) -> None:
        """Whatever HTTP says from now on is about what comes now."""
        self.http_status = 0

    def epitaph(self) -> str:
        """Why it ended, as far as the process or HTTP says; `""` when they do not."""
        found: list[str] = []
        if self._process is not None:
            if self._ended_by_itself:
                found.append(self._process.outcome())
            if last := self._process.last_words or self._noise:
                found.append(last)
        elif self.http_status:
            found.append(http_words(self.http_status))
        return ": ".join(text for text in found if text)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[tuple[Watched, Any]]:
        """Connect; nothing is negotiated yet. Leaving ends the server, or the connection."""
        async with self._transport() as (read, write):
            yield Watched(read), write

    def _transport(self) -> Any:
        match self._settings.type:
            case "http":
                return self._http()
            case "sse":
                return sse_client(self._settings.url, httpx_client_factory=self._client)
            case "stdio":
                return self._windows() if sys.platform == "win32" else self._stdio()

    def _client(self, *args: Any, **kwargs: Any) -> Any:
        """An HTTP client that carries the entry's headers and notes failures."""

        async def note(response: Any) -> None:
            # Many servers refuse the optional stream of notifications, a GET, and that is fine.
            if response.status_code >= 400 and response.request.method == "POST":
                self.http_status = response.status_code

        kwargs["headers"] = {**(kwargs.get("headers") or {}), **self._settings.headers}
        client = create_mcp_http_client(*args, **kwargs)
        client.event_hooks = {"response": [note]}
        return client

    @asynccontextmanager
    async def _http(self) -> AsyncGenerator[Any]:
        async with (
            self._client() as client,
            streamable_http_client(self._settings.url, http_client=client) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _windows(self) -> AsyncGenerator[Any]:
        parameters = StdioServerParameters(
            command=self._settings.command,
            args=list(self._settings.args),
            env=self._environment(),
            cwd=self._place.cwd,
        )
        with open(os.devnull, "w", encoding="utf-8") as nothing:  # noqa: ASYNC230, PTH123 - no disk
            async with stdio_client(parameters, nothing) as streams:
                yield streams

    def _environment(self) -> dict[str, str]:
        return {**self._place.environment, **self._settings.env}

    @asynccontextmanager
    async def _stdio(self) -> AsyncGenerator[Any]:
        argv = (self._settings.command, *self._settings.args)
        process = ServerProcess(argv, self._place.cwd, self._environment(), self._place.guard)
        self._process = process
        give, read = anyio.create_memory_object_stream[SessionMessage | Exception]()
        write, take = anyio.create_memory_object_stream[SessionMessage]()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(process.drain)
                tasks.start_soon(self._receive, process, give)
                tasks.start_soon(self._send, process, take, give)
                with give, read, write, take:
                    yield read, write
                tasks.cancel_scope.cancel()
        finally:
            await process.stop()

    async def _receive(
        self, process: ServerProcess, give: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        async with give:
            while lines := await process.read():
                for line in lines:
                    if not line.strip():
                        continue
                    try:
                        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        # Programs print banners where only messages belong.
                        self._noise = line.decode("utf-8", "replace").strip()
                        continue
                    try:
                        await give.send(SessionMessage(message))
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        return
            self._ended_by_itself = True

    async def _send(
        self,
        process: ServerProcess,
        take: MemoryObjectReceiveStream[SessionMessage],
        give: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        async with take:
            async for item in take:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await process.send(text.encode() + b"\n")
                except OSError:
                    # It closed its input: nothing more will be answered.
                    give.close()
                    return


def reason(exc: BaseException) -> str:
    """A failed connection as a clause for people."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast(BaseExceptionGroup[BaseException], exc).exceptions[0]
    if isinstance(exc, McpError):
        return exc.message
    if isinstance(exc, ValidationError):
        return "its answer is not valid MCP"
    return str(exc) or type(exc).__name__


def http_words(status: int) -> str:
    from http import HTTPStatus

    try:
        words = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        words = str(status)
    hint = "; it may want a header with a token" if status in (401, 403) else ""
    return f"it answered {words}{hint}"
