"""What a session says beside its log: which choices there are, notices, and when to be silent.

Clients take what arrives behind a replay, or behind a cancelled turn, for a mistake. So there is
a time when nothing is said unasked; what came up meanwhile is said with the next prompt.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from dsh_acp.acp import options
from dsh_acp.acp.handshake import Client
from dsh_acp.acp.updates import Chunk, Title, Update, settled
from dsh_acp.acp.v1 import Codec
from dsh_acp.agent.services import Routes
from dsh_acp.agent.session import Session


class Voice:
    """Of one session. Everything is returned as lines for the caller to write in its place."""

    def __init__(self, codec: Codec, session: Session, routes: Routes, client: Client) -> None:
        self._codec: Final = codec
        self._session: Final = session
        self._routes: Final = routes
        self._client: Final = client
        self._told: list[dict[str, Any]] = []
        self._chosen: tuple[str, ...] = ()
        self._choosable: object = None
        self._is_hushed = False
        self._held: list[Update] = []
        self._numbers: Final = count()

    # ------------------------------------------------------------ choices

    def choices(self) -> list[dict[str, Any]]:
        """The configuration options as they are now."""
        return options.config_options(self._session, self._routes)

    def modes(self) -> dict[str, Any]:
        """The modes as they are now."""
        return options.modes(self._session)

    def know(self) -> None:
        """The client knows the choices as they are now, from an answer."""
        self._told = self.choices()

    def changes(self) -> bytes:
        """The updates that tell of choices the client has not been told of."""
        session, known = self._session, self._routes.known()
        chosen = (session.preset, session.model, session.effort or "")
        if chosen == self._chosen and known is self._choosable:
            return b""
        self._chosen, self._choosable = chosen, known
        before, now = self._told, self.choices()
        if before == now:
            return b""
        self._told = now
        mode = now[0]["currentValue"]
        lines = b""
        if not before or before[0]["currentValue"] != mode:
            update = {"sessionUpdate": "current_mode_update", "currentModeId": mode}
            lines += self._codec.frame(update)
        update = {"sessionUpdate": "config_option_update", "configOptions": now}
        return lines + self._codec.frame(update)

    # ------------------------------------------------------------ silence

    @property
    def is_between_turns(self) -> bool:
        """Whether a turn has ended and none has begun since; then choices are not told unasked."""
        return self._session.status == "idle" and self._session.log.last_turn > 0

    def hush(self) -> None:
        """Say nothing unasked until the next prompt."""
        self._is_hushed = True

    def speakable(self, updates: list[Update]) -> list[Update]:
        """`updates` without those that must wait; a running turn is never silenced."""
        if not self._is_hushed or self._session.status == "running":
            return updates
        self._held += [update for update in updates if isinstance(update, Title)]
        return [update for update in updates if not isinstance(update, Title)]

    def speak(self) -> tuple[Sequence[Update], bytes]:
        """A prompt has come: what was held back, and the changed choices."""
        self._is_hushed = False
        held, self._held = self._held, []
        return settled(held), self.changes()

    # ------------------------------------------------------------ words

    def note(self, severity: str, title: str, description: str) -> bytes:
        """A notice, or the same in a message for clients without notices."""
        if not self._client.notices:
            return self.say(f"{description}\n\n")
        return self._codec.frame(
            {
                "sessionUpdate": "notice",
                "severity": severity,
                "title": title,
                "description": description,
            }
        )

    def say(self, text: str) -> bytes:
        """A message of the agent's that is not in the log."""
        return self._codec.encode(Chunk("agent", f"beside-{next(self._numbers)}", text))
