"""What the model still sees of the messages that tell it about its surroundings.

Compaction may replace such a message; then it is owed again.
"""

from collections.abc import Iterable
from typing import ClassVar

from dsh_acp.agent import folds, instructions, surroundings
from dsh_acp.log.events import SURFACE_TYPES, Event, Replace
from dsh_acp.log.payloads import UserMessage


class SeenFold:
    """The last runtime-context snapshot and instruction digests that are still on the surface."""

    types: ClassVar[tuple[str, ...]] = tuple(sorted(SURFACE_TYPES))

    def __init__(self) -> None:
        self.snapshot: str | None = None
        self.instructions: dict[str, str] | None = None
        self.lost_instructions = 0
        """How often instructions that had been told were replaced."""
        self._snapshot_seq = -1
        self._instructions_seq = -1

    def apply(self, event: Event) -> None:
        """Take in an event of the surface."""
        if isinstance(event.surface_op, Replace):
            shadowed = event.source_event_seqs or ()
            if self._snapshot_seq in shadowed:
                self.snapshot = None
            if self._instructions_seq in shadowed:
                self.instructions = None
                self.lost_instructions += 1
        if event.type != UserMessage.TYPE or not isinstance(event.payload, UserMessage):
            return
        message = event.payload.message
        source = message.source
        if surroundings.is_snapshot(source):
            self.snapshot = message.text
            self._snapshot_seq = event.seq
        elif (digests := instructions.seen_in(source)) is not None:
            self.instructions = digests
            self._instructions_seq = event.seq


def fold(events: Iterable[Event]) -> SeenFold:
    """What is still seen after `events`."""
    return folds.run(SeenFold(), events)
