"""An MCP server written with the official SDK; on stdio when run as a program."""

import base64
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def make() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("sample")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def structured() -> CallToolResult:
        """Only structured content."""
        return CallToolResult(content=[], structured_content={"answer": 42})

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def fail() -> CallToolResult:
        """Fail."""
        text = TextContent(type="text", text="no such record")
        return CallToolResult(content=[text], is_error=True)

    @server.tool()
    def picture() -> Image:
        """A picture."""
        return Image(data=PNG, format="png")

    @server.tool()
    def resources() -> CallToolResult:
        """Resources of every kind."""
        text = TextResourceContents(uri="file:///notes.md", text="remember")
        blob = BlobResourceContents(
            uri="file:///data.bin",
            blob=base64.b64encode(b"\0\1").decode(),
            mime_type="application/x-data",
        )
        return CallToolResult(
            content=[
                ResourceLink(type="resource_link", uri="https://example.org/a", name="a page"),
                EmbeddedResource(type="resource", resource=text),
                EmbeddedResource(type="resource", resource=blob),
                TextContent(type="text", text="done"),
            ]
        )

    @server.tool()
    async def slowly(ctx: Context[Any, Any]) -> str:
        """Report steps."""
        await ctx.report_progress(1, 2, "half way")
        await ctx.report_progress(2, 2)
        return "there"

    @server.tool()
    async def roots(ctx: Context[Any, Any]) -> str:
        """Where the client works."""
        found = await ctx.session.list_roots()
        return " ".join(str(root.uri) for root in found.roots)

    @server.prompt()
    def review(path: str, focus: str = "everything") -> str:
        """Review a file."""
        return f"Review {path}, looking at {focus}."

    return server


if __name__ == "__main__":
    make().run("stdio")
