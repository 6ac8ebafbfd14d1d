"""What a protocol version adds to the sessions that all versions share."""

from typing import Protocol

from dsh_acp.acp.client import Client
from dsh_acp.acp.codec import Codec
from dsh_acp.acp.pieces import ReadMedia
from dsh_acp.acp.prompts import Prompts
from dsh_acp.agent.session import Session


class Dialect(Protocol):
    """One version: how sessions are told of, and how prompts are answered."""

    @property
    def echoes(self) -> bool:
        """Whether the person's own words are told while live, too."""
        ...

    @property
    def owns_terminals(self) -> bool:
        """Whether commands are shown by the agent, and stopped by the client one by one."""
        ...

    def codec(self, session_id: str, client: Client, read: ReadMedia) -> Codec:
        """The frames of one session."""
        ...

    def prompts(self, codec: Codec, session: Session) -> Prompts:
        """The open prompts of one session."""
        ...
