"""What a session is doing, and how to stop it."""

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from dsh_acp.agent.services import DISPOSED, Cause


class Activity:
    """One turn, or one job between turns. The first cause to stop it counts."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.cause: Cause | None = None
        self.ended = anyio.Event()

    @property
    def is_aborted(self) -> bool:
        """Whether it has been told to stop."""
        return self.cause is not None

    def abort(self, cause: Cause) -> None:
        """Stop it: each await inside it raises from now on."""
        if self.cause is None:
            self.cause = cause
            self.scope.cancel()

    def cancelled(self) -> Cause:
        """The cause, asked for by code that was cancelled; from outside it is `disposed`."""
        if self.cause is None:
            self.cause = DISPOSED
        return self.cause

    async def check(self) -> None:
        """Raise the cancellation if it is due; costs nothing otherwise."""
        if self.cause is not None:
            await checkpoint_if_cancelled()
