"""The configured providers, for commands that price or rebuild recorded requests."""

from collections.abc import Callable
from typing import Final

from dsh_acp.config import Settings
from dsh_acp.llm.provider import Price, Provider
from dsh_acp.messages import Request

_REPLAY: Final = "replay"
"""The provider's name in a script that names none."""


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


class RecordedBodies:
    """The exact bytes of recorded requests, by whoever could have sent them.

    A session that was played from a recording goes by the recorded provider's name, but its bodies
    are those of the replay. They follow from the request alone, so they can be built without the
    recording and without a configured provider.
    """

    def __init__(self, settings: Settings) -> None:
        self._home = settings.home
        self._find = find_provider(settings)
        self._replays: dict[tuple[str, str], Provider] = {}

    def body(self, request: Request, digest: str | None) -> bytes | None:
        """The bytes whose SHA-256 is `digest`; else those that the configured provider makes.

        `None` when the provider is not configured here and a replay has not made them either.

        Raises:
            LlmError, LogError: the body cannot be built.
        """
        name = request.config.provider
        provider = self._find(name)
        ours = None if provider is None else provider.body(request)
        if ours is not None and digest in (None, ours.sha256):
            return ours.data
        replayed = self._replay(name, request.config.model).body(request)
        if replayed.sha256 == digest or (name == _REPLAY and ours is None):
            return replayed.data
        return None if ours is None else ours.data

    def _replay(self, name: str, model: str) -> Provider:
        from dsh_acp.llm.replay import ReplayProvider
        from dsh_acp.llm.replay_script import Script
        from dsh_acp.log.attachments import Attachments

        found = self._replays.get((name, model))
        if found is None:
            images = Attachments(self._home)
            found = ReplayProvider([Script((), name, model)], images)
            self._replays[name, model] = found
        return found
