"""Skills: folders with a `SKILL.md` that says how to do one kind of work.

They come from the project (`.agents/skills`, `.claude/skills`) and from the user's configuration
folder (`skills`); the first folder that has a name wins. The model knows names and descriptions
from a catalogue and loads the instructions with the tool `skill`; the user loads them with
`/name`. A file of the project counts only when it really lies in the project.
"""

from collections.abc import Iterator, Mapping
import os
from pathlib import Path
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from dsh_acp.errors import ToolError
from dsh_acp.tools import disk, frontmatter
from dsh_acp.tools.builtin import Builtin, text_outcome
from dsh_acp.tools.tool import Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.tools import talk_arguments as arguments

FILE: Final = "SKILL.md"
PROJECT_FOLDERS: Final = (".agents/skills", ".claude/skills")
MAX_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 16 * 1024
_DESCRIPTION: Final = 500
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_CUT: Final = f"[The file is longer; only its first {MAX_BYTES} bytes are shown.]"


class Skill(Struct, frozen=True):
    """One skill. `folder` is absolute; `for_model` and `for_user` say who may load it."""

    name: str
    description: str
    folder: str
    for_model: bool = True
    for_user: bool = True


class Shelf:
    """The skills of one project and user, looked up anew each time and read when they change."""

    def __init__(self, cwd: str, config_dir: Path) -> None:
        self._cwd = os.path.realpath(cwd)
        self._user = config_dir / "skills"
        self._known: dict[str, tuple[tuple[int, int], Skill | None]] = {}

    def skills(self) -> Mapping[str, Skill]:
        """By name, in alphabetical order. What cannot be read is left out."""
        found: dict[str, Skill] = {}
        for folder in self._folders():
            skill = self._skill(folder)
            if skill is not None:
                found.setdefault(skill.name, skill)
        return dict(sorted(found.items()))

    def _folders(self) -> Iterator[str]:
        for name in PROJECT_FOLDERS:
            for folder in _subfolders(f"{self._cwd}{os.sep}{name}"):
                if os.path.realpath(f"{folder}{os.sep}{FILE}").startswith(self._cwd + os.sep):
                    yield folder
        yield from _subfolders(str(self._user))

    def _skill(self, folder: str) -> Skill | None:
        path = f"{folder}{os.sep}{FILE}"
        try:
            status = Path(path).stat()
        except OSError:
            return None
        version = (status.st_mtime_ns, status.st_size)
        known = self._known.get(path)
        if known is None or known[0] != version:
            known = self._known[path] = (version, _read(folder))
        return known[1]


def _subfolders(root: str) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir())
    except OSError:
        return []


def _text(folder: str, limit: int) -> str:
    data = disk.beginning(Path(folder, FILE), limit)
    text = data[:limit].decode("utf-8", "ignore" if len(data) > limit else "replace")
    return text if len(data) <= limit or limit < MAX_BYTES else f"{text}\n\n{_CUT}"


def _read(folder: str) -> Skill | None:
    try:
        fields, _ = frontmatter.split(_text(folder, _HEAD_BYTES))
    except OSError:
        return None
    name = fields.get("name", "") or Path(folder).name
    if not _NAME.fullmatch(name):
        return None
    description = " ".join(fields.get("description", "").split())[:_DESCRIPTION]
    return Skill(
        name,
        description,
        folder,
        for_model=fields.get("disable-model-invocation", "").lower() != "true",
        for_user=fields.get("user-invocable", "").lower() != "false",
    )


def render(skill: Skill) -> str:
    """The instructions as the model reads them.

    Raises:
        OSError: the file cannot be read any more.
    """
    _, body = frontmatter.split(_text(skill.folder, MAX_BYTES))
    name = skill.name.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return (
        f'<skill_content name="{name}">\n<skill_resources>\n'
        f"Base directory for this skill: {_escaped(skill.folder)}\n"
        "Relative paths in the instructions are meant from there.\n"
        f"</skill_resources>\n\n<skill_instructions>\n{_escaped(body.strip())}\n"
        "</skill_instructions>\n</skill_content>"
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class LoadSkill(Builtin):
    """Loads the instructions of a skill."""

    name = "skill"
    is_concurrent = True

    def __init__(self, config_dir: Path) -> None:
        self._config_dir = config_dir

    async def run(self, args: "arguments.LoadSkill", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        name = args.name.strip()
        if not _NAME.fullmatch(name):
            raise ToolError(f'invalid skill name "{name}"')
        skill = Shelf(ctx.cwd, self._config_dir).skills().get(name)
        gone = f'skill "{name}" is unknown or no longer available'
        if skill is None:
            raise ToolError(gone)
        if not skill.for_model:
            raise ToolError(f'skill "{name}" is not available for model invocation')
        try:
            return text_outcome(render(skill))
        except OSError as exc:
            raise ToolError(gone) from exc
