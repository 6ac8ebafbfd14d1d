"""Where things are kept: absolute paths, whatever the environment lacks.

Nothing here touches the disk or depends on the current directory. Without any home the paths lie
under `/nonexistent`, which cannot be created: sessions then live in memory, and nothing is
configured.
"""

from collections.abc import Mapping
from pathlib import Path
import sys

from msgspec import Struct

APP = "dsh-acp"
_NOWHERE = Path("/nonexistent")


class Places(Struct, frozen=True):
    """`state` holds sessions and attachments, `config` the configuration and stored keys."""

    state: Path
    config: Path


def find(environ: Mapping[str, str]) -> tuple[Places, list[str]]:
    """The directories to use, and sentences about variables that were not usable.

    `DSH_ACP_HOME` names the state directory itself. The XDG variables count only when absolute,
    as their specification says; so does `DSH_ACP_HOME`, because an editor may start an agent
    anywhere.
    """
    notes: list[str] = []
    own = _absolute(environ, "DSH_ACP_HOME", notes)
    if sys.platform == "win32":
        state = _absolute(environ, "LOCALAPPDATA", notes) or user_home(environ) / "AppData/Local"
        config = _absolute(environ, "APPDATA", notes) or user_home(environ) / "AppData/Roaming"
    else:
        state = _absolute(environ, "XDG_STATE_HOME", notes) or user_home(environ) / ".local/state"
        config = _absolute(environ, "XDG_CONFIG_HOME", notes) or user_home(environ) / ".config"
    return Places(own or state / APP, config / APP), notes


def user_home(environ: Mapping[str, str]) -> Path:
    """The person's home directory; one that does not exist when nothing names it."""
    for name in ("HOME", "USERPROFILE"):
        value = environ.get(name, "")
        if value and Path(value).is_absolute():
            return Path(value)
    try:
        import os
        import pwd

        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):
        return _NOWHERE


def _absolute(environ: Mapping[str, str], name: str, notes: list[str]) -> Path | None:
    value = environ.get(name, "").strip()
    if not value:
        return None
    path = Path(value)
    if value == "~" or value.startswith(("~/", "~\\")):
        path = user_home(environ) / value[2:]
    if not path.is_absolute():
        notes.append(f"{name} is not an absolute path ({value}); it is ignored")
        return None
    return path
