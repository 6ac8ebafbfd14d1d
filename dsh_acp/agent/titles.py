"""A session's title: at once from the first prompt, later perhaps a better one from the model."""

from collections.abc import Iterable
from typing import ClassVar, Final

from dsh_acp.agent import folds
from dsh_acp.log.events import Event
from dsh_acp.log.plugin_payloads import SessionTitle
from dsh_acp.log.session_log import SessionLog
from dsh_acp.messages import Message, source_kind

_WORDS: Final = 5
_MAX_BYTES: Final = 40
PROVIDER: Final = "session-title-llm"
MAX_TOKENS: Final = 64

SYSTEM: Final = """\
You name coding sessions. From the messages that a person sent to a coding assistant, write one \
title of about five words (ten characters in Chinese, Japanese or Korean) in the language of the \
messages. Answer with the title alone, on one line, as plain text: no quotes, no Markdown, no \
code, no explanation."""

REQUEST: Final = "The messages, as a JSON array:\n"


def fallback(text: str) -> str:
    """A title made of the first words of `text`; `""` when there are none.

    White space is normalised, five words are kept, and at most 40 UTF-8 bytes without splitting
    a character.
    """
    return cut(" ".join(text.split()[:_WORDS]), _MAX_BYTES)


def cut(text: str, limit: int) -> str:
    """The longest beginning of `text` within `limit` UTF-8 bytes, its end trimmed."""
    return text.encode()[:limit].decode("utf-8", "ignore").rstrip()


def clean(answer: str) -> str:
    """The title in a model's answer; `""` when there is none.

    The first line that says something, without quotes, Markdown marks and control characters.
    """
    for line in answer.splitlines():
        text = "".join(char for char in line if char.isprintable()).strip(" \t\"'`*#_").strip()
        if text:
            return cut(text, 120)
    return ""


class TitleFold:
    """The last title, and whether it is only the fallback."""

    types: ClassVar[tuple[str, ...]] = (SessionTitle.TYPE,)

    def __init__(self) -> None:
        self.title = ""
        self.message_seqs: tuple[int, ...] = ()
        self.is_fallback = False

    def apply(self, event: Event) -> None:
        """Take in a title."""
        if isinstance(event.payload, SessionTitle):
            self.title = event.payload.title
            self.message_seqs = event.payload.message_seqs
            self.is_fallback = event.payload.source.get("kind") == "fallback"

    def entitle(
        self, following: folds.Folds, log: SessionLog, event: Event, message: Message
    ) -> None:
        """Give an untitled session its fallback title from `message`, logged as `event`.

        Only what a person wrote makes a title.
        """
        if self.title:
            return
        following.catch_up()
        if self.title or source_kind(message) != "user":
            return
        title = fallback(message.text)
        if title:
            log.append(SessionTitle(title, (event.seq,), {"kind": "fallback"}))


def fold(events: Iterable[Event]) -> TitleFold:
    """The title after `events`."""
    return folds.run(TitleFold(), events)
