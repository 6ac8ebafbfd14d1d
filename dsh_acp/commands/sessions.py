"""`sessions`: what has been recorded, newest first."""

from datetime import UTC, datetime
import os
from pathlib import Path
import sys

from dsh_acp import jsontext
from dsh_acp.commands import logs
from dsh_acp.commands.paper import Paper
from dsh_acp.log.catalog import SessionSummary
from dsh_acp.log.store import Store


def main(argv: list[str]) -> int:
    """List the recorded sessions, newest first."""
    parser = logs.parser("sessions", main.__doc__, named=None)
    parser.add_argument("--json", action="store_true", help="one JSON array, with every field")
    parser.add_argument("--cwd", metavar="DIRECTORY", help="only those of this directory")
    parser.add_argument("-n", "--limit", type=int, metavar="N", help="at most N")
    options = parser.parse_args(argv)
    store = Store(logs.settings(options).home)
    cwd = str(Path(options.cwd).expanduser().absolute()) if options.cwd else None
    found = store.list(cwd)[: options.limit]
    if options.json:
        sys.stdout.write(jsontext.encode([_fields(one) for one in found]).decode() + "\n")
        return 0
    paper = Paper()
    if not found:
        of = f" of {cwd}" if cwd else ""
        paper.line(f"No sessions{of} under {store.root} yet.")
        return 0
    # A script gets what it can use anywhere; a person wants to see the titles.
    shown = _short([one.id for one in found]) if sys.stdout.isatty() else [one.id for one in found]
    rows = [
        (id, _when(one.updated_at_ms), str(one.turns), _title(one), _directory(one))
        for id, one in zip(shown, found, strict=True)
    ]
    paper.table(("ID", "UPDATED", "TURNS", "TITLE", "DIRECTORY"), rows, right=(2,))
    return 0


def _short(ids: list[str]) -> list[str]:
    """The starts of the ids, as long as they must be to tell them apart, and at least 8."""
    size = next((size for size in range(8, 64) if len({id[:size] for id in ids}) == len(ids)), None)
    return [id[:size] for id in ids]


def _title(one: SessionSummary) -> str:
    title = one.title or ""
    return f"fork · {title}" if one.parent and one.origin is None else title


def _directory(one: SessionSummary) -> str:
    directory, home = one.cwd or "", os.environ.get("HOME")
    return f"~{directory[len(home) :]}" if home and directory.startswith(f"{home}/") else directory


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _fields(one: SessionSummary) -> dict[str, object]:
    return {
        "id": one.id,
        "title": one.title,
        "cwd": one.cwd,
        "additionalDirectories": list(one.additional_directories),
        "createdAt": one.created_at_ms,
        "updatedAt": one.updated_at_ms,
        "turns": one.turns,
        "parentSession": one.parent,
    }
