"""Where a session's files live: `<root>/<project>/<id>/session.jsonl`.

Names are made from the working directory and the id by escaping, so neither can leave the root.
The project name is lossy; identity is always checked against the header inside.
"""

from collections.abc import Iterator
from pathlib import Path
import re
from typing import Final

LOG_NAME: Final = "session.jsonl"
_LITERAL: Final = re.compile(r"[A-Za-z0-9._-]")


def _units(text: str) -> Iterator[str]:
    data = text.encode("utf-16-be", "surrogatepass")
    for k in range(0, len(data), 2):
        unit = data[k] << 8 | data[k + 1]
        yield chr(unit)


def _escaped(unit: str) -> str:
    return unit if _LITERAL.match(unit) else f"~{ord(unit):04X}"


def encode_segment(text: str) -> str:
    """`text` as one file name; no two texts share one.

    Raises:
        ValueError: it is empty.
    """
    if not text:
        raise ValueError("cannot encode an empty path segment")
    if text in (".", ".."):
        return "~002E" * len(text)
    return "".join(_escaped(unit) for unit in _units(text))


def project_key(cwd: str | None) -> str:
    """The directory for sessions of `cwd`; readable, and not always unique."""
    if cwd is None:
        return "_no-cwd"
    slug = "".join(
        "-" if unit == "/" else _escaped(unit) for unit in _units(re.sub(r"[/\\:]+", "/", cwd))
    )
    slug = slug.lstrip("-") or "root"
    return f"--{slug[:251]}--"


def log_path(root: Path, cwd: str | None, session_id: str) -> Path:
    """The log of a session."""
    return root / project_key(cwd) / encode_segment(session_id) / LOG_NAME
