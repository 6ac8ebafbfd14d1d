"""Pending input, as a fold of the inbox events.

Input waits here from the moment it is accepted until a step claims it. Both moments are events,
so a prompt that arrived just before a crash is still pending after it. A fork does not inherit
what its parent had pending: the fold begins behind the inherited events.
"""

from collections.abc import Iterable, Sequence
import sys
from typing import ClassVar, Literal, TypeAlias

from dsh_acp.agent import folds
from dsh_acp.errors import DshError, LogError
from dsh_acp.log.events import Event
from dsh_acp.log.payloads import InboxSpliced
from dsh_acp.log.session_log import SessionLog
from dsh_acp.messages import UNSET, Message

Target: TypeAlias = Literal["next-turn", "next-step"]


class PendingFold:
    """The two lists: prompts, each of which opens a turn, and input for the next step."""

    types: ClassVar[tuple[str, ...]] = (InboxSpliced.TYPE,)

    def __init__(self, start_seq: int = 0) -> None:
        self._start_seq = start_seq
        self.lists: dict[str, list[Message]] = {"next-turn": [], "next-step": []}

    def apply(self, event: Event) -> None:
        """Take in a splice.

        Raises:
            LogError: `CORRUPT`, when it does not fit what is pending.
        """
        if event.seq < self._start_seq:
            return
        splice = event.payload
        if not isinstance(splice, InboxSpliced):
            raise _corrupt(event)
        items = self.lists.get(splice.target)
        removed = splice.removed_count or 0
        if (
            items is None
            or not 0 <= splice.start <= len(items)
            or not 0 <= removed <= len(items) - splice.start
        ):
            raise _corrupt(event)
        after = [*items[: splice.start], *splice.inserted, *items[splice.start + removed :]]
        if splice.inserted:
            others = self.lists["next-step" if splice.target == "next-turn" else "next-turn"]
            # One alone is no double, and its id need not be read.
            if len(after) + len(others) > 1:
                ids = [message.id for message in (*after, *others)]
                if len(set(ids)) != len(ids):
                    raise _corrupt(event)
        items[:] = after

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything pending: next-step input first, as a claim would take it."""
        return (*self.lists["next-step"], *self.lists["next-turn"])


def fold(events: Iterable[Event], seed_length: int = 0) -> tuple[Message, ...]:
    """What is pending after `events`, of which the first `seed_length` are inherited."""
    return folds.run(PendingFold(seed_length), events).messages


def _corrupt(event: Event) -> LogError:
    return LogError(f"invalid persisted inbox splice at session seq {event.seq}", code="CORRUPT")


class Inbox:
    """The durable inbox of a live session. Every change is logged before it is visible."""

    def __init__(self, log: SessionLog, following: folds.Folds) -> None:
        self._log = log
        self._following = following
        self._fold = following.add(PendingFold(log.header.seed_length or 0))

    def pending(self, target: Target | None = None) -> tuple[Message, ...]:
        """What waits in `target`, or everything in the order of a claim."""
        self._following.catch_up()
        return self._fold.messages if target is None else tuple(self._fold.lists[target])

    def splice(
        self,
        target: Target,
        start: int,
        delete_count: int,
        inserted: Sequence[Message] = (),
        outcome: Literal["canceled"] | None = None,
    ) -> tuple[Message, ...]:
        """Replace `delete_count` items from `start` on; returns what was removed.

        A negative `start` counts from the end; both numbers are clamped to what is there. A
        splice that changes nothing is not logged.

        Raises:
            DshError: `PENDING`, when an inserted message is already waiting.
        """
        self._following.catch_up()
        items = self._fold.lists[target]
        length = len(items)
        start = max(0, length + start) if start < 0 else min(start, length)
        count = max(0, min(delete_count, length - start))
        removed = tuple(items[start : start + count])
        if not removed and not inserted:
            return ()
        self._check_new(inserted, removed)
        self._log.append(
            InboxSpliced(target, start, count or UNSET, tuple(inserted), outcome or UNSET)
        )
        self._following.catch_up()
        return removed

    def _check_new(self, inserted: Sequence[Message], removed: Sequence[Message]) -> None:
        if not inserted:
            return
        gone = {message.id for message in removed}
        taken = {message.id for message in self._fold.messages if message.id not in gone}
        for message in inserted:
            if message.id in taken:
                raise DshError(f'message "{message.id}" is already pending', code="PENDING")
            taken.add(message.id)

    def insert(self, target: Target, message: Message) -> None:
        """Add at the end of `target`."""
        self.splice(target, sys.maxsize, 0, (message,))

    def prepend(self, target: Target, message: Message) -> None:
        """Add at the head of `target`."""
        self.splice(target, 0, 0, (message,))

    def replace(self, message_id: str, message: Message) -> bool:
        """Put `message` in the place of a waiting one; `False` when that no longer waits."""
        return self._at(message_id, (message,))

    def remove(self, message_id: str) -> bool:
        """Take back a waiting message; `False` when it no longer waits."""
        return self._at(message_id, ())

    def _at(self, message_id: str, inserted: Sequence[Message]) -> bool:
        self._following.catch_up()
        for target in ("next-step", "next-turn"):
            for position, waiting in enumerate(self._fold.lists[target]):
                if waiting.id == message_id:
                    self.splice(target, position, 1, inserted, "canceled")
                    return True
        return False

    def clear(self) -> None:
        """Cancel everything that waits: next-step input, then prompts."""
        for target in ("next-step", "next-turn"):
            self.splice(target, 0, len(self.pending(target)), (), "canceled")

    def claim(self, target: Target) -> tuple[Message, ...]:
        """Take all next-step input and, for `next-turn`, the first prompt after it."""
        claimed = self.splice("next-step", 0, len(self.pending("next-step")))
        if target == "next-turn":
            claimed += self.splice("next-turn", 0, 1)
        return claimed
