"""Hook files: which commands are to run at which points of a turn.

Two dialects with one shape: `{"hooks": {POINT: [{"matcher": RE, "hooks": [{"type": "command",
"command": C, "timeout": SECONDS}]}]}}`. The user's configuration folder is always trusted. A
project's files count only when the settings say so, since whoever wrote them could run anything.
"""

from collections.abc import Iterator
from pathlib import Path
import re
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.tools import disk

Dialect: TypeAlias = Literal["claude-code", "codex"]

POINTS: Final = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SessionStart")
TOOL_POINTS: Final = ("PreToolUse", "PostToolUse")
USER_FILES: Final[tuple[tuple[str, Dialect], ...]] = (
    ("hooks.json", "claude-code"),
    ("codex-hooks.json", "codex"),
)
PROJECT_FILES: Final[tuple[tuple[str, Dialect], ...]] = (
    *USER_FILES,
    (".agents/hooks.json", "claude-code"),
    (".claude/settings.json", "claude-code"),
    (".codex/hooks.json", "codex"),
)
TIMEOUT_S: Final = 60.0
MAX_TIMEOUT_S: Final = 600.0
_MAX_BYTES: Final = 1024 * 1024


class Handler(Struct, frozen=True):
    """One command. `matcher` restricts it to some tools."""

    dialect: Dialect
    point: str
    command: str
    matcher: str | None = None
    timeout_s: float = TIMEOUT_S

    def matches(self, *names: str) -> bool:
        """Whether one of the names of a tool is meant; letter case does not count.

        A matcher that is no regular expression means the name that it spells.
        """
        if self.point not in TOOL_POINTS or self.matcher in (None, "", "*"):
            return True
        try:
            pattern = re.compile(self.matcher, re.IGNORECASE)
        except re.error:
            return any(name.lower() == self.matcher.lower() for name in names)
        return any(pattern.fullmatch(name) for name in names)


class HookFiles(Struct, frozen=True):
    """The handlers in force, and what a person should know about the files."""

    handlers: tuple[Handler, ...] = ()
    problems: tuple[str, ...] = ()


def load(config_dir: Path, cwd: str, *, trust_project: bool) -> HookFiles:
    """The hooks for a session at `cwd`, the user's before the project's. Never raises."""
    handlers: list[Handler] = []
    problems: list[str] = []
    for name, dialect in USER_FILES:
        handlers += _read(config_dir / name, dialect, problems)
    unheard: list[str] = []
    for name, dialect in PROJECT_FILES:
        found = list(_read(Path(cwd, name), dialect, problems if trust_project else []))
        if trust_project:
            handlers += found
        elif found:
            unheard.append(name)
    if unheard:
        problems.append(
            f"This project brings hooks ({', '.join(unheard)}), which are commands that would run "
            "on this machine. They are not run. If you trust the project, set project_hooks = true "
            "in the configuration."
        )
    return HookFiles(tuple(handlers), tuple(problems))


def _read(path: Path, dialect: Dialect, problems: list[str]) -> Iterator[Handler]:
    try:
        data = disk.beginning(path, _MAX_BYTES)
    except OSError:
        return
    try:
        value: Any = jsontext.loads(data)
    except jsontext.DecodeError as exc:
        problems.append(f"{path} is not JSON and is left out: {exc}")
        return
    table: Any = cast(dict[str, Any], value).get("hooks") if isinstance(value, dict) else None
    if not isinstance(table, dict):
        return
    for point, groups in cast(dict[str, Any], table).items():
        if point not in POINTS:
            problems.append(f'{path}: hooks for "{point}" are not supported and are left out.')
            continue
        for group in _tables(groups):
            for entry in _tables(group.get("hooks")):
                handler = _handler(dialect, point, group, entry)
                if handler is None:
                    problems.append(f"{path}: a hook for {point} is no command and is left out.")
                else:
                    yield handler


def _tables(value: Any) -> list[dict[str, Any]]:
    items = cast(list[Any], value) if isinstance(value, list) else []
    return [cast(dict[str, Any], item) for item in items if isinstance(item, dict)]


def _handler(
    dialect: Dialect, point: str, group: dict[str, Any], entry: dict[str, Any]
) -> Handler | None:
    command, matcher, timeout = entry.get("command"), group.get("matcher"), entry.get("timeout")
    if entry.get("type") != "command" or not isinstance(command, str) or not command.strip():
        return None
    seconds = TIMEOUT_S
    if isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0:
        seconds = min(float(timeout), MAX_TIMEOUT_S)
    return Handler(dialect, point, command, matcher if isinstance(matcher, str) else None, seconds)
