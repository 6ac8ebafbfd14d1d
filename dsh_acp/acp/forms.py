"""Questions as elicitation forms, and their answers.

A question is `{id?, question, header?, detail?, options?: [{label, description?}], multiSelect?,
callId?, intent?: {kind, approve}}`; `intent` says that it is a review, and which option approves.
A filled free answer wins over a choice.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.errors import ToolError


class _Reply(Struct, frozen=True):
    action: str = ""
    content: Any = None


_replies: Final = msgspec.json.Decoder(_Reply)


def labels(question: Mapping[str, Any]) -> list[str]:
    """The labels of the options."""
    return [str(option.get("label", "")) for option in _options(question)]


def approval(question: Mapping[str, Any]) -> str | None:
    """The option that approves, when the question is a review."""
    intent = question.get("intent")
    if not isinstance(intent, Mapping):
        return None
    approve = cast(Mapping[str, Any], intent).get("approve")
    return approve if isinstance(approve, str) else None


def message(question: Mapping[str, Any]) -> str:
    """The question, and its detail below."""
    text = str(question.get("question", ""))
    detail = question.get("detail")
    return f"{text}\n\n{detail}" if detail else text


def request(question: Mapping[str, Any]) -> dict[str, Any]:
    """The params of `elicitation/create`, without their scope."""
    text = str(question.get("question", ""))
    choices = [
        {"const": str(option.get("label", "")), "title": _title(option)}
        for option in _options(question)
    ]
    properties: dict[str, Any] = {}
    required: list[str] = []
    if not choices:
        properties["custom"] = {"type": "string", "title": text}
        required.append("custom")
    else:
        many = question.get("multiSelect") is True
        what = "one or more options" if many else "one option"
        choice: dict[str, Any] = {
            "type": "array" if many else "string",
            "title": text,
            "description": f"Choose {what}, or fill a custom answer below.",
        }
        choice.update({"items": {"anyOf": choices}} if many else {"oneOf": choices})
        properties["choice"] = choice
        properties["custom"] = {
            "type": "string",
            "title": "Custom answer",
            "description": "Optional free-form answer. Leave empty to use the selected option.",
        }
    return {
        "mode": "form",
        "message": message(question),
        "requestedSchema": {
            "type": "object",
            "title": str(question.get("header") or "Question"),
            "properties": properties,
            "required": required,
        },
    }


def answer(question: Mapping[str, Any], raw: bytes) -> dict[str, Any]:
    """The answer in a client's reply: `{id, selected, custom?}`.

    Raises:
        ToolError: `ASK_CANCELLED`, the person declined; `NO_ANSWER`, nothing was filled in.
    """
    reply = jsontext.decode(raw, _replies)
    if reply.action != "accept":
        raise ToolError("the user did not answer the question", code="ASK_CANCELLED")
    given: Any = reply.content
    content = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    found: dict[str, Any] = {"id": question.get("id"), "selected": []}
    custom = content.get("custom")
    if isinstance(custom, str) and custom.strip():
        found["custom"] = custom
        return found
    choice = content.get("choice")
    chosen = cast(list[Any], choice) if isinstance(choice, list) else [choice]
    found["selected"] = [item for item in chosen if isinstance(item, str) and item]
    if not found["selected"]:
        raise ToolError("the user left the question unanswered", code="NO_ANSWER")
    return found


def _options(question: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    options = question.get("options")
    if not isinstance(options, list | tuple):
        return []
    return [
        cast(Mapping[str, Any], option)
        for option in cast(list[Any], options)
        if isinstance(option, Mapping)
    ]


def _title(option: Mapping[str, Any]) -> str:
    label, description = str(option.get("label", "")), option.get("description")
    return f"{label}: {description}" if description else label
