"""HTTP to a provider over the network. The only module of a provider's that knows httpx.

The TLS context is built in a thread, when it is first needed, and never for plain http.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
import sys
from typing import Any, Final, cast
from urllib.request import getproxies, proxy_bypass

import anyio
import anyio.to_thread

from dsh_acp.errors import LlmError
from dsh_acp.llm import http
from dsh_acp.llm.http import Answer, Http
from dsh_acp.llm.place import Place, is_loopback

# The command line client of httpx is imported with it, and rich and pygments behind it.
sys.modules.setdefault("httpx._main", cast("Any", None))
# httpcore asks for sniffio with every lock it takes, and a failing search of the path costs more
# than the lock. Where it is not installed, Python is told so once.
if find_spec("sniffio") is None:
    sys.modules.setdefault("sniffio", cast("Any", None))

import httpx  # noqa: E402 - the lines above must run first


class _Answer(Answer):
    def __init__(self, response: httpx.Response, place: Place) -> None:
        super().__init__(response.status_code, dict(response.headers))
        self._place = place
        is_plain = response.headers.get("content-encoding", "identity") == "identity"
        # Two generators less for each piece, where nothing has to be decoded.
        source = response.stream if is_plain else response.aiter_bytes()
        self._pieces = aiter(cast("AsyncIterator[bytes]", source))

    async def next(self) -> bytes | None:
        try:
            return await anext(self._pieces)
        except StopAsyncIteration:
            return None
        except Exception as exc:
            raise translate(exc, self._place) from exc


class Internet(Http):
    """Connections through httpx.

    Why a transport and no client: a client would add redirects, cookies and authentication, none
    of which a model's endpoint needs, and a quarter of a millisecond to each request.
    """

    def __init__(self, base_url: str, connect_timeout_s: float, idle_timeout_s: float) -> None:
        self._base_url = base_url
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._timeout: Final = _timeouts(idle_timeout_s, connect_timeout_s)

    async def warm(self) -> None:
        try:
            await self._ready()
        except Exception:  # noqa: BLE001 - the border: the first call will say what is wrong
            return

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, place: Place
    ) -> AsyncGenerator[Answer]:
        try:
            transport = await self._ready()
            request = httpx.Request(
                "POST",
                url,
                headers=list(http.complete(headers).items()),
                content=body,
                extensions={"timeout": self._timeout},
            )
            response = await transport.handle_async_request(request)
        except Exception as exc:
            raise translate(exc, place) from exc
        try:
            yield _Answer(response, place)
        finally:
            await response.aclose()

    async def get(self, url: str, headers: Mapping[str, str], timeout_s: float) -> bytes | None:
        extensions = {"timeout": _timeouts(timeout_s, timeout_s)}
        try:
            transport = await self._ready()
            request = httpx.Request(
                "GET", url, headers=list(http.complete(headers).items()), extensions=extensions
            )
            with anyio.fail_after(timeout_s):
                response = await transport.handle_async_request(request)
                try:
                    body = await response.aread()
                finally:
                    await response.aclose()
        except Exception:  # noqa: BLE001 - the border: what is asked here is never essential
            return None
        return body if response.status_code == 200 else None

    async def aclose(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    async def _ready(self) -> httpx.AsyncHTTPTransport:
        if self._transport is None:
            limits = httpx.Limits(keepalive_expiry=http.KEEP_S)
            proxy = _proxy(self._base_url)
            is_secure = any(url.startswith("https:") for url in (self._base_url, proxy or ""))
            verify = await anyio.to_thread.run_sync(_tls_context) if is_secure else False
            # Another task may have built it meanwhile.
            if self._transport is None:
                self._transport = httpx.AsyncHTTPTransport(
                    verify=verify, proxy=proxy, limits=limits
                )
        return self._transport


def _timeouts(idle_s: float, connect_s: float) -> dict[str, float | None]:
    return httpx.Timeout(idle_s, connect=connect_s, pool=30).as_dict()


def _proxy(base_url: str) -> str | None:
    """The proxy that the environment names for `base_url`."""
    # No proxy can reach this machine for us, whatever the environment says.
    if is_loopback(base_url):
        return None
    address = httpx.URL(base_url)
    proxies = getproxies()
    found = proxies.get(address.scheme) or proxies.get("all")
    if not found or proxy_bypass(address.host):
        return None
    return found if "://" in found else f"http://{found}"


def _tls_context() -> Any:
    return httpx.create_ssl_context()


def translate(exc: Exception, place: Place) -> LlmError:
    """What an exception of httpx means for a call."""
    why = str(exc) or type(exc).__name__
    if isinstance(exc, httpx.ConnectTimeout):
        return http.unreachable_in_time(place)
    if isinstance(exc, httpx.ReadTimeout):
        return http.silent(place)
    if isinstance(exc, httpx.TimeoutException):
        return http.unsent(place)
    if isinstance(exc, httpx.DecodingError):
        return http.undecodable(place, why)
    if isinstance(exc, httpx.ConnectError | httpx.ProxyError):
        return http.unreachable(place, why)
    if isinstance(exc, httpx.InvalidURL | httpx.UnsupportedProtocol):
        return http.unaddressed(place, why)
    return http.broken(place, why)
