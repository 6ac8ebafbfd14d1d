"""The project's own instructions: AGENTS.md, or CLAUDE.md where there is none.

They reach the model as one logged message at the first step, and again with a notice when the
file has changed since the model last saw it, or when compaction removed it from sight. Those of a
sub-folder follow the first call that reads or changes a file in it.
"""

from collections.abc import Mapping
import hashlib
import os
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from dsh_acp.messages import Message, Text
from dsh_acp.tools import disk

MAX_BYTES: Final = 64 * 1024
NAMES: Final = ("AGENTS.md", "CLAUDE.md")

_INTRODUCTION: Final = (
    "The project has instructions for agents that work on it. Follow them where they apply; a "
    "direct request of the user takes precedence."
)
_CHANGED: Final = "The project's instructions have changed. These replace the earlier ones."
_REMOVED: Final = "The project's instructions ({path}) are gone; the earlier ones no longer apply."
_BELOW: Final = "These instructions hold for everything in {folder}/, beside the project's own."
_CHANGED_BELOW: Final = "The instructions for {folder}/ have changed; these replace the earlier."
_CUT: Final = "[The file is longer; only its first {limit} bytes are shown.]"


class Instructions(Struct, frozen=True):
    """The text of an instruction file, capped, and the digest of what was kept."""

    path: str
    text: str
    digest: str


def load(cwd: str) -> Instructions | None:
    """The instruction file of the project at `cwd`; `None` when there is none with text in it.

    Symlinks count as long as they stay in the project: a file elsewhere is not the project's to
    show, and would reach the model unasked.
    """
    for name in NAMES:
        try:
            if not is_inside(cwd, name):
                continue
            data = disk.beginning(Path(cwd, name), MAX_BYTES)
        except OSError:
            continue
        text = data[:MAX_BYTES].decode("utf-8", "ignore" if len(data) > MAX_BYTES else "replace")
        text = text.removeprefix("\ufeff").strip()
        if not text:
            continue
        if len(data) > MAX_BYTES:
            text += "\n\n" + _CUT.format(limit=MAX_BYTES)
        digest = hashlib.sha256(text.encode()).hexdigest()[:40]
        return Instructions(name, text, digest)
    return None


def is_inside(cwd: str, name: str) -> bool:
    """Whether a file of the project really lies in it."""
    root = os.path.realpath(cwd)
    return os.path.realpath(f"{root}{os.sep}{name}").startswith(root.rstrip(os.sep) + os.sep)


class Project:
    """The instruction file of one project, read again only when it may have changed."""

    def __init__(self, cwd: str) -> None:
        self._cwd: Final = cwd
        self._state: tuple[tuple[int, ...] | None, ...] | None = None
        self._found: Instructions | None = None

    def current(self) -> Instructions | None:
        """As `load`; costs a look at the folder when nothing has changed."""
        state = tuple(_identity(os.path.join(self._cwd, name)) for name in NAMES)  # noqa: PTH118
        if state != self._state:
            self._state, self._found = state, load(self._cwd)
        return self._found


def _identity(path: str) -> tuple[int, ...] | None:
    try:
        return disk.identity(os.stat(path))  # noqa: PTH116 - cheaper
    except (OSError, ValueError):
        return None


def owed(found: Instructions | None, seen: "Mapping[str, str] | None") -> Message | None:
    """The message that brings the model up to date.

    `seen` maps the path that the model last read to its digest; `None` when it has not seen any,
    or no longer does.
    """
    if found is None:
        if not seen:
            return None
        path = next(iter(seen))
        return _message(_REMOVED.format(path=path), [{"action": "remove", "path": path}], False)
    if seen and seen.get(found.path) == found.digest:
        return None
    changes = [
        {
            "action": "set",
            "scope": f".\0{found.path}",
            "path": found.path,
            "digest": found.digest,
        }
    ]
    body = (
        f"<system-reminder>\n{_CHANGED if seen else _INTRODUCTION}\n\n"
        f"Instructions from: {found.path}\n\n{found.text}\n</system-reminder>"
    )
    return _message(body, changes, not seen)


def on_the_way(root: str, path: str, seen: Mapping[str, str]) -> list[Message]:
    """Messages for the instruction files between `root` and a file below it, outermost first.

    Both paths have their symlinks resolved; `seen` maps what the model has been told to digests.
    """
    messages: list[Message] = []
    try:
        folders = Path(path).parent.relative_to(root).parts
    except ValueError:
        return []
    for depth in range(1, len(folders) + 1):
        folder = "/".join(folders[:depth])
        if not is_inside(root, folder):
            break
        found = load(f"{root}/{folder}")
        if found is None:
            continue
        name = f"{folder}/{found.path}"
        if seen.get(name) == found.digest:
            continue
        changes = [
            {
                "action": "set",
                "scope": f"{folder}\0{found.path}",
                "path": name,
                "digest": found.digest,
            }
        ]
        said = _CHANGED_BELOW if name in seen else _BELOW
        text = (
            f"<system-reminder>\n{said.format(folder=folder)}\n\n"
            f"Instructions from: {name}\n\n{found.text}\n</system-reminder>"
        )
        messages.append(_message(text, changes, False))
    return messages


def _message(text: str, changes: list[dict[str, Any]], baseline: bool) -> Message:
    source: dict[str, Any] = {"kind": "agent-instructions", "form": "instructions"}
    if baseline:
        source["baseline"] = True
    source["changes"] = changes
    return Message.user((Text(text),), source)


def seen_in(source: Mapping[str, Any]) -> dict[str, str] | None:
    """What a message with this source showed: path to digest, `None` when it showed nothing.

    Sources written elsewhere may be malformed; what cannot be understood counts as not seen.
    """
    if source.get("kind") != "agent-instructions":
        return None
    found: dict[str, str] = {}
    changes: Any = source.get("changes")
    for change in cast(list[Any], changes) if isinstance(changes, list) else ():
        fields = cast(dict[str, Any], change) if isinstance(change, dict) else {}
        if fields.get("action") == "set":
            found[str(fields.get("path"))] = str(fields.get("digest"))
    return found


def exists(cwd: str) -> bool:
    """Whether the project at `cwd` has an instruction file."""
    return any(os.path.isfile(os.path.join(cwd, name)) for name in NAMES)  # noqa: PTH113, PTH118 - cheaper
