"""Connections to a server on this machine: its socket, read and written directly.

A local model streams far faster than any network, so what the general way costs for each piece
(a transport, a protocol object, a paused and resumed reader) is most of what a piece costs at
all. Everything that is not a plain loopback address goes the general way.
"""

from collections.abc import Iterable
import socket
from typing import Any, Final, cast

import anyio
import httpcore
import httpx

_PLACES: Final = {"127.0.0.1": socket.AF_INET, "localhost": socket.AF_INET, "::1": socket.AF_INET6}


class Transport(httpx.AsyncHTTPTransport):
    """httpx's transport over such connections."""

    def __init__(self, limits: httpx.Limits) -> None:
        super().__init__(verify=False, limits=limits)
        self._pool = httpcore.AsyncConnectionPool(
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Backend(),
        )


class _Backend(httpcore.AsyncNetworkBackend):
    # The parameters called `timeout` here are the library's.

    def __init__(self) -> None:
        self._general: Final = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        family = _PLACES.get(host)
        if family is None or local_address is not None:
            return await self._general.connect_tcp(
                host, port, timeout, local_address, socket_options
            )
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setblocking(False)
        try:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with anyio.fail_after(timeout):
                try:
                    found.connect(("127.0.0.1" if host == "localhost" else host, port))
                except BlockingIOError:
                    await anyio.wait_writable(found)
            if error := found.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, "connection refused")
        except BaseException as exc:
            found.close()
            if (
                host == "localhost"
                and isinstance(exc, OSError)
                and not isinstance(exc, TimeoutError)
            ):
                # It may listen on the other family only.
                return await self._general.connect_tcp(host, port, timeout, None, socket_options)
            if isinstance(exc, TimeoutError):
                raise httpcore.ConnectTimeout(str(exc)) from exc
            if isinstance(exc, OSError):
                raise httpcore.ConnectError("All connection attempts failed") from exc
            raise
        return _Stream(found)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, connection: socket.socket) -> None:
        self._socket: Final = connection

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        try:
            return self._socket.recv(max_bytes)
        except BlockingIOError:
            pass
        except OSError as exc:
            raise httpcore.ReadError(str(exc)) from exc
        try:
            with anyio.fail_after(timeout):
                await anyio.wait_readable(self._socket)
            return self._socket.recv(max_bytes)
        except TimeoutError as exc:
            raise httpcore.ReadTimeout(str(exc)) from exc
        except (OSError, anyio.ClosedResourceError) as exc:
            raise httpcore.ReadError(str(exc)) from exc

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        rest = memoryview(buffer)
        try:
            while rest:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    with anyio.fail_after(timeout):
                        await anyio.wait_writable(self._socket)
        except TimeoutError as exc:
            raise httpcore.WriteTimeout(str(exc)) from exc
        except (OSError, anyio.ClosedResourceError) as exc:
            raise httpcore.WriteError(str(exc)) from exc

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        if info == "socket":
            return self._socket
        if info == "is_readable":
            return self._is_readable()
        return None

    def _is_readable(self) -> bool:
        # An idle connection that has something to read was closed, or says what nobody asked for.
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True
