"""All the servers of one session."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import anyio
from anyio import CancelScope
import anyio.abc
from msgspec import Struct

from dsh_acp.config import McpServerSettings
from dsh_acp.mcp import naming
from dsh_acp.mcp.connection import Connection
from dsh_acp.mcp.place import Limits, Place
from dsh_acp.mcp.values import RemotePrompt, RemoteTool, Status


class Offered(Struct, frozen=True):
    """A tool under the name that the model calls it by."""

    name: str
    tool: RemoteTool
    connection: Connection


class OfferedPrompt(Struct, frozen=True):
    """A prompt under the name of its slash command."""

    name: str
    prompt: RemotePrompt
    connection: Connection


def merged(
    configured: Iterable[McpServerSettings], passed: Iterable[McpServerSettings]
) -> tuple[McpServerSettings, ...]:
    """The servers of a session by name; what a client passes wins over the configuration."""
    found = {server.name: server for server in (*configured, *passed)}
    return tuple(found[name] for name in sorted(found))


class Servers:
    """`run` keeps them, until cancelled.

    `changed` is called when a server's state or what it offers is another.
    """

    def __init__(
        self,
        settings: Sequence[McpServerSettings],
        place: Place,
        limits: Limits,
        changed: Callable[[Status], None],
    ) -> None:
        self._place: Final = place
        self._limits: Final = limits
        self._changed: Final = changed
        self._connections: dict[str, Connection] = {}
        self._scopes: dict[Connection, CancelScope] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._since: Final = anyio.current_time()
        self.use(settings)

    def use(self, settings: Sequence[McpServerSettings]) -> None:
        """Go on with these servers; those that are the same keep their connections."""
        wanted = {server.name: server for server in settings}
        for name, connection in list(self._connections.items()):
            if wanted.get(name) != connection.settings:
                del self._connections[name]
                if (scope := self._scopes.pop(connection, None)) is not None:
                    scope.cancel()
        for name, server in wanted.items():
            if name not in self._connections:
                connection = Connection(server, self._place, self._limits, self._news)
                self._connections[name] = connection
                self._start(connection)

    def _news(self, connection: Connection) -> None:
        # One that was replaced has nothing to say any more.
        if self._connections.get(connection.name) is connection:
            self._changed(connection.status)

    def _start(self, connection: Connection) -> None:
        async def run(scope: CancelScope) -> None:
            with scope:
                await connection.run()

        if self._tasks is not None:
            scope = self._scopes[connection] = CancelScope()
            self._tasks.start_soon(run, scope)

    async def run(self) -> None:
        """Connect all, and keep them. Cancellation ends every server before it goes on."""
        try:
            async with anyio.create_task_group() as self._tasks:
                for connection in self._connections.values():
                    self._start(connection)
                await anyio.sleep_forever()
        finally:
            self._tasks = None

    async def settled(self, seconds: float) -> bool:
        """Wait until every first attempt has come to something; whether it has.

        `seconds` count from the beginning of the session.
        """
        left = max(0.0, self._since + seconds - anyio.current_time())
        with anyio.move_on_after(left) as limit:
            for connection in list(self._connections.values()):
                await connection.settled.wait()
        return not limit.cancelled_caught

    def statuses(self) -> list[Status]:
        """Where they stand, by name."""
        return [self._connections[name].status for name in sorted(self._connections)]

    def tools(self) -> list[Offered]:
        """Every tool, by its name."""
        found: list[Offered] = []
        for label, connection in self._labelled():
            by_name = {tool.name: tool for tool in connection.tools}
            names = naming.tool_names(label, by_name)
            found += [Offered(names[name], tool, connection) for name, tool in by_name.items()]
        return sorted(found, key=lambda offered: offered.name)

    def prompts(self) -> list[OfferedPrompt]:
        """Every prompt, by the name of its command, which is in lower case."""
        found: dict[str, OfferedPrompt] = {}
        for label, connection in self._labelled():
            by_name = {prompt.name: prompt for prompt in connection.prompts}
            names = naming.tool_names(label, by_name)
            for original, prompt in sorted(by_name.items()):
                name = names[original].lower()
                found.setdefault(name, OfferedPrompt(name, prompt, connection))
        return [found[name] for name in sorted(found)]

    def _labelled(self) -> list[tuple[str, Connection]]:
        labels = naming.labels(self._connections)
        return [(labels[name], self._connections[name]) for name in sorted(self._connections)]
