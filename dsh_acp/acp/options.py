"""Modes and configuration options: the same choices, for clients of either age.

Every answer and update carries the complete list, because clients replace theirs with it. An
option always has a current value that is among its values.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

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


def modes(session: Session) -> dict[str, Any]:
    """`modes`: the permission presets."""
    return {
        "currentModeId": session.preset,
        "availableModes": [
            {"id": name, "name": _NAMES[name], "description": policy.DESCRIPTIONS[name]}
            for name in policy.PRESETS
        ],
    }


def config_options(session: Session, routes: Routes) -> list[dict[str, Any]]:
    """`configOptions`, the most important first."""
    found = [_mode(session)]
    if session.model:
        found.append(_model(session, routes))
    effort = _effort(session)
    if effort is not None:
        found.append(effort)
    return found


def _select(
    id: str, name: str, description: str, current: str, options: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "id": id,
        "name": name,
        "description": description,
        "category": id,
        "type": "select",
        "currentValue": current,
        "options": options,
    }


def _mode(session: Session) -> dict[str, Any]:
    options = [
        {"value": name, "name": _NAMES[name], "description": policy.DESCRIPTIONS[name]}
        for name in policy.PRESETS
    ]
    description = "What may happen without asking you."
    return _select(MODE, "Permissions", description, session.preset, options)


def _model(session: Session, routes: Routes) -> dict[str, Any]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for provider, info in routes.known():
        value = {"value": f"{provider.name}/{info.id}", "name": info.name or info.id}
        groups.setdefault(provider.name, []).append(value)
    current = session.model
    if not any(value["value"] == current for values in groups.values() for value in values):
        # A model that is no longer listed stays selectable as long as it is the one in use.
        provider, _, name = current.partition("/")
        groups.setdefault(provider, []).append({"value": current, "name": name})
    options: Sequence[Mapping[str, Any]]
    if len(groups) == 1:
        (options,) = groups.values()
    else:
        options = [
            {"group": name, "name": name, "options": values} for name, values in groups.items()
        ]
    return _select(MODEL, "Model", "The model that answers from now on.", current, options)


def _effort(session: Session) -> dict[str, Any] | None:
    info = session.parts.options.info()
    current = session.effort or ""
    efforts = list(info.efforts) if info is not None else []
    if current and current not in efforts:
        efforts.append(current)
    if not efforts:
        return None
    default = info.default_effort if info is not None else None
    options = [{"value": "", "name": f"Default ({default})" if default else "Default"}]
    options += [{"value": effort, "name": effort.capitalize()} for effort in efforts]
    return _select(EFFORT, "Thinking", "How much the model thinks first.", current, options)


def select(session: Session, routes: Routes, config_id: str, value: Any) -> None:
    """Choose a value.

    Raises:
        RpcError: `-32602`, naming the values that there are.
    """
    listed = {option["id"]: option for option in config_options(session, routes)}
    option = listed.get(config_id)
    if option is None:
        raise RpcError(
            INVALID_PARAMS,
            f'There is no option "{config_id}"; the options are: {", ".join(listed)}.',
        )
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f'The option "{config_id}" takes one of its values.')
    if value == option["currentValue"]:
        return
    allowed = values(option)
    if value not in allowed:
        raise RpcError(
            INVALID_PARAMS,
            f'"{value}" is no value of "{config_id}"; its values are: {", ".join(allowed)}.',
        )
    try:
        session.select(_SELECTED[config_id], value)
    except DshError as exc:
        raise RpcError(INVALID_PARAMS, exc.message) from exc


def values(option: Mapping[str, Any]) -> list[str]:
    """All values of an option, grouped or not."""
    found: list[str] = []
    for item in option["options"]:
        found += (
            [inner["value"] for inner in item["options"]] if "group" in item else [item["value"]]
        )
    return found


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
