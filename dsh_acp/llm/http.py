"""HTTP to a provider. The only module that knows httpx.

One client per provider keeps its connections: a body that is read to its end gives its connection
back, anything else closes it at once. The TLS context is built in a thread, when it is first
needed, and never for plain http.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
import sys
from typing import Any, Final, cast
from urllib.request import getproxies

import anyio
import anyio.to_thread

from dsh_acp.errors import LlmError
from dsh_acp.llm.place import Place, is_loopback

# The command line client of httpx is imported with it, and rich and pygments behind it.
sys.modules.setdefault("httpx._main", cast("Any", None))
# httpcore asks for sniffio with every lock it takes, and a failing search of the path costs more
# than the lock. Where it is not installed, Python is told so once.
if find_spec("sniffio") is None:
    sys.modules.setdefault("sniffio", cast("Any", None))

import httpx  # noqa: E402 - the line above must run first

DRAIN_S: Final = 0.05
"""How long to wait for the end of a body whose last event has come."""

ERROR_LIMIT: Final = 256 * 1024
_KEEP_S: Final = 60


class Answer:
    """A response whose head has arrived. Header names are lower-case."""

    def __init__(self, response: httpx.Response, place: Place) -> None:
        self.status: Final = response.status_code
        self.headers: Final[Mapping[str, str]] = dict(response.headers)
        self._response = response
        self._place = place
        is_plain = response.headers.get("content-encoding", "identity") == "identity"
        # Two generators less for each piece, where nothing has to be decoded.
        source = response.stream if is_plain else response.aiter_bytes()
        self._pieces = aiter(cast("AsyncIterator[bytes]", source))

    async def next(self) -> bytes | None:
        """The next piece of the body; `None` at its end.

        Raises:
            LlmError: `TIMEOUT`, `TRANSPORT`, `MALFORMED_RESPONSE`.
        """
        try:
            return await anext(self._pieces)
        except StopAsyncIteration:
            return None
        except Exception as exc:
            raise translate(exc, self._place) from exc

    async def read(self, limit: int = ERROR_LIMIT) -> bytes:
        """The body, as far as it comes and up to `limit` bytes; never fails."""
        pieces: list[bytes] = []
        size = 0
        try:
            while size < limit and (piece := await self.next()) is not None:
                pieces.append(piece)
                size += len(piece)
        except LlmError:
            # Half an error body is better than none, and the status is known anyway.
            pass
        return b"".join(pieces)

    async def drain(self) -> None:
        """Read what little may follow the last event, so that the connection can be kept."""
        with anyio.move_on_after(DRAIN_S):
            try:
                while await self.next() is not None:
                    pass
            except LlmError:
                # The answer is complete; only the connection is lost.
                return


class Http:
    """Connections to one provider."""

    def __init__(self, base_url: str, connect_timeout_s: float, idle_timeout_s: float) -> None:
        self._base_url = base_url
        self._client: httpx.AsyncClient | None = None
        self._timeout = httpx.Timeout(idle_timeout_s, connect=connect_timeout_s, pool=30)

    async def warm(self) -> None:
        """Build the client and, for https, the TLS context. Never fails, no network."""
        try:
            await self._ready()
        except Exception:  # noqa: BLE001 - the border: the first call will say what is wrong
            return

    @asynccontextmanager
    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, place: Place
    ) -> AsyncGenerator[Answer]:
        """Send `body`; the block runs once the response's head is here.

        Leaving it with the body unread closes the connection at once.

        Raises:
            LlmError: `TIMEOUT`, `TRANSPORT`.
        """
        try:
            client = await self._ready()
            request = client.build_request("POST", url, content=body, headers=dict(headers))
            response = await client.send(request, stream=True)
        except Exception as exc:
            raise translate(exc, place) from exc
        try:
            yield Answer(response, place)
        finally:
            await response.aclose()

    async def get(self, url: str, headers: Mapping[str, str], timeout_s: float) -> bytes | None:
        """The body of a successful answer; `None` when there is none in time."""
        try:
            client = await self._ready()
            with anyio.fail_after(timeout_s):
                response = await client.get(url, headers=dict(headers))
        except Exception:  # noqa: BLE001 - the border: what is asked here is never essential
            return None
        return response.content if response.status_code == 200 else None

    async def aclose(self) -> None:
        """Close every connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _ready(self) -> httpx.AsyncClient:
        if self._client is None:
            # No proxy can reach this machine for us, whatever the environment says.
            is_near = is_loopback(self._base_url)
            proxies = () if is_near else getproxies().values()
            is_secure = any(url.startswith("https:") for url in (self._base_url, *proxies))
            verify = await anyio.to_thread.run_sync(_tls_context) if is_secure else False
            # Another task may have built it meanwhile.
            if self._client is None:
                self._client = httpx.AsyncClient(
                    verify=verify,
                    timeout=self._timeout,
                    limits=httpx.Limits(keepalive_expiry=_KEEP_S),
                    trust_env=not is_near,
                )
        return self._client


def _tls_context() -> Any:
    return httpx.create_ssl_context()


def translate(exc: Exception, place: Place) -> LlmError:
    """What an exception of httpx means for a call."""
    from dsh_acp.llm.failures import from_transport

    why = str(exc) or type(exc).__name__
    if isinstance(exc, httpx.ConnectTimeout):
        code, what = "TRANSPORT", f"{place.provider} could not be reached in time"
    elif isinstance(exc, httpx.ReadTimeout):
        code, what = "TIMEOUT", f"{place.provider} sent nothing for too long"
    elif isinstance(exc, httpx.TimeoutException):
        code, what = "TIMEOUT", f"the request to {place.provider} could not be sent in time"
    elif isinstance(exc, httpx.DecodingError):
        code, what = "MALFORMED_RESPONSE", f"{place.provider} sent bytes that do not decode: {why}"
    elif isinstance(exc, httpx.ConnectError | httpx.ProxyError):
        code, what = "TRANSPORT", f"{place.provider} cannot be reached: {why}"
        if is_loopback(place.base_url):
            what += ". Is the server running?"
    elif isinstance(exc, httpx.InvalidURL | httpx.UnsupportedProtocol):
        code, what = "TRANSPORT", f"{place.provider} has no usable address: {why}"
    else:
        code, what = "TRANSPORT", f"the connection to {place.provider} broke: {why}"
    failure = from_transport(place, code, what)
    return LlmError(failure.message, code=failure.code)
