"""Changes of files as structured changes with a patch in git's format.

Paths are absolute and have no prefix; everything else is as git writes it. A change comes as the
places that differ, so the hunks of a patch are those places; where a place's line is not known it
is counted from the place before.
"""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from pathlib import Path
import re
from typing import Any, Final

from dsh_acp.tools.tool import FileDiff

_NOTHING: Final = "/dev/null"
_NO_NEWLINE: Final = "\\ No newline at end of file"
_MATCHED: Final = 4_000_000
"""Lines of one side times those of the other, up to which the lines they share are looked for."""

_ODD: Final = re.compile(rb'[\x00-\x1f"\\\x7f-\xff]')
_NAMED: Final = {7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r"}


def diffs(found: Iterable[FileDiff]) -> list[dict[str, Any]]:
    """All changes as one piece of tool call content; empty when there are none."""
    files: dict[tuple[str, str | None], list[FileDiff]] = {}
    for diff in found:
        if Path(diff.path).is_absolute():
            files.setdefault((diff.path, diff.moved_from), []).append(diff)
    if not files:
        return []
    changes = [_change(places[0]) for places in files.values()]
    text = "".join(_section(places) for places in files.values())
    patch = {"format": "git_patch", "text": text}
    return [{"type": "diff", "changes": changes, "patch": patch}]


def _change(diff: FileDiff) -> dict[str, Any]:
    change: dict[str, Any] = {"operation": "modify", "path": diff.path}
    if diff.moved_from is not None:
        change = {"operation": "move", "oldPath": diff.moved_from, "path": diff.path}
    elif diff.is_deleted:
        change["operation"] = "delete"
    elif diff.old is None:
        change["operation"] = "add"
    change["fileType"] = "binary" if diff.is_binary else "text"
    return change


def _section(places: Sequence[FileDiff]) -> str:
    """The part of a patch about one file."""
    diff = places[0]
    before, after = diff.moved_from or diff.path, diff.path
    lines = [f"diff --git {_quoted(before)} {_quoted(after)}"]
    old_name, new_name = _named(before), _named(after)
    if diff.moved_from is not None:
        lines += [f"rename from {_quoted(before)}", f"rename to {_quoted(after)}"]
    elif diff.is_deleted:
        lines.append("deleted file mode 100644")
        new_name = _NOTHING
    elif diff.old is None:
        lines.append("new file mode 100644")
        old_name = _NOTHING
    if diff.is_binary:
        lines.append(f"Binary files {old_name.rstrip()} and {new_name.rstrip()} differ")
    else:
        hunks = _hunks(places)
        if hunks:
            lines += [f"--- {old_name}", f"+++ {new_name}", *hunks]
    return "\n".join(lines) + "\n"


def _hunks(places: Sequence[FileDiff]) -> list[str]:
    lines: list[str] = []
    shift = 0
    """How many more lines the new side has before this place."""
    next_line = 1
    for diff in places:
        is_whole = diff.old is None or diff.is_deleted
        old = _lines(diff.old or "", is_whole)
        new = _lines("" if diff.is_deleted else diff.new, is_whole)
        if old == new:
            continue
        new_start = diff.line or next_line
        body = _body(old, new)
        if is_whole:
            _mark_ends(body, "-", diff.old)
            _mark_ends(body, "+", diff.new)
        old_span = _span(new_start - shift, len(old))
        lines.append(f"@@ -{old_span} +{_span(new_start, len(new))} @@")
        lines += body
        shift += len(new) - len(old)
        next_line = new_start + len(new)
    return lines


def _lines(text: str, is_whole: bool) -> list[str]:
    """The lines of a whole text, or of a place, which has no newline at its end."""
    if not text:
        return []
    found = text.split("\n")
    if is_whole and not found[-1]:
        found.pop()
    return found


def _span(start: int, count: int) -> str:
    if count == 0:
        return f"{start - 1},0"
    return f"{start}" if count == 1 else f"{start},{count}"


def _body(old: Sequence[str], new: Sequence[str]) -> list[str]:
    if not old or not new or len(old) * len(new) > _MATCHED:
        return [f"-{line}" for line in old] + [f"+{line}" for line in new]
    found: list[str] = []
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            found += [f" {line}" for line in old[a:b]]
        else:
            found += [f"-{line}" for line in old[a:b]]
            found += [f"+{line}" for line in new[c:d]]
    return found


def _mark_ends(body: list[str], side: str, text: str | None) -> None:
    """Say that a whole side does not end with a newline."""
    if not text or text.endswith("\n"):
        return
    last = max((at for at, line in enumerate(body) if line[0] == side), default=None)
    if last is not None:
        body.insert(last + 1, _NO_NEWLINE)


def _quoted(path: str) -> str:
    """A path as git writes it: in quotes, with escapes, when it has an unusual character."""
    data = path.encode("utf-8", "surrogateescape")
    if not _ODD.search(data):
        return path
    return f'"{_ODD.sub(_escape, data).decode("ascii")}"'


def _escape(match: re.Match[bytes]) -> bytes:
    code = match[0][0]
    if code in _NAMED:
        return b"\\" + _NAMED[code]
    return b"\\" + match[0] if match[0] in (b'"', b"\\") else b"\\%03o" % code


def _named(path: str) -> str:
    """A path in the lines before a hunk, where a blank in it needs a tab behind."""
    quoted = _quoted(path)
    return f"{quoted}\t" if " " in quoted and not quoted.startswith('"') else quoted
