"""One configured endpoint: its address, its key, its connections, and an exchange with it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
import os
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import anyio.to_thread
from msgspec import UNSET

from dsh_acp import __version__
from dsh_acp.config import ProviderSettings
from dsh_acp.errors import LlmError
from dsh_acp.llm.place import Place, is_loopback, join
from dsh_acp.messages import Chunk, Failure

if TYPE_CHECKING:
    from dsh_acp.llm.http import Answer, Http

GRACE_S: Final = 5.0
"""How long usage may take to follow the finish reason."""

DISCOVERY_S: Final = 10.0


class Decoder(Protocol):
    """Turns a response body into chunks; see `chat_stream.ChatStream`."""

    request_id: str | None

    @property
    def is_done(self) -> bool: ...
    @property
    def is_settled(self) -> bool: ...

    def feed(self, piece: bytes) -> list[Chunk]: ...
    def end(self) -> list[Chunk]: ...
    def fail(self, failure: Failure) -> list[Chunk]: ...


def failure_of(error: LlmError) -> Failure:
    """The failure that the log records for `error`."""
    return Failure(
        message=error.message,
        code=error.code,
        status=error.status or UNSET,
        provider_retry_after_ms=error.retry_after_ms or UNSET,
        request_id=error.request_id or UNSET,
    )


class Endpoint:
    """Where a provider's calls go. Nothing is imported or connected before the first call."""

    def __init__(self, settings: ProviderSettings, base_url: str, key_env: str) -> None:
        self.name: Final = settings.name
        self.base_url: Final = settings.base_url or base_url
        self.key_env: Final = settings.api_key_env or key_env
        own = bool(base_url) and self.base_url.rstrip("/") == base_url.rstrip("/")
        named = settings.api_key_env not in (None, key_env)
        self._needs_key = not is_loopback(self.base_url) and (own or named)
        self._settings = settings
        self._http: Http | None = None

    @property
    def has_key(self) -> bool:
        """Whether a call would find what it needs: a key, or an endpoint that may need none."""
        return bool(self._key()) or not self._needs_key

    def key(self) -> str | None:
        """The key to send, if there is one.

        A vendor's own address needs one, and so does a provider whose variable was named. Another
        address may do without: its endpoint judges.

        Raises:
            LlmError: `MISSING_CREDENTIAL`, `INVALID_CREDENTIAL`.
        """
        key = self._key()
        if not key:
            if not self._needs_key:
                return None
            variable = f"Set {self.key_env}, or run" if self.key_env else "Run"
            raise LlmError(
                f"There is no API key for {self.name}. {variable} `dsh-acp login {self.name}`.",
                code="MISSING_CREDENTIAL",
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise LlmError(
                f"The API key for {self.name} holds characters that no key has. Set "
                f"{self.key_env or 'it'} again, or run `dsh-acp login {self.name}`.",
                code="INVALID_CREDENTIAL",
            )
        return key

    def _key(self) -> str:
        given = self._settings.api_key
        if given is not None:
            return given.reveal().strip()
        return os.environ.get(self.key_env, "").strip() if self.key_env else ""

    def place(self, model: str, known: Sequence[str] = ()) -> Place:
        """What sentences about a call need to know."""
        return Place(
            self.name, self.base_url, model, self.key_env, tuple(known), secret=self._key()
        )

    def headers(self, own: Mapping[str, str]) -> dict[str, str]:
        """The headers of a call: `own`, and over them those of the settings."""
        common = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "user-agent": f"dsh-acp/{__version__}",
        }
        return {**common, **own, **{k.lower(): v for k, v in self._settings.headers.items()}}

    async def http(self) -> "Http":
        """The connections; made on first use."""
        if self._http is None:
            made = await anyio.to_thread.run_sync(self._connections, abandon_on_cancel=True)
            self._http = self._http or made
        return self._http

    def _connections(self) -> "Http":
        # In a thread, because what is imported takes up to a tenth of a second.
        settings = self._settings
        if self.base_url.startswith("http:") and is_loopback(self.base_url):
            from dsh_acp.llm.loopback import Loopback

            return Loopback(settings.connect_timeout_s, settings.idle_timeout_s)
        from dsh_acp.llm.internet import Internet

        return Internet(self.base_url, settings.connect_timeout_s, settings.idle_timeout_s)

    async def warm(self) -> None:
        """Load what the first call needs. Never fails, no network."""
        http = await self.http()
        await http.warm()
        # A failure is explained with patterns that take milliseconds to compile.
        await anyio.to_thread.run_sync(_load_failures, abandon_on_cancel=True)

    async def aclose(self) -> None:
        """Close every connection."""
        if self._http is not None:
            await self._http.aclose()

    async def get(self, path: str, headers: Mapping[str, str]) -> bytes | None:
        """The body of a successful answer in a few seconds; else `None`."""
        http = await self.http()
        return await http.get(join(self.base_url, path), self.headers(headers), DISCOVERY_S)

    async def exchange(
        self, url: str, headers: Mapping[str, str], body: bytes, place: Place, decoder: Decoder
    ) -> AsyncGenerator[Sequence[Chunk]]:
        """Send `body` and yield what `decoder` makes of the answer, a batch for each piece read.

        The last chunk is a `Finish` whatever happens, except that cancellation goes through.
        """
        http = await self.http()
        try:
            async with http.post(url, self.headers(headers), body, place) as answer:
                decoder.request_id = _request_id(answer.headers)
                if not 200 <= answer.status < 300:
                    yield decoder.fail(await _refusal(answer, place))
                    return
                while not decoder.is_done:
                    piece = await _next(answer, decoder)
                    chunks = decoder.end() if piece is None else decoder.feed(piece)
                    if chunks:
                        yield chunks
                    if decoder.is_done and piece is not None:
                        await answer.drain()
        except LlmError as error:
            yield decoder.fail(failure_of(error))


async def _next(answer: "Answer", decoder: Decoder) -> bytes | None:
    if not decoder.is_settled:
        return await answer.next()
    # The answer is complete but for its usage: a server that neither sends it nor closes must
    # not hold the turn until it counts as silent.
    with anyio.move_on_after(GRACE_S):
        try:
            return await answer.next()
        except LlmError:
            return None
    return None


def _load_failures() -> None:
    import dsh_acp.llm.failures  # noqa: F401 # pyright: ignore[reportUnusedImport]


def _request_id(headers: Mapping[str, str]) -> str | None:
    names = ("x-request-id", "request-id", "x-deepseek-request-id", "cf-ray")
    return next((headers[name] for name in names if name in headers), None)


async def _refusal(answer: "Answer", place: Place) -> Failure:
    import time

    from dsh_acp.llm.failures import from_response

    body = b""
    with anyio.move_on_after(GRACE_S):
        body = await answer.read()
    return from_response(place, answer.status, answer.headers, body, time.time())
