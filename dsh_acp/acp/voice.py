"""What a session says beside its log: which choices there are, notices, and when to be silent.

Clients take what arrives behind a replay, or behind a cancelled turn, for a mistake. So there is
a time when nothing is said unasked; what came up meanwhile is said with the next prompt.
"""

from collections.abc import Sequence
from itertools import count
from typing import Final

from dsh_acp.acp import options
from dsh_acp.acp.codec import Codec
from dsh_acp.acp.updates import (
    Choice,
    Choices,
    Chunk,
    Commands,
    Notice,
    Severity,
    Title,
    Update,
    settled,
)
from dsh_acp.agent.commands import CommandInfo
from dsh_acp.agent.services import Routes
from dsh_acp.agent.session import Session


class Voice:
    """Of one session. Everything is returned as lines for the caller to write in its place."""

    def __init__(self, codec: Codec, session: Session, routes: Routes) -> None:
        self._codec: Final = codec
        self._session: Final = session
        self._routes: Final = routes
        self._told: tuple[Choice, ...] = ()
        self._announced: tuple[CommandInfo, ...] = ()
        self._chosen: tuple[str, ...] = ()
        self._choosable: object = None
        self._is_hushed = False
        self._held: list[Update] = []
        self._numbers: Final = count()

    # ------------------------------------------------------------ choices

    def choices(self) -> tuple[Choice, ...]:
        """The choices as they are now."""
        return options.choices(self._session, self._routes)

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
        is_new_mode = not before or before[0].current != now[0].current
        return self._codec.encode(Choices(now, is_new_mode))

    # ------------------------------------------------------------ commands

    def commands(self) -> tuple[CommandInfo, ...]:
        """The slash commands; the client is told of them by whoever asks."""
        self._announced = tuple(self._session.commands.list())
        return self._announced

    def new_commands(self) -> bytes:
        """The update that tells of a list other than the one last told; else nothing."""
        if tuple(self._session.commands.list()) == self._announced:
            return b""
        return self._codec.encode(Commands(self.commands()))

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

    def note(self, severity: Severity, title: str, description: str) -> bytes:
        """A notice, or the same in a message for clients without notices."""
        text = f"{description}\n\n"
        return self._codec.encode(Notice(severity, title, description, self._id(), text))

    def say(self, text: str) -> bytes:
        """A message of the agent's that is not in the log."""
        return self._codec.encode(Chunk("agent", self._id(), text))

    def _id(self) -> str:
        return f"beside-{next(self._numbers)}"
