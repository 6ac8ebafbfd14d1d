"""What a history shows, taken in part by part while its log is read."""

from collections.abc import Callable, Sequence
from typing import Final

from dsh_acp.acp.projection import Projection
from dsh_acp.acp.updates import Update
from dsh_acp.log.events import Event
from dsh_acp.log.packed import Entry
from dsh_acp.log.payloads import InboxSpliced
from dsh_acp.tools.tool import Tool

_SPLICED: Final = InboxSpliced.TYPE


class Recollection:
    """The projection of a session's past with `tools`, and what it shows if `is_shown`.

    `end` is the seq up to which the log was taken in; `spliced` are the changes of the inbox.
    """

    def __init__(
        self, tools: dict[str, Tool], make: Callable[[], Projection], *, is_shown: bool
    ) -> None:
        self.tools: Final = tools
        self._make: Final = make
        self._is_shown: Final = is_shown
        self._begin()

    def _begin(self) -> None:
        self.projection = self._make()
        self.projection.calls.makes_cards = self._is_shown
        self.updates: list[Update] = []
        self.spliced: list[Event] = []
        self.end = 0

    def take(self, part: Sequence[Entry]) -> None:
        """Take in entries in order. What begins at seq 0 begins anew."""
        if self.end and part[0].seq == 0:
            self._begin()
        self.spliced += [
            entry for entry in part if entry.type == InboxSpliced.TYPE and isinstance(entry, Event)
        ]
        updates = self.projection.replay(part)
        if self._is_shown:
            self.updates += updates
        self.end = part[-1].end_seq

    def finish(self) -> None:
        """Nothing more is past."""
        self.projection.calls.makes_cards = True
