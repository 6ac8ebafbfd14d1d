"""MCP servers as clients name them, read with all the tolerance that clients need.

Lists may be missing, `null` or an empty object; `env` and `headers` may be lists of pairs or plain
objects; any name and command is accepted. What cannot be read is named, and the rest is used.
"""

from collections.abc import Mapping
from typing import Any, cast

from dsh_acp.config import McpServerSettings


def parse(value: Any) -> tuple[tuple[McpServerSettings, ...], list[str]]:
    """The servers in `mcpServers`, and a sentence for each entry that is none."""
    if not isinstance(value, list):
        problems = ["mcpServers is not a list"] if value else []
        return (), problems
    servers: list[McpServerSettings] = []
    problems: list[str] = []
    for position, entry in enumerate(cast(list[Any], value), 1):
        fields = cast(dict[str, Any], entry) if isinstance(entry, dict) else None
        found = "it is not an object" if fields is None else _server(fields)
        if isinstance(found, McpServerSettings):
            servers.append(found)
        else:
            name = None if fields is None else fields.get("name")
            label = f'"{name}"' if isinstance(name, str) and name else f"number {position}"
            problems.append(f"The MCP server {label} is left out: {found}.")
    return tuple(servers), problems


def _server(entry: dict[str, Any]) -> McpServerSettings | str:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        return "it has no name"
    match entry.get("type") or ("http" if "url" in entry else "stdio"):
        case "stdio":
            command = entry.get("command")
            if not isinstance(command, str) or not command:
                return "it has no command"
            return McpServerSettings(
                name=name,
                command=command,
                args=_texts(entry.get("args")),
                env=_pairs(entry.get("env")),
            )
        case "http" | "sse" as kind:
            url = entry.get("url")
            if not isinstance(url, str) or not url:
                return "it has no url"
            return McpServerSettings(
                name=name, type=kind, url=url, headers=_pairs(entry.get("headers"))
            )
        case kind:
            return f'its type "{kind}" is not known'


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(str(item) for item in cast(list[Any], value))


def _pairs(value: Any) -> Mapping[str, str]:
    if isinstance(value, dict):
        return {key: str(item) for key, item in cast(dict[str, Any], value).items()}
    found: dict[str, str] = {}
    for item in cast(list[Any], value if isinstance(value, list) else []):
        if isinstance(item, dict):
            pair = cast(dict[str, Any], item)
            if isinstance(pair.get("name"), str):
                found[pair["name"]] = str(pair.get("value", ""))
    return found
