"""Changes as hunks that an editor can show.

Both sides have `\\n` endings, so that a file's convention never counts as a change. A hunk is the
changed lines with three lines of context, joined without a final newline.
"""

from typing import Final

from msgspec import Struct

from dsh_acp.tools.lines import to_lf

CONTEXT: Final = 3
_MATCHED: Final = 4_000_000
LIMIT_CHARS: Final = 1_000_000


class Hunk(Struct, frozen=True):
    """One place of a change; `line` is where it starts in the new text, from 1."""

    old: str
    new: str
    line: int


def hunks(old: str, new: str, context: int = CONTEXT) -> list[Hunk]:
    """The differences of two texts, in order; empty when they have none.

    A text pair above a million characters has none either: it is not worth showing.
    """
    old, new = to_lf(old), to_lf(new)
    if old == new or len(old) + len(new) > LIMIT_CHARS:
        return []
    before, after = _lines(old), _lines(new)
    if old.endswith("\n") != new.endswith("\n") and old and new:
        (before if old.endswith("\n") else after).append("")
    found: list[Hunk] = []
    for group in _groups(_changes(before, after), context, len(before), len(after)):
        first_old, last_old, first_new, last_new = group
        found.append(
            Hunk(
                "\n".join(before[first_old:last_old]),
                "\n".join(after[first_new:last_new]),
                first_new + 1,
            )
        )
    return found


Span = tuple[int, int, int, int]


def _lines(text: str) -> list[str]:
    found = text.split("\n")
    if not found[-1]:
        found.pop()
    return found


def _changes(before: list[str], after: list[str]) -> list[Span]:
    """Changed spans; what both share at either end is set aside before anything costly."""
    top = 0
    shorter = min(len(before), len(after))
    while top < shorter and before[top] == after[top]:
        top += 1
    bottom = 0
    while bottom < shorter - top and before[-1 - bottom] == after[-1 - bottom]:
        bottom += 1
    old, new = before[top : len(before) - bottom], after[top : len(after) - bottom]
    if not old or not new or len(old) * len(new) > _MATCHED:
        return [(top, top + len(old), top, top + len(new))]
    from difflib import SequenceMatcher

    opcodes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(top + a, top + b, top + c, top + d) for tag, a, b, c, d in opcodes if tag != "equal"]


def _groups(changes: list[Span], context: int, olds: int, news: int) -> list[Span]:
    """Spans widened by their context, joined where they would touch."""
    found: list[Span] = []
    for a, b, c, d in changes:
        lead = min(context, a, c)
        tail = min(context, olds - b, news - d)
        wide = (a - lead, b + tail, c - lead, d + tail)
        if found and wide[0] <= found[-1][1]:
            found[-1] = (found[-1][0], wide[1], found[-1][2], wide[3])
        else:
            found.append(wide)
    return found
