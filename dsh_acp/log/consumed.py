"""How the work that a session accepted came to an end."""

from collections.abc import Iterable

from msgspec import Struct

from dsh_acp.log.envelope import Event
from dsh_acp.log.payloads import InboxSpliced, TurnEnd


class ConsumedWork(Struct, frozen=True):
    """`end` is the turn that accounts for the last accepted work.

    `dropped_unrun` says that input was cancelled since, before any turn took it.
    """

    end: TurnEnd | None = None
    dropped_unrun: bool = False


def fold(events: Iterable[Event]) -> ConsumedWork:
    """Account for the input in `events`.

    A turn accounts for work when it had a step, or when it claimed input and did not simply
    complete.
    """
    end: TurnEnd | None = None
    dropped = in_turn = stepped = claimed = False
    for event in events:
        kind = event.type
        if kind == "turn/start":
            in_turn, stepped, claimed = True, False, False
        elif kind == "step/start":
            stepped = True
        elif kind == "agent/inbox/spliced" and isinstance(event.payload, InboxSpliced):
            splice = event.payload
            if splice.outcome == "canceled":
                dropped = dropped or not splice.inserted
            elif splice.removed_count and in_turn:
                claimed = True
        elif kind == "turn/end" and isinstance(event.payload, TurnEnd):
            payload = event.payload
            if stepped or (claimed and payload.reason.kind != "completed"):
                end, dropped = payload, False
            in_turn = False
    return ConsumedWork(end, dropped)
