"""Confinement by another program: bubblewrap on Linux, seatbelt on macOS.

Bubblewrap runs the command in namespaces of its own: a file system that is read-only except where
writing is allowed, an own table of processes, a network with nothing but loopback. It costs some
tens of milliseconds per command. The seatbelt profile has not been tried on a real macOS.
"""

from collections.abc import Sequence
import os
from pathlib import Path
import shutil
import subprocess
import sys
from typing import Final

from dsh_acp.tools import confine_filter
from dsh_acp.tools.sandbox import Launch

_TRIAL_S: Final = 5.0


class Bubblewrap:
    """A `Means`."""

    def __init__(self, program: str) -> None:
        self.name: Final = "bubblewrap"
        self.limits: Final = ""
        self._program: Final = program

    def argv(
        self, argv: Sequence[str], cwd: str, writable: Sequence[str], *, network: bool
    ) -> list[str]:
        """The command line that runs `argv` inside."""
        found = [self._program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        # Sockets of other programs are there, and a socket on a read-only mount still answers.
        found += ["--tmpfs", "/run"] if Path("/run").is_dir() else []
        for path in writable:
            # Devices are fresh ones inside.
            if Path(path).exists() and not path.startswith("/dev/"):
                found += ["--bind", path, path]
        found += ["--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"]
        found += [] if network else ["--unshare-net"]
        return [*found, "--chdir", cwd, "--", *argv]

    def start(
        self,
        argv: Sequence[str],
        cwd: str,
        launch: Launch,
        writable: Sequence[str],
        *,
        network: bool,
    ) -> "subprocess.Popen[bytes]":
        """See `Means.start`."""
        from dsh_acp.tools import confine_landlock

        whole = self.argv(argv, cwd, writable, network=network)

        def confined() -> "subprocess.Popen[bytes]":
            if not network:
                allowed = confine_filter.families(own_network=True)
                confine_landlock.forbid_sockets(allowed, truncates=False)
            return launch(whole)

        if not Path(cwd).is_dir():
            raise NotADirectoryError(20, "not a directory", cwd)
        return confine_landlock.apart(confined)


class Seatbelt:
    """A `Means`."""

    def __init__(self, program: str) -> None:
        self.name: Final = "seatbelt"
        self.limits: Final = "its profile has not been tested on this system"
        self._program: Final = program

    def argv(self, argv: Sequence[str], writable: Sequence[str], *, network: bool) -> list[str]:
        """The command line that runs `argv` inside. Paths are parameters, so none is code."""
        rules = ["(version 1)", "(allow default)", "(deny file-write*)"]
        places = [f"-DW{number}={path}" for number, path in enumerate(writable)]
        allowed = [f'(subpath (param "W{number}"))' for number in range(len(writable))]
        allowed += [f'(literal "/dev/{name}")' for name in ("null", "zero", "tty", "ptmx")]
        allowed.append('(regex #"^/dev/(fd|ttys)")')
        rules.append(f"(allow file-write* {' '.join(allowed)})")
        if not network:
            rules.append("(deny network*)")
        return [self._program, *places, "-p", "\n".join(rules), *argv]

    def start(
        self,
        argv: Sequence[str],
        cwd: str,
        launch: Launch,
        writable: Sequence[str],
        *,
        network: bool,
    ) -> "subprocess.Popen[bytes]":
        """See `Means.start`."""
        return launch(self.argv(argv, writable, network=network))


def _launch(argv: Sequence[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def find() -> Bubblewrap | Seatbelt | None:
    """The program of this system, if it really runs something here."""
    name = {"linux": "bwrap", "darwin": "sandbox-exec"}.get(sys.platform)
    program = shutil.which(name) if name else None
    if program is None:
        return None
    means = Bubblewrap(program) if sys.platform == "linux" else Seatbelt(program)
    try:
        trial = means.start(("true",), os.sep, _launch, (), network=False)
        trial.communicate(timeout=_TRIAL_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return means if trial.returncode == 0 else None
