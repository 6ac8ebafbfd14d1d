"""What a content stream hides: thinking in tags, and tool calls written as text.

Text goes through untouched and at once, except where it may be the beginning of a tag.
"""

from collections.abc import Callable, Mapping

from dsh_acp.llm.leaked_calls import MARKUPS, Leaked, Markup, read
from dsh_acp.messages import Reasoning, Text

Part = Text | Reasoning | Leaked

_THINK = ("<think>", "<thinking>", "<thought>")


class ContentFilter:
    """Feed it content as it streams; it gives back text, thinking and calls, in order.

    Thinking in tags is recognised at the very beginning only. Calls are recognised when
    `types_of` is given; see `leaked_calls.read`. Markup that turns out not to be a call comes
    back as text. `is_broken` says that a call was begun in special tokens and never finished.

    While it `is_idle`, text without a `<` may go around it, and must then be added to `shown`.
    """

    def __init__(self, types_of: Callable[[str], Mapping[str, str] | None] | None) -> None:
        self.is_broken = False
        self._types_of = types_of
        self._held = ""
        self._state = "start"
        self._closes = ""
        self._markup: Markup | None = None
        self._searched = 0
        self._skips_blank = False
        self.shown: list[str] = []
        self._counted = 0
        self._fences = 0
        self._ticks = ""

    @property
    def is_idle(self) -> bool:
        """Whether text without a `<` needs no filter now."""
        return self._state == "text" and not self._held and not self._skips_blank

    def no_thinking(self) -> None:
        """Thinking comes in a field of its own: tags in the content are text."""
        if self._state == "start" and not self._held:
            self._state = "text"

    def feed(self, text: str) -> list[Part]:
        """What `text` makes certain."""
        self._held += text
        found: list[Part] = []
        while self._step(found):
            pass
        return found

    def end(self) -> list[Part]:
        """What was held back, when no more content follows."""
        found: list[Part] = []
        held, self._held = self._held, ""
        if self._state == "markup" and self._markup is not None:
            calls = self._read(held)
            found += calls
            if not calls and self._markup.is_special:
                self.is_broken = True
            elif not calls:
                self._text(held, found)
        elif self._state == "think":
            self._think(held, found)
        else:
            self._text(held, found)
        self._state = "text"
        return found

    # Each step consumes something of what is held, or changes the state, and says so.

    def _step(self, found: list[Part]) -> bool:
        match self._state:
            case "start":
                return self._start()
            case "think":
                return self._thinking(found)
            case "markup":
                return self._calling(found)
            case _:
                return self._plain(found)

    def _start(self) -> bool:
        begun = self._held.lstrip()
        for tag in _THINK:
            if begun.startswith(tag):
                self._state = "think"
                self._closes = f"</{tag[1:]}"
                self._held = begun[len(tag) :]
                self._skips_blank = True
                return True
        if any(tag.startswith(begun) for tag in _THINK):
            return False
        self._state = "text"
        return True

    def _thinking(self, found: list[Part]) -> bool:
        at = self._held.find(self._closes)
        if at >= 0:
            self._think(self._held[:at], found)
            self._held = self._held[at + len(self._closes) :]
            self._state = "text"
            self._skips_blank = True
            return True
        safe = len(self._held) - _overlap(self._held, self._closes)
        self._think(self._held[:safe], found)
        self._held = self._held[safe:]
        return False

    def _plain(self, found: list[Part]) -> bool:
        held, self._held = self._held, ""
        at = held.find("<") if self._types_of is not None else -1
        while at >= 0:
            before, rest = held[:at], held[at:]
            if not self._is_fenced(before):
                for markup in MARKUPS:
                    if rest.startswith(markup.opens) and self._fits(markup, before):
                        self._text(before.rstrip(), found)
                        self._held = rest
                        self._state = "markup"
                        self._markup = markup
                        self._searched = 0
                        return True
                if any(markup.opens.startswith(rest) for markup in MARKUPS):
                    # The blank before a call goes with it, so it waits as well.
                    kept = before.rstrip()
                    self._text(kept, found)
                    self._held = held[len(kept) :]
                    return False
            at = held.find("<", at + 1)
        self._text(held, found)
        return False

    def _calling(self, found: list[Part]) -> bool:
        markup = self._markup
        assert markup is not None
        for closes in markup.closes:
            at = self._held.find(closes, self._searched)
            if at < 0:
                continue
            whole, self._held = self._held[: at + len(closes)], self._held[at + len(closes) :]
            self._state = "text"
            calls = self._read(whole)
            found += calls
            if calls:
                self._skips_blank = True
            else:
                self._text(whole, found)
            return True
        self._searched = max(0, len(self._held) - max(map(len, markup.closes)))
        return False

    def _read(self, text: str) -> list[Leaked]:
        if self._types_of is None or self._markup is None:
            return []
        calls = read(text, self._types_of)
        if self._markup.is_special:
            return calls
        # Markup that anybody may write counts only when it names a tool that exists.
        known = all(self._types_of(call.name) is not None for call in calls)
        return calls if known else []

    def _is_fenced(self, before: str) -> bool:
        """Whether what follows `before` stands in a fenced code block."""
        for text in self.shown[self._counted :]:
            self._fences, self._ticks = _fences(self._fences, self._ticks + text)
        self._counted = len(self.shown)
        return _fences(self._fences, self._ticks + before)[0] % 2 == 1

    def _fits(self, markup: Markup, before: str) -> bool:
        """Whether `markup` may begin after `before`: what anybody may write needs its own line."""
        line = before
        for text in reversed(self.shown):
            if markup.is_special or "\n" in line or line.strip():
                break
            line = text + line
        return markup.is_special or not line.rpartition("\n")[2].strip()

    def _text(self, text: str, found: list[Part]) -> None:
        if self._skips_blank:
            text = text.lstrip()
            if not text:
                return
            self._skips_blank = False
        if text:
            self.shown.append(text)
            found.append(Text(text))

    def _think(self, text: str, found: list[Part]) -> None:
        if self._skips_blank:
            text = text.lstrip("\n")
            if not text:
                return
            self._skips_blank = False
        if text:
            found.append(Reasoning(text))


def _fences(count: int, text: str) -> tuple[int, str]:
    """How many fences there are with `text`, and the backticks at its end that are none yet."""
    count += text.count("```")
    ticks = len(text) - len(text.rstrip("`"))
    return count, "`" * (ticks % 3)


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the beginning of `tag`."""
    for size in range(min(len(text), len(tag) - 1), 0, -1):
        if tag.startswith(text[-size:]):
            return size
    return 0
