"""The log that a person names: by its session's id, by the start of one, or by its file."""

import argparse
import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, NoReturn

from dsh_acp.config import Flags, Settings, load as load_settings
from dsh_acp.errors import ConfigError, LogError
from dsh_acp.log import paths
from dsh_acp.log.load import LoadedLog, load, load_fixture
from dsh_acp.log.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED_HELP = "a session's id, the start of one, or the path of a log"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if message.endswith("required: ID|FILE"):
            words = f"{self.prog.split()[-1]} needs {NAMED_HELP}"
            raise ConfigError([f"{words}; dsh-acp sessions lists the sessions"])
        super().error(message)


def parser(
    name: str, description: str | None, named: str | None = "ID|FILE"
) -> argparse.ArgumentParser:
    """The parser of a command that reads logs."""
    made = _Parser(prog=f"dsh-acp {name}", description=description)
    if named:
        made.add_argument("name", metavar=named, help=NAMED_HELP)
    made.add_argument("--home", metavar="DIRECTORY", help="where sessions are kept")
    made.add_argument("--config", metavar="FILE", help="another configuration file")
    return made


def settings(options: argparse.Namespace) -> Settings:
    """The settings that the options of `parser` lead to; see `lenient_settings`."""
    return lenient_settings(Flags(home=options.home, config=options.config))


def lenient_settings(flags: Flags | None = None) -> Settings:
    """The settings for a command that can do without them: mistakes are warnings on stderr."""
    found = load_settings(flags, is_lenient=True)
    for note in found.notes:
        sys.stderr.write(f"dsh-acp: warning: {note}\n")
    return found


def locate(store: Store, name: str) -> Path:
    """The file of the log that `name` means. A path wins over an id.

    Raises:
        LogError: `NOT_FOUND`, nothing or more than one session is meant.
    """
    path = Path(name).expanduser()
    for candidate in (path, path / paths.LOG_NAME):
        if candidate.is_file():
            return candidate
    exact = store.find(name) if name else None
    if exact is not None:
        return exact
    found = sorted(_begin_with(store.root, name), key=str) if name else []
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(match.parent.name for match in found[:5]) + (", …" if found[5:] else "")
        text = f'"{name}" is the start of {len(found)} sessions ({names}); give more of the id'
        raise LogError(text, code="NOT_FOUND")
    text = f'there is no session and no file "{name}"; dsh-acp sessions lists the sessions'
    raise LogError(text, code="NOT_FOUND")


def _begin_with(root: Path, start: str) -> "Iterator[Path]":
    # Escaping works unit by unit, so the start of an id is the start of its directory's name.
    segment = paths.encode_segment(start)
    try:
        projects = list(os.scandir(root))
    except OSError:
        return
    for project in projects:
        if not project.is_dir():
            continue
        for entry in os.scandir(project.path):
            path = Path(entry.path, paths.LOG_NAME)
            if entry.name.startswith(segment) and path.is_file():
                yield path


def is_fixture(data: bytes) -> bool:
    """Whether this is a recorded fixture, whose numbers and names were taken out."""
    header, _, rest = data.partition(b"\n")
    first = rest.partition(b"\n")[0]
    return b'"{{' in header or (bool(first.strip()) and b'"seq' not in first)


def read(path: Path) -> LoadedLog:
    """The log at `path`, checked; an open turn is closed in memory. Fixtures are read as they are.

    Raises:
        LogError: it cannot be read, or is refused.
    """
    data = read_bytes(path)
    if not data.lstrip().startswith(b"{"):
        raise LogError(f"{path} is not a session log", code="CORRUPT")
    return load_fixture(data) if is_fixture(data) else load(data, path=path)


def read_bytes(path: Path) -> bytes:
    """The file's bytes.

    Raises:
        LogError: `IO`.
    """
    try:
        return path.read_bytes()
    except OSError as exc:
        raise LogError(f"cannot read {path}: {exc.strerror or exc}", code="IO") from exc
