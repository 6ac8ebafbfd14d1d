"""Where a command writes: a terminal, with colour and wrapping, or a pipe, as plain text.

Text from logs is shown without its control characters, so that no recorded output can drive the
reader's terminal. rich is imported for terminals only.
"""

from collections.abc import Sequence
import re
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LABEL_WIDTH: Final = 8


def printable(text: str) -> str:
    """`text` with tabs and line ends kept and every other control character made visible."""
    return _CONTROL.sub("�", text.replace("\r\n", "\n"))


def _terminal(stream: TextIO) -> "Console":
    from rich.console import Console

    return Console(file=stream, highlight=False)


class Paper:
    """Lines, labelled blocks and tables on standard output."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream: Final = stream or sys.stdout
        self._console: Final = _terminal(self._stream) if self._stream.isatty() else None

    def line(self, text: str = "", style: str = "") -> None:
        """One line; a terminal wraps it."""
        if self._console is None:
            self._stream.write(printable(text) + "\n")
            return
        self._console.print(printable(text), style=style or None, markup=False, emoji=False)

    def rule(self, text: str) -> None:
        """A heading across the page."""
        if self._console is None:
            self._stream.write(f"\n-- {printable(text)} --\n")
            return
        from rich.text import Text

        self._console.print()
        self._console.rule(Text(printable(text), style="bold"), align="left", style="dim")

    def block(self, label: str, text: str, style: str = "", label_style: str = "bold") -> None:
        """`text` beside its label, continued under itself."""
        shown = printable(text)
        if self._console is None:
            gap = "\n" + " " * LABEL_WIDTH
            self._stream.write(f"{label:<{LABEL_WIDTH}}{gap.join(shown.split(chr(10)))}\n")
            return
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 0))
        grid.add_column(width=LABEL_WIDTH, no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(label, style=label_style), Text(shown, style=style))
        self._console.print(grid)

    def table(
        self, heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()
    ) -> None:
        """A table; columns in `right` are right-aligned. A pipe gets every cell whole."""
        shown = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
        if self._console is None:
            widths = [max(map(len, column)) for column in zip(heads, *shown, strict=True)]
            for row in (heads, *shown):
                cells = (
                    f"{cell:>{width}}" if k in right else f"{cell:<{width}}"
                    for k, (cell, width) in enumerate(zip(row, widths, strict=True))
                )
                self._stream.write("  ".join(cells).rstrip() + "\n")
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
        for k, head in enumerate(heads):
            table.add_column(head, justify="right" if k in right else "left", overflow="ellipsis")
        for row in shown:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table)
