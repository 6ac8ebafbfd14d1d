"""`dsh-acp setup EDITOR`: print an editor's configuration, or merge it into the person's file."""

import argparse
import difflib
from itertools import chain, count
import os
from pathlib import Path
import re
import shutil
import sys
import time
from typing import Any, Final, cast

from dsh_acp.commands import jsonc
from dsh_acp.commands.editor_files import EDITORS, NAME, REPLACED, Editor, entry, words
from dsh_acp.errors import ConfigError


def main(argv: list[str]) -> int:
    """Print or write; 0 when done."""
    parser = argparse.ArgumentParser(
        prog="dsh-acp setup",
        description="Print the configuration that makes an editor start this agent.",
    )
    parser.add_argument("editor", nargs="?", choices=list(EDITORS))
    parser.add_argument(
        "--write",
        action="store_true",
        help="merge it into your file; comments and other settings stay, and a copy is kept",
    )
    parser.add_argument("--file", type=Path, help="the file to write instead of the usual one")
    parser.add_argument("--command", help="how the editor starts the agent (default: this one)")
    options = parser.parse_args(argv)
    if options.editor is None:
        raise ConfigError([f"which editor? Run: dsh-acp setup {'|'.join(EDITORS)}"])
    editor = EDITORS[options.editor]
    command: str = options.command or own_command()
    path: Path | None = options.file or (editor.path(os.environ) if editor.path else None)
    if not options.write:
        _print_snippet(editor, command, path)
        return 0
    if editor.kind == "shown" or path is None:
        reason = "has no file for this" if editor.kind == "shown" else "needs --file FILE"
        raise ConfigError([f"{editor.title} {reason}; run: dsh-acp setup {options.editor}"])
    before = _read(path)
    try:
        after = merged(options.editor, before, command)
    except ConfigError as exc:
        problems = [f"{path} was left as it is: {problem}" for problem in exc.problems]
        raise ConfigError(problems) from exc
    if after == before:
        _say(f"{path} already has it; nothing was changed.")
        return 0
    backup = write(path, before, after)
    if before:
        changes = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
        _say("\n".join(map(masked, list(changes)[2:])))
    _say(f"Wrote {path}." + (f" The old file is {backup.name} beside it." if backup else ""))
    for step in editor.steps:
        _say(step)
    return 0


def own_command() -> str:
    """This command as an absolute path, because editors often start without the shell's PATH."""
    beside = Path(sys.executable).with_name(NAME + (".exe" if sys.platform == "win32" else ""))
    if beside.exists():
        return str(beside)
    return str(Path(found).absolute()) if (found := shutil.which(NAME)) else NAME


def merged(name: str, before: str, command: str) -> str:
    """The text of the person's file with the entry for this agent in it.

    Raises:
        ConfigError: `before` cannot be understood.
    """
    editor = EDITORS[name]
    try:
        match editor.kind:
            case "json":
                replaced = REPLACED | {"args"} if words(command)[1:] else REPLACED
                return jsonc.merge(before, entry(name, command), replaced)
            case "toml":
                return _merge_toml(before, editor.text(command))
            case _:
                return editor.text(command)
    except jsonc.JsoncError as exc:
        raise ConfigError([f"not JSON with comments: {exc}"]) from exc


def write(path: Path, before: str, after: str) -> Path | None:
    """Replace the file at once, through a link if it is one; the copy of the old one, if any.

    Raises:
        ConfigError: the file cannot be written.
    """
    target = path.resolve()
    backup: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if before:
            backup = _unused(target, time.strftime("%Y%m%d-%H%M%S"))
            shutil.copy2(target, backup)
        scratch = target.with_name(f".{target.name}.{os.getpid()}")
        scratch.write_text(after, encoding="utf-8", newline="")
        if target.exists():
            shutil.copymode(target, scratch)
        scratch.replace(target)
    except OSError as exc:
        raise ConfigError([f"cannot write {path}: {exc.strerror or exc}"]) from exc
    return backup


def _unused(target: Path, stamp: str) -> Path:
    """A name for a copy that no file has."""
    names = chain([stamp], (f"{stamp}-{number}" for number in count(2)))
    paths = (target.with_name(f"{target.name}.{name}.bak") for name in names)
    return next(path for path in paths if not path.exists())


_SECRET: Final = re.compile(
    r"""(?ix) (["']? [\w.-]* (?:key|token|secret|password|authorization|credential) [\w.-]* ["']?
    \s* [:=] \s*) (?: "(?:\\.|[^"\\])*" | '[^']*' | [^\s,}{\[]+ )"""
)
_ENV: Final = re.compile(r"""(["']? \b env ["']? \s* [:=] \s* \{)[^}\n]+""", re.VERBOSE)
_VARIABLE: Final = re.compile(
    r"""^([+\- ]\s*["']?[A-Z][A-Z0-9_]*["']?\s*[:=]\s*)("(?:\\.|[^"\\])*"|'[^']*'|[^\s,{\[]+)"""
)


def masked(line: str) -> str:
    """A line of a diff without what may be a secret: environment values and keys."""
    line = _ENV.sub(r"\1 … ", line)
    line = _SECRET.sub(r"\1…", line)
    return _VARIABLE.sub(r"\1…", line)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError([f"cannot read {path}: {exc}"]) from exc


def _merge_toml(before: str, ours: str) -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    if not before.strip():
        return ours
    try:
        document = tomlkit.parse(before)
    except TOMLKitError as exc:
        raise ConfigError([f"not TOML: {exc}"]) from exc
    _merge_table(cast(dict[str, Any], document), cast(dict[str, Any], tomlkit.parse(ours)))
    return tomlkit.dumps(document)


def _merge_table(table: dict[str, Any], ours: dict[str, Any]) -> None:
    for key, value in ours.items():
        if key not in table:
            table[key] = value
        elif isinstance(value, dict) and isinstance(table[key], dict):
            _merge_table(table[key], cast(dict[str, Any], value))
        elif key in ("run_command", "*"):
            table[key] = value


def _print_snippet(editor: Editor, command: str, path: Path | None) -> None:
    where = {
        "json": f"Merge this into {path}",
        "toml": "An agent file for Toad",
        "file": f"Save this as {path}" if path else "A script",
        "shown": f"Settings for {editor.title}",
    }[editor.kind]
    if sys.stdout.isatty():
        _say(f"{where}:\n")
    sys.stdout.write(editor.text(command))
    if sys.stdout.isatty():
        _say("")
        for step in editor.steps:
            _say(step)
        if editor.kind != "shown" and editor.path:
            _say("With --write this is done for you.")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
