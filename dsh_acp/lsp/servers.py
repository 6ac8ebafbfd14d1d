"""Which language servers there are, and which of them serve a file.

A server is found by the ending of a file's name, on the PATH and beside this interpreter, never
inside the workspace: what is there is the project's, and would run unseen. Only a configuration
may name such a program.
"""

from collections.abc import Iterator, Mapping, Sequence
import os
from pathlib import Path
import shutil
import sys
from typing import Any, Final, cast

from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.config import LspServerSettings


class Known(Struct, frozen=True, kw_only=True):
    """A server. `answers`: it knows definitions and references, not only diagnostics.

    `runs_projects`: it executes code of the project, such as build scripts or plug-ins. In `env`,
    `{cache}` is a folder of ours. `trusted`: a person chose the program.
    """

    name: str
    command: tuple[str, ...]
    languages: Mapping[str, str]
    answers: bool = True
    runs_projects: bool = False
    trusted: bool = False
    env: Mapping[str, str] = {}
    options: Any = None
    settings: Mapping[str, Any] = {}


_PYTHON: Final = {".py": "python", ".pyi": "python"}
_SCRIPTS: Final = {
    ".ts": "typescript",
    ".mts": "typescript",
    ".cts": "typescript",
    ".tsx": "typescriptreact",
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".jsx": "javascriptreact",
}
_C: Final = {
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cxx": "cpp",
    ".hh": "cpp",
    ".hpp": "cpp",
    ".hxx": "cpp",
    ".m": "objective-c",
    ".mm": "objective-cpp",
}

KNOWN: Final = (
    Known(name="basedpyright", command=("basedpyright-langserver", "--stdio"), languages=_PYTHON),
    Known(name="pyright", command=("pyright-langserver", "--stdio"), languages=_PYTHON),
    Known(name="pylsp", command=("pylsp",), languages=_PYTHON),
    Known(name="jedi", command=("jedi-language-server",), languages=_PYTHON),
    Known(name="ruff", command=("ruff", "server"), languages=_PYTHON, answers=False),
    Known(
        name="gopls",
        command=("gopls",),
        languages={".go": "go", ".mod": "go.mod"},
        runs_projects=True,
        env={
            "GOCACHE": "{cache}/go-build",
            "GOPLSCACHE": "{cache}/gopls",
            "GOFLAGS": "-mod=readonly",
            "GOTELEMETRY": "off",
        },
    ),
    Known(
        name="rust-analyzer",
        command=("rust-analyzer",),
        languages={".rs": "rust"},
        runs_projects=True,
        env={"CARGO_TARGET_DIR": "{cache}/cargo", "CARGO_NET_OFFLINE": "true"},
        options={
            "cargo": {"buildScripts": {"enable": False}},
            "procMacro": {"enable": False},
            "checkOnSave": False,
        },
    ),
    Known(
        name="typescript",
        command=("typescript-language-server", "--stdio"),
        languages=_SCRIPTS,
        runs_projects=True,
    ),
    Known(name="clangd", command=("clangd",), languages=_C),
)
"""In the order in which they are preferred for a language."""


class Found(Struct, frozen=True):
    """A server that is installed, and the command line that starts it."""

    known: Known
    argv: tuple[str, ...]

    def language(self, path: str) -> str:
        """The language id of a file."""
        return self.known.languages[_ending(path)]


class Servers:
    """The servers of a configuration."""

    def __init__(self, configured: Sequence[LspServerSettings]) -> None:
        changed = {each.name: each for each in configured}
        own = [_of(each) for each in configured if each.name not in {k.name for k in KNOWN}]
        kept = [_changed(known, changed.get(known.name)) for known in KNOWN]
        self._all: Final = tuple(known for known in (*own, *kept) if known is not None)

    def of(self, path: str, roots: Sequence[str]) -> list[Found]:
        """Those for a file: the first that answers questions, and the first that only checks."""
        found: dict[bool, Found] = {}
        for known in self._all:
            if known.answers not in found and _ending(path) in known.languages:
                argv = locate(known, roots)
                if argv is not None:
                    found[known.answers] = Found(known, argv)
        return [found[answers] for answers in (True, False) if answers in found]

    def names(self, path: str) -> list[str]:
        """Every server for this kind of file, installed or not, by its program."""
        serving = (known for known in self._all if _ending(path) in known.languages)
        return [known.command[0] for known in serving]

    def installed(self) -> Iterator[Found]:
        """Every server that is there, for people to look at."""
        for known in self._all:
            if (argv := locate(known, ())) is not None:
                yield Found(known, argv)


def locate(known: Known, roots: Sequence[str]) -> tuple[str, ...] | None:
    """The command line of an installed server; `None` when it is not, or belongs to a project."""
    beside = str(Path(sys.executable).parent)
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), beside))
    program = shutil.which(os.path.expanduser(known.command[0]), path=places)  # noqa: PTH111
    if program is None:
        return None
    if not known.trusted:
        for path in (Path(program), Path(os.path.realpath(program))):
            if any(path.is_relative_to(root) for root in roots):
                return None
    return (program, *known.command[1:])


def _ending(path: str) -> str:
    return Path(path).suffix.lower()


def _of(own: LspServerSettings) -> Known | None:
    if not own.enabled or not own.command:
        return None
    return _laid_over(
        Known(name=own.name, command=(own.command,), languages={}, runs_projects=True), own
    )


def _changed(known: Known, change: LspServerSettings | None) -> Known | None:
    if change is None:
        return known
    return _laid_over(known, change) if change.enabled else None


def _laid_over(known: Known, change: LspServerSettings) -> Known:
    command = (change.command, *change.args) if change.command else known.command
    return Known(
        name=known.name,
        command=command if change.command or not change.args else (command[0], *change.args),
        languages=dict(change.languages) or known.languages,
        answers=known.answers,
        runs_projects=known.runs_projects or bool(change.command),
        trusted=bool(change.command),
        env={**known.env, **change.env},
        options=_value(change.initialization_options, known.options),
        settings=cast(Mapping[str, Any], _value(change.settings, known.settings)),
    )


def _value(text: str | None, default: Any) -> Any:
    return default if text is None else jsontext.loads(text.encode())
