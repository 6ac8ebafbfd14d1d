"""`initialize`: what the client can do, and what is offered to it.

Kept free of everything else, because it is answered before the rest of the program is imported.
"""

import sys
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from dsh_acp import __version__
from dsh_acp.acp import methods
from dsh_acp.wire import frames

SUPPORTED: Final = (1,)
"""Protocol versions, oldest first."""

AGENT_METHOD: Final = "api-key"
LOGIN_METHOD: Final = "login"
LOGIN_FLAG: Final = "--login"


class Client(Struct, frozen=True, kw_only=True):
    """What the client said about itself. Only a literal `true` counts for a boolean."""

    version: int = 1
    name: str = ""
    reads_files: bool = False
    writes_files: bool = False
    terminals: bool = False
    terminal_output: bool = False
    """It shows terminals that the agent runs itself, fed through `_meta`."""
    boolean_options: bool = False
    compaction: bool = False
    notices: bool = False
    forms: bool = False
    urls: bool = False
    auth_terminal: bool = False
    auth_terminal_meta: bool = False


class InitializeRequest(Struct, frozen=True, rename="camel"):
    """The params; capabilities stay free JSON, since wrongly typed ones count as absent."""

    protocol_version: int
    client_capabilities: Any = None
    client_info: Any = None


_decoder: Final = msgspec.json.Decoder(InitializeRequest)


def negotiate(requested: int) -> int:
    """The requested version when it is spoken here, else the newest one that is."""
    return requested if requested in SUPPORTED else SUPPORTED[-1]


def decode(params: bytes) -> Client:
    """The client behind `initialize`'s params.

    Raises:
        RpcError: `-32602`, no integer protocol version.
    """
    request = frames.decode_params(params, _decoder)
    caps = _object(request.client_capabilities)
    meta = part(caps, "_meta")
    files = part(caps, "fs")
    session = part(caps, "session")
    auth = part(caps, "auth")
    elicitation = part(caps, "elicitation")
    name = _object(request.client_info).get("name")
    return Client(
        version=negotiate(request.protocol_version),
        name=name if isinstance(name, str) else "",
        reads_files=files.get("readTextFile") is True,
        writes_files=files.get("writeTextFile") is True,
        terminals=caps.get("terminal") is True,
        terminal_output=meta.get("terminal_output") is True,
        boolean_options=_has(part(session, "configOptions"), "boolean"),
        compaction=_has(session, "compaction"),
        notices=_has(session, "notices"),
        forms=_has(elicitation, "form"),
        urls=_has(elicitation, "url"),
        auth_terminal=auth.get("terminal") is True,
        auth_terminal_meta=meta.get("terminal-auth") is True,
    )


def part(value: Any, key: str) -> dict[str, Any]:
    """The object at `key` of free JSON; empty when there is none."""
    return _object(_object(value).get(key))


def _object(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _has(value: dict[str, Any], marker: str) -> bool:
    return isinstance(value.get(marker), dict)


def result(client: Client) -> dict[str, Any]:
    """The answer to `initialize`."""
    return {
        "protocolVersion": client.version,
        "agentInfo": {"name": "dsh-acp", "title": "dsh-acp", "version": __version__},
        "agentCapabilities": methods.capabilities(),
        "authMethods": auth_methods(client),
    }


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
                "args": ["-m", "dsh_acp", LOGIN_FLAG],
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


class Early(Struct, frozen=True):
    """An answer that was possible at once, and the client that it went to (if it was no error)."""

    line: bytes
    client: Client | None


def early(line: bytes) -> Early | None:
    """Answer the connection's first line when it is an `initialize`; `None` for anything else."""
    frame = frames.decode(line)
    if not isinstance(frame, frames.Request) or frame.method != "initialize" or frame.id is None:
        return None
    try:
        client = decode(frame.params)
    except frames.RpcError as exc:
        return Early(frames.error(frame.id, exc), None)
    return Early(frames.result(frame.id, result(client)), client)
