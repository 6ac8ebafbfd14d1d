"""Commands that can be stopped one by one, as the person does in a terminal of the agent's."""

from collections.abc import Callable, Mapping
from typing import Final

from anyio import CancelScope

from dsh_acp.acp.world import CURRENT_CALL
from dsh_acp.tools.output import Tail
from dsh_acp.tools.sandbox import Sandbox
from dsh_acp.tools.tool import CommandEnd
from dsh_acp.tools.world import LocalWorld


class StoppableWorld(LocalWorld):
    """The local world. `commands` has what stops each running command, by the id of its call."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: Final[dict[str, CancelScope]] = {}

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        timeout_ms: int,
        env: Mapping[str, str] | None = None,
        output: Callable[[bytes], None] | None = None,
        spill_dir: str | None = None,
        sandbox: Sandbox | None = None,
    ) -> CommandEnd:
        """See `World.run`. A stopped command ends by a signal, with what it had said."""
        said = Tail(None)

        def hear(data: bytes) -> None:
            said.feed(data)
            if output is not None:
                output(data)

        call_id = CURRENT_CALL.get()
        scope = self.commands[call_id] = CancelScope()
        try:
            with scope:
                return await super().run(
                    command,
                    cwd=cwd,
                    timeout_ms=timeout_ms,
                    env=env,
                    output=hear,
                    spill_dir=spill_dir,
                    sandbox=sandbox,
                )
        finally:
            if self.commands.get(call_id) is scope:
                del self.commands[call_id]
        return CommandEnd(
            stdout=said.kept,
            stderr=b"",
            exit_code=None,
            signal="SIGTERM",
            stdout_truncated=said.truncated,
        )
