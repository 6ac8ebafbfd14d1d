"""Slash commands that a project brings along: Markdown files that expand to a prompt.

They are read from `.agents/commands` and `.claude/commands`, a file's name being the command's.
A frontmatter may give `description` and `argument-hint`. `$ARGUMENTS` stands for everything after
the name, `$1` to `$9` for its words; a template without either gets the arguments at its end.
"""

import os
from pathlib import Path
import re
from typing import Final

from msgspec import Struct

from dsh_acp.agent import instructions
from dsh_acp.tools import disk, frontmatter

FOLDERS: Final = (".agents/commands", ".claude/commands")
_MAX_BYTES: Final = 64 * 1024
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
_PLACEHOLDER: Final = re.compile(r"\$(ARGUMENTS|[1-9])")


class CommandFile(Struct, frozen=True):
    """A command of the project."""

    name: str
    description: str
    hint: str | None
    template: str

    def expand(self, args: str) -> str:
        """The prompt for these arguments."""
        args = args.strip()
        if not _PLACEHOLDER.search(self.template):
            return f"{self.template}\n\n{args}".strip()
        words = _words(args)

        def value(match: re.Match[str]) -> str:
            name = match.group(1)
            if name == "ARGUMENTS":
                return args
            position = int(name) - 1
            return words[position] if position < len(words) else ""

        return _PLACEHOLDER.sub(value, self.template).strip()


def _words(args: str) -> list[str]:
    import shlex

    try:
        return shlex.split(args)
    except ValueError:
        return args.split()


def load(cwd: str) -> dict[str, CommandFile]:
    """The commands of the project at `cwd`; the first folder that has a name wins.

    Files that cannot be read, lie elsewhere, or whose names are no command names, are left out.
    """
    found: dict[str, CommandFile] = {}
    for folder in FOLDERS:
        for file in _markdown(f"{cwd}/{folder}"):
            name = Path(file).stem.lower()
            if name in found or not _NAME.fullmatch(name):
                continue
            try:
                if not instructions.is_inside(cwd, f"{folder}/{file}"):
                    continue
                data = disk.beginning(Path(cwd, folder, file), _MAX_BYTES)
            except OSError:
                continue
            text = data[:_MAX_BYTES].decode("utf-8", "replace")
            if command := parse(name, text):
                found[name] = command
    return found


def _markdown(folder: str) -> list[str]:
    # Most projects have no such folder, and it is looked for with each prompt.
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.name.endswith(".md"))
    except OSError:
        return []


def parse(name: str, text: str) -> CommandFile | None:
    """The command in the text of a file; `None` when there is no template in it."""
    fields, body = frontmatter.split(text)
    template = body.strip()
    if not template:
        return None
    description = fields.get("description") or _first_line(template)
    return CommandFile(name, description[:200], fields.get("argument-hint"), template)


def _first_line(template: str) -> str:
    return template.split("\n", 1)[0].lstrip("# ").strip()
