"""Text that hides nothing: what a person judges must look like what it is.

Terminal control, changes of writing direction and invisible characters become visible escapes.
Letters of every script stay, and so do the joiners that some scripts and emoji need.
"""

import re
from typing import Final

_HIDDEN: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters besides tab and line end
    "\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff"  # tags, which spell text that nobody sees
    "\ud800-\udfff"
)
_CONTROL: Final = re.compile(f"[{_HIDDEN}]")
_BREAKING: Final = re.compile(f"[\t\n{_HIDDEN}]")
_FENCE: Final = re.compile("`{3,}")


def legible(text: str) -> str:
    """`text` with tabs and line ends kept and everything else that hides or moves text escaped."""
    return text if text.isprintable() else _CONTROL.sub(_escape, text)


def one_line(text: str) -> str:
    """As `legible`, and on one line: what follows a line end cannot pass for words of ours."""
    return text if text.isprintable() else _BREAKING.sub(_escape, text)


def block(text: str, language: str) -> str:
    """`text` as a fenced block that its content cannot close."""
    shown = legible(text)
    longest = max((len(run) for run in _FENCE.findall(shown)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")
