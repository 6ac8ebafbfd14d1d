"""Handing a task to another agent: `subagent`, `subagent_fork`, and what goes on with them."""

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
        if args.run_in_background:
            id = ctx.agents.start(label, args.prompt, inherits=self.inherits, call_id=ctx.call_id)
            return text_outcome(f"started subagent {id}")
        return text_outcome(await ctx.delegate(label, args.prompt, inherits=self.inherits))


class SubagentFork(Subagent):
    """As `Subagent`, with the conversation up to the end of its last turn."""

    name = "subagent_fork"
    inherits = True


class SendMessage(Builtin):
    """Gives a subagent in the background more to do."""

    name = "send_message"

    async def run(self, args: "arguments.SendMessage", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        ctx.agents.send(args.subagent_id, args.message)
        return text_outcome(f"message queued as the next turn for subagent {args.subagent_id}")


class InterruptAgent(Builtin):
    """Stops what a subagent in the background does."""

    name = "interrupt_agent"

    async def run(self, args: "arguments.InterruptAgent", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        ctx.agents.interrupt(args.agent_id)
        return text_outcome(f"interrupt requested for agent {args.agent_id}")


class ListAgents(Builtin):
    """The subagents in the background."""

    name = "list_agents"
    is_concurrent = True

    async def run(self, args: "arguments.ListAgents", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        lines = [f"{id} [{status}] — {label}" for id, status, label in ctx.agents.list()]
        return text_outcome("\n".join(lines) or "(no subagents)")
