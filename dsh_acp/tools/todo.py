"""The model's plan, as the person sees it: `todo_write`."""

from typing import TYPE_CHECKING

from dsh_acp.log.events import Todo, TodoWrite as Written
from dsh_acp.tools.builtin import Builtin, text_outcome
from dsh_acp.tools.tool import Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.tools import arguments


class TodoWrite(Builtin):
    """Records the whole list as one event. Several tasks may be in progress."""

    name = "todo_write"

    async def run(self, args: "arguments.TodoWrite", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        todos = tuple(Todo(item.content.strip(), item.status) for item in args.todos)
        ctx.append(Written(todos))
        count = [
            sum(item.status == status for item in todos)
            for status in ("pending", "in_progress", "completed")
        ]
        return text_outcome(
            f"Updated todo list: {count[0]} pending, {count[1]} in progress, {count[2]} completed."
        )
