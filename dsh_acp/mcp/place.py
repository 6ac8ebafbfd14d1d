"""Where a session's servers run, and how long things may take."""

from collections.abc import Awaitable, Callable, Mapping

import anyio
from msgspec import Struct

from dsh_acp.mcp.stdio import Guard


class Place(Struct, frozen=True, kw_only=True):
    """`environment` is the base that an entry's own variables are laid over."""

    cwd: str
    roots: tuple[str, ...]
    environment: Mapping[str, str]
    guard: Guard


class Limits(Struct, frozen=True, kw_only=True):
    """Times in seconds. `pause` waits between attempts."""

    connect_s: float = 30.0
    call_s: float = 300.0
    pause: Callable[[float], Awaitable[None]] = anyio.sleep
