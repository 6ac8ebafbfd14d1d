"""An agent's session on a terminal: streamed text, thoughts, cards, diffs and questions.

`View` shows every frame in the order of the wire and remembers what it showed, so that the demo
can check it against the world afterwards.
"""

from collections.abc import Iterator, Mapping
import difflib
import os
import re
import sys
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.to_thread
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

Json: TypeAlias = dict[str, Any]

_MARKS: Final = {
    "pending": ("·", "yellow"),
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
}
_STYLES: Final = {"agent_message_chunk": "", "agent_thought_chunk": "dim italic"}
_CONTEXT: Final = 3
_OUTPUT_LINES: Final = 16


class View:
    """Shows a session; `pace_s` is slept after each streamed piece."""

    def __init__(self, console: Console, *, interactive: bool, pace_s: float = 0) -> None:
        self.pieces: dict[str, list[str]] = {kind: [] for kind in _STYLES}
        """The streamed pieces that were shown, by kind of update."""
        self.cards: dict[str, Json] = {}
        """The merged fields of each tool call, by its id."""
        self.granted: list[str] = []
        """The ids of the calls that were allowed."""
        self._console = console
        self._interactive = interactive
        self._pace = pace_s
        self._flowing = ""
        self._words = _Words(console.width)
        self._shown: set[tuple[str, str]] = set()

    async def update(self, update: Json) -> None:
        """Show one `session/update`."""
        kind = str(update.get("sessionUpdate"))
        if kind in _STYLES:
            await self._stream(kind, str(_object(update.get("content")).get("text", "")))
        elif kind in ("tool_call", "tool_call_update"):
            self._card(update)
        elif kind == "plan":
            self._break()
            for entry in _objects(update.get("entries")):
                done = entry.get("status") == "completed"
                self._console.print(
                    f"  {'☑' if done else '☐'} {entry.get('content')}", markup=False
                )

    async def permission(self, params: Json) -> Json:
        """Put the question of a `session/request_permission`, and give its answer."""
        call = _object(params.get("toolCall"))
        self._card(call)
        self._break()
        options = {
            str(option.get("kind")): option.get("optionId")
            for option in _objects(params.get("options"))
        }
        if self._interactive:
            kind = await self._ask(options)
        else:
            kind = "allow_once"
            self.line("?", "yellow", "allowed once, because nobody is asked here")
        if kind not in options:
            return {"outcome": {"outcome": "cancelled"}}
        if kind.startswith("allow"):
            self.granted.append(str(call.get("toolCallId")))
        return {"outcome": {"outcome": "selected", "optionId": options[kind]}}

    def heading(self, text: str) -> None:
        """A line that begins a part."""
        self._break()
        self._console.print()
        self._console.rule(Text(text, style="bold"), align="left", style="dim")

    def line(self, mark: str, style: str, text: str) -> None:
        """One marked line."""
        self._break()
        self._console.print(Text.assemble((f"{mark} ", style), text))

    # ---------------------------------------------------------------- pieces

    def _break(self) -> None:
        if self._flowing:
            self._console.print(
                Text(self._words.rest(), style=_STYLES[self._flowing]), soft_wrap=True
            )
            self._flowing = ""

    async def _stream(self, kind: str, piece: str) -> None:
        if self._flowing != kind:
            self._break()
            self._console.print()
            self._flowing = kind
        self.pieces[kind].append(piece)
        text = self._words.add(piece)
        self._console.print(Text(text, style=_STYLES[kind]), end="", soft_wrap=True)
        if self._pace:
            await anyio.sleep(self._pace)

    def _card(self, update: Json) -> None:
        id = str(update.get("toolCallId"))
        fresh = id not in self.cards
        card = self.cards.setdefault(id, {"status": "pending"})
        before = card["status"]
        card.update({key: value for key, value in update.items() if value is not None})
        ended = card["status"] in ("completed", "failed")
        if fresh or (ended and card["status"] != before):
            self._break()
            if fresh:
                self._console.print()
            mark, style = _MARKS.get(str(card["status"]), ("·", ""))
            title = str(card.get("title", "a tool"))
            self._console.print(Text.assemble((f"{mark} ", style), title), soft_wrap=True)
        for content in _objects(update.get("content")):
            if content.get("type") == "diff":
                self._once(id, "diff", _diff(content))
            elif ended and card.get("kind") == "execute" and content.get("type") == "content":
                output = str(_object(content.get("content")).get("text", ""))
                self._once(id, "output", _output(output))

    def _once(self, id: str, what: str, lines: Iterator[Text]) -> None:
        # A diff comes with the question and again with the result: people need it once.
        if (id, what) not in self._shown:
            self._shown.add((id, what))
            self._break()
            for line in lines:
                self._console.print(line, soft_wrap=True)

    async def _ask(self, options: Mapping[str, Any]) -> str:
        keys = {
            letter: kind
            for letter, kind in (("y", "allow_once"), ("a", "allow_always"), ("n", "reject_once"))
            if kind in options
        }
        words = {"y": "[y]es", "a": "[a]lways in this session", "n": "[n]o"}
        prompt = f"  Allow? {', '.join(words[letter] for letter in keys)}: "
        while True:
            answer = await _typed(prompt)
            if not answer:
                return ""
            if chosen := keys.get(answer.strip().lower()[:1]):
                return chosen


class _Words:
    """Breaks a stream of pieces between words; a word is held back until it is whole."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._word = ""

    def add(self, piece: str) -> str:
        """What can be shown now."""
        *whole, self._word = re.split(r"(\s)", self._word + piece)
        return "".join(map(self._place, whole))

    def rest(self) -> str:
        """What was held back; the next piece begins a line."""
        text = self._place(self._word)
        self._word, self._column = "", 0
        return text

    def _place(self, part: str) -> str:
        if part == "\n":
            self._column = 0
            return part
        size = cell_len(part)
        if self._column + size <= self._width:
            self._column += size
            return part
        # A space at the end of a line is the end of the line.
        self._column = 0 if part.isspace() else size
        return "\n" if part.isspace() else f"\n{part}"


async def _typed(prompt: str) -> str:
    """The line that a person types, with its end; empty when the input has ended.

    Only waits for the terminal, so that a cancel (Ctrl-C) ends it: a thread in `input` would keep
    the process until Enter.
    """
    sys.stdout.write(prompt)
    sys.stdout.flush()
    if sys.platform == "win32":
        return await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    line = b""
    # Byte by byte: what a buffer held would not make the terminal readable again.
    while not line.endswith(b"\n"):
        await anyio.wait_readable(sys.stdin)
        if not (byte := os.read(sys.stdin.fileno(), 1)):
            break
        line += byte
    return line.decode("utf-8", "replace")


def diffs(card: Json) -> list[tuple[str, str]]:
    """The path and new text of each diff that a card shows."""
    return [
        (str(content.get("path")), str(content.get("newText")))
        for content in _objects(card.get("content"))
        if content.get("type") == "diff"
    ]


def _diff(content: Json) -> Iterator[Text]:
    old = str(content.get("oldText") or "").splitlines()
    new = str(content.get("newText") or "").splitlines()
    styles = {"+": "green", "-": "red"}
    for line in list(difflib.unified_diff(old, new, n=_CONTEXT, lineterm=""))[2:]:
        if not line.startswith("@@"):
            yield Text(f"    {line}", style=styles.get(line[:1], "dim"))


def _output(text: str) -> Iterator[Text]:
    lines = [line for line in text.splitlines() if not line.startswith("```")]
    if len(lines) > _OUTPUT_LINES:
        yield Text(f"    … {len(lines) - _OUTPUT_LINES} lines above", style="dim")
    for line in lines[-_OUTPUT_LINES:]:
        yield Text(f"    {line}", style="dim")


def _object(value: object) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def _objects(value: object) -> list[Json]:
    return [_object(item) for item in cast(list[object], value)] if isinstance(value, list) else []
