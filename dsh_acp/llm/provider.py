"""The seam to whoever serves models.

A provider turns a frozen `Request` into the exact bytes of a call, and those bytes into chunks.
`body` is pure: the same request gives the same bytes today, after a restart, and in an audit.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from dsh_acp.messages import CallConfig, Chunk, Request

AudioForm: TypeAlias = Literal["object", "data-url", "string"]
"""How a model wants recordings: data and format, the data as a URL, or nothing but the data."""


class Price(Struct, frozen=True):
    """Cost per million tokens, in `currency` (ISO 4217)."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    currency: str = "USD"


class ModelInfo(Struct, frozen=True):
    """What is known of a model; `None` is "not known", never a guess."""

    id: str
    name: str
    context_window: int | None = None
    max_output: int | None = None
    default_max_output: int | None = None
    vision: bool = False
    efforts: tuple[str, ...] = ()
    default_effort: str | None = None
    price: Price | None = None
    audio: bool = False
    audio_form: AudioForm = "object"


class RetryPolicy(Struct, frozen=True):
    """When and how often a failed attempt is repeated (times in milliseconds)."""

    max_retries: int = 5
    codes: tuple[str, ...] = ("EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT")
    initial_delay_ms: float = 500
    max_delay_ms: float = 10_000
    jitter: float = 0.1


class Body(Struct, frozen=True):
    """The exact bytes of one HTTP request and their SHA-256 in hex."""

    data: bytes
    sha256: str


class PreparedCall(Struct, frozen=True):
    """A call config with the model's defaults filled in.

    `adapter_defaults` names the fields that came from the model rather than from a caller.
    """

    config: CallConfig
    adapter_defaults: dict[str, bool]
    context_window: int | None


class Provider(Protocol):
    """Serves models under one name.

    One object per configured provider and process; sessions share it.
    """

    name: str
    retry: RetryPolicy

    def model(self, model: str) -> ModelInfo:
        """What is known of `model`; unknown ids get an `info` of unknowns, never an error."""
        ...

    def models(self) -> Sequence[ModelInfo]:
        """The models known so far, without any network; discovery adds to it in the background."""
        ...

    async def discover(self) -> Sequence[ModelInfo]:
        """Ask the endpoint for its models; quietly gives what is known when it does not answer."""
        ...

    def prepare(self, config: CallConfig) -> PreparedCall:
        """Validate `config` and fill in defaults.

        Raises:
            LlmError: `UNSUPPORTED_REASONING_EFFORT`.
        """
        ...

    def body(self, request: Request) -> Body:
        """The bytes for `request`; pure.

        Costs grow with what is new since the last call for the same session, because encoded
        messages and the running hash are kept.

        Raises:
            LlmError: `UNSUPPORTED_CONTENT`; an attachment that is missing or corrupt.
        """
        ...

    def stream(self, request: Request, body: Body) -> AsyncIterator[Sequence[Chunk]]:
        """Send `body` and yield chunks in batches, one batch per piece of response read.

        Never raises for a failed call: the last chunk is always a `Finish`, of kind `error` or
        `aborted` with its failure when the call failed. Closing the iterator or cancelling the
        consumer closes the connection at once.
        """
        ...

    async def warm(self) -> None:
        """Load what the first call needs (HTTP library, TLS context). Never fails, no network."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
