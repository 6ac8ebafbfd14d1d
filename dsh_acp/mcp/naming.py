"""Names of remote tools: valid for every model API, unique, and always the same.

`mcp__SERVER__TOOL` of at most 64 characters out of `[A-Za-z0-9_-]`. A name that had to be cut, or
would be that of another, ends in a digest of what it stands for. Nothing depends on the order in
which servers answer. The server's part has no `__` in it, so that the parts can be told again.
"""

from collections import Counter
from collections.abc import Callable, Iterable
import hashlib
import re
from typing import Final

PREFIX: Final = "mcp__"
LIMIT: Final = 64
_LABEL: Final = 24
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]+")
_RUN: Final = re.compile(r"__+")


def labels(servers: Iterable[str]) -> dict[str, str]:
    """The server's part of names, for each of the servers of a session."""
    return _distinct(servers, _label, _LABEL)


def tool_names(label: str, tools: Iterable[str]) -> dict[str, str]:
    """The full name of each tool of one server."""
    head = f"{PREFIX}{label}__"
    found = _distinct(tools, _plain, LIMIT - len(head))
    return {tool: head + name for tool, name in found.items()}


def parts(name: str) -> tuple[str, str] | None:
    """The server's and the tool's part of a name; `None` when it names no remote tool."""
    if not name.startswith(PREFIX):
        return None
    server, found, tool = name[len(PREFIX) :].partition("__")
    return (server, tool) if found and server and tool else None


def _plain(text: str) -> str:
    return _FOREIGN.sub("_", text) or "_"


def _label(text: str) -> str:
    return _RUN.sub("_", _plain(text)).strip("_") or "server"


def _distinct(
    originals: Iterable[str], shorten: Callable[[str], str], limit: int
) -> dict[str, str]:
    wanted = {original: shorten(original) for original in sorted(set(originals))}
    times = Counter(wanted.values())
    found: dict[str, str] = {}
    taken: set[str] = set()
    # Whoever has a good name keeps it, whatever others would be called.
    for original, name in sorted(wanted.items(), key=lambda item: item[0] != item[1]):
        fits = len(name) <= limit and (times[name] == 1 or name == original)
        salt = 0
        while not fits or name in taken:
            fits = True
            tail = hashlib.sha256(f"{original}\0{salt or ''}".encode("utf-8", "replace"))
            name = f"{wanted[original][: limit - 7].rstrip('_')}-{tail.hexdigest()[:6]}"
            salt += 1
        taken.add(name)
        found[original] = name
    return found
