"""The providers of one process, by name."""

from collections.abc import Iterable
import logging
from typing import Final, Protocol, runtime_checkable

from dsh_acp.config import ProviderSettings, Settings
from dsh_acp.errors import LlmError
from dsh_acp.llm.dialects import DIALECTS, dialect_of
from dsh_acp.llm.media import Media
from dsh_acp.llm.provider import ModelInfo, Provider

_log = logging.getLogger(__name__)

LOCAL: Final = "local"


@runtime_checkable
class Checked(Protocol):
    """A provider that can tell beforehand whether a call would find its key, or its program."""

    @property
    def is_usable(self) -> bool: ...

    def check(self) -> None:
        """Raise what a call would fail with, in words that say what to do.

        Raises:
            LlmError: `MISSING_CREDENTIAL`, `INVALID_CREDENTIAL`, `NO_ADAPTER`.
        """
        ...


class Providers:
    """Makes each provider when it is first asked for, and keeps it.

    Names are those of the settings, those of the dialects that have an address of their own
    (`ollama/qwen3` works unconfigured), `local`, and `replay:FILE`.
    """

    def __init__(self, settings: Settings, media: Media | None = None) -> None:
        self._settings = settings
        self._media = media
        self._made: dict[str, Provider] = {}
        self._known: list[tuple[Provider, ModelInfo]] | None = None
        self._replays: dict[str, tuple[Provider, str]] = {}

    def resolve(self, model_spec: str | None) -> tuple[Provider, str]:
        """The provider and model id for `provider/model`, `replay:FILE[?override=FILE]` or `local`.

        `None` is the model of the settings. A replay takes the place of the provider that was
        recorded, under its name.

        Raises:
            LlmError: `NO_ADAPTER` when nothing of that name exists or only the model was not
                chosen, `MISSING_CREDENTIAL` when it has no key.
        """
        spec = model_spec or self._settings.model
        if not spec:
            if ready := [one.name for one in self._usable() if one.name != LOCAL]:
                raise LlmError(
                    f"No model is chosen for {', '.join(ready)}. Set DSH_ACP_MODEL, or `model` in "
                    f"{self._settings.config_path}, or use --model, as {ready[0]}/MODEL.",
                    code="NO_ADAPTER",
                )
            raise LlmError(
                "No model is chosen and no provider has a key. Set DEEPSEEK_API_KEY or another "
                "provider's key, run `dsh-acp login`, or choose a model with --model.",
                code="MISSING_CREDENTIAL",
            )
        if spec.startswith("replay:"):
            return self._replay(spec)
        name, _, model = spec.partition("/")
        provider = self.get(name)
        if provider is None:
            for other, info in self.known():
                if info.id == spec:
                    return other, spec
            raise LlmError(
                f"There is no provider {name!r} for the model {spec!r}. Known are "
                f"{', '.join(self._names())}. Write the model as provider/model, or add "
                f"[providers.{name}] to {self._settings.config_path}.",
                code="NO_ADAPTER",
            )
        if isinstance(provider, Checked):
            provider.check()
        return provider, model or self._default(provider)

    def get(self, provider_name: str) -> Provider | None:
        """The provider of that name, made if need be; `None` when nothing is known of it."""
        made = self._made.get(provider_name)
        if made is None:
            made = self._make(provider_name)
            if made is not None:
                self._made[provider_name] = made
                self._known = None
        return made

    def known(self) -> list[tuple[Provider, ModelInfo]]:
        """What can be chosen now: every model of every provider that would find its key.

        The same list until a discovery or a new provider may have changed it.
        """
        if self._known is None:
            self._known = [
                (provider, info) for provider in self._usable() for info in provider.models()
            ]
        return self._known

    async def discover(self) -> None:
        """Ask every usable endpoint for its models, at once. Never fails."""
        import anyio

        async def ask(provider: Provider) -> None:
            try:
                await provider.discover()
            except Exception:  # noqa: BLE001 - the border: what is asked here is never essential
                _log.exception("the models of %s cannot be listed", provider.name)

        async with anyio.create_task_group() as group:
            for provider in self._usable():
                group.start_soon(ask, provider)
        self._known = None

    async def aclose(self) -> None:
        """Close every connection, and stop the local model."""
        for provider in self._made.values():
            await provider.aclose()

    # ---------------------------------------------------------------- making

    def _names(self) -> list[str]:
        local = [LOCAL] if self._settings.offers_local else []
        return [*self._settings.providers, *local]

    def _usable(self) -> Iterable[Provider]:
        found = map(self.get, dict.fromkeys((*self._made, *self._names())))
        return [
            provider
            for provider in found
            if provider is not None and (not isinstance(provider, Checked) or provider.is_usable)
        ]

    def _make(self, name: str) -> Provider | None:
        if name == LOCAL and name not in self._settings.providers:
            from dsh_acp.llm.local import LocalProvider

            return LocalProvider(self._settings.home)
        settings = self._settings.providers.get(name)
        if settings is None:
            if not (name in DIALECTS and DIALECTS[name].base_url) and name != "anthropic":
                return None
            settings = ProviderSettings(name=name, dialect=name)
        if settings.dialect == "anthropic":
            from dsh_acp.llm.anthropic import AnthropicProvider

            return AnthropicProvider(settings, self._media)
        from dsh_acp.llm.openai import ChatProvider

        return ChatProvider(settings, dialect_of(settings.dialect), self._media)

    def _replay(self, spec: str) -> tuple[Provider, str]:
        found = self._replays.get(spec)
        if found is None:
            from dsh_acp.llm.replay import ReplayProvider, read

            provider = ReplayProvider(read(spec), self._media)
            found = self._replays[spec] = (provider, provider.default_model)
            self._made[provider.name] = provider
            self._known = None
        return found

    def _default(self, provider: Provider) -> str:
        models = provider.models()
        if not models:
            raise LlmError(
                f"Which model of {provider.name}? Write it as {provider.name}/MODEL.",
                code="NO_ADAPTER",
            )
        return models[0].id
