"""What the model is told of skills: a catalogue, and the instructions that the user calls for.

The catalogue is a logged message, sent when the skills that the model may load differ from those
in the last catalogue that it still sees. `/name` in the user's words loads a skill beside them.
"""

from collections.abc import Iterable, Mapping, Sequence
import logging
import re
from typing import Any, Final, TypeAlias, cast

from dsh_acp.messages import Message, Text, source_kind
from dsh_acp.tools import skills
from dsh_acp.tools.skills import Skill

_log = logging.getLogger(__name__)

KIND: Final = "skill-catalog"
INVOCATION: Final = "skill-invocation"

Entries: TypeAlias = tuple[tuple[str, str], ...]
"""Name and description of each skill, in order."""

_FIRST: Final = (
    "There are instructions for particular kinds of work, called skills. When a task matches the "
    "description of one, load it with the tool `skill` before you begin, and follow it. Load only "
    "what the task needs."
)
_CHANGED: Final = "The skills have changed. This list replaces the earlier one."
_NONE: Final = "There are no skills any more."
_GESTURE: Final = re.compile(r"(?<!\S)/([a-z0-9][a-z0-9_-]*)(?!\S)")


def owed(found: Mapping[str, Skill], seen: Entries | None) -> Message | None:
    """The catalogue that is due when `seen` is the last one that the model still sees."""
    entries: Entries = tuple(
        (skill.name, skill.description) for skill in found.values() if skill.for_model
    )
    if entries == (seen or ()):
        return None
    source: dict[str, Any] = {"kind": KIND, "form": "catalog"}
    if seen is not None:
        source["update"] = True
    source["entries"] = [
        {"name": name, "description": description} for name, description in entries
    ]
    said = _FIRST if seen is None else _CHANGED if entries else _NONE
    lines = [f"- `{name}`: {description}" for name, description in entries]
    listed = "\n".join(["<available_skills>", *lines, "</available_skills>"])
    text = f"<system-reminder>\n{said}\n\n{listed}\n</system-reminder>"
    return Message.user((Text(text),), source)


def seen_in(source: Mapping[str, Any]) -> Entries | None:
    """The entries that a message with this source showed; `None` when it is no catalogue."""
    if source.get("kind") != KIND:
        return None
    listed: Any = source.get("entries")
    found: list[tuple[str, str]] = []
    for entry in cast(list[Any], listed) if isinstance(listed, list) else ():
        fields = cast(dict[str, Any], entry) if isinstance(entry, dict) else {}
        found.append((str(fields.get("name")), str(fields.get("description"))))
    return tuple(found)


def invoked(claimed: Sequence[Message], found: Mapping[str, Skill]) -> Iterable[Message]:
    """The instructions of the skills that the user named, each once; other names are just text."""
    names = [
        name
        for message in claimed
        if source_kind(message) == "user"
        for name in _GESTURE.findall(message.text)
    ]
    for name in dict.fromkeys(names):
        skill = found.get(name)
        if skill is None or not skill.for_user:
            continue
        try:
            text = skills.render(skill)
        except OSError as exc:
            _log.warning("the skill %s cannot be read: %s", name, exc)
            continue
        source = {"kind": INVOCATION, "name": name, "form": "instructions"}
        yield Message.user((Text(text),), source)
