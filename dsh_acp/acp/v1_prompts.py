"""Version 1 answers a prompt at the end of its turn, with the stop reason."""

from dsh_acp.acp import v1
from dsh_acp.acp.client import Client
from dsh_acp.acp.codec import Codec
from dsh_acp.acp.pieces import ReadMedia
from dsh_acp.acp.prompts import Prompt, Prompts
from dsh_acp.agent.session import Session
from dsh_acp.wire.frames import RpcError
from dsh_acp.wire.jsonrpc import Call


class Version1:
    """See `Dialect`."""

    echoes = False
    owns_terminals = False

    def codec(self, session_id: str, client: Client, read: ReadMedia) -> Codec:
        """Frames of version 1."""
        return v1.Codec(session_id, client, read)

    def prompts(self, codec: Codec, session: Session) -> Prompts:
        """Prompts that are answered at the end of their turn."""
        return Answers(session)


class Answers(Prompts):
    """The response is all that says how a turn ended; that one runs is never said."""

    def finish(self, prompt: Prompt, outcome: str | RpcError) -> bytes:
        """The response."""
        if isinstance(outcome, RpcError):
            return prompt.call.settle_error(outcome)
        return prompt.call.settle({"stopReason": outcome})

    def commanding(self, call: Call) -> None:
        """Nothing."""

    def unlogged(self, call: Call, text: str) -> bytes:
        """Nothing."""
        return b""

    def commanded(self, call: Call, outcome: str) -> bytes:
        """The response."""
        return call.settle({"stopReason": outcome})

    def asking(self, is_open: bool) -> bytes:
        """Nothing."""
        return b""

    def standing(self) -> bytes:
        """Nothing."""
        return b""
