"""Precise questions about code: `lsp`.

What it takes is imported at the first question.
"""

from functools import cached_property
from typing import TYPE_CHECKING

from dsh_acp.config import Settings
from dsh_acp.tools.builtin import Builtin
from dsh_acp.tools.confine import Confinement
from dsh_acp.tools.tool import Intent, Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.lsp.place import Limits
    from dsh_acp.tools import language_arguments, language_desk


class Lsp(Builtin):
    """Asks the language server of a file, which it starts if need be."""

    name = "lsp"

    def __init__(
        self, settings: Settings, confinement: Confinement, limits: "Limits | None" = None
    ) -> None:
        self._settings = settings
        self._confinement = confinement
        self._limits = limits

    @cached_property
    def _office(self) -> "language_desk.Office":
        from dsh_acp.lsp.place import Limits
        from dsh_acp.tools.language_desk import Office

        return Office(self._settings, self._confinement, self._limits or Limits())

    def intent(self, args: "language_arguments.Lsp", cwd: str) -> Intent:
        """Reads one path; executes, where a server would run the project unconfined."""
        return self._office.intent(args, cwd)

    async def run(self, args: "language_arguments.Lsp", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        return await self._office.run(args, ctx)
