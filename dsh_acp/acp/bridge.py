"""One connection: which version it speaks, and from then on that version's methods."""

from collections.abc import Awaitable, Callable
from typing import Final

from anyio.abc import TaskGroup

from dsh_acp.acp import handshake, versions
from dsh_acp.acp.client import Client
from dsh_acp.acp.errors import translate
from dsh_acp.acp.host import Host
from dsh_acp.acp.sessions import Sessions
from dsh_acp.wire.frames import INVALID_REQUEST, RpcError
from dsh_acp.wire.jsonrpc import Call, Peer


class Bridge:
    """A client on one side, the sessions on the other. `start` it; `close` ends every session.

    `client` is the one that was answered already.
    """

    def __init__(
        self,
        host: Host,
        write: Callable[[bytes], None],
        drain: Callable[[], Awaitable[None]] | None = None,
        client: Client | None = None,
    ) -> None:
        self.peer: Final = (
            Peer(write, {}, translate, drain) if drain is not None else Peer(write, {}, translate)
        )
        self.peer.admits = self._admits
        self.sessions: Final = Sessions(host, self.peer)
        self._is_initialized = False
        self._has_begun = False
        if client is not None:
            self._speak(client)

    @property
    def client(self) -> Client:
        """Who is on the other side."""
        return self.sessions.client

    def start(self, tasks: TaskGroup) -> None:
        """Run calls and sessions in `tasks`."""
        self.sessions.start(tasks)
        self.peer.start(tasks)

    async def close(self) -> None:
        """The connection is over: stop everything, leave every log complete. Bounded in time."""
        self.peer.close()
        await self.sessions.close()

    # ------------------------------------------------------------ which version

    def _speak(self, client: Client) -> None:
        self.sessions.speak(client, versions.dialect(client.version))
        self.peer.handlers = versions.handlers(client.version, self.sessions)
        self._is_initialized = True

    def _admits(self, call: Call) -> bool:
        """Whether a call may go to its handler; otherwise it is answered here.

        In the order of the wire, so that what follows `initialize` in the same read is understood
        in its version.
        """
        if self._is_initialized and self.client.version > 1 and call.id is not None:
            if not handshake.is_plain_id(call.id):
                self.peer.write(handshake.odd_id())
                return False
        if call.method == "initialize":
            self._initialize(call)
            return False
        if not self._is_initialized:
            call.fail(RpcError(INVALID_REQUEST, f"initialize comes before {call.method}"))
            return False
        if call.id is not None:
            self._has_begun = True
        return True

    def _initialize(self, call: Call) -> None:
        """Answered again if asked again, until the first other request."""
        try:
            client = handshake.decode(call.params)
            if self._is_initialized:
                self._check_repeated(client)
            if client.version > 1 and call.id is not None and not handshake.is_plain_id(call.id):
                self.peer.write(handshake.odd_id())
                return
        except RpcError as exc:
            call.fail(exc)
            return
        self._speak(client)
        call.reply(handshake.result(client))

    def _check_repeated(self, client: Client) -> None:
        """A connection has one version; version 1 has no rule against asking for it again.

        Raises:
            RpcError: `-32600`.
        """
        before = self.client.version
        if self._has_begun and not (before == client.version == 1):
            raise RpcError(INVALID_REQUEST, f"This connection speaks version {before} already.")
        if client.asked < self.client.asked:
            sentence = f"Version {self.client.asked} was asked for before; it cannot be lower."
            raise RpcError(INVALID_REQUEST, sentence)
