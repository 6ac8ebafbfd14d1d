"""The order of events: turns, steps and calls open and close in pairs.

An incremental validator: `advance` checks one event and moves the state past it, or raises and
leaves the state as it was. Cost per event, and per packed row, is constant.
"""

from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.errors import InvariantError
from dsh_acp.log.envelope import Event, Replace

PACKAGE: Final = "@deepseek-ai/dsh-session"
"""The name under which the format reports these violations."""

WITHIN: Final = 160
"""Where in a line its data has begun, if the keys are in the format's order."""

_CLOSED: Final = b"\0"
"""A mark that no line has."""

_IN_TURN: Final = frozenset({"todo/write", "request/header", "request/context"})


class _Turn(Struct, frozen=True):
    turn: int


class _Step(Struct, frozen=True):
    turn: int
    step: int


class _Call(Struct, frozen=True, rename="camel"):
    turn: int
    step: int
    call_id: str


class _Source(Struct, frozen=True, rename="camel"):
    call_id: str


class _Tool(Struct, frozen=True):
    source: _Source


class _Code(Struct, frozen=True):
    code: str = ""


class _Result(Struct, frozen=True):
    turn: int
    step: int
    message: _Tool
    error: _Code = _Code()


_turn: Final = msgspec.json.Decoder(_Turn)
_step: Final = msgspec.json.Decoder(_Step)
_call: Final = msgspec.json.Decoder(_Call)
_result: Final = msgspec.json.Decoder(_Result)


Position: TypeAlias = tuple[int | None, int | None, int, int]
"""Open turn, open step, last turn, last step."""


def violation(text: str) -> InvariantError:
    """The error that a violation raises."""
    return InvariantError(PACKAGE, text)


def _null(number: int | None) -> str:
    return "null" if number is None else str(number)


class Relations:
    """The state after the events so far: what is open, and the last numbers given."""

    __slots__ = ("_calls", "_last_seq", "last_step", "last_turn", "mark", "step", "turn")

    def __init__(self) -> None:
        self.turn: int | None = None
        self.step: int | None = None
        self.last_turn: int = 0
        self.last_step: int = 0
        self.mark = _CLOSED
        """How the data of an event of the open step begins, in its line."""
        self._calls: set[str] = set()
        self._last_seq = -1

    @property
    def position(self) -> Position:
        """The state as a value, for `rewind`."""
        return (self.turn, self.step, self.last_turn, self.last_step)

    def rewind(self, position: Position, last_seq: int) -> None:
        """Forget the event after `last_seq`: it did not get into the log."""
        self.turn, self.step, self.last_turn, self.last_step = position
        self.mark = _CLOSED
        self._last_seq = last_seq

    def advance(self, event: Event) -> None:
        """Check `event` and move past it.

        Raises:
            InvariantError: the event may not come here.
            msgspec.ValidationError: its payload lacks the numbers to tell.
        """
        if event.seq <= self._last_seq:
            raise violation(f"seq must strictly increase: saw {event.seq} after {self._last_seq}")
        rule = RULES.get(event.type)
        if rule is not None:
            rule(self, event)
        self._last_seq = event.seq

    def advance_chunks(self, turn: int, step: int, last_seq: int) -> None:
        """Move past chunks of `turn` and `step`, up to `last_seq`.

        Raises:
            InvariantError: that step is not open.
        """
        self._names("assistant/chunk", turn, step)
        self._last_seq = last_seq

    def _names(self, type: str, turn: int, step: int) -> None:
        if turn != self.turn or step != self.step or self.step is None:
            raise violation(
                f"{type} names turn {turn}/step {step}"
                f" but open is turn {_null(self.turn)}/step {_null(self.step)}"
            )

    def turn_start(self, event: Event) -> None:
        turn = jsontext.decode(event.raw, _turn).turn
        if self.turn is not None:
            raise violation(f"turn/start {turn} while turn {self.turn} is still open")
        if turn != self.last_turn + 1:
            raise violation(f"turn/start expected turn {self.last_turn + 1}, got {turn}")
        self.turn = self.last_turn = turn
        self.last_step = 0

    def turn_end(self, event: Event) -> None:
        turn = jsontext.decode(event.raw, _turn).turn
        if turn != self.turn:
            raise violation(f"turn/end {turn} does not match open turn {_null(self.turn)}")
        if self.step is not None:
            raise violation(f"turn/end {turn} while step {self.step} is still open")
        self.turn = None

    def step_start(self, event: Event) -> None:
        found = jsontext.decode(event.raw, _step)
        step = found.step
        if found.turn != self.turn:
            raise violation(f"step/start in turn {found.turn} but open turn is {_null(self.turn)}")
        if self.step is not None:
            raise violation(f"step/start {step} while step {self.step} is still open")
        if step != self.last_step + 1:
            raise violation(
                f"step/start expected step {self.last_step + 1} in turn {found.turn}, got {step}"
            )
        self.step = self.last_step = step
        self.mark = b'"data":{"turn":%d,"step":%d,' % (found.turn, step)
        self._calls.clear()

    def step_end(self, event: Event) -> None:
        self.in_step(event)
        self.step = None
        self.mark = _CLOSED

    def in_step(self, event: Event) -> None:
        # Looking at the line saves decoding what is usually long.
        if event.line.find(self.mark, 0, WITHIN) > 0:
            return
        found = jsontext.decode(event.raw, _step)
        self._names(event.type, found.turn, found.step)

    def tool_call(self, event: Event) -> None:
        found = jsontext.decode(event.raw, _call)
        self._names(event.type, found.turn, found.step)
        self._calls.add(found.call_id)

    def tool_result(self, event: Event) -> None:
        if isinstance(event.placement, Replace):
            if self.turn is None:
                raise violation("tool/result surface replacement appended outside any open turn")
            return
        found = jsontext.decode(event.raw, _result)
        self._names(event.type, found.turn, found.step)
        call = found.message.source.call_id
        if call not in self._calls and found.error.code != "TOOL_NOT_STARTED":
            raise violation(f"tool/result for {call} with no prior tool/call in this step")

    def in_turn(self, event: Event) -> None:
        if self.turn is None:
            raise violation(
                f"{event.type} appended outside any open turn"
                " (core execution events must be turn-enclosed)"
            )


RULES: Final = {
    "turn/start": Relations.turn_start,
    "turn/end": Relations.turn_end,
    "step/start": Relations.step_start,
    "step/end": Relations.step_end,
    "assistant/chunk": Relations.in_step,
    "assistant/message": Relations.in_step,
    "tool/call": Relations.tool_call,
    "tool/result": Relations.tool_result,
    **dict.fromkeys(_IN_TURN, Relations.in_turn),
}
"""What each type must satisfy; all others may come anywhere."""
