"""What a language server is started with, given by whoever knows the session."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    import subprocess

Start: TypeAlias = Callable[[Sequence[str], str, Mapping[str, str]], "subprocess.Popen[bytes]"]
"""Starts a command line in a folder with three pipes, as the leader of a session of its own.

Raises `OSError`.
"""


class Guard(Protocol):
    """What ends process groups should this process be killed (`dsh_acp.tools.reaper`)."""

    def prepare(self) -> None:
        """Be ready to `watch`."""
        ...

    def watch(self, group: int, mark: str) -> None:
        """End `group`, and whatever has `mark` in its environment, when this process is gone."""
        ...

    async def sweep(self, mark: str) -> None:
        """End whatever has `mark` in its environment, now."""
        ...

    def forget(self, group: int) -> None:
        """Nothing of `group` runs any more."""
        ...


class Place(Struct, frozen=True, kw_only=True):
    """`environment` is the base that a server's own variables are laid over.

    `cache` is a folder that a server may fill.
    """

    start: Start
    environment: Mapping[str, str]
    cache: str
    guard: Guard


class Limits(Struct, frozen=True, kw_only=True):
    """Times in seconds."""

    start_s: float = 30.0
    request_s: float = 30.0
    farewell_s: float = 2.0
