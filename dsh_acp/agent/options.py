"""What was chosen for a session: model, effort, permissions, directories.

A choice of model holds from the next request on, and that request's header says so. A choice of
preset holds at once inside a turn; between turns it waits for the next turn that carries a prompt.
Until then it is shown as current, and the last choice wins. What waits is in the log, too: an agent
that ends meanwhile has forgotten nothing.
"""

from collections.abc import Iterable
from contextlib import suppress
import os
from typing import ClassVar, Final

from dsh_acp.agent import folds, policy
from dsh_acp.agent.services import Services, SessionOptions
from dsh_acp.config import Preset
from dsh_acp.errors import DshError, LogError
from dsh_acp.llm.provider import ModelInfo, Provider
from dsh_acp.log.events import Event
from dsh_acp.log.payloads import RequestHeader
from dsh_acp.log.plugin_payloads import PermissionPreset, SessionOptionsEvent
from dsh_acp.log.session_log import SessionLog
from dsh_acp.messages import UNSET, CallConfig, EpochHeader


class DirectoriesFold:
    """The additional directories, as last recorded."""

    types: ClassVar[tuple[str, ...]] = (SessionOptionsEvent.TYPE,)

    def __init__(self) -> None:
        self.directories: tuple[str, ...] = ()

    def apply(self, event: Event) -> None:
        """Take in a record of options."""
        match event.payload:
            case SessionOptionsEvent(additional_directories=tuple() as found):
                self.directories = found
            case _:
                pass


class WaitingFold:
    """Choices that are recorded, but that no request and no turn has begun with."""

    types: ClassVar[tuple[str, ...]] = (
        SessionOptionsEvent.TYPE,
        RequestHeader.TYPE,
        PermissionPreset.TYPE,
    )

    def __init__(self) -> None:
        self.route: tuple[str, str] | None = None
        self.effort: str | None = None
        """`""` is the model's own; `None`, none was chosen."""
        self.preset: str | None = None

    def apply(self, event: Event) -> None:
        """Take in a choice, or that what was chosen is in force."""
        if event.type == RequestHeader.TYPE:
            self.route = self.effort = None
        elif event.type == PermissionPreset.TYPE:
            self.preset = None
        elif isinstance(chosen := event.payload, SessionOptionsEvent):
            if isinstance(chosen.provider, str) and isinstance(chosen.model, str):
                self.route = (chosen.provider, chosen.model)
            if isinstance(chosen.effort, str):
                self.effort = chosen.effort
            if isinstance(chosen.preset, str):
                self.preset = chosen.preset


def fold(events: Iterable[Event]) -> tuple[str, ...]:
    """The additional directories after `events`."""
    return folds.run(DirectoriesFold(), events).directories


class Options:
    """The choices of one live session."""

    def __init__(
        self,
        log: SessionLog,
        services: Services,
        chosen: SessionOptions,
        following: folds.Folds,
        permissions: policy.PolicyFold,
    ) -> None:
        self._log = log
        self._services = services
        self._chosen = chosen
        self._following = following
        self._policy = permissions
        self._directories = following.add(DirectoriesFold())
        self._waiting = following.add(WaitingFold())
        self._pending_preset: Preset | None = None
        self._is_leaving_plan = False
        self.cwd: Final = chosen.cwd
        self.provider = chosen.provider
        self.model = chosen.model
        self.effort = chosen.effort
        self._restore(log.request_header())

    def _restore(self, header: EpochHeader | None) -> None:
        if header is None:
            return
        config = header.config
        if self._services.providers.get(config.provider) is None:
            return
        self.provider = config.provider
        self.model = config.model
        defaults = header.adapter_defaults or {}
        if not defaults.get("reasoningEffort"):
            self.effort = config.reasoning_effort or self.effort

    def resume(self) -> None:
        """Take up the choices of an earlier life that still wait; to be called when caught up."""
        waiting = self._waiting
        route = waiting.route
        if route is not None and self._services.providers.get(route[0]) is not None:
            self.provider, self.model = route
        if waiting.effort is not None:
            self.effort = waiting.effort or None
        preset = waiting.preset
        if preset in policy.PRESETS and policy.changes(self._policy, preset):
            self._pending_preset = preset

    # ------------------------------------------------------------ model

    @property
    def spec(self) -> str:
        """`provider/model`; `""` before one is known."""
        return f"{self.provider}/{self.model}" if self.provider and self.model else ""

    def info(self) -> ModelInfo | None:
        """What is known of the chosen model."""
        provider = self._services.providers.get(self.provider)
        return provider.model(self.model) if provider is not None and self.model else None

    def route(self) -> tuple[Provider, str]:
        """The provider and model that answer now.

        Raises:
            LlmError: `MISSING_CREDENTIAL`, `NO_ADAPTER`.
        """
        provider = self._services.providers.get(self.provider) if self.provider else None
        if provider is None or not self.model:
            provider, model = self._services.providers.resolve(self.spec or None)
            self.provider, self.model = provider.name, model
        return provider, self.model

    def seed(self, folded: EpochHeader | None, first: bool) -> CallConfig:
        """The call config to start from: the last one without the model's own defaults.

        The first request of a life starts from the choices alone.
        """
        if first or folded is None:
            return self.applied(
                CallConfig(
                    provider=self.provider,
                    model=self.model,
                    max_tokens=self._chosen.max_tokens or UNSET,
                )
            )
        config = folded.config
        defaults = folded.adapter_defaults or {}
        return self.applied(
            CallConfig(
                provider=config.provider,
                model=config.model,
                reasoning_effort=UNSET
                if defaults.get("reasoningEffort")
                else config.reasoning_effort,
                temperature=config.temperature,
                max_tokens=UNSET if defaults.get("maxTokens") else config.max_tokens,
                stop=config.stop,
            )
        )

    def applied(self, config: CallConfig) -> CallConfig:
        """`config` with the chosen model and effort; no chosen effort clears an inherited one."""
        return CallConfig(
            provider=self.provider,
            model=self.model,
            reasoning_effort=self.effort or UNSET,
            temperature=config.temperature,
            max_tokens=config.max_tokens,
            stop=config.stop,
        )

    # ------------------------------------------------------------ permissions

    @property
    def preset(self) -> Preset:
        """The preset in force, or the one that waits for the next prompt."""
        self._following.catch_up()
        if self._pending_preset is not None:
            return self._pending_preset
        if not self._policy.is_set:
            return self._default_preset
        return self._policy.preset

    @property
    def _default_preset(self) -> Preset:
        return self._chosen.preset or self._services.settings.permission

    @property
    def before_plan(self) -> Preset:
        """The preset to return to when plan mode ends; the default when there was none before."""
        self._following.catch_up()
        if self._policy.before_plan is not None:
            return self._policy.before_plan
        return "ask" if self._default_preset == "plan" else self._default_preset

    @property
    def in_plan_mode(self) -> bool:
        """Whether plan mode is on and its end has not been agreed on."""
        self._following.catch_up()
        return self._policy.plan and not self._is_leaving_plan

    def leave_plan_mode(self) -> None:
        """Return to the preset from before, with the next step."""
        self._pending_preset = self.before_plan
        self._is_leaving_plan = True

    def record_defaults(self) -> None:
        """Record permissions and directories that the log does not say yet.

        On a fresh log these are its first events.
        """
        self._following.catch_up()
        if not self._policy.is_set:
            preset = self._pending_preset or self._default_preset
            self._pending_preset = None
            self._record(preset)
        directories = self._chosen.additional_directories
        if directories is not None and directories != self._directories.directories:
            self._log.append(SessionOptionsEvent(additional_directories=directories))

    def settle(self, *, has_prompt: bool) -> None:
        """Record what waits, at the start of a step; a preset only in a turn with a prompt.

        A plan that was approved ends plan mode here, for the step that carries it out. Where a log
        written elsewhere ended plan mode alone, the other knobs follow.
        """
        self._following.catch_up()
        if self._pending_preset is not None and (has_prompt or self._is_leaving_plan):
            self._record(self._pending_preset)
            self._pending_preset = None
            self._is_leaving_plan = False
        elif self._policy.chosen == "plan" and not self._policy.plan:
            self._record(self.before_plan)

    def _record(self, preset: Preset) -> None:
        for event in policy.changes(self._policy, preset):
            self._log.append(event)
        self._following.catch_up()

    # ------------------------------------------------------------ choosing

    def select(self, option: str, value: str, *, in_turn: bool) -> None:
        """Choose a `model` (`provider/model`), an `effort` (`""`: the model's own) or a `preset`.

        Raises:
            DshError: `UNKNOWN_OPTION`, `INVALID_VALUE`.
            LlmError: the model cannot be served.
        """
        route, effort, preset = (self.provider, self.model), self.effort, self._pending_preset
        match option:
            case "model":
                self._select_model(value)
            case "effort":
                self._select_effort(value)
            case "preset":
                self._select_preset(value, in_turn)
            case _:
                raise DshError(f'there is no option "{option}"', code="UNKNOWN_OPTION")
        if option == "preset":
            if self._pending_preset != preset and not in_turn:
                self._remember(SessionOptionsEvent(preset=value))
        elif ((self.provider, self.model), self.effort) != (route, effort):
            self._remember(
                SessionOptionsEvent(
                    provider=self.provider, model=self.model, effort=self.effort or ""
                )
            )

    def _remember(self, choice: SessionOptionsEvent) -> None:
        # A log that takes no more events says so to the next prompt; until then the choice holds.
        with suppress(LogError):
            self._log.append(choice)

    def _select_model(self, spec: str) -> None:
        provider, model = self._services.providers.resolve(spec)
        self.provider, self.model = provider.name, model
        efforts = provider.model(model).efforts
        if self.effort is not None and self.effort not in efforts:
            self.effort = None

    def _select_effort(self, value: str) -> None:
        info = self.info()
        if value and (info is None or value not in info.efforts):
            known = ", ".join(info.efforts) if info is not None and info.efforts else "none"
            raise DshError(
                f'"{value}" is not an effort of {self.spec or "the model"}; it has: {known}',
                code="INVALID_VALUE",
            )
        self.effort = value or None

    def _select_preset(self, value: str, in_turn: bool) -> None:
        if value not in policy.PRESETS:
            raise DshError(
                f'"{value}" is not a permission preset; there are: {", ".join(policy.PRESETS)}',
                code="INVALID_VALUE",
            )
        self._following.catch_up()
        self._is_leaving_plan = False
        if in_turn:
            self._pending_preset = None
            self._record(value)
        else:
            settled = self._policy.is_set and not policy.changes(self._policy, value)
            self._pending_preset = None if settled else value

    # ------------------------------------------------------------ directories

    @property
    def additional_directories(self) -> tuple[str, ...]:
        """The directories beside `cwd` that belong to the workspace."""
        if self._chosen.additional_directories is not None:
            return self._chosen.additional_directories
        self._following.catch_up()
        return self._directories.directories

    @property
    def roots(self) -> tuple[str, ...]:
        """`cwd` and the additional directories, symlinks resolved."""
        return tuple(os.path.realpath(path) for path in (self.cwd, *self.additional_directories))
