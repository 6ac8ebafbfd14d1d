"""Handing a task to another agent: `subagent`, `subagent_fork`."""

from typing import TYPE_CHECKING

from dsh_acp.tools.builtin import Builtin, text_outcome
from dsh_acp.tools.tool import Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.tools import talk_arguments as arguments


class Subagent(Builtin):
    """Runs a fresh agent to its end; the result is its last message."""

    name = "subagent"
    is_concurrent = True
    inherits = False

    async def run(self, args: "arguments.Subagent", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        label = " ".join(args.description.split())
        return text_outcome(await ctx.delegate(label, args.prompt, inherits=self.inherits))


class SubagentFork(Subagent):
    """As `Subagent`, with the conversation up to the end of its last turn."""

    name = "subagent_fork"
    inherits = True
