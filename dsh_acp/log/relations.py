"""The order of events: turns, steps and calls open and close in pairs.

An incremental validator. `plan` checks an event against the state without changing it; `commit`
makes the planned state current. Cost per event, and per packed row, is constant.
"""

from typing import Final, NamedTuple, cast

import msgspec
from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.errors import InvariantError
from dsh_acp.log.envelope import Event, Replace

PACKAGE: Final = "@deepseek-ai/dsh-session"
"""The name under which the format reports these violations."""

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


class Position(NamedTuple):
    """Where the log stands: what is open, and the last numbers given."""

    turn: int | None = None
    step: int | None = None
    last_turn: int = 0
    last_step: int = 0


def violation(text: str) -> InvariantError:
    """The error that a violation raises."""
    return InvariantError(PACKAGE, text)


def _null(number: int | None) -> str:
    return "null" if number is None else str(number)


class Relations:
    """The state of the validator after the events so far."""

    __slots__ = ("_calls", "_last_seq", "_planned_call", "at")

    def __init__(self) -> None:
        self.at = Position()
        self._calls: set[str] = set()
        self._last_seq = -1
        self._planned_call: str | None = None

    def plan(self, event: Event) -> Position:
        """The position after `event`; pass it to `commit` once the event is in the log.

        Raises:
            InvariantError: the event may not come here.
            msgspec.ValidationError: its payload lacks the numbers to tell.
        """
        if event.seq <= self._last_seq:
            raise violation(f"seq must strictly increase: saw {event.seq} after {self._last_seq}")
        self._planned_call = None
        rule = _RULES.get(event.type)
        return self.at if rule is None else rule(self, event)

    def commit(self, seq: int, position: Position) -> None:
        """`position`, planned for the event at `seq`, is now current."""
        if position.step != self.at.step:
            self._calls.clear()
        if self._planned_call is not None:
            self._calls.add(self._planned_call)
        self._last_seq = seq
        self.at = position

    def check_chunks(self, turn: int, step: int) -> None:
        """Chunks of `turn` and `step` may come here.

        Raises:
            InvariantError: that step is not open.
        """
        at = self.at
        if turn != at.turn or step != at.step:
            self._names("assistant/chunk", turn, step)

    def commit_chunks(self, last_seq: int) -> None:
        """Chunks up to `last_seq` are in the log."""
        self._last_seq = last_seq

    def _names(self, type: str, turn: int, step: int) -> None:
        at = self.at
        if turn != at.turn or step != at.step or at.step is None:
            raise violation(
                f"{type} names turn {turn}/step {step}"
                f" but open is turn {_null(at.turn)}/step {_null(at.step)}"
            )

    def turn_start(self, event: Event) -> Position:
        turn, at = _turn.decode(event.raw).turn, self.at
        if at.turn is not None:
            raise violation(f"turn/start {turn} while turn {at.turn} is still open")
        if turn != at.last_turn + 1:
            raise violation(f"turn/start expected turn {at.last_turn + 1}, got {turn}")
        return Position(turn, None, turn, 0)

    def turn_end(self, event: Event) -> Position:
        turn, at = _turn.decode(event.raw).turn, self.at
        if turn != at.turn:
            raise violation(f"turn/end {turn} does not match open turn {_null(at.turn)}")
        if at.step is not None:
            raise violation(f"turn/end {turn} while step {at.step} is still open")
        return Position(None, None, at.last_turn, at.last_step)

    def step_start(self, event: Event) -> Position:
        found, at = _step.decode(event.raw), self.at
        if found.turn != at.turn:
            raise violation(f"step/start in turn {found.turn} but open turn is {_null(at.turn)}")
        if at.step is not None:
            raise violation(f"step/start {found.step} while step {at.step} is still open")
        if found.step != at.last_step + 1:
            raise violation(
                f"step/start expected step {at.last_step + 1}"
                f" in turn {found.turn}, got {found.step}"
            )
        return Position(at.turn, found.step, at.last_turn, found.step)

    def step_end(self, event: Event) -> Position:
        found, at = _step.decode(event.raw), self.at
        self._names(event.type, found.turn, found.step)
        return Position(at.turn, None, at.last_turn, at.last_step)

    def in_step(self, event: Event) -> Position:
        found = _step.decode(event.raw)
        self._names(event.type, found.turn, found.step)
        return self.at

    def tool_call(self, event: Event) -> Position:
        found = jsontext.decode(cast(bytes, event.raw), _call)
        self._names(event.type, found.turn, found.step)
        self._planned_call = found.call_id
        return self.at

    def tool_result(self, event: Event) -> Position:
        if isinstance(event.placement, Replace):
            if self.at.turn is None:
                raise violation("tool/result surface replacement appended outside any open turn")
            return self.at
        found = jsontext.decode(cast(bytes, event.raw), _result)
        self._names(event.type, found.turn, found.step)
        call = found.message.source.call_id
        if call not in self._calls and found.error.code != "TOOL_NOT_STARTED":
            raise violation(f"tool/result for {call} with no prior tool/call in this step")
        return self.at

    def in_turn(self, event: Event) -> Position:
        if self.at.turn is None:
            raise violation(
                f"{event.type} appended outside any open turn"
                " (core execution events must be turn-enclosed)"
            )
        return self.at


_RULES: Final = {
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
