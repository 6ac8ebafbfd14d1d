"""Opening sessions: from a client's params to a conversation that can be talked to."""

from collections.abc import Awaitable, Callable, Sequence
import os
from typing import Any, Final

from msgspec import Struct

from dsh_acp.acp.client import Client
from dsh_acp.acp.codec import Codec
from dsh_acp.acp.conversation import Conversation
from dsh_acp.acp.dialect import Dialect
from dsh_acp.acp.host import Host
from dsh_acp.acp.permission import EditorAsker
from dsh_acp.acp.projection import Projection
from dsh_acp.acp.recollection import Recollection
from dsh_acp.acp.servers import parse
from dsh_acp.acp.stopping import StoppableWorld
from dsh_acp.acp.terminals import ClientTerminals
from dsh_acp.acp.world import Ask, EditorWorld
from dsh_acp.agent.hook_files import Handler, load as load_hooks
from dsh_acp.agent.hooks import Hooks
from dsh_acp.agent.services import Services, SessionOptions
from dsh_acp.agent.session import Session
from dsh_acp.config import McpServerSettings
from dsh_acp.llm.provider import Price
from dsh_acp.log.session_log import SessionLog
from dsh_acp.tools.confine import Confinement
from dsh_acp.tools.tool import ToolSet, World
from dsh_acp.wire.frames import INVALID_PARAMS, RpcError
from dsh_acp.wire.jsonrpc import Peer


class Place(Struct, frozen=True):
    """Where a session works, and what it is connected to."""

    cwd: str
    directories: tuple[str, ...] | None
    servers: tuple[McpServerSettings, ...]
    problems: tuple[str, ...]


def place(cwd: str, directories: Sequence[str] | None, servers: object) -> Place:
    """The checked place.

    Raises:
        RpcError: `-32602`, a directory that is not absolute or not there.
    """
    if not os.path.isabs(cwd):  # noqa: PTH117 - the text is passed on as it is
        raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path: {cwd}")
    if not os.path.isdir(cwd):  # noqa: PTH112 - as above
        raise RpcError(INVALID_PARAMS, f"cwd is not a directory: {cwd}")
    for directory in directories or ():
        if not os.path.isabs(directory):  # noqa: PTH117 - as above
            raise RpcError(
                INVALID_PARAMS, f"additionalDirectories must be absolute paths: {directory}"
            )
    found, problems = parse(servers)
    listed = None if directories is None else tuple(directories)
    return Place(cwd, listed, found, tuple(problems))


class Opening:
    """Makes conversations for one connection; `dialect` is set when its version is known."""

    dialect: Dialect

    def __init__(self, host: Host, peer: Peer) -> None:
        self._host: Final = host
        self._peer: Final = peer
        self._told: set[tuple[str, str]] = set()

    def recollection(self, session_id: str, cwd: str, *, is_shown: bool) -> Recollection:
        """What a session's past shows, when nothing of it has been taken in yet."""
        tools = self._host.tools()
        return Recollection(
            tools, lambda: self.projection(session_id, cwd, tools), is_shown=is_shown
        )

    def open(
        self,
        log: SessionLog,
        place: Place,
        client: Client,
        route: tuple[str, str],
        memory: Recollection,
    ) -> Conversation:
        """A conversation over `log`; it does not follow it yet. `route`: provider and model."""
        host, tools = self._host, memory.tools
        settings = host.settings
        asker = EditorAsker()
        hook_files = load_hooks(
            settings.config_dir, place.cwd, trust_project=settings.project_hooks
        )
        ask = _InOrder(self._peer.request)
        terminals = self._terminals(log.header.id, client, ask)
        world = self._world(log.header.id, client, terminals, ask)
        services = Services(
            settings=settings,
            store=host.store,
            providers=host.routes,
            tools=tools,
            world=world,
            asker=asker,
            attachments=host.attachments,
            hooks=self._hooks(hook_files.handlers, place.cwd),
            confinement=Confinement(settings),
        )
        options = SessionOptions(
            cwd=place.cwd,
            provider=route[0],
            model=route[1],
            effort=settings.effort,
            preset=settings.permission,
            additional_directories=place.directories,
            max_tokens=settings.max_tokens,
            # A recording answers no title requests.
            llm_titles=bool(settings.title_model)
            or not (settings.model or "").startswith("replay:"),
        )
        session = Session(log, services=services, options=options)
        codec = self.codec(session.id, client)
        conversation = Conversation(
            self._peer,
            client,
            session,
            tools=tools,
            routes=host.routes,
            codec=codec,
            prompts=self.dialect.prompts(codec, session),
            echoes=self.dialect.echoes,
            projection=memory.projection,
        )
        self.connect(conversation, place.servers)
        conversation.remarks = self._news(place.cwd, hook_files.problems)
        asker.desk = conversation
        ask.caught_up = conversation.caught_up
        if isinstance(world, StoppableWorld):
            conversation.running.commands = world.commands
        if terminals is not None:
            terminals.attach = conversation.attach_terminal
        return conversation

    def _hooks(self, handlers: Sequence[Handler], cwd: str) -> Hooks:
        if not handlers:
            return self._host.hooks
        from dsh_acp.agent.command_hooks import CommandHooks

        return CommandHooks(handlers, cwd).joined(self._host.hooks)

    def _news(self, cwd: str, problems: Sequence[str]) -> tuple[str, ...]:
        """The problems that this connection has not been told of."""
        news = tuple(each for each in problems if (cwd, each) not in self._told)
        self._told.update((cwd, each) for each in news)
        return news

    def connect(self, conversation: Conversation, passed: Sequence[McpServerSettings]) -> None:
        """Have it use these MCP servers, and those of the configuration, from now on."""
        settings = self._host.settings
        if conversation.remote is not None:
            conversation.remote.use(passed)
        elif passed or settings.mcp_servers:
            # Most sessions have no servers, and need nothing of this.
            from dsh_acp.acp.remote import RemoteTools

            conversation.remote = RemoteTools(
                conversation.session,
                conversation.tools,
                conversation.voice,
                conversation.write,
                has_notices=conversation.client.notices,
                settings=settings,
                attachments=self._host.attachments,
                passed=passed,
            )
            # Of one that does not run yet, they start when it does.
            conversation.remote.start()

    def codec(self, session_id: str, client: Client) -> Codec:
        """A codec for one session."""
        return self.dialect.codec(session_id, client, self._host.attachments.get)

    def projection(self, session_id: str, cwd: str, tools: ToolSet) -> Projection:
        """A projection for one session."""
        routes = self._host.routes

        def price(provider: str, model: str) -> Price | None:
            found = routes.get(provider)
            return None if found is None else found.model(model).price

        return Projection(session_id, cwd, tools, price)

    def _terminals(self, session_id: str, client: Client, ask: Ask) -> ClientTerminals | None:
        if not (self._host.settings.client_terminals and client.terminals):
            return None
        return ClientTerminals(session_id, ask)

    def _world(
        self, session_id: str, client: Client, terminals: ClientTerminals | None, ask: Ask
    ) -> World:
        if self.dialect.owns_terminals:
            return StoppableWorld()
        local = self._host.world()
        if not (client.reads_files or client.writes_files or terminals):
            return local
        return EditorWorld(session_id, client, ask, local, terminals)


class _InOrder:
    """Requests to the client, each behind the updates about everything that led to it."""

    def __init__(self, ask: Ask) -> None:
        self._ask: Final = ask
        self.caught_up: Callable[[], Awaitable[None]] | None = None

    async def __call__(self, method: str, params: Any) -> bytes:
        if self.caught_up is not None:
            await self.caught_up()
        return await self._ask(method, params)
