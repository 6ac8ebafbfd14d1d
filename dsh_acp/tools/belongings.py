"""What a session's commands have started, whether they wanted to leave it or not.

Beside the mark of its own run, each process carries one of its session, by which the daemons that
finished commands meant to leave are found when the session ends.
"""

from collections.abc import Generator
import contextlib
from contextvars import ContextVar
import os
from typing import Any, Final

from dsh_acp.tools import reaper, strays

SESSION: Final = "DSH_SESSION"
STATE: Final = "belongings"

_current: Final[ContextVar[str | None]] = ContextVar("session mark", default=None)


@contextlib.contextmanager
def marked(state: dict[str, Any]) -> Generator[None]:
    """Commands that are started inside belong to the session with this tool state."""
    mark = state.get(STATE)
    if mark is None:
        mark = state[STATE] = os.urandom(8).hex()
        reaper.prepare()
        reaper.keep(f"{SESSION}={mark}")
    token = _current.set(mark)
    try:
        yield
    finally:
        _current.reset(token)


def environment() -> dict[str, str]:
    """The variable that marks what is started now; none outside `marked`."""
    mark = _current.get()
    return {} if mark is None else {SESSION: mark}


async def end_session(state: dict[str, Any]) -> None:
    """End what the session's commands left running. Shielded; bounded by a second or so."""
    mark = state.pop(STATE, None)
    if mark is not None:
        await strays.end(f"{SESSION}={mark}")
        reaper.drop(f"{SESSION}={mark}")
