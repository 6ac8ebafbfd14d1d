"""Commands that the operating system holds to the workspace.

A `Sandbox` says where a command may write and whether it has a network; a `Means` starts a program
inside one. Which means this machine has is found out once, by trying it, when somebody first asks:

| means      | writes elsewhere | network       | what it leaves open                |
|------------|------------------|---------------|------------------------------------|
| Landlock   | refused          | no sockets    | mode, owner and times of own files |
| bubblewrap | refused          | own loopback  |                                    |
| seatbelt   | refused          | refused       | has not been tested                |

Reading is free everywhere. Files in the roots that other programs act upon (tasks of editors) are
files in the roots: none of these means tells them apart, and only orders to git are put back
afterwards (`confine_git`). A file there with a second name outside is changed under both names.
"""

from collections.abc import Sequence
from functools import cache, cached_property
import os
from pathlib import Path
import sys
from typing import Final

from dsh_acp.config import SandboxChoice, Settings
from dsh_acp.tools.sandbox import Means, Sandbox


class Confinement:
    """What the settings and this machine allow. Cheap to make: nothing is tried before it must."""

    def __init__(self, settings: Settings, temporary: Sequence[str] | None = None) -> None:
        self._choice: Final = settings.sandbox
        self._network: Final = settings.sandbox_network
        self._protected: Final = (settings.home, settings.config_dir)
        self._temporary: Final = temporary
        self._more: Final = settings.sandbox_writable

    @cached_property
    def _beside(self) -> tuple[str, ...]:
        folders = temporary_folders() if self._temporary is None else self._temporary
        more = [os.path.expanduser(path) for path in self._more]  # noqa: PTH111 - texts
        return tuple(dict.fromkeys(map(os.path.realpath, (*folders, *more))))

    @property
    def means(self) -> Means | None:
        """The way to confine here; `None` when there is none, or none is wanted."""
        return find(self._choice)

    def sandbox(self, roots: Sequence[str]) -> Sandbox | None:
        """A sandbox whose writable folders are `roots` and those for temporary files.

        `None` when nothing can confine, and when a root holds this program's own settings or
        sessions, or all of the home folder: a command that may write what starts programs is not
        confined.
        """
        home = Path(os.path.expanduser("~"))  # noqa: PTH111 - never raises
        if any(_is_below(path, roots) for path in (*self._protected, home)):
            return None
        means = self.means
        if means is None:
            return None
        return Sandbox((*roots, *self._beside), self._network, means)

    def private(self, folder: str) -> Sandbox | None:
        """A sandbox for a helper program: it writes to `folder` and temporary files only."""
        means = self.means
        return None if means is None else Sandbox((folder, *self._beside), False, means)


def temporary_folders() -> tuple[str, ...]:
    """Where programs put temporary files."""
    found = [os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp", "/dev/shm"]
    return tuple(path for path in dict.fromkeys(found) if path and Path(path).is_dir())


def _is_below(path: Path, roots: Sequence[str]) -> bool:
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(root) for root in roots)


@cache
def find(choice: SandboxChoice) -> Means | None:
    """The first means of `choice` that works here. Takes a few milliseconds, the first time."""
    if choice == "off":
        return None
    if sys.platform == "linux" and choice in ("auto", "landlock"):
        from dsh_acp.tools import confine_landlock

        if (landlock := confine_landlock.find()) is not None:
            return landlock
    if choice in ("auto", "bubblewrap"):
        from dsh_acp.tools import confine_programs

        return confine_programs.find()
    return None
