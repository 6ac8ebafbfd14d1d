"""What all sessions of the process share: settings, providers, the store, the tools.

Settings are read when the first session needs them, and again when a sign-in may have changed
them, so that a connection can be made, and repaired, without a usable configuration.
"""

from collections.abc import Callable
import gc
import logging
import sys
from typing import Final, Protocol

import anyio.to_thread

from dsh_acp.acp.uploads import Uploads
from dsh_acp.agent.hooks import Hooks
from dsh_acp.agent.services import Routes
from dsh_acp.config import Settings
from dsh_acp.llm.provider import Provider
from dsh_acp.log.attachments import Attachments
from dsh_acp.log.store import Store
from dsh_acp.messages import ImageRef
from dsh_acp.tools import catalog
from dsh_acp.tools.tool import Tool, World
from dsh_acp.tools.world import LocalWorld

_log = logging.getLogger(__name__)

_COLLECT: Final = (10_000, 20, 20)
"""Thresholds of the garbage collector once everything is loaded."""


class Providers(Routes, Protocol):
    """Who serves models, and how to end that."""

    async def aclose(self) -> None:
        """Close connections."""
        ...


def configured(settings: Settings, attachments: Attachments) -> Providers:
    """The providers of the settings."""
    from dsh_acp.llm import registry

    return registry.Providers(settings, attachments)


class Host:
    """Everything that is made once. `load` gives the settings, `connect` the providers.

    Properties raise `ConfigError` as long as the settings cannot be used.
    """

    def __init__(
        self,
        load: Callable[[], Settings],
        connect: Callable[[Settings, Attachments], Providers] = configured,
        hooks: Hooks | None = None,
    ) -> None:
        self._load: Final = load
        self._connect: Final = connect
        self.hooks: Final = hooks or Hooks(plugins=True)
        self._shared: _Shared | None = None
        self._stale: list[Providers] = []

    def _get(self) -> "_Shared":
        if self._shared is None:
            self._shared = _Shared(self._load(), self._connect)
            for note in self._shared.settings.notes:
                sys.stderr.write(f"dsh-acp: {note}\n")
            if self._shared.store.memory_only is not None:
                sys.stderr.write(
                    f"dsh-acp: sessions are kept in memory only: {self._shared.store.memory_only}\n"
                )
            self.hooks.load_plugins()
        return self._shared

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._get().settings

    @property
    def store(self) -> Store:
        """The sessions on disk."""
        return self._get().store

    @property
    def attachments(self) -> Attachments:
        """The images and recordings beside the logs."""
        return self._get().attachments

    @property
    def uploads(self) -> Uploads:
        """Where files of prompts go that the model does not take."""
        return self._get().uploads

    @property
    def routes(self) -> Routes:
        """Who serves models."""
        return self._get().providers

    def tools(self) -> dict[str, Tool]:
        """The tools of a new session; the dictionary is the session's own."""
        return dict(self._get().tools)

    def world(self) -> World:
        """The local world."""
        return LocalWorld()

    def resolve(self, spec: str | None) -> tuple[Provider, str]:
        """The provider and model behind `spec`.

        Raises:
            LlmError: `MISSING_CREDENTIAL`, `NO_ADAPTER`.
        """
        return self._get().providers.resolve(spec)

    def reload(self) -> None:
        """Read the settings anew for what begins from now on; live sessions keep theirs."""
        if self._shared is not None:
            self._stale.append(self._shared.providers)
            fresh = _Shared(self._load(), self._connect)
            fresh.store, fresh.attachments = self._shared.store, self._shared.attachments
            self._shared = fresh

    async def warm(self) -> None:
        """Load what the first prompt needs. Never fails."""
        try:
            settings = self.settings
            provider, _ = self.resolve(settings.model)
            await provider.warm()
            # What is loaded by now lives as long as the process; looking through it again and
            # again is what would make one chunk in a hundred late.
            gc.collect()
            gc.freeze()
            # Next to nothing here is part of a cycle, and what lives for a moment is better left
            # to die than looked at every 700 objects.
            gc.set_threshold(*_COLLECT)
        except Exception as exc:  # noqa: BLE001 - a convenience; the first prompt reports its cause
            _log.debug("nothing to warm up: %s", exc)

    async def aclose(self) -> None:
        """Close connections."""
        if self._shared is not None:
            self._stale.append(self._shared.providers)
        for providers in self._stale:
            await providers.aclose()


class _Shared:
    def __init__(
        self, settings: Settings, connect: Callable[[Settings, Attachments], Providers]
    ) -> None:
        self.settings = settings
        self.store = Store(settings.home)
        self.attachments = Attachments(settings.home)
        self.uploads = Uploads(settings.home / "uploads")
        self.providers = connect(settings, self.attachments)
        self.tools = catalog.builtin(settings, self._keep)

    async def _keep(self, data: bytes, media_type: str, name: str) -> ImageRef:
        return await anyio.to_thread.run_sync(self.attachments.put, data, media_type, name)
