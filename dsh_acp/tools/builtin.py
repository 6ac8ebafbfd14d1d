"""What the tools of this package have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
import os
from typing import Any, ClassVar

from dsh_acp.messages import Block, Text, ToolSchema
from dsh_acp.tools import cards, schemas
from dsh_acp.tools.tool import Card, FileDiff, Intent, Outcome, ToolContext


class Builtin(ABC):
    """A tool of this package: named here, described by `schemas`, validated by `arguments`.

    A subclass gives `intent` and `run`.
    """

    name: ClassVar[str]
    is_concurrent: ClassVar[bool] = False

    @property
    def schema(self) -> ToolSchema:
        """The tool as the model sees it."""
        return schemas.load()[self.name]

    def parse(self, arguments: str) -> Any:
        """See `Tool.parse`."""
        # pydantic is slow to import; a session that calls nothing never needs it.
        from dsh_acp.tools import arguments as models

        return models.parse(self.name, arguments)

    def intent(self, args: Any, cwd: str) -> Intent:
        """Nothing outside the session."""
        return Intent(effect="none", cwd=cwd)

    def is_concurrency_safe(self, args: Any) -> bool:
        """The same for all arguments."""
        return self.is_concurrent

    @abstractmethod
    async def run(self, args: Any, ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""

    async def preview(self, args: Any, ctx: ToolContext) -> tuple[FileDiff, ...]:
        """Nothing to show."""
        return ()

    @property
    def shows_meta(self) -> bool:
        """Whether the card of a result depends on its `meta`."""
        return self.name in cards.OF_META

    def call_card(self, arguments: str, cwd: str) -> Card:
        """See `Tool.call_card`."""
        return cards.call_card(self.name, arguments, cwd)

    def result_card(
        self, arguments: str, content: Sequence[Block], is_error: bool, meta: Any, cwd: str
    ) -> Card:
        """See `Tool.result_card`."""
        return cards.result_card(self.name, arguments, content, is_error, meta, cwd)


def text_outcome(text: str, meta: dict[str, Any] | None = None) -> Outcome:
    """A finished call that says `text`."""
    return Outcome(content=(Text(text),), meta=meta)


def absolute(path: str, cwd: str) -> str:
    """`path` as one would write it from the root: resolved against `cwd`, `..` folded.

    A leading `~` is the home folder. Symlinks are left as they are.
    """
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser(path)  # noqa: PTH111 - a string in, a string out
    return os.path.normpath(os.path.join(cwd, path))  # noqa: PTH118 - must not follow symlinks


def resolved(path: str, cwd: str) -> str:
    """`path` absolute with symlinks followed as far as they lead."""
    try:
        return os.path.realpath(absolute(path, cwd))
    except (OSError, ValueError):
        return absolute(path, cwd)
