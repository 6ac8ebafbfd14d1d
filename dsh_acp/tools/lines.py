"""Line endings: text as models see it, with `\\n` only, and the way back to what is stored."""

from bisect import bisect_left
import re
from typing import Final

_CRLF: Final = re.compile("\r\n")
_ENDING: Final = re.compile("\r?\n")
_ALIGNED_LINES: Final = 20_000


class Normalised:
    """`text` with every line ending as `\\n`, and where each position lies in the original.

    A lone carriage return is a character of its line, except in a text that has no other line
    ending at all.
    """

    def __init__(self, original: str) -> None:
        self.original = original
        self._removed: list[int] = []
        self.ending = "\n"
        if "\r" not in original:
            self.text = original
        elif "\n" not in original:
            self.text = original.replace("\r", "\n")
            self.ending = "\r"
        else:
            # Position of the k-th "\r\n" once the k carriage returns before it are gone.
            starts = [found.start() for found in _CRLF.finditer(original)]
            self._removed = [start - index for index, start in enumerate(starts)]
            self.text = original.replace("\r\n", "\n")
            if 2 * len(starts) > self.text.count("\n"):
                self.ending = "\r\n"

    @property
    def is_uniform(self) -> bool:
        """Whether all lines end alike."""
        return len(self._removed) in (0, self.text.count("\n"))

    def to_original(self, position: int) -> int:
        """Where `position` of `text` lies in the original; before the ending, at a line's end."""
        return position + bisect_left(self._removed, position)

    def restore(self, start: int, end: int, replacement: str) -> str:
        """`replacement` for `text[start:end]`, with the endings of what it replaces.

        Lines that stay keep their own ending; a new one ends as the line before it in the replaced
        part, the first as the first line that was replaced.
        """
        if "\n" not in replacement or not self._removed:
            return replacement.replace("\n", self.ending) if self.ending == "\r" else replacement
        if self.is_uniform:
            return replacement.replace("\n", self.ending)
        first, last = self.to_original(start), self.to_original(end)
        return _align(self.original[first:last], replacement, self._near(last))

    def _near(self, position: int) -> str:
        """The ending of the line at `position`, else of the one before."""
        after = _ENDING.search(self.original, position)
        if after is not None:
            return after.group()
        before = self.original.rfind("\n", 0, position)
        return "\r\n" if self.original[before - 1 : before] == "\r" else "\n"


def to_lf(text: str) -> str:
    """`text` with `\\r\\n` as `\\n`."""
    return text.replace("\r\n", "\n") if "\r" in text else text


def _align(stored: str, replacement: str, following: str) -> str:
    """`replacement` with endings; `following` is that of the last stored line, beyond the part."""
    old = [(line, ending or following) for line, ending in _split(stored)]
    new = replacement.split("\n")
    endings: list[str | None] = [None] * len(new)
    for old_at, new_at in _equal_lines([line for line, _ in old], new):
        endings[new_at] = old[old_at][1]
    out: list[str] = []
    current = old[0][1]
    for line, ending in zip(new, endings, strict=True):
        current = ending or current
        out += [line, current]
    return "".join(out[:-1])


def _split(text: str) -> list[tuple[str, str]]:
    """Lines and their endings; a lone carriage return ends no line."""
    parts = re.split("(\r?\n)", text)
    return [*zip(parts[::2], [*parts[1::2], ""], strict=True)]


def _equal_lines(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    if len(old) > _ALIGNED_LINES or len(new) > _ALIGNED_LINES:
        return [(index, index) for index, _ in enumerate(zip(old, new, strict=False))]
    from difflib import SequenceMatcher

    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return [(block.a + step, block.b + step) for block in blocks for step in range(block.size)]
