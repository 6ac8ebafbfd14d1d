"""HTTP to a server on this machine, over a socket of ours.

A local model streams far faster than any network, so what the general way costs for each request
and each piece (a pool and its locks, a transport, a paused and resumed reader) is most of what
they cost at all; and a process whose model is near need not load a client for the internet.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
import re
import select
import sys
import time
from typing import Final, cast
from urllib.parse import quote, urlsplit
import zlib

import anyio
from anyio import lowlevel

from dsh_acp.errors import LlmError
from dsh_acp.llm import http
from dsh_acp.llm.http import Answer, Http
from dsh_acp.llm.inflate import inflate
from dsh_acp.llm.place import Place
from dsh_acp.llm.response import Malformed, Response

GET_LIMIT: Final = 16 * 1024 * 1024
_AHEAD: Final = 1024 * 1024
"""How much may have come and not been taken before the socket is left alone."""

_SAFE: Final = "/%:@!$&'()*+,;=~-._?"
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_VALUE: Final = re.compile(rb"[^\0\r\n]*").fullmatch


class _Unaddressed(Exception):
    """The address is none."""


class _Target:
    """Where a URL leads."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            self.host = parts.hostname or ""
            self.port = 80 if parts.port is None else parts.port
        except ValueError as exc:
            raise _Unaddressed(str(exc)) from exc
        path = parts.path or "/"
        self.path = quote(f"{path}?{parts.query}" if parts.query else path, safe=_SAFE).encode()
        name = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = (name if self.port == 80 else f"{name}:{self.port}").encode()


_target: Final = lru_cache(8)(_Target)


class _Connection(asyncio.Protocol):
    """One socket and what came over it.

    Why the event loop's own protocols and timers: what arrives is taken without registering and
    waiting anew for each piece, which is most of what a piece costs.
    """

    def __init__(self) -> None:
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._came: list[bytes] = []
        self._size = 0
        self._is_over = False
        self._lost: Exception | None = None
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None

    # ------------------------------------------------------------ what the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._came.append(data)
        self._size += len(data)
        if self._size > _AHEAD and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._is_over = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._lost = exc
        self._is_paused = False
        self._wake()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ what an exchange does

    async def send(self, data: bytes, timeout_s: float) -> None:
        """Write `data`, whole unless the server answers or ends before it has read all of it.

        Raises:
            TimeoutError, OSError: it cannot be, and there is no answer.
        """
        if self._transport is None or self._is_over:
            raise self._lost or ConnectionResetError("the server closed the connection")
        self._transport.write(data)
        while self._is_paused and not self._came and not self._is_over:
            await self._woken(timeout_s)
        if self._lost is not None and not self._came:
            raise self._lost

    async def receive(self, response: Response, timeout_s: float) -> None:
        """Give `response` what came, or the end; waits until there is either.

        Raises:
            TimeoutError, OSError: the connection is of no more use.
        """
        # A wait that has its answer at once is never seen waiting, and so never cancelled.
        await lowlevel.checkpoint_if_cancelled()
        if not self._came and not self._is_over:
            await self._woken(timeout_s)
        if self._came:
            data, self._came = b"".join(self._came), []
            if self._size > _AHEAD and self._transport is not None:
                self._transport.resume_reading()
            self._size = 0
            response.feed(data)
        elif self._lost is not None:
            raise self._lost
        else:
            response.end()

    async def _woken(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = loop.call_later(timeout_s, _expire, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None

    def is_alive(self) -> bool:
        """Whether it can serve another request: all is sent, and nothing came unasked."""
        transport = self._transport
        if transport is None or self._is_over or self._came:
            return False
        # The event loop may not have looked since the server closed it.
        return not transport.get_write_buffer_size() and not _is_readable(transport)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _is_readable(transport: asyncio.Transport) -> bool:
    file = transport.get_extra_info("socket").fileno()
    if sys.platform == "win32":
        return bool(select.select([file], [], [], 0)[0])
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))


def _expire(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


class _Answer(Answer):
    def __init__(
        self, connection: _Connection, response: Response, place: Place, idle_s: float
    ) -> None:
        super().__init__(response.status, response.headers)
        self._connection = connection
        self._response = response
        self._place = place
        self._idle_s = idle_s
        encoding = response.headers.get("content-encoding")
        self._unpack = inflate(encoding) if encoding else None
        self._is_told = False

    async def next(self) -> bytes | None:
        response = self._response
        try:
            while not self._is_told:
                data = response.take()
                self._is_told = response.is_over
                if self._unpack is not None:
                    data = self._unpack.feed(data)
                    if self._is_told:
                        data += self._unpack.end()
                if data:
                    return data
                if not self._is_told:
                    response.check()
                    await self._connection.receive(response, self._idle_s)
        except TimeoutError as exc:
            raise http.silent(self._place) from exc
        except zlib.error as exc:
            raise http.undecodable(self._place, str(exc)) from exc
        except (OSError, Malformed) as exc:
            raise http.broken(self._place, str(exc) or type(exc).__name__) from exc
        return None

    @property
    def keeps_connection(self) -> bool:
        """Whether the connection may serve another request."""
        return self._is_told and self._response.keeps_connection


class Loopback(Http):
    """Connections to one server on this machine. No proxy is asked: none could reach it for us."""

    def __init__(self, connect_timeout_s: float, idle_timeout_s: float) -> None:
        self._connect_s: Final = connect_timeout_s
        self._idle_s: Final = idle_timeout_s
        self._kept: list[_Connection] = []

    async def warm(self) -> None:
        return

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, place: Place
    ) -> AsyncGenerator[Answer]:
        try:
            target = _target(url)
            connection = await self._connected(target)
        except _Unaddressed as exc:
            raise http.unaddressed(place, str(exc)) from exc
        except TimeoutError as exc:
            raise http.unreachable_in_time(place) from exc
        except (OSError, UnicodeError, OverflowError) as exc:
            raise http.unreachable(place, str(exc)) from exc
        answer: _Answer | None = None
        try:
            answer = await self._exchange(connection, b"POST", target, headers, body, place)
            yield answer
        finally:
            self._release(connection, answer)

    async def _exchange(
        self,
        connection: _Connection,
        method: bytes,
        target: _Target,
        headers: Mapping[str, str],
        body: bytes,
        place: Place,
    ) -> _Answer:
        """Send a request and read the head of its answer."""
        response = Response()
        try:
            await connection.send(_request(method, target, headers, body), self._idle_s)
        except TimeoutError as exc:
            raise http.unsent(place) from exc
        except (OSError, ValueError) as exc:
            raise http.broken(place, str(exc) or type(exc).__name__) from exc
        try:
            while not response.status:
                response.check()
                await connection.receive(response, self._idle_s)
        except TimeoutError as exc:
            raise http.silent(place) from exc
        except (OSError, Malformed) as exc:
            raise http.broken(place, str(exc) or type(exc).__name__) from exc
        return _Answer(connection, response, place, self._idle_s)

    async def get(self, url: str, headers: Mapping[str, str], timeout_s: float) -> bytes | None:
        nowhere = Place("")
        connection: _Connection | None = None
        answer: _Answer | None = None
        try:
            with anyio.fail_after(timeout_s):
                target = _target(url)
                connection = await self._connected(target)
                answer = await self._exchange(connection, b"GET", target, headers, b"", nowhere)
                status, body = answer.status, await answer.read(GET_LIMIT)
        except (LlmError, OSError, ValueError, OverflowError, _Unaddressed):
            # What is asked here is never essential.
            return None
        finally:
            if connection is not None:
                self._release(connection, answer)
        return body if status == 200 else None

    async def aclose(self) -> None:
        kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    async def _connected(self, target: _Target) -> _Connection:
        now = time.monotonic()
        while self._kept:
            connection = self._kept.pop()
            if now - connection.idle_since < http.KEEP_S and connection.is_alive():
                return connection
            connection.close()
        with anyio.fail_after(self._connect_s):
            return await _connect(target)

    def _release(self, connection: _Connection, answer: _Answer | None) -> None:
        """Keep a connection whose last answer was read to its end; close any other."""
        if answer is not None and answer.keeps_connection:
            connection.idle_since = time.monotonic()
            self._kept.append(connection)
        else:
            connection.close()


def _request(method: bytes, target: _Target, headers: Mapping[str, str], body: bytes) -> bytes:
    """The bytes of a request.

    Raises:
        ValueError: a header cannot be sent.
    """
    given = {b"host": target.authority, **http.complete(headers)}
    lines = [b"%s %s HTTP/1.1\r\n" % (method, target.path)]
    for name, value in given.items():
        if not _NAME(name) or not _VALUE(value):
            raise ValueError(f"the header {name!r} cannot be sent")
        lines.append(b"%s: %s\r\n" % (name, value))
    if body:
        lines.append(b"content-length: %d\r\n" % len(body))
    return b"".join([*lines, b"\r\n", body])


async def _connect(target: _Target) -> _Connection:
    """Raises: OSError, OverflowError (a port out of range)."""
    # `localhost` may be served by either family, and a wildcard is an address to listen on.
    if target.host == "localhost":
        try:
            return await _dial("127.0.0.1", target.port)
        except OSError:
            return await _dial("::1", target.port)
    return await _dial("127.0.0.1" if target.host == "0.0.0.0" else target.host, target.port)


async def _dial(host: str, port: int) -> _Connection:
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(_Connection, host, port)
    return made
