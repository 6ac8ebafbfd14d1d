"""What the model still sees of the messages that tell it about its surroundings.

Compaction may replace such a message; then it is owed again.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from dsh_acp.agent import folds, instructions, skill_catalogue, surroundings
from dsh_acp.log.events import SURFACE_TYPES, Event, Replace
from dsh_acp.log.payloads import UserMessage


class SeenFold:
    """The last snapshot, instructions and skill catalogue that are still on the surface."""

    types: ClassVar[tuple[str, ...]] = tuple(sorted(SURFACE_TYPES))

    def __init__(self) -> None:
        self.snapshot: str | None = None
        self.instructions: dict[str, str] | None = None
        self.lost_instructions = 0
        """How often instructions that had been told were replaced."""
        self.nested: dict[str, str] = {}
        """Path to digest of the instruction files of sub-folders."""
        self.skills: skill_catalogue.Entries | None = None
        self._snapshot_seq = -1
        self._instructions_seq = -1
        self._nested_seqs: dict[str, int] = {}
        self._skills_seq = -1

    def apply(self, event: Event) -> None:
        """Take in an event of the surface."""
        if isinstance(event.surface_op, Replace):
            self._forget(event.source_event_seqs or ())
        if event.type != UserMessage.TYPE or not isinstance(event.payload, UserMessage):
            return
        message = event.payload.message
        source = message.source
        if surroundings.is_snapshot(source):
            self.snapshot = message.text
            self._snapshot_seq = event.seq
        elif (digests := instructions.seen_in(source)) is not None:
            if any("/" in path for path in digests):
                self.nested.update(digests)
                self._nested_seqs.update(dict.fromkeys(digests, event.seq))
            else:
                self.instructions = digests
                self._instructions_seq = event.seq
        elif (entries := skill_catalogue.seen_in(source)) is not None:
            self.skills = entries
            self._skills_seq = event.seq

    def _forget(self, shadowed: Sequence[int]) -> None:
        if self._snapshot_seq in shadowed:
            self.snapshot = None
        if self._skills_seq in shadowed:
            self.skills = None
        lost = [path for path, seq in self._nested_seqs.items() if seq in shadowed]
        for path in lost:
            del self._nested_seqs[path], self.nested[path]
        if self._instructions_seq in shadowed:
            self.instructions = None
        if lost or self._instructions_seq in shadowed:
            self.lost_instructions += 1


def fold(events: Iterable[Event]) -> SeenFold:
    """What is still seen after `events`."""
    return folds.run(SeenFold(), events)
