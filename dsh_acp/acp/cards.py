"""A call's card as parts of protocol content, common to all protocol versions."""

from collections.abc import Iterable
import re
from typing import Any, Final

from dsh_acp import jsontext
from dsh_acp.mcp import naming
from dsh_acp.messages import Text
from dsh_acp.tools.legible import one_line
from dsh_acp.tools.tool import Card, FileDiff, Location

SHOWN: Final = 65_536
"""How much of one text is shown, in characters; the full output is kept elsewhere by its tool."""

_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_].*?(?:\x1b\\|$)"
    r"|[ -/]+[0-~]?|[0-~])"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]",
    re.DOTALL,
)


def fallback_card(name: str, arguments: str) -> Card:
    """The card of a tool that is not here: its name, and what it was called with."""
    if name.startswith(naming.PREFIX):
        # An MCP server's, which shows the same when its server is connected.
        from dsh_acp.tools.remote import call_card

        return call_card(name, arguments)
    return Card(title=one_line(name) or "Tool call", kind="other", raw_input=parsed(arguments))


def parsed(arguments: str) -> Any:
    """Arguments for display: the value they spell, `{}` for an empty text, else the text itself."""
    if not arguments:
        return {}
    try:
        return jsontext.loads(arguments.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return arguments


def plain(text: str) -> str:
    """Terminal output as text: no escape sequences, and of overwritten lines the last state."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))


def bounded(text: str, limit: int = SHOWN) -> str:
    """`text`, its middle left out with a note when it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head, tail = limit // 2, limit - limit // 2
    left_out = len(text[head : len(text) - tail].encode("utf-8", "replace"))
    return f"{text[:head]}\n[… {left_out} bytes omitted …]\n{text[-tail:]}"


def fenced(text: str) -> str:
    """Console output as a fenced block that its content cannot close."""
    body = bounded(plain(text)).rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`{3,}", body)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}console\n{body}\n{fence}"


def locations(found: Iterable[Location]) -> list[dict[str, Any]]:
    """Locations in protocol form; a line only when it is known."""
    return [
        {"path": place.path} if place.line is None else {"path": place.path, "line": place.line}
        for place in found
    ]


def diffs(found: Iterable[FileDiff]) -> list[dict[str, Any]]:
    """Diffs as tool call content; a new file has no old text."""
    items: list[dict[str, Any]] = []
    for diff in found:
        if diff.is_binary:
            items.append(text_content(f"Binary file {diff.path} changed"))
            continue
        item: dict[str, Any] = {"type": "diff", "path": diff.path}
        if diff.old is not None:
            item["oldText"] = diff.old
        item["newText"] = diff.new
        items.append(item)
    return items


def text_content(text: str) -> dict[str, Any]:
    """One text as tool call content."""
    return {"type": "content", "content": {"type": "text", "text": text}}


def texts(card: Card) -> list[str]:
    """The card's text blocks, bounded."""
    return [bounded(plain(block.text)) for block in card.content or () if isinstance(block, Text)]
