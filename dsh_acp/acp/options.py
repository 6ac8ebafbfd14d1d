"""What a person can choose for a session: permissions, model, effort.

Every answer and update carries the complete list, because clients replace theirs with it. A
choice always has a current value that is among its values.
"""

from collections.abc import Mapping
from typing import Any, Final

from dsh_acp.acp.updates import Choice, Value
from dsh_acp.agent import policy
from dsh_acp.agent.services import Routes
from dsh_acp.agent.session import Session
from dsh_acp.errors import DshError
from dsh_acp.wire.frames import INVALID_PARAMS, RpcError

_NAMES: Final[Mapping[str, str]] = {
    "plan": "Plan",
    "ask": "Ask",
    "workspace-write": "Write in workspace",
    "full-access": "Full access",
}

MODE: Final = "mode"
MODEL: Final = "model"
EFFORT: Final = "thought_level"

_SELECTED: Final[Mapping[str, str]] = {MODE: "preset", MODEL: "model", EFFORT: "effort"}
"""Option id to the session's name for the choice."""


def presets() -> tuple[Value, ...]:
    """The permission presets."""
    return tuple(Value(name, _NAMES[name], policy.DESCRIPTIONS[name]) for name in policy.PRESETS)


def choices(session: Session, routes: Routes) -> tuple[Choice, ...]:
    """What can be chosen, the most important first."""
    found = [_mode(session)]
    if session.model:
        found.append(_model(session, routes))
    effort = _effort(session)
    if effort is not None:
        found.append(effort)
    return tuple(found)


def _mode(session: Session) -> Choice:
    description = "What may happen without asking you."
    return Choice(MODE, "Permissions", description, session.preset, (("", presets()),))


def _model(session: Session, routes: Routes) -> Choice:
    groups: dict[str, list[Value]] = {}
    for provider, info in routes.known():
        value = Value(f"{provider.name}/{info.id}", info.name or info.id)
        groups.setdefault(provider.name, []).append(value)
    current = session.model
    if not any(value.id == current for values in groups.values() for value in values):
        # A model that is no longer listed stays selectable as long as it is the one in use.
        provider, _, name = current.partition("/")
        groups.setdefault(provider, []).append(Value(current, name))
    listed = tuple((name, tuple(values)) for name, values in groups.items())
    if len(listed) == 1:
        listed = (("", listed[0][1]),)
    return Choice(MODEL, "Model", "The model that answers from now on.", current, listed)


def _effort(session: Session) -> Choice | None:
    info = session.parts.options.info()
    current = session.effort or ""
    efforts = list(info.efforts) if info is not None else []
    if current and current not in efforts:
        efforts.append(current)
    if not efforts:
        return None
    default = info.default_effort if info is not None else None
    values = [Value("", f"Default ({default})" if default else "Default")]
    values += [Value(effort, effort.capitalize()) for effort in efforts]
    description = "How much the model thinks first."
    return Choice(EFFORT, "Thinking", description, current, (("", tuple(values)),))


def select(session: Session, routes: Routes, config_id: str, value: Any) -> None:
    """Choose a value.

    Raises:
        RpcError: `-32602`, naming the values that there are.
    """
    listed = {choice.id: choice for choice in choices(session, routes)}
    option = listed.get(config_id)
    if option is None:
        raise RpcError(
            INVALID_PARAMS,
            f'There is no option "{config_id}"; the options are: {", ".join(listed)}.',
        )
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f'The option "{config_id}" takes one of its values.')
    if value == option.current:
        return
    allowed = option.values
    if value not in allowed:
        raise RpcError(
            INVALID_PARAMS,
            f'"{value}" is no value of "{config_id}"; its values are: {", ".join(allowed)}.',
        )
    try:
        session.select(_SELECTED[config_id], value)
    except DshError as exc:
        raise RpcError(INVALID_PARAMS, exc.message) from exc


def select_mode(session: Session, mode_id: str) -> None:
    """Choose a mode.

    Raises:
        RpcError: `-32602`, naming the modes that there are.
    """
    if mode_id not in policy.PRESETS:
        raise RpcError(
            INVALID_PARAMS,
            f'There is no mode "{mode_id}"; the modes are: {", ".join(policy.PRESETS)}.',
        )
    if mode_id != session.preset:
        session.select("preset", mode_id)
