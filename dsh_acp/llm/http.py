"""HTTP to a provider: what both ways there have in common.

Plain http to this machine goes over sockets of our own (`loopback`), everything else through httpx
(`internet`). A body that is read to its end gives its connection back; anything else closes it at
once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio

from dsh_acp.errors import LlmError
from dsh_acp.llm.place import Place, is_loopback

DRAIN_S: Final = 0.05
"""How long to wait for the end of a body whose last event has come."""

ERROR_LIMIT: Final = 256 * 1024
_ENCODINGS: Final = b"gzip, deflate"
_OURS: Final = (b"content-length", b"transfer-encoding")
KEEP_S: Final = 60
"""How long an idle connection is kept."""


class Answer(ABC):
    """A response whose head has arrived. Header names are lower-case."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self.status: Final = status
        self.headers: Final = headers

    @abstractmethod
    async def next(self) -> bytes | None:
        """The next piece of the body; `None` at its end.

        Raises:
            LlmError: `TIMEOUT`, `TRANSPORT`, `MALFORMED_RESPONSE`.
        """

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


class Http(ABC):
    """Connections to one provider."""

    @abstractmethod
    async def warm(self) -> None:
        """Build what the first call needs. Never fails, no network."""

    @abstractmethod
    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, place: Place
    ) -> AbstractAsyncContextManager[Answer]:
        """Send `body`; the block runs once the response's head is here.

        Leaving it with the body unread closes the connection at once.

        Raises:
            LlmError: `TIMEOUT`, `TRANSPORT`.
        """

    @abstractmethod
    async def get(self, url: str, headers: Mapping[str, str], timeout_s: float) -> bytes | None:
        """The body of a successful answer; `None` when there is none in time."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close every connection."""


def complete(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """`headers` as they are sent. What says where a request ends is not theirs to choose.

    Raises:
        UnicodeError: one holds what no text has.
    """
    sent = {name.encode(): value.encode() for name, value in headers.items()}
    for name in _OURS:
        sent.pop(name, None)
    return {b"accept-encoding": _ENCODINGS, **sent}


def unreachable(place: Place, why: str) -> LlmError:
    """Nobody answers at the address."""
    what = f"{place.provider} cannot be reached: {why}"
    if is_loopback(place.base_url):
        what += ". Is the server running?"
    return failed(place, "TRANSPORT", what)


def unreachable_in_time(place: Place) -> LlmError:
    """The connection could not be made in time."""
    return failed(place, "TRANSPORT", f"{place.provider} could not be reached in time")


def silent(place: Place) -> LlmError:
    """The server sent nothing for too long."""
    return failed(place, "TIMEOUT", f"{place.provider} sent nothing for too long")


def unsent(place: Place) -> LlmError:
    """The server did not take the request in time."""
    what = f"the request to {place.provider} could not be sent in time"
    return failed(place, "TIMEOUT", what)


def undecodable(place: Place, why: str) -> LlmError:
    """The body is not what its content-encoding says."""
    what = f"{place.provider} sent bytes that do not decode: {why}"
    return failed(place, "MALFORMED_RESPONSE", what)


def unaddressed(place: Place, why: str) -> LlmError:
    """The address is none."""
    return failed(place, "TRANSPORT", f"{place.provider} has no usable address: {why}")


def broken(place: Place, why: str) -> LlmError:
    """The connection broke, or what came over it is no HTTP."""
    return failed(place, "TRANSPORT", f"the connection to {place.provider} broke: {why}")


def failed(place: Place, code: str, what: str) -> LlmError:
    """A transport's failure, with what to do about it."""
    from dsh_acp.llm.failures import from_transport

    failure = from_transport(place, code, what)
    return LlmError(failure.message, code=failure.code)
