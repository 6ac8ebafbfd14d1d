"""Session logs on disk, found and read without the product's own code."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.snapshot.rows import unpack

Json: TypeAlias = dict[str, Any]

POLL_S: Final = 0.01


class Harvested(Struct, frozen=True):
    """One log: its header and its complete lines, header first."""

    path: Path
    header: Json
    lines: list[bytes]

    def events(self) -> Iterator[Json]:
        """The events, packed rows taken apart."""
        return unpack(jsontext.loads(line) for line in self.lines[1:] if line.strip())


def harvest(root: Path, known: Sequence[str] = ()) -> list[Harvested]:
    """Every log below `root`: the sessions of `known` in that order, then by time and id.

    `known` are the ids in the order in which the client met them, so that the order does not
    hang on two sessions being created in different milliseconds.
    """
    order = {sid: at for at, sid in enumerate(known)}
    found = [log for path in sorted(root.rglob("*.jsonl")) if (log := read(path)) is not None]
    unmet = len(order)
    return sorted(
        found,
        key=lambda log: (
            order.get(str(log.header.get("id")), unmet),
            "parentSession" in log.header,
            log.header.get("createdAt", 0),
            str(log.header.get("id")),
        ),
    )


def read(path: Path) -> Harvested | None:
    """A log's complete lines; `None` when the file is not (yet) a session log."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        return None
    try:
        header = jsontext.loads(lines[0]) if lines else None
    except jsontext.DecodeError:
        return None
    if not isinstance(header, dict) or header.get("type") != "session":  # pyright: ignore[reportUnknownMemberType]
        return None
    return Harvested(path, header, lines)  # pyright: ignore[reportUnknownArgumentType]


def find(root: Path, sid: str) -> Harvested | None:
    """The log of one session."""
    for path in sorted(root.rglob("*.jsonl")):
        log = read(path)
        if log is not None and log.header.get("id") == sid:
            return log
    return None


def child(root: Path, sid: str, number: int) -> Harvested | None:
    """The log of the N-th child of a session, numbered from 1 by time and id."""
    found = [log for log in harvest(root) if log.header.get("parentSession") == sid]
    return found[number - 1] if number <= len(found) else None


async def until(
    what: str,
    look: Callable[[], Harvested | None],
    holds: Callable[[list[Json]], bool],
    timeout_ms: int,
) -> None:
    """Wait until a log holds something. A file tells nobody that it grew, so this looks again.

    Raises:
        TimeoutError: `what` did not come.
    """
    try:
        with anyio.fail_after(timeout_ms / 1000):
            while True:
                log = look()
                if log is not None and holds(list(log.events())):
                    return
                await anyio.sleep(POLL_S)
    except TimeoutError:
        raise TimeoutError(f"{what} did not come within {timeout_ms} ms") from None


async def until_exists(path: Path, timeout_ms: int = 10_000) -> None:
    """Wait until a file exists.

    Raises:
        TimeoutError: it does not come.
    """
    try:
        with anyio.fail_after(timeout_ms / 1000):
            while not await anyio.Path(path).exists():  # noqa: ASYNC110
                await anyio.sleep(POLL_S)
    except TimeoutError:
        raise TimeoutError(f"the file {path.name} did not come within {timeout_ms} ms") from None
