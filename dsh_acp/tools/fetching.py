"""Fetching one address over HTTP: bounded in time, size and redirects.

A name is resolved once and the connection goes to the address that was judged, so that a name
cannot lead elsewhere in between. Behind a proxy the proxy resolves. Imported at the first fetch.
"""

from collections.abc import Callable, Sequence
import socket
import sys
from typing import Any, Final, cast
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import anyio
from msgspec import Struct

from dsh_acp.errors import ToolError
from dsh_acp.tools.addresses import is_nearby, is_public

# The command line client of httpx is imported with it, and rich and pygments behind it.
sys.modules.setdefault("httpx._main", cast("Any", None))

import httpx  # noqa: E402 - the line above must run first

MAX_URL: Final = 2048
MAX_BYTES: Final = 5 * 1024 * 1024
MAX_REDIRECTS: Final = 5
TIMEOUT_S: Final = 30.0
_CONNECT_S: Final = 10.0
_ACCEPT: Final = "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5"
_REDIRECTS: Final = (301, 302, 303, 307, 308)


class Page(Struct, frozen=True):
    """What came back. `media_type` is lower-case and without parameters."""

    url: str
    status: int
    media_type: str
    charset: str | None
    data: bytes
    truncated: bool = False


def checked(url: str) -> str:
    """`url` with a scheme, if it can be fetched at all.

    Raises:
        ToolError: it cannot.
    """
    url = url.strip()
    if "://" not in url.partition("?")[0]:
        url = f"https://{url}"
    if len(url) > MAX_URL:
        raise ToolError(f"the URL is longer than {MAX_URL} characters", code="WEB_INVALID_URL")
    try:
        parts = urlsplit(url)
        _ = parts.port
        host = parts.hostname
    except ValueError as exc:
        raise ToolError(f'"{url}" is not a URL: {exc}', code="WEB_INVALID_URL") from exc
    if parts.scheme not in ("http", "https"):
        raise ToolError(
            f'only http and https can be fetched, not "{parts.scheme}"', code="WEB_INVALID_URL"
        )
    if not host or any(character.isspace() for character in url):
        raise ToolError(f'"{url}" is not a URL', code="WEB_INVALID_URL")
    if parts.username is not None or parts.password is not None:
        raise ToolError("a URL with a user name or password is not fetched", code="WEB_INVALID_URL")
    return url


async def fetch(url: str, may_be_near: Callable[[str], bool]) -> Page:
    """The page at a checked `url`, redirects followed.

    `may_be_near` says of a host whether it may be this machine or its network.

    Raises:
        ToolError: `WEB_REFUSED`, it leads to such an address; `WEB_TIMEOUT`; `WEB_FAILED`.
    """
    try:
        with anyio.fail_after(TIMEOUT_S):
            return await _follow(url, may_be_near)
    except (TimeoutError, httpx.TimeoutException) as exc:
        raise ToolError(
            f"fetching {url} took longer than {TIMEOUT_S:g} s", code="WEB_TIMEOUT"
        ) from exc
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as exc:
        reason = str(exc) or type(exc).__name__
        raise ToolError(f"{url} cannot be fetched: {reason}", code="WEB_FAILED") from exc


async def _follow(url: str, may_be_near: Callable[[str], bool]) -> Page:
    timeout = httpx.Timeout(TIMEOUT_S, connect=_CONNECT_S)
    headers = {"User-Agent": "dsh-acp", "Accept": _ACCEPT}
    async with httpx.AsyncClient(timeout=timeout, headers=headers) as client:
        for _ in range(MAX_REDIRECTS + 1):
            request = await _request(client, url, may_be_near)
            response = await client.send(request, stream=True)
            try:
                target = response.headers.get("location")
                if response.status_code not in _REDIRECTS or not target:
                    return await _page(url, response)
                url = checked(urljoin(url, target))
            finally:
                await response.aclose()
    raise ToolError(f"more than {MAX_REDIRECTS} redirects, the last to {url}", code="WEB_FAILED")


async def _request(
    client: httpx.AsyncClient, url: str, may_be_near: Callable[[str], bool]
) -> httpx.Request:
    target = httpx.URL(url)
    host = target.host
    near = may_be_near(host)
    if not near and is_nearby(host):
        raise _refused(host, host)
    if _has_proxy(target):
        return client.build_request("GET", target)
    found = await _resolve(host, target.port or (443 if target.scheme == "https" else 80))
    if not near:
        for address in found:
            if not is_public(address):
                raise _refused(host, address)
    pinned = target.copy_with(host=found[0])
    name = target.netloc.decode("ascii")
    return client.build_request(
        "GET", pinned, headers={"Host": name}, extensions={"sni_hostname": target.raw_host.decode()}
    )


def _has_proxy(target: httpx.URL) -> bool:
    proxies = getproxies()
    proxy = proxies.get(target.scheme) or proxies.get("all")
    return bool(proxy) and not proxy_bypass(target.host)


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    # Where both families lead there, the older one is reachable from more places.
    return sorted(addresses, key=lambda address: ":" in address)


def _refused(host: str, address: str) -> ToolError:
    where = host if host == address else f"{host} ({address})"
    return ToolError(
        f"{where} is this machine or on its network, and such addresses are not fetched. The user "
        "can allow it by answering the question for such a call, or with web_private_hosts in the "
        "configuration.",
        code="WEB_REFUSED",
    )


async def _page(url: str, response: httpx.Response) -> Page:
    kept = bytearray()
    truncated = False
    async for piece in response.aiter_bytes():
        kept += piece
        if len(kept) > MAX_BYTES:
            truncated = True
            break
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Page(
        url,
        response.status_code,
        media_type,
        response.charset_encoding,
        bytes(kept[:MAX_BYTES]),
        truncated,
    )
