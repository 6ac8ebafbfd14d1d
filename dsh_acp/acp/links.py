"""Links in prompts: where they lead, and how the model reads them."""

import os
from pathlib import Path
import stat
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from dsh_acp import jsontext

_LARGE: Final = 50 * 1024 * 1024


class Link(Struct, frozen=True):
    """Where a URI leads: to a local path, unless `why_not` says otherwise, or elsewhere."""

    uri: str
    path: str | None = None
    why_not: str | None = None


def locate(uri: str, cwd: str, platform: Literal["posix", "nt", "wsl"] | None = None) -> Link:
    """Where `uri` leads. Bare paths of every system are understood; never raises.

    A Windows path leads to its drive on Windows and to `/mnt/<drive>` under WSL; elsewhere it is
    recognised as a path that cannot be read here.
    """
    platform = platform or _platform()
    windows = _windows_path(uri)
    if windows is not None:
        return _windows_link(uri, windows, platform)
    if "://" not in uri and not uri.startswith("file:"):
        scheme, colon, _ = uri.partition(":")
        if colon and scheme.isalnum() and not os.path.isabs(uri):  # noqa: PTH117 - text in and out
            return Link(uri)  # `untitled:Untitled-1`, `mailto:…`
        return Link(uri, os.path.normpath(os.path.join(cwd, uri)))  # noqa: PTH118 - as above
    try:
        parts = urlsplit(uri)
    except ValueError:
        return Link(uri)
    if parts.scheme != "file":
        return Link(uri)
    path = unquote(uri[len("file:") :].split("#", 1)[0].split("?", 1)[0])
    if path.startswith("//"):
        host, slash, rest = path[2:].partition("/")
        if host not in ("", "localhost"):
            if platform == "nt":
                return Link(uri, f"\\\\{host}\\{rest}".replace("/", "\\"))
            return Link(uri, f"//{host}/{rest}", "it is on another machine")
        path = slash + rest
    return Link(uri, os.path.normpath(path)) if path else Link(uri)


def _platform() -> Literal["posix", "nt", "wsl"]:
    if os.name == "nt":
        return "nt"
    return "wsl" if "microsoft" in os.uname().release.lower() else "posix"


def _windows_path(uri: str) -> str | None:
    path = uri
    for prefix in ("file:///", "file://localhost/", "file:/", "file:"):
        if uri.startswith(prefix):
            path = unquote(uri[len(prefix) :])
            break
    if uri.startswith("\\\\"):
        return uri
    if len(path) >= 3 and path[0].isascii() and path[0].isalpha():
        if path[1] == ":" and path[2] in "/\\":
            return path.replace("/", "\\")
    return None


def _windows_link(uri: str, path: str, platform: str) -> Link:
    if platform == "nt":
        return Link(uri, path)
    if platform == "wsl" and not path.startswith("\\\\"):
        return Link(uri, f"/mnt/{path[0].lower()}{path[2:]}".replace("\\", "/"))
    return Link(uri, path, "it is a Windows path")


def reference(block: dict[str, Any], cwd: str) -> str:
    """A link as the model reads it; what cannot be read says why."""
    uri = str(block["uri"])
    name = block.get("name")
    if not isinstance(name, str) or not name:
        name = file_name(uri) or uri
    link = locate(uri, cwd)
    text = f"resource_link name={quoted(name)} uri={quoted(uri)}"
    if link.path is None:
        return f"\n[{text}]\n"
    why_not = link.why_not or _unreadable(link.path)
    if why_not:
        return f"\n[{text} path={quoted(link.path)} (could not read {link.path}: {why_not})]\n"
    kind = " (a directory)" if os.path.isdir(link.path) else ""  # noqa: PTH112 - text in and out
    return f"\n[{text} path={quoted(link.path)}{kind}]\n"


def _unreadable(path: str) -> str | None:
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return "there is no such file"
    except OSError as exc:
        return (exc.strerror or "it cannot be opened").lower()
    except ValueError:
        return "it is no path"
    if not os.access(path, os.R_OK):
        return "permission denied"
    if stat.S_ISREG(status.st_mode) and status.st_size > _LARGE:
        return f"it is large ({status.st_size} bytes); read a part of it"
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        return "it is not a regular file"
    return None


def quoted(text: str) -> str:
    """`text` as a JSON string."""
    return jsontext.encode(jsontext.clean(text)).decode()


def file_name(uri: Any) -> str | None:
    """The last part of a path or URI."""
    if not isinstance(uri, str):
        return None
    name = unquote(uri.split("#", 1)[0].split("?", 1)[0]).replace("\\", "/").rstrip("/")
    return name.rsplit("/", 1)[-1] or None
