"""Whether a command ran into its sandbox, as far as what it printed tells.

The kernel tells nobody but the command itself. A complaint counts when the file that it names is
one that this process could change and the sandbox does not admit; one about a socket counts when
sockets are refused. What is denied to everybody is no denial of the sandbox.
"""

from collections.abc import Iterator, Sequence
import os
from pathlib import Path
import re
from typing import Final, Literal, TypeAlias

Denial: TypeAlias = Literal["file", "network"]

_REFUSED: Final = re.compile(
    r"permission denied|operation not permitted|read-only file system|cross-device link"
    r"|\bE(?:ACCES|PERM|ROFS|XDEV)\b",
    re.IGNORECASE,
)
_CUT_OFF: Final = re.compile(
    r"could not resolve|name resolution|name or service not known|network is unreachable"
    r"|\bEAI_AGAIN\b|getaddrinfo|unknown host|no route to host|failed to connect",
    re.IGNORECASE,
)
_SOCKETS: Final = re.compile(r"socket|connect|network|\bE(?:ACCES|PERM)\b.*:\d+$", re.IGNORECASE)
_QUOTED: Final = re.compile(r"['\"‘’`“”]([^'\"‘’`“”]+)['\"‘’`“”]")
_BEFORE: Final = re.compile(
    r"(?:^|[:\s])([^:\s'\"‘]+): (?:permission denied|operation not|read-only)", re.IGNORECASE
)
_OTHER: Final = re.compile(r"\b(?:kill|ptrace|nice|chown|mount|sudo)\b")
_ABSOLUTE: Final = re.compile(r"(?<![\w.])/[^\s:'\"’,;)\]]+")
_LOOKED_AT: Final = 200
_LONGEST: Final = 2000


def find(
    output: Sequence[bytes], cwd: str, writable: Sequence[str], *, network: bool
) -> tuple[Denial, ...]:
    """What the sandbox denied, by the streams that a command left; `()` when nothing shows."""
    found: dict[Denial, None] = {}
    for line in _complaints(output):
        if _REFUSED.search(line):
            paths = list(_paths(line))
            if any(_is_ours_to_deny(path, cwd, writable) for path in paths):
                found["file"] = None
            elif not (network or _OTHER.search(line)) and (not paths or _SOCKETS.search(line)):
                found["network"] = None
        elif not network:
            found["network"] = None
    return tuple(kind for kind in ("file", "network") if kind in found)


def _complaints(output: Sequence[bytes]) -> Iterator[str]:
    left = _LOOKED_AT
    for stream in output:
        # The last lines say why a command failed.
        for line in reversed(stream.decode("utf-8", "replace").split("\n")):
            line = line[:_LONGEST]
            if left and (_REFUSED.search(line) or _CUT_OFF.search(line)):
                left -= 1
                yield line


def _paths(line: str) -> Iterator[str]:
    yield from (match[1] for match in _QUOTED.finditer(line))
    yield from (match[1] for match in _BEFORE.finditer(line))
    yield from (match[0] for match in _ABSOLUTE.finditer(line))


def _is_ours_to_deny(path: str, cwd: str, writable: Sequence[str]) -> bool:
    """Whether only the sandbox stands between a command and `path`."""
    try:
        real = Path(os.path.realpath(Path(cwd, path)))
        if any(real.is_relative_to(root) for root in writable):
            return False
        if not real.exists() and not real.parent.is_dir():
            return False
        return os.access(real if real.exists() else real.parent, os.W_OK)
    except (OSError, ValueError):
        return False
