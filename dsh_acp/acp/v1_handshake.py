"""Version 1's `initialize`: what the client can do, and what is offered to it.

The table of methods is both: the connection serves exactly these names, and `initialize`
advertises exactly what they make possible, so neither can promise what the other lacks.
"""

from collections.abc import Mapping
import sys
from typing import Any, Final

import msgspec
from msgspec import Struct

from dsh_acp import __version__
from dsh_acp.acp.client import (
    AGENT_METHOD,
    LOGIN_FLAG,
    LOGIN_METHOD,
    Client,
    free_object,
    has,
    part,
)
from dsh_acp.wire import frames

METHODS: Final[Mapping[str, str]] = {
    "authenticate": "authenticate",
    "logout": "logout",
    "session/new": "new_session",
    "session/load": "load_session",
    "session/resume": "resume_session",
    "session/list": "list_sessions",
    "session/fork": "fork_session",
    "session/close": "close_session",
    "session/delete": "delete_session",
    "session/set_mode": "set_mode",
    "session/set_config_option": "set_config_option",
    "session/prompt": "prompt",
    "session/cancel": "cancel",
}
"""Method name to the name of its handler in `v1_methods`."""

_SESSION_MARKERS: Final = ("list", "resume", "close", "delete", "fork")


class _Initialize(Struct, frozen=True, rename="camel"):
    """The params; capabilities stay free JSON, since wrongly typed ones count as absent."""

    client_capabilities: Any = None
    client_info: Any = None


_decoder: Final = msgspec.json.Decoder(_Initialize)


def decode(params: bytes, asked: int) -> Client:
    """The client behind `initialize`'s params. Only a literal `true` counts for a boolean.

    Raises:
        RpcError: `-32602`, the params are no object.
    """
    request = frames.decode_params(params, _decoder)
    caps = free_object(request.client_capabilities)
    meta = part(caps, "_meta")
    files = part(caps, "fs")
    session = part(caps, "session")
    auth = part(caps, "auth")
    elicitation = part(caps, "elicitation")
    name = free_object(request.client_info).get("name")
    return Client(
        version=1,
        asked=asked,
        name=name if isinstance(name, str) else "",
        reads_files=files.get("readTextFile") is True,
        writes_files=files.get("writeTextFile") is True,
        terminals=caps.get("terminal") is True,
        terminal_output=meta.get("terminal_output") is True,
        boolean_options=has(part(session, "configOptions"), "boolean"),
        compaction=has(session, "compaction"),
        notices=has(session, "notices"),
        forms=has(elicitation, "form"),
        urls=has(elicitation, "url"),
        auth_terminal=auth.get("terminal") is True,
        auth_terminal_meta=meta.get("terminal-auth") is True,
    )


def result(client: Client) -> dict[str, Any]:
    """The answer to `initialize`."""
    return {
        "protocolVersion": client.version,
        "agentInfo": {"name": "dsh-acp", "title": "dsh-acp", "version": __version__},
        "agentCapabilities": capabilities(),
        "authMethods": auth_methods(client),
    }


def capabilities(methods: Mapping[str, str] = METHODS) -> dict[str, Any]:
    """`agentCapabilities` for a table of methods.

    Images and recordings are always accepted: a model that sees or hears gets them, for others they
    are saved as files and mentioned, and the person is told. So the flags hold whichever model is
    chosen later.
    """
    session: dict[str, Any] = {
        marker: {} for marker in _SESSION_MARKERS if f"session/{marker}" in methods
    }
    session["additionalDirectories"] = {}
    found: dict[str, Any] = {
        "loadSession": "session/load" in methods,
        "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
        "mcpCapabilities": {"http": True, "sse": True},
        "sessionCapabilities": session,
    }
    if "logout" in methods:
        found["auth"] = {"logout": {}}
    found["_meta"] = {"dsh-acp": {"promptQueueing": True, "steering": True}}
    return found


def auth_methods(client: Client) -> list[dict[str, Any]]:
    """How to sign in: with a key that is already there, and in a terminal where one is offered."""
    found: list[dict[str, Any]] = [
        {
            "id": AGENT_METHOD,
            "name": "API key",
            "description": "Use the key from the environment, the configuration file or `login`.",
        }
    ]
    if client.auth_terminal_meta:
        # What clients read that know no terminal methods yet.
        found[0]["_meta"] = {
            "terminal-auth": {
                "command": sys.executable,
                "args": ["-P", "-m", "dsh_acp", LOGIN_FLAG],
                "label": "dsh-acp login",
            }
        }
    if client.auth_terminal:
        found.append(
            {
                "id": LOGIN_METHOD,
                "type": "terminal",
                "name": "Sign in",
                "description": "Store an API key, in a terminal.",
                "args": [LOGIN_FLAG],
                "env": {},
            }
        )
    return found
