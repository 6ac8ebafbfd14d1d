"""Answers of language servers as the model reads them.

Places are `path:line:character`, one per line, those of one file together; a path inside the
session's directory is relative to it.
"""

from collections.abc import Sequence
import os
from typing import Final

from dsh_acp.lsp.findings import Finding, Place, Symbol

MAX_PLACES: Final = 100
MAX_CHARS: Final = 16_000
_REMARKED: Final = 20


def locations(places: Sequence[Place], cwd: str, limit: int = MAX_PLACES) -> str:
    """Where a question led: at most `limit` places."""
    if not places:
        return "No results."
    lines = [at(place, cwd) for place in _grouped(places)[:limit]]
    return capped("\n".join(lines) + _omitted(len(places), "location", limit), "locations")


def hover(text: str | None) -> str:
    """What is known of a place."""
    return capped(text, "hover") if text else "No hover information."


def outline(symbols: Sequence[Symbol]) -> str:
    """What a file defines: `line:character kind name`, indented by what it is inside of."""
    if not symbols:
        return "No results."
    lines = [
        f"{'  ' * symbol.depth}{symbol.place.line}:{symbol.place.character} "
        f"{symbol.kind} {symbol.name}"
        for symbol in symbols
    ]
    return capped("\n".join(lines), "symbols")


def symbols(found: Sequence[Symbol], cwd: str) -> str:
    """What a workspace defines."""
    if not found:
        return "No results."
    lines = [
        f"{at(symbol.place, cwd)} {symbol.kind} {symbol.name}"
        + (f" (in {symbol.container})" if symbol.container else "")
        for symbol in found[:MAX_PLACES]
    ]
    return capped("\n".join(lines) + _omitted(len(found), "symbol"), "symbols")


def diagnostics(found: Sequence[Finding], cwd: str, unfinished: Sequence[str]) -> str:
    """The findings about a file; `unfinished` servers have not said all."""
    lines = [finding(each, cwd) for each in found[:MAX_PLACES]]
    text = "\n".join(lines) + _omitted(len(found), "diagnostic") if lines else "No diagnostics."
    for name in unfinished:
        text += f"\n({name} has not finished checking this file.)"
    return capped(text, "diagnostics")


def remarks(found: Sequence[Finding], cwd: str) -> str:
    """What a change of a file has to be told with; `""` when all is well."""
    grave = [each for each in found if each.severity in ("error", "warning")]
    if not grave:
        return ""
    lines = [finding(each, cwd) for each in grave[:_REMARKED]]
    if len(grave) > _REMARKED:
        lines.append(f"… {len(grave) - _REMARKED} more omitted (limit {_REMARKED}).")
    return "\n\nDiagnostics of this file now:\n" + "\n".join(lines)


def finding(found: Finding, cwd: str) -> str:
    """One diagnostic on one line."""
    origin = " ".join(part for part in (found.source, found.code) if part)
    tail = f" [{origin}]" if origin else ""
    message = found.message if len(found.message) <= 500 else f"{found.message[:499]}…"
    return f"{at(found.place, cwd)} {found.severity} {message}{tail}"


def at(place: Place, cwd: str) -> str:
    """A place, its path relative to `cwd` when it is inside."""
    path = place.path
    inside = cwd if cwd.endswith(os.sep) else cwd + os.sep
    return f"{path.removeprefix(inside)}:{place.line}:{place.character}"


def capped(text: str, what: str) -> str:
    """At most 16,000 characters, the note about the rest included."""
    if len(text) <= MAX_CHARS:
        return text
    note = f"\n… {what} truncated (limit {MAX_CHARS} characters)."
    return text[: MAX_CHARS - len(note)] + note


def _grouped(places: Sequence[Place]) -> list[Place]:
    by_file: dict[str, list[Place]] = {}
    for place in places:
        by_file.setdefault(place.path, []).append(place)
    return [place for group in by_file.values() for place in group]


def _omitted(count: int, noun: str, limit: int = MAX_PLACES) -> str:
    left = count - limit
    if left <= 0:
        return ""
    return f"\n… {left} more {noun}{'s' * (left > 1)} omitted (limit {limit})."
