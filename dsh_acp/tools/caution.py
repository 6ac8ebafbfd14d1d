"""Files that are more than they seem: a change to one does something else as well.

Whoever may change one of these can make another program run something, or change what this one
may do, so a person is asked even where the rest of the workspace may be written.
"""

from collections.abc import Sequence
from functools import lru_cache
import os
from pathlib import Path
from typing import Final

_POWERFUL: Final = {
    ".git": "git",
    ".hg": "mercurial",
    ".jj": "jujutsu",
    ".svn": "subversion",
    ".husky": "git",
    ".pre-commit-config.yaml": "git",
    ".vscode": "an editor",
    ".idea": "an editor",
    ".zed": "an editor",
    ".nvim.lua": "an editor",
    ".exrc": "an editor",
    ".dir-locals.el": "an editor",
    ".devcontainer": "an editor",
    ".envrc": "a shell",
    ".mise.toml": "a shell",
    ".agents": "an agent",
    ".claude": "an agent",
    ".codex": "an agent",
    ".cursor": "an agent",
    ".gemini": "an agent",
    ".mcp.json": "an agent",
    "hooks.json": "an agent",
    "codex-hooks.json": "an agent",
    ".github": "a forge",
    ".gitlab-ci.yml": "a forge",
}


def of_change(path: str, cwd: str, protected: Sequence[str]) -> str | None:
    """Why changing this file does more than it seems; `None` when it does not.

    `path` is absolute with symlinks resolved. `protected` are files and folders of this program.
    """
    if reason := of_place(path, protected):
        return reason
    inside = path.removeprefix(os.path.realpath(cwd) + os.sep)
    for part in Path(inside.casefold()).parts:
        if part in _POWERFUL:
            return f"{inside}: files in {part} can make {_POWERFUL[part]} run programs"
    home = os.path.realpath(os.path.expanduser("~")) + os.sep  # noqa: PTH111 - a text
    if path.startswith(home) and path[len(home) :].startswith("."):
        name = path[len(home) :].split(os.sep, 1)[0]
        return f"~/{name} configures programs for the user, outside any project"
    try:
        links = Path(path).stat().st_nlink
    except (OSError, ValueError):
        return None
    if links > 1 and not Path(path).is_dir():
        return f"the file has {links} hard links: it changes under its other names too"
    return None


def of_place(path: str, protected: Sequence[str]) -> str | None:
    """Why even looking there is more than it seems: what is there is this program's own."""
    for place in protected:
        real = _real(place)
        if path == real or path.startswith(real + os.sep):
            return f"{real} is part of the settings, keys or sessions of this agent"
    return None


@lru_cache(maxsize=64)
def _real(place: str) -> str:
    # Asked for with every call; these places are where they were when the process began.
    return os.path.realpath(place)
