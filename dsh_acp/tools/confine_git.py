"""What a confined command must not leave in the workspace: orders to git.

A repository lies in the workspace and may be written, but its hooks, and some of its settings,
are programs that git runs later, for a person and unconfined. No means of confinement tells them
apart from other files. So they are looked at before a command and after it, and what is new there
is put back as it was. While the command runs, only confined programs can act on it.
"""

from collections.abc import Generator, Iterator, Sequence
import contextlib
import os
import re
import shutil
import stat as modes
import subprocess
from typing import Final, NamedTuple

from msgspec import Struct

_MAX_BYTES: Final = 4 * 1024 * 1024
_GIT_S: Final = 5.0
_ORDERS: Final = re.compile(
    r"core\.(?:hookspath|fsmonitor|sshcommand|editor|pager|askpass|gitproxy|worktree|"
    r"alternaterefscommand|attributesfile)"
    r"|(?:alias|filter|include|includeif|credential|gpg|pager|url|protocol|man|web|browser|"
    r"difftool|mergetool|sendemail|instaweb|trailer)\..*"
    r"|(?:diff|merge)\..*|sequence\.editor|interactive\.difffilter|init\.templatedir"
    r"|remote\..*\.(?:uploadpack|receivepack|vcs|proxy)|submodule\..*\.update|http\..*"
    r"|.*\.(?:command|cmd|program|helper)",
    re.IGNORECASE | re.DOTALL,
)
_CONFIGS: Final = ("config", "config.worktree")


class _Kept(Struct, frozen=True):
    data: bytes
    mode: int


class _Place(NamedTuple):
    """A file: the folder that is watched, and the way from there without any symlink."""

    folder: str
    way: tuple[str, ...]

    @property
    def path(self) -> str:
        return "/".join((self.folder, *self.way))


class Watch:
    """The orders to git in some folders, as they are now. Blocks a little; meant for a thread."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders: Final = tuple(path for path in folders if not path.startswith("/dev/"))
        self._was_folder: Final = {
            path for path in self._folders if _is_folder(_Place(path, (".git",)))
        }
        self._before: Final = {place: kept for place in self._all() if (kept := _read(place))}

    def _all(self) -> Iterator[_Place]:
        for folder in self._folders:
            yield from _orders(folder, (".git",))

    def restore(self) -> tuple[str, ...]:
        """Put back what is not as it was; the paths of what was."""
        undone: list[str] = []
        for folder in self._was_folder:
            # A file or a link in its place would lead git to settings elsewhere.
            git = _Place(folder, (".git",))
            if not _is_folder(git) and _unlink(git):
                undone.append(git.path)
        undone += [place.path for place in {*self._before, *self._all()} if self._undo(place)]
        return tuple(sorted(undone))

    def _undo(self, place: _Place) -> bool:
        before, now = self._before.get(place), _read(place)
        is_setting = place.way[-1] in _CONFIGS
        if now == before or (is_setting and not _has_new_orders(before, now)):
            return False
        return _unlink(place) if before is None else _write(place, before)


@contextlib.contextmanager
def _parent(place: _Place) -> Generator[int]:
    """A descriptor of the folder that a file is in; a symlink on the way is an `OSError`.

    What was there before may be a link to somebody else's folder by now.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open(place.folder, flags)
    try:
        for name in place.way[:-1]:
            inner = os.open(name, flags | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _status(place: _Place) -> os.stat_result | None:
    with contextlib.suppress(OSError, ValueError), _parent(place) as fd:
        return os.stat(place.way[-1], dir_fd=fd, follow_symlinks=False)
    return None


def _is_folder(place: _Place) -> bool:
    status = _status(place)
    return status is not None and modes.S_ISDIR(status.st_mode)


def _orders(folder: str, way: tuple[str, ...]) -> Iterator[_Place]:
    """What git would run, or take orders from, in a repository and its submodules."""
    if not _is_folder(_Place(folder, way)):
        return
    for name in _CONFIGS:
        yield _Place(folder, (*way, name))
    hooks = _Place(folder, (*way, "hooks"))
    if not _is_folder(hooks):
        yield hooks
    for name in _names(hooks):
        # What is called a sample is never run.
        if not name.endswith(".sample"):
            yield _Place(folder, (*way, "hooks", name))
    for name in _names(_Place(folder, (*way, "modules"))):
        yield from _orders(folder, (*way, "modules", name))


def _names(place: _Place) -> list[str]:
    with contextlib.suppress(OSError, ValueError):
        with _parent(_Place(place.folder, (*place.way, ""))) as fd:
            return os.listdir(fd)  # noqa: PTH208 - a descriptor
    return []


def _read(place: _Place) -> _Kept | None:
    """A file's content and mode; of a link, where it leads to; `None` for nothing."""
    name = place.way[-1]
    with contextlib.suppress(OSError, ValueError), _parent(place) as parent:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if modes.S_ISLNK(status.st_mode):
            return _Kept(os.fsencode(os.readlink(name, dir_fd=parent)), status.st_mode)
        if not modes.S_ISREG(status.st_mode):
            return None
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        with open(fd, "rb") as file:  # noqa: PTH123 - the descriptor is open already
            return _Kept(file.read(_MAX_BYTES), status.st_mode)
    return None


def _unlink(place: _Place) -> bool:
    with contextlib.suppress(OSError), _parent(place) as parent:
        os.unlink(place.way[-1], dir_fd=parent)
        return True
    return False


def _write(place: _Place, kept: _Kept) -> bool:
    name = place.way[-1]
    temporary = f"{name}.dsh-{os.urandom(4).hex()}"
    with contextlib.suppress(OSError), _parent(place) as parent:
        if modes.S_ISLNK(kept.mode):
            os.symlink(os.fsdecode(kept.data), temporary, dir_fd=parent)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o600, dir_fd=parent)
            with open(fd, "wb") as file:  # noqa: PTH123 - the descriptor is open already
                file.write(kept.data)
                os.fchmod(fd, modes.S_IMODE(kept.mode))
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        return True
    return False


def _has_new_orders(before: _Kept | None, now: _Kept | None) -> bool:
    if now is None:
        return False
    if modes.S_ISLNK(now.mode):
        return True
    old = set[tuple[str, str]]() if before is None else _settings(before.data)
    new = _settings(now.data)
    # What git does not understand it refuses, or it is not here to be asked.
    return new is None or bool(new - (old or set()))


def _settings(data: bytes) -> set[tuple[str, str]] | None:
    """The orders in a file of settings; `None` when git cannot say."""
    git = shutil.which("git")
    if git is None:
        return None
    try:
        listed = subprocess.run(
            (git, "config", "--file", "-", "--null", "--list"),
            input=data,
            capture_output=True,
            cwd=os.sep,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            timeout=_GIT_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found: set[tuple[str, str]] = set()
    for entry in listed.decode("utf-8", "surrogateescape").split("\0"):
        key, _, value = entry.partition("\n")
        if _ORDERS.fullmatch(key):
            found.add((key, value))
    return found


def told(undone: Sequence[str]) -> list[str]:
    """The line that tells the model what was put back."""
    if not undone:
        return []
    named = ", ".join(".git" + path.rpartition("/.git")[2] for path in undone[:5])
    return [f"[sandbox: changes to {named} were undone, because git runs what is there]"]
