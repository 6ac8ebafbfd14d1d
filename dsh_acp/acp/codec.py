"""What every protocol version does for one session: updates and questions as frames."""

from typing import Any, Protocol

from msgspec import Struct

from dsh_acp.acp.updates import Update
from dsh_acp.tools.tool import Card


class Asking(Struct, frozen=True, kw_only=True):
    """A permission question, ready to be put.

    `card` has everything needed to judge the call; `plain_card` is it without what the other
    fields say. `command` and `cwd` are given when the question is about a command.
    """

    call_id: str
    name: str
    card: Card
    plain_card: Card
    title: str
    description: str | None = None
    command: str | None = None
    cwd: str | None = None
    options: list[dict[str, Any]]


class Codec(Protocol):
    """The frames of one session for one client."""

    is_replaying: bool
    """Whether history is being sent."""

    def encode(self, update: Update) -> bytes:
        """The lines for `update`; empty when this client does not show such things."""
        ...

    def permission(self, asking: Asking) -> dict[str, Any]:
        """The params of `session/request_permission`."""
        ...

    def beside(self) -> bytes:
        """What is shown and not in the log, for a client that was just sent the log again."""
        ...
