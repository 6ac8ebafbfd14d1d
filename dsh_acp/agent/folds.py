"""State as folds that follow the log.

A fold sees each event once, in order, whoever appended it: first all that are in the log, later
what is new whenever someone looks. So opening a session and living in it are the same code, and
nothing is stored twice.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar

from dsh_acp.log.events import Event
from dsh_acp.log.session_log import SessionLog


class Fold(Protocol):
    """State that is a function of events."""

    types: ClassVar[tuple[str, ...]]
    """The event types it wants to see."""

    def apply(self, event: Event) -> object:
        """Take in the next event of one of those types."""
        ...


F = TypeVar("F", bound=Fold)


class Folds:
    """Folds of one live session and their common cursor in its log.

    Those of `before` are caught up whenever these are. They are a group of their own so that a
    session can be shown and chosen for before everything is known about it.
    """

    def __init__(self, log: SessionLog, before: "Folds | None" = None) -> None:
        self._before = before
        self._follower = log.follow(0)
        self._by_type: dict[str, list[Callable[[Event], object]]] = {}

    def add(self, fold: F) -> F:
        """Let `fold` follow too. To be called before the first `catch_up`."""
        for name in fold.types:
            self._by_type.setdefault(name, []).append(fold.apply)
        return fold

    def catch_up(self) -> None:
        """Bring every fold to the end of the log. Costs grow with what is new."""
        if self._before is not None:
            self._before.catch_up()
        by_type = self._by_type
        # Of a long history most is of no interest here, and is passed over at once.
        for entry in [entry for entry in self._follower.take() if entry.type in by_type]:
            if isinstance(entry, Event):
                for apply in by_type[entry.type]:
                    apply(entry)


def run(fold: F, events: Any) -> F:
    """`fold` after `events`."""
    for event in events:
        if event.type in fold.types:
            fold.apply(event)
    return fold
