"""What each editor needs to start this agent, and where it keeps that."""

from collections.abc import Callable, Mapping
from importlib import resources
import json
from pathlib import Path
import shlex
import sys
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from dsh_acp.config.places import user_home

Kind: TypeAlias = Literal["json", "toml", "file", "shown"]
Environ: TypeAlias = Mapping[str, str]

NAME: Final = "dsh-acp"
REPLACED: Final = frozenset({"command", "argv", "type"})
"""Keys of an existing entry that a setup corrects; a person's other keys stay."""


class Editor(Struct, frozen=True, kw_only=True):
    """One editor.

    `kind` says what `--write` does: merge a member into JSON or TOML, write a file of its own, or
    nothing, because the editor is configured by hand. `steps` come after that.
    """

    title: str
    kind: Kind
    text: Callable[[str], str]
    path: Callable[[Environ], Path] | None = None
    steps: tuple[str, ...] = ()


def words(command: str) -> list[str]:
    """The program and arguments of `command`; a path with spaces in it is one word."""
    if sys.platform == "win32" or Path(command).exists() or not any(map(str.isspace, command)):
        return [command]
    try:
        program, *arguments = shlex.split(command)
    except ValueError:
        return [command]
    if "/" in program and not Path(program).exists():
        return [command]
    return [program, *arguments]


def entry(editor: str, command: str) -> dict[str, Any]:
    """The object to merge into a JSON configuration."""
    program, *arguments = words(command)
    match editor:
        case "zed":
            server: dict[str, Any] = {
                "type": "custom",
                "command": program,
                "args": arguments,
                "env": {},
            }
            return {"agent_servers": {NAME: server}}
        case "jetbrains":
            server: dict[str, Any] = {
                "command": program,
                "args": arguments,
                "env": {},
                "use_custom_mcp": True,
            }
            return {"agent_servers": {NAME: server}}
        case _:
            # acpx splits `command` as a shell would; `argv` is safe for any path.
            argv = [program, *arguments]
            found = {"argv": argv} if any(map(str.isspace, command)) else {"command": command}
            return {"agents": {NAME: found}}


def _json(editor: str) -> Callable[[str], str]:
    return lambda command: json.dumps(entry(editor, command), indent=2, ensure_ascii=False) + "\n"


def _safe(text: str) -> str:
    # Lua, Emacs Lisp, TOML and sh agree on backslash and quote in double quotes.
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _data(name: str) -> Callable[[str], str]:
    def text(command: str) -> str:
        source = resources.files("dsh_acp.commands") / "setup_data" / name
        template = source.read_text(encoding="utf-8")
        program, *arguments = words(command)
        quoted = ", ".join(f'"{_safe(word)}"' for word in arguments)
        if arguments and name.endswith(".lua"):
            template = template.replace("{ command }", f"{{ command, {quoted} }}")
            template = template.replace("args = {}", f"args = {{ {quoted} }}")
        elif arguments and name.endswith(".el"):
            return template.replace("@COMMAND@", '" "'.join(map(_safe, (program, *arguments))))
        else:
            program = command
        return template.replace("@COMMAND@", _safe(program))

    return text


def _obsidian(command: str) -> str:
    program, *arguments = words(command)
    given = shlex.join(arguments)
    return f"Agent ID: {NAME}\nName: {NAME}\nPath: {program}\nArguments: {given}\nEnvironment: \n"


def _config(environ: Environ) -> Path:
    named = environ.get("XDG_CONFIG_HOME", "")
    return Path(named) if Path(named).is_absolute() else user_home(environ) / ".config"


def _zed(environ: Environ) -> Path:
    if sys.platform == "win32":
        return Path(environ.get("APPDATA") or user_home(environ)) / "Zed" / "settings.json"
    return _config(environ) / "zed" / "settings.json"


def _neovim(environ: Environ) -> Path:
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or user_home(environ)) / "nvim/lua/dsh_acp.lua"
    return _config(environ) / "nvim/lua/dsh_acp.lua"


def _emacs(environ: Environ) -> Path:
    modern = _config(environ) / "emacs"
    return (modern if modern.is_dir() else user_home(environ) / ".emacs.d") / "dsh-acp.el"


EDITORS: Final[dict[str, Editor]] = {
    "zed": Editor(
        title="Zed",
        kind="json",
        text=_json("zed"),
        path=_zed,
        steps=("Open the agent panel and choose dsh-acp under the plus sign.",),
    ),
    "jetbrains": Editor(
        title="JetBrains IDEs",
        kind="json",
        text=_json("jetbrains"),
        path=lambda environ: user_home(environ) / ".jetbrains" / "acp.json",
        steps=("Open the AI chat and choose dsh-acp from the list of agents.",),
    ),
    "neovim": Editor(
        title="Neovim",
        kind="file",
        text=_data("neovim.lua"),
        path=_neovim,
        steps=("Add the lines for your plug-in, shown at the top of that file, to its setup.",),
    ),
    "emacs": Editor(
        title="Emacs",
        kind="file",
        text=_data("emacs.el"),
        path=_emacs,
        steps=(
            'Add (load (locate-user-emacs-file "dsh-acp")) to your init file.',
            "Then: M-x dsh-acp",
        ),
    ),
    "toad": Editor(
        title="Toad",
        kind="toml",
        text=_data("toad.toml"),
        steps=(
            f'Toad needs no file: toad acp "{NAME}" DIRECTORY',
            "To have it among Toad's agents, merge the above into its agent file with --file.",
        ),
    ),
    "marimo": Editor(
        title="marimo",
        kind="file",
        text=_data("marimo.sh"),
        steps=("Run that script, then choose the agent of that port in marimo's panel.",),
    ),
    "obsidian": Editor(
        title="Obsidian",
        kind="shown",
        text=_obsidian,
        steps=(
            "Enter these in the settings of the Agent Client plug-in, under custom agents.",
            "Leave empty what is empty here.",
        ),
    ),
    "acpx": Editor(
        title="acpx",
        kind="json",
        text=_json("acpx"),
        path=lambda environ: user_home(environ) / ".acpx" / "config.json",
        steps=(f'Then: acpx {NAME} exec "your prompt"',),
    ),
}
