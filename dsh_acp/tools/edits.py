"""Finding what an edit means.

The text given is searched for literally. Only when it is nowhere are two slips of models looked
for, each accepted only where it fits exactly once: typographic quotes, dashes and spaces written
as ASCII, and lines whose indentation or trailing blanks differ.
"""

from typing import Final

from msgspec import Struct

_QUOTES: Final = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u202f\u3000", " "),
    }
)


class Change(Struct, frozen=True):
    """Replace `[start:end]` by `text`."""

    start: int
    end: int
    text: str


class Plan(Struct, frozen=True):
    """Changes in order, and how an inexact match was found (empty for a literal one)."""

    changes: tuple[Change, ...]
    note: str = ""


def occurrences(text: str, wanted: str) -> list[int]:
    """Where `wanted` begins in `text`; occurrences do not overlap."""
    found: list[int] = []
    at = text.find(wanted)
    while at >= 0:
        found.append(at)
        at = text.find(wanted, at + len(wanted))
    return found


def plan(text: str, old: str, new: str) -> list[Plan]:
    """The ways to apply the edit: none, one, or one for each literal occurrence."""
    exact = occurrences(text, old)
    if exact:
        return [Plan((_narrow(text, at, at + len(old), new),)) for at in exact]
    for attempt in (_typographic, _by_lines):
        if len(found := attempt(text, old, new)) == 1:
            return found
    return []


def _narrow(text: str, start: int, end: int, new: str) -> Change:
    """The change without what stays the same at either end, so that it touches nothing more."""
    old = text[start:end]
    shorter = min(len(old), len(new))
    lead = 0
    while lead < shorter and old[lead] == new[lead]:
        lead += 1
    tail = 0
    while tail < shorter - lead and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return Change(start + lead, end - tail, new[lead : len(new) - tail])


def _typographic(text: str, old: str, new: str) -> list[Plan]:
    plain_old, plain_text = old.translate(_QUOTES), text.translate(_QUOTES)
    plain_new = new.translate(_QUOTES)
    found: list[Plan] = []
    for at in occurrences(plain_text, plain_old):
        inner = _narrow(plain_text, at, at + len(old), plain_new)
        # The lengths agree, so the same slice of the original replacement is meant.
        first = inner.start - at
        given = new[first : first + len(inner.text)]
        change = Change(inner.start, inner.end, given)
        found.append(Plan((change,), "old_string matched after reading typographic characters"))
    return found


def _by_lines(text: str, old: str, new: str) -> list[Plan]:
    """Whole lines that agree but for blanks at their ends."""
    wanted = old.split("\n")
    ends_line = len(wanted) > 1 and not wanted[-1]
    if ends_line:
        wanted.pop()
    keys = [line.strip() for line in wanted]
    if sum(map(len, keys)) < 4 or not keys[0] or not keys[-1]:
        return []
    lines = text.split("\n")
    stripped = [line.strip() for line in lines]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    found: list[Plan] = []
    for at in range(len(lines) - len(keys) + 1):
        if stripped[at] != keys[0] or stripped[at : at + len(keys)] != keys:
            continue
        block = lines[at : at + len(keys)]
        replaced = new[:-1] if ends_line and new.endswith("\n") else new
        shifted = _reindent(wanted, block, replaced.split("\n") if replaced else [])
        if shifted is None:
            continue
        end = starts[at + len(keys)] - 1
        if not replaced and ends_line:
            end = min(end + 1, len(text))
        change = _narrow(text, starts[at], end, "\n".join(shifted))
        found.append(Plan((change,), "old_string matched after ignoring blanks at line ends"))
    return found


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _reindent(given: list[str], stored: list[str], new: list[str]) -> list[str] | None:
    """`new` with the indentation that the file uses where the model used its own."""
    mapping: dict[str, str] = {}
    for mine, theirs in zip(given, stored, strict=True):
        if mine.strip() and mapping.setdefault(_indent(mine), _indent(theirs)) != _indent(theirs):
            return None
    out: list[str] = []
    for line in new:
        indent = _indent(line)
        if not line.strip():
            out.append("")
        elif indent in mapping:
            out.append(mapping[indent] + line[len(indent) :])
        else:
            deeper = _deeper(indent, mapping)
            if deeper is None:
                return None
            out.append(deeper + line[len(indent) :])
    return _keep_trailing(given, stored, new, out)


def _deeper(indent: str, mapping: dict[str, str]) -> str | None:
    """An indentation not seen, measured from the longest seen one that it extends."""
    bases = [base for base in mapping if indent.startswith(base)]
    if not bases:
        return None
    base = max(bases, key=len)
    return mapping[base] + indent[len(base) :]


def _keep_trailing(
    given: list[str], stored: list[str], new: list[str], out: list[str]
) -> list[str]:
    """Lines that the model left alone stay as stored, trailing blanks included."""
    known = dict(zip(given, stored, strict=True))
    return [known.get(line, made) for line, made in zip(new, out, strict=True)]
