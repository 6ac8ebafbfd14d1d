"""One server of a session, over all its lives.

A server that was connected once and then ended is started again by the next call that needs it,
after a pause that grows with every life in which it answered nothing. Its tools stay listed
meanwhile: what the model is offered does not change because a program crashed. One that could
never be connected is tried three times and then left alone.

Why not start it again at once: a program that crashes at its start would be started for ever,
with nobody needing it.
"""

from collections.abc import Awaitable, Callable, Mapping
import importlib
import math
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
from anyio import CancelScope, to_thread

from dsh_acp.config import McpServerSettings
from dsh_acp.errors import McpError
from dsh_acp.mcp.place import Limits, Place
from dsh_acp.mcp.values import Answer, RemotePrompt, RemoteTool, State, Status

if TYPE_CHECKING:
    from dsh_acp.mcp.link import Link
    from dsh_acp.mcp.wire import Wire

T = TypeVar("T")

_ATTEMPTS: Final = 3
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 8.0
_CLOSE_S: Final = 1.0
_LIST_S: Final = 30.0
_REASON_CHARS: Final = 300


class _Life:
    """One connection, from the attempt to its end."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        self.was_ready = False
        self.has_answered = False
        self.is_hopeless = False
        self.reason = ""
        self.waiting: set[CancelScope] = set()
        self.over = anyio.Event()

    @property
    def is_usable(self) -> bool:
        return self.wire is not None and not self.wire.ended


class Connection:
    """`run` keeps it, until cancelled; everything else may be used from other tasks.

    `changed` is called when the state or what is offered is another.
    """

    def __init__(
        self,
        settings: McpServerSettings,
        place: Place,
        limits: Limits,
        changed: Callable[["Connection"], None],
    ) -> None:
        self.settings: Final = settings
        self.tools: tuple[RemoteTool, ...] = ()
        self.prompts: tuple[RemotePrompt, ...] = ()
        self.settled: Final = anyio.Event()
        """Set when the first attempt has come to something."""
        self._place: Final = place
        self._limits: Final = limits
        self._changed: Final = changed
        self._state: State = "connecting"
        self._reason = ""
        self._life = _Life()
        self._failures = 0
        self._wanted = anyio.Event()
        self._moved = anyio.Event()

    @property
    def name(self) -> str:
        """The name of the entry."""
        return self.settings.name

    @property
    def status(self) -> Status:
        """Where it stands."""
        return Status(self.name, self._state, self._reason, len(self.tools))

    def _become(self, state: State, reason: str = "") -> None:
        self._state, self._reason = state, reason
        if state != "connecting":
            self.settled.set()
        self._tell()
        self._changed(self)

    def _tell(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    # ------------------------------------------------------------ lives

    async def run(self) -> None:
        """Connect, and connect again when needed. Cancellation ends the server."""
        misses = 0
        was_connected = False
        while True:
            life = self._life = _Life()
            try:
                await self._live(life)
            finally:
                life.wire = None
                life.over.set()
            misses = 0 if life.has_answered else misses + 1
            was_connected = was_connected or life.was_ready
            if not life.was_ready:
                self._failures += 1
            self._become("lost" if was_connected else "failed", life.reason)
            if was_connected:
                await self._wanted.wait()
            elif life.is_hopeless or misses == _ATTEMPTS:
                return
            if misses:
                pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (misses - 1))
                await self._limits.pause(pause)
            self._wanted = anyio.Event()
            if was_connected:
                self._become("connecting")

    async def _live(self, life: _Life) -> None:
        # A second of processor time, which other sessions can use.
        await to_thread.run_sync(
            importlib.import_module, "dsh_acp.mcp.wire", abandon_on_cancel=True
        )
        from dsh_acp.mcp.link import Link, reason
        from dsh_acp.mcp.wire import connect

        link = Link(self.settings, self._place)
        said = ""
        limit = CancelScope(deadline=anyio.current_time() + self._limits.connect_s)
        try:
            with limit:
                async with connect(link, self._place) as wire:
                    await wire.initialize()
                    self.tools = tuple(await wire.tools())
                    self.prompts = tuple(await wire.prompts())
                    limit.deadline = math.inf
                    life.wire, life.was_ready = wire, True
                    self._become("ready")
                    await self._attend(wire)
                    self._let_go(life)
                    limit.deadline = anyio.current_time() + _CLOSE_S
        except Exception as exc:  # noqa: BLE001 - whatever a server does, the session goes on
            said = reason(exc)
            life.is_hopeless = isinstance(exc, McpError) and exc.code == "NOT_STARTED"
        finally:
            self._let_go(life)
        if limit.cancelled_caught and not life.was_ready:
            said = f"it did not answer within {self._limits.connect_s:g} s"
        life.reason = self._explain(link, said, life)

    def _let_go(self, life: _Life) -> None:
        """Nothing that still waits will be answered."""
        life.wire = None
        for scope in life.waiting:
            scope.cancel()

    def _explain(self, link: "Link", said: str, life: _Life) -> str:
        known = link.epitaph()
        if said and known and said not in known and "did not answer" in said:
            known = f"{said}: {known}"
        text = known or said or "it closed the connection"
        return _without_secrets(" ".join(text.split())[:_REASON_CHARS], self.settings)

    async def _attend(self, wire: "Wire") -> None:
        """Follow changes of what it offers, until it ends."""
        while not wire.ended:
            await wire.news()
            if wire.ended:
                return
            with anyio.move_on_after(_LIST_S):
                try:
                    if wire.tools_changed:
                        wire.tools_changed = False
                        self.tools = tuple(await wire.tools())
                    if wire.prompts_changed:
                        wire.prompts_changed = False
                        self.prompts = tuple(await wire.prompts())
                except McpError:
                    # What it offered before stands; a connection that is gone is seen above.
                    continue
            self._changed(self)

    # ------------------------------------------------------------ use

    async def call(
        self, tool: str, arguments: dict[str, Any], show: Callable[[str], None]
    ) -> Answer:
        """Call a tool, starting the server again if need be.

        `show` gets the steps that the server reports; each of them renews the time limit.
        Cancellation, and the limit, are told to the server.

        Raises:
            McpError: `UNREACHABLE`, `ENDED` (it may have had effects), `TIMEOUT`, `REFUSED`,
                `MALFORMED`.
        """

        def ask(wire: "Wire", limit: CancelScope) -> Awaitable[Answer]:
            def step(text: str) -> None:
                limit.deadline = anyio.current_time() + self._limits.call_s
                show(text)

            return wire.call(tool, arguments, step)

        return await self._asked(ask)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> Answer:
        """What a prompt says for these arguments.

        Raises:
            McpError: as `call`.
        """
        return await self._asked(lambda wire, limit: wire.prompt(name, arguments))

    async def _asked(self, ask: "Callable[[Wire, CancelScope], Awaitable[T]]") -> T:
        try:
            return await self._attempt(ask)
        except McpError as exc:
            if exc.code != "EXPIRED":
                raise
        # Nobody has heard of the request, so it may be made again.
        return await self._attempt(ask)

    async def _attempt(self, ask: "Callable[[Wire, CancelScope], Awaitable[T]]") -> T:
        life: _Life | None = None
        limit = CancelScope(deadline=anyio.current_time() + self._limits.call_s)
        try:
            with limit:
                life, wire = await self._usable()
                life.waiting.add(limit)
                answer = await ask(wire, limit)
                life.has_answered = True
                return answer
        except McpError as exc:
            if life is not None and exc.code in ("REFUSED", "MALFORMED", "EXPIRED"):
                life.has_answered = True
            if life is not None and exc.code == "EXPIRED":
                await life.over.wait()
            if exc.code != "ENDED":
                raise McpError(_without_secrets(exc.message, self.settings), code=exc.code) from exc
        finally:
            if life is not None:
                life.waiting.discard(limit)
        if life is not None and not life.is_usable:
            await life.over.wait()
            reason = f" ({life.reason})" if life.reason else ""
            raise McpError(f"it ended before it answered{reason}", code="ENDED")
        raise McpError(f"it did not answer within {self._limits.call_s:g} s", code="TIMEOUT")

    async def _usable(self) -> "tuple[_Life, Wire]":
        failures = self._failures
        while True:
            life = self._life
            if life.wire is not None and not life.wire.ended:
                return life, life.wire
            if self._failures > failures or self._state == "failed":
                raise McpError(f"it cannot be reached: {self._reason}", code="UNREACHABLE")
            if self._state == "lost":
                self._wanted.set()
            await self._moved.wait()


def _without_secrets(text: str, settings: McpServerSettings) -> str:
    """`text` without the values that the entry passes to its server."""
    for value in (*settings.env.values(), *settings.headers.values()):
        for secret in (value, value.removeprefix("Bearer ")):
            if len(secret) >= 6:
                text = text.replace(secret, "…")
    _, found, query = settings.url.partition("?")
    return text.replace(query, "…") if found and query else text
