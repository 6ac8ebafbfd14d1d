"""Parts of version 2's frames that stand for themselves: lists, plans, usage."""

from collections.abc import Sequence
from typing import Any, Final

from dsh_acp.acp.updates import Choice, Compaction, Plan, Used, Value
from dsh_acp.agent.commands import CommandInfo

PLAN: Final = "todo"
"""The id of the one plan that a session has."""

_STATUSES: Final = frozenset({"pending", "in_progress", "completed", "cancelled"})


def plan(shown: Plan) -> dict[str, Any]:
    """The todo list as the one plan that a session has."""
    entries = [
        {
            "content": content,
            "priority": "medium",
            "status": status if status in _STATUSES else "pending",
        }
        for content, status in shown.entries
    ]
    items = {"type": "items", "planId": PLAN, "entries": entries}
    return {"sessionUpdate": "plan_update", "plan": items}


def used(tokens: Used) -> dict[str, Any]:
    """`usage_update`."""
    update: dict[str, Any] = {
        "sessionUpdate": "usage_update",
        "used": tokens.used,
        "size": tokens.size,
    }
    if len(tokens.costs) == 1:
        currency, amount = tokens.costs[0]
        update["cost"] = {"amount": amount, "currency": currency}
    if tokens.tokens:
        update["_meta"] = {"dsh-acp": {"usage": tokens.tokens}}
    return update


def compaction(found: Compaction) -> dict[str, Any]:
    """`compaction_update`."""
    update: dict[str, Any] = {
        "sessionUpdate": "compaction_update",
        "compactionId": found.id,
        "status": found.status,
    }
    if found.summary is not None:
        update["summary"] = [{"type": "text", "text": found.summary}]
    if found.error is not None:
        update["error"] = found.error
    return update


def choices(found: Sequence[Choice]) -> list[dict[str, Any]]:
    """`configOptions`."""
    return [_choice(choice) for choice in found]


def _choice(choice: Choice) -> dict[str, Any]:
    groups = [
        {"groupId": name, "name": name, "options": [_value(value) for value in values]}
        for name, values in choice.groups
    ]
    return {
        "configId": choice.id,
        "name": choice.name,
        "description": choice.description,
        "category": choice.id,
        "type": "select",
        "currentValue": choice.current,
        "options": groups if choice.groups[0][0] else groups[0]["options"],
    }


def _value(value: Value) -> dict[str, Any]:
    found = {"value": value.id, "name": value.name}
    if value.description is not None:
        found["description"] = value.description
    return found


def commands(found: Sequence[CommandInfo]) -> list[dict[str, Any]]:
    """`availableCommands`."""
    listed: list[dict[str, Any]] = []
    for info in found:
        item: dict[str, Any] = {
            "type": "command",
            "name": info.name,
            "description": info.description or info.name,
        }
        if info.hint:
            item["input"] = {"type": "text", "hint": info.hint}
        listed.append(item)
    return listed
