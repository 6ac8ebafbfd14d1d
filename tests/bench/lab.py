"""What every measurement needs: fresh agents, rounds in turn, and rows for the table.

Rounds of the two agents alternate, so that a noisy minute of the machine hits both.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import itertools
from pathlib import Path
import statistics

from msgspec import Struct
from processes import Agent, Endpoint

KINDS = ("real", "floor")
MS = 1e6


class Row(Struct):
    """One measured promise; `floor` is `None` where the floor has nothing to compare."""

    name: str
    what: str
    unit: str
    real: float
    floor: float | None
    reach: str
    met: bool
    note: str = ""


class Lab:
    """Fresh homes and one scripted endpoint."""

    def __init__(self, folder: Path, endpoint: Endpoint) -> None:
        self.folder = folder
        self.endpoint = endpoint
        self._numbers = itertools.count()

    def agent(self, kind: str, url: str | None = None, home: Path | None = None) -> Agent:
        """A new process, in a new home unless one is given."""
        home = home or self.folder / f"{kind}{next(self._numbers)}"
        home.mkdir(exist_ok=True)
        return Agent(kind, home, url or self.endpoint.url)

    @contextlib.contextmanager
    def session(self, kind: str, url: str | None = None) -> Iterator[tuple[Agent, str]]:
        """A warm agent with a session in which one prompt was answered."""
        with self.agent(kind, url) as agent:
            agent.initialize()
            session = agent.new_session()
            agent.prompt(session, "warm up")
            yield agent, session


def alternate(rounds: int, sample: Callable[[str], Sequence[float]]) -> dict[str, list[float]]:
    """The samples of both agents, round by round in turn."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            found[kind] += sample(kind)
    return found


median = statistics.median


def at_most(name: str, what: str, real: float, floor: float | None, limit: float) -> Row:
    """A row in milliseconds with an absolute limit."""
    return Row(name, what, "ms", real, floor, f"≤ {limit:g} ms", real <= limit)


def times_floor(name: str, what: str, real: float, floor: float, factor: float) -> Row:
    """A row in milliseconds with a limit that is a multiple of the floor."""
    reach = f"≤ {factor:g} × floor"
    return Row(name, what, "ms", real, floor, reach, real <= factor * floor)
