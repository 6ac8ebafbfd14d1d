"""Anthropic Messages.

Thinking comes with signatures that must come back with it; they travel in the message's
`source.replayState`, as `{"response": {}, "blocks": [{"signature": …} | {"data": …} | null, …]}`.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from dsh_acp.config import ProviderSettings
from dsh_acp.errors import LlmError
from dsh_acp.llm.anthropic_body import AnthropicFormat, AnthropicKey
from dsh_acp.llm.anthropic_stream import AnthropicStream
from dsh_acp.llm.bodies import Bodies
from dsh_acp.llm.endpoint import Endpoint, failure_of
from dsh_acp.llm.media import Media
from dsh_acp.llm.models import Models, listed
from dsh_acp.llm.openai import prepared
from dsh_acp.llm.place import join
from dsh_acp.llm.provider import Body, ModelInfo, PreparedCall
from dsh_acp.llm.retry import policy_of
from dsh_acp.messages import CallConfig, Chunk, Request

BASE_URL: Final = "https://api.anthropic.com"
KEY_ENV: Final = "ANTHROPIC_API_KEY"
VERSION: Final = "2023-06-01"
EFFORTS: Final = ("off", "low", "medium", "high", "max")


class AnthropicProvider:
    """One configured endpoint of Anthropic Messages."""

    def __init__(self, settings: ProviderSettings, media: Media | None = None) -> None:
        self.name = settings.name
        self.retry = policy_of(settings)
        self.endpoint = Endpoint(settings, BASE_URL, KEY_ENV)
        self._models = Models(settings, "anthropic", EFFORTS, can_hear=False)
        self._bodies: Bodies[AnthropicKey] = Bodies(
            AnthropicFormat(settings.name, self.model, media)
        )

    @property
    def is_usable(self) -> bool:
        """Whether a call would find its key."""
        return self.endpoint.has_key

    def check(self) -> None:
        """Raise when a call would not find its key.

        Raises:
            LlmError: `MISSING_CREDENTIAL`, `INVALID_CREDENTIAL`.
        """
        self.endpoint.key()

    def model(self, model: str) -> ModelInfo:
        return self._models.get(model)

    def models(self) -> Sequence[ModelInfo]:
        return self._models.all()

    async def discover(self) -> Sequence[ModelInfo]:
        try:
            headers = self._key_header()
        except LlmError:
            return self.models()
        body = await self.endpoint.get(self._path("/models"), headers)
        self._models.discover(listed(body or b""))
        return self.models()

    def prepare(self, config: CallConfig) -> PreparedCall:
        return prepared(self.name, self.model(config.model), config)

    def body(self, request: Request) -> Body:
        return self._bodies.body(request)

    async def stream(self, request: Request, body: Body) -> AsyncGenerator[Sequence[Chunk]]:
        place = self.endpoint.place(request.config.model, self._models.ids())
        decoder = AnthropicStream(place)
        try:
            headers = self._key_header()
        except LlmError as error:
            yield decoder.fail(failure_of(error))
            return
        url = join(self.endpoint.base_url, self._path("/messages"))
        exchange = self.endpoint.exchange(url, headers, body.data, place, decoder)
        # Closed with this generator, not when it is collected: a cancel must reach the server.
        async with aclosing(exchange):
            async for chunks in exchange:
                yield chunks

    async def warm(self) -> None:
        await self.endpoint.warm()

    async def aclose(self) -> None:
        await self.endpoint.aclose()

    def _path(self, path: str) -> str:
        base = self.endpoint.base_url.partition("?")[0].rstrip("/")
        return path if base.endswith("/v1") else f"/v1{path}"

    def _key_header(self) -> Mapping[str, str]:
        key = self.endpoint.key()
        given = {} if key is None else {"x-api-key": key}
        return {"anthropic-version": VERSION, **given}
