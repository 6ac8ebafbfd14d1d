"""The calls of a session that run, and how one of them is stopped while the turn goes on."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from anyio import CancelScope

from dsh_acp.errors import ToolError
from dsh_acp.tools.tool import Outcome


class Running:
    """By the model's id of each call. `commands` are set where they can be stopped alone."""

    def __init__(self) -> None:
        self.commands: Mapping[str, CancelScope] = {}
        self._calls: Final[dict[str, CancelScope]] = {}

    async def execute(self, call_id: str, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Run the body of a call.

        Raises:
            ToolError: `ABORTED`, the person stopped this call.
        """
        scope = self._calls[call_id] = CancelScope()
        try:
            with scope:
                return await proceed()
        finally:
            self._calls.pop(call_id, None)
        raise ToolError("the user stopped this call", code="ABORTED", name="AbortError")

    def stop(self, is_it: Callable[[str], bool], *, command: bool) -> bool:
        """Stop a call, or only its command; `False` when none that runs is the one."""
        for id, scope in (self.commands if command else self._calls).items():
            if is_it(id):
                scope.cancel()
                return True
        return False
