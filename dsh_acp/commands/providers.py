"""The configured providers, for commands that price or rebuild recorded requests."""

from collections.abc import Callable

from dsh_acp.config import Settings
from dsh_acp.llm.provider import Price, Provider
from dsh_acp.messages import Request


def find_provider(settings: Settings) -> Callable[[str], Provider | None]:
    """Gives a provider by its name; `None` for one that is not configured here."""
    from dsh_acp.llm.registry import Providers
    from dsh_acp.log.attachments import Attachments

    return Providers(settings, Attachments(settings.home)).get


def find_price(settings: Settings) -> Callable[[str, str], Price | None]:
    """Gives the price of a provider's model; `None` where it is not known."""
    find = find_provider(settings)

    def price(provider: str, model: str) -> Price | None:
        found = find(provider)
        return None if found is None else found.model(model).price

    return price


def body_of(find: Callable[[str], Provider | None], request: Request) -> bytes | None:
    """The exact bytes of `request`; `None` when its provider is not configured here.

    Raises:
        LlmError, LogError: the body cannot be built.
    """
    provider = find(request.config.provider)
    return None if provider is None else provider.body(request).data
