"""Notices to a model that repeats itself.

A call repeated with the same arguments three, five and eight times in a row earns a notice with
the next step. Nothing is blocked; the limit on requests per turn does that.
"""

import json
from typing import Final

from dsh_acp.messages import Message, Text

PLUGIN: Final = "repeat-tool-reminder"
THRESHOLDS: Final = (3, 5, 8)
_PREVIEW: Final = 500
_SUMMARY: Final = 120


class Repetition:
    """Counts identical consecutive calls of one live session. Not restored by a resume."""

    def __init__(self) -> None:
        self._key = ""
        self._count = 0

    def reset(self) -> None:
        """The person said something; whatever follows is new."""
        self._key = ""
        self._count = 0

    def note(self, name: str, arguments: str) -> Message | None:
        """Count a finished call; the notice that is due, if one is."""
        key = name + "\0" + _canonical(arguments)
        self._count = self._count + 1 if key == self._key else 1
        self._key = key
        if self._count not in THRESHOLDS:
            return None
        return _notice(name, arguments, self._count)


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _notice(name: str, arguments: str, count: int) -> Message:
    if count == THRESHOLDS[0]:
        text = (
            f"You have made the same `{name}` call {count} times in a row. If its result was not "
            "what you need, change the arguments or the approach."
        )
    else:
        shown = arguments[:_PREVIEW] + ("…" if len(arguments) > _PREVIEW else "")
        text = (
            f"You have made the same `{name}` call {count} times in a row, with the arguments "
            f"{shown}\nRepeating it will not give another result. Stop, say what you know, and "
            "either try something different or tell the user what is in the way."
        )
    summary = f"{name} × {count}"
    if len(summary) > _SUMMARY:
        summary = summary[: _SUMMARY - 1] + "…"
    source = {"kind": "plugin", "plugin": PLUGIN, "form": "notice", "summary": summary}
    return Message.user((Text(text),), source)
