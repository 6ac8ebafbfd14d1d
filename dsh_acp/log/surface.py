"""The surface: the events that the model can still see, in order.

An append adds a node at the end; a replacement puts one node in the place of a span. Nothing is
deleted. A change is planned, with every check, before it is made, so a refused event leaves no
trace.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dsh_acp import jsontext
from dsh_acp.errors import LogError
from dsh_acp.log.envelope import SURFACE_TYPES, Event, Replace
from dsh_acp.messages import Message

Span: TypeAlias = tuple[int, int]


class _Holder(Struct, frozen=True):
    message: Raw


class _Content(Struct, frozen=True):
    content: tuple[Raw, ...]


_holder: Final = msgspec.json.Decoder(_Holder)
_content: Final = msgspec.json.Decoder(_Content)


def derive_event_message(event: Event) -> Message | None:
    """The message that `event` contributes to a request, as it was logged.

    `None` for events that the model never sees, and for an empty assistant message, which only
    hosts its usage.
    """
    if event.type == "user/message":
        return Message(event.data)
    if event.type not in SURFACE_TYPES:
        return None
    message = bytes(jsontext.decode(event.raw, _holder).message)
    if event.type == "assistant/message" and not jsontext.decode(message, _content).content:
        return None
    return Message(message)


class Surface:
    """The node list, by seq, and a counter of replacements."""

    __slots__ = ("generation", "nodes")

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.generation = 0

    def plan(self, event: Event, seq: int, event_at: Callable[[int], Event]) -> Span | None:
        """The span of node positions that `event` takes the place of; empty at the end to append.

        `None` for an event that the model never sees. Changes nothing.

        Raises:
            LogError: `INVALID_EVENT`, the event breaks a rule of the surface.
        """
        if event.seq != seq:
            raise _refused(f"session event seq {event.seq} is not contiguous; expected {seq}")
        placement = event.placement
        if event.type not in SURFACE_TYPES:
            if placement is not UNSET or event.sources is not UNSET:
                name = "sourceEventSeqs" if placement is UNSET else "surfaceOp"
                raise _refused(
                    f'session event "{event.type}" is not surface-eligible and cannot carry {name}'
                )
            return None
        if isinstance(placement, UnsetType):
            raise _refused(
                f'session event "{event.type}" is surface-eligible and requires a surfaceOp marker'
            )
        if isinstance(placement, Replace):
            span = self._span(placement)
            _check_sources(event)
            self._check_coverage(event, span, event_at)
            return span
        if event.sources is not UNSET:
            _check_sources(event)
        end = len(self.nodes)
        return (end, end)

    def appends(self, event: Event) -> bool:
        """Whether `event` is a new node at the end, and nothing else is to be said about it.

        Raises:
            LogError: `INVALID_EVENT`, it is one with sources that cannot be.
        """
        if event.placement != "append" or event.type not in SURFACE_TYPES:
            return False
        if event.sources is not UNSET:
            _check_sources(event)
        return True

    def apply(self, event: Event, span: Span) -> None:
        """Make the planned change."""
        start, end = span
        if start == len(self.nodes):
            self.nodes.append(event.seq)
        else:
            self.nodes[start:end] = [event.seq]
            self.generation += 1

    def _span(self, placement: Replace) -> Span:
        found: list[int] = []
        for name, seq in (("start", placement.start), ("end", placement.end)):
            try:
                found.append(self.nodes.index(seq))
            except ValueError:
                raise _refused(f"surface replace: {name} seq {seq} not found in surface") from None
        start, end = found
        if start > end:
            raise _refused(
                f"surface replace: start seq {placement.start} (index {start})"
                f" is after end seq {placement.end} (index {end})"
            )
        return (start, end + 1)

    def _check_coverage(self, event: Event, span: Span, event_at: Callable[[int], Event]) -> None:
        shadowed = self.nodes[span[0] : span[1]]
        cited = set(event.source_event_seqs or ())
        missing = [str(seq) for seq in shadowed if seq not in cited]
        if missing:
            raise _refused(
                "surface replace: sourceEventSeqs must include every shadowed surface node;"
                f" missing {', '.join(missing)}"
            )
        if event.type != "tool/result":
            return
        if len(shadowed) != 1:
            raise _refused("tool/result surface replacement must rewrite exactly one current node")
        original = event_at(shadowed[0])
        if original.type != "tool/result":
            raise _refused("tool/result surface replacement must target a current tool/result")
        if _masked(original.data) != _masked(event.data):
            raise _refused("tool/result surface replacement may change only content")


def _refused(text: str) -> LogError:
    return LogError(text, code="INVALID_EVENT")


def _check_sources(event: Event) -> None:
    sources = event.sources
    if isinstance(sources, UnsetType):
        return
    if not sources:
        if event.type == "assistant/message":
            return
        raise _refused("sourceEventSeqs must not be empty except on assistant/message")
    first = sources[0]
    if first >= 0 and sources == tuple(range(first, first + len(sources))):
        last = sources[-1]  # the usual case, a run, needs no further looks
    else:
        last = max(sources)
        if min(sources) < 0 or last > jsontext.MAX_SAFE_INTEGER:
            raise _refused(
                f'session event "{event.type}" sourceEventSeqs'
                " must densely contain non-negative safe integers"
            )
        if len(set(sources)) != len(sources):
            raise _refused("sourceEventSeqs must not contain duplicates")
    if last >= event.seq:
        late = next(seq for seq in sources if seq >= event.seq)
        raise _refused(
            f"sourceEventSeqs must reference earlier events: {late} >= current seq {event.seq}"
        )


def _masked(data: bytes) -> Any:
    value = jsontext.loads(data)
    try:
        value["message"]["content"][0]["content"] = None
    except (KeyError, IndexError, TypeError):
        pass
    return value
