"""Chat Completions, in the dialect of whoever serves it.

Why not OpenAI's Responses API as well: its reasoning items come back either by a server-side id,
which a log cannot reproduce after the provider forgets it, or as encrypted blobs whose order
among text and calls the log's blocks do not keep. Over Chat Completions every body can be rebuilt
from the log alone, which is the one promise that no adapter may break.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from msgspec import UNSET, structs

from dsh_acp.config import ProviderSettings
from dsh_acp.errors import LlmError
from dsh_acp.llm.bodies import Bodies
from dsh_acp.llm.chat_body import ChatFormat, ChatKey
from dsh_acp.llm.chat_stream import ChatStream
from dsh_acp.llm.dialects import AUTO, Dialect
from dsh_acp.llm.endpoint import Endpoint, failure_of
from dsh_acp.llm.media import Media
from dsh_acp.llm.models import Models, listed
from dsh_acp.llm.place import join
from dsh_acp.llm.provider import Body, ModelInfo, PreparedCall
from dsh_acp.llm.retry import policy_of
from dsh_acp.messages import CallConfig, Chunk, Request

PATH = "/chat/completions"


def prepared(provider: str, info: ModelInfo, config: CallConfig) -> PreparedCall:
    """`config` with the defaults of the model filled in.

    Raises:
        LlmError: `UNSUPPORTED_REASONING_EFFORT`.
    """
    defaults: dict[str, bool] = {}
    effort = config.reasoning_effort
    if not isinstance(effort, str) or effort in AUTO:
        if info.default_effort is not None:
            defaults["reasoningEffort"] = True
        config = structs.replace(config, reasoning_effort=info.default_effort or UNSET)
    elif effort not in info.efforts:
        raise LlmError(
            f'provider "{provider}" model "{config.model}" does not support reasoning effort '
            f'"{effort}"',
            code="UNSUPPORTED_REASONING_EFFORT",
        )
    if not isinstance(config.max_tokens, int) and info.default_max_output is not None:
        config = structs.replace(config, max_tokens=info.default_max_output)
        defaults["maxTokens"] = True
    return PreparedCall(config, defaults, info.context_window)


class ChatProvider:
    """One configured endpoint of Chat Completions."""

    def __init__(
        self, settings: ProviderSettings, dialect: Dialect, media: Media | None = None
    ) -> None:
        self.name = settings.name
        self.retry = policy_of(settings)
        self.endpoint = Endpoint(settings, dialect.base_url, dialect.key_env)
        self._dialect = dialect
        self._models = Models(
            settings, dialect.name, dialect.default_efforts, dialect.default_effort
        )
        self._bodies: Bodies[ChatKey] = Bodies(
            ChatFormat(settings.name, dialect, self.model, media)
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
        body = await self.endpoint.get("/models", headers)
        self._models.discover(listed(body or b""))
        return self.models()

    def prepare(self, config: CallConfig) -> PreparedCall:
        return prepared(self.name, self.model(config.model), config)

    def body(self, request: Request) -> Body:
        return self._bodies.body(request)

    async def stream(self, request: Request, body: Body) -> AsyncGenerator[Sequence[Chunk]]:
        model = request.config.model
        place = self.endpoint.place(model, self._models.ids())
        taken = self._bodies.call_ids(request)
        decoder = ChatStream(place, request.header.tools or (), taken)
        try:
            headers = self._key_header()
        except LlmError as error:
            yield decoder.fail(failure_of(error))
            return
        url = join(self.endpoint.base_url, PATH)
        exchange = self.endpoint.exchange(url, headers, body.data, place, decoder)
        # Closed with this generator, not when it is collected: a cancel must reach the server.
        async with aclosing(exchange):
            async for chunks in exchange:
                yield chunks

    async def warm(self) -> None:
        await self.endpoint.warm()

    async def aclose(self) -> None:
        await self.endpoint.aclose()

    def _key_header(self) -> Mapping[str, str]:
        key = self.endpoint.key()
        if key is None:
            return {}
        if self._dialect.auth == "api-key":
            return {"api-key": key}
        return {"authorization": f"Bearer {key}"}
