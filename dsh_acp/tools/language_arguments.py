"""What the tool `lsp` accepts."""

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from dsh_acp.tools.argument_rules import Arguments, filled, rule

POSITIONAL: Final = ("goToDefinition", "findReferences", "goToImplementation", "hover")


class Lsp(Arguments):
    """Ask a language server about code: precise where a search for text is ambiguous.

    `goToDefinition`, `findReferences` (the declaration included), `goToImplementation` and `hover`
    are about the symbol at `line` and `character`, which count from 1, characters in UTF-16 units.
    `documentSymbol` lists what a file defines, `workspaceSymbol` what the workspace defines under
    a name like `query`, in the language of the file. `diagnostics` are the errors and warnings of
    a file. The first question about a language starts its server and may take a while.
    """

    operation: Annotated[
        Literal[
            "goToDefinition",
            "findReferences",
            "goToImplementation",
            "hover",
            "documentSymbol",
            "workspaceSymbol",
            "diagnostics",
        ],
        Field(description="What to ask."),
    ]
    file_path: Annotated[
        str,
        filled("file_path"),
        Field(description="The source file, absolute or relative to the session's directory."),
    ]
    line: Annotated[int | None, Field(description="Line of the symbol, from 1.")] = None
    character: Annotated[
        int | None, Field(description="Column of the symbol, from 1, in UTF-16 units.")
    ] = None
    query: Annotated[str | None, Field(description="For workspaceSymbol: the name.")] = None

    @model_validator(mode="after")
    def _complete(self) -> "Lsp":
        if self.operation in POSITIONAL:
            for name, value in (("line", self.line), ("character", self.character)):
                if value is None:
                    raise rule(f'invalid arguments: missing required property "{name}"')
                if value < 1:
                    raise rule(f"{name} must be a positive integer (one-based)")
        if self.operation == "workspaceSymbol" and not (self.query or "").strip():
            raise rule("query must be a non-empty string")
        return self
