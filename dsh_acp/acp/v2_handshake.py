"""Version 2's `initialize`: what the client can do, and what is offered to it."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from dsh_acp import __version__
from dsh_acp.acp.client import AGENT_METHOD, LOGIN_FLAG, LOGIN_METHOD, Client
from dsh_acp.wire import frames
from dsh_acp.wire.frames import INVALID_PARAMS, RpcError

METHODS: Final[Mapping[str, str]] = {
    "auth/login": "login",
    "auth/logout": "logout",
    "session/new": "new_session",
    "session/resume": "resume_session",
    "session/list": "list_sessions",
    "session/close": "close_session",
    "session/delete": "delete_session",
    "session/set_config_option": "set_config_option",
    "session/prompt": "prompt",
    "session/cancel": "cancel",
    "tool_call/cancel": "cancel_call",
    "terminal/cancel": "cancel_terminal",
    "_session/pending": "pending",
    "_session/edit": "edit",
    "_session/withdraw": "withdraw",
    "_session/steer": "steer",
}
"""Method name to the name of its handler in `v2_methods`."""


class _Info(Struct, frozen=True):
    name: str
    version: str
    title: str | None = None


_Marker: TypeAlias = dict[str, Any] | None
"""An object means yes."""


class _Auth(Struct, frozen=True):
    terminal: _Marker = None


class _Elicitation(Struct, frozen=True):
    form: _Marker = None
    url: _Marker = None


class _Capabilities(Struct, frozen=True):
    auth: _Auth | None = None
    elicitation: _Elicitation | None = None


class _Initialize(Struct, frozen=True):
    info: _Info
    capabilities: _Capabilities | None = None


_decoder: Final = msgspec.json.Decoder(_Initialize)


def decode(params: bytes, asked: int) -> Client:
    """The client behind `initialize`'s params.

    Those of a later version may look different; what cannot be read counts as unsaid then.

    Raises:
        RpcError: `-32602`, `info` is missing or something has a wrong type.
    """
    try:
        request = frames.decode_params(params, _decoder)
        if not request.info.name or not request.info.version:
            raise RpcError(INVALID_PARAMS, "Invalid params: info needs a name and a version")
    except RpcError:
        if asked == 2:
            raise
        request = _Initialize(_Info("", ""))
    caps = request.capabilities or _Capabilities()
    auth, elicitation = caps.auth or _Auth(), caps.elicitation or _Elicitation()
    return Client(
        version=2,
        asked=asked,
        name=request.info.name,
        boolean_options=True,
        compaction=True,
        notices=True,
        forms=elicitation.form is not None,
        urls=elicitation.url is not None,
        auth_terminal=auth.terminal is not None,
    )


def result(client: Client) -> dict[str, Any]:
    """The answer to `initialize`."""
    return {
        "protocolVersion": client.version,
        "info": {"name": "dsh-acp", "title": "dsh-acp", "version": __version__},
        "capabilities": capabilities(),
        "authMethods": auth_methods(client),
    }


def capabilities(methods: Mapping[str, str] = METHODS) -> dict[str, Any]:
    """`capabilities` for a table of methods; the sessions' own methods are the baseline.

    Images and recordings are always accepted, as files where the model takes none. What waits in
    a session's inbox is told in `_pending_update`s and changed by the methods named under `_meta`.
    """
    session: dict[str, Any] = {
        "prompt": {"image": {}, "audio": {}, "embeddedContext": {}},
        "mcp": {"stdio": {}, "http": {}},
    }
    if "session/delete" in methods:
        session["delete"] = {}
    session["additionalDirectories"] = {}
    own = [name for name in methods if name.startswith("_")]
    meta = {"promptQueueing": True, "steering": True, "methods": own}
    return {"session": session, "_meta": {"dsh-acp": meta}}


def auth_methods(client: Client) -> list[dict[str, Any]]:
    """How to sign in: with a key that is already there, and in a terminal where one is offered."""
    found: list[dict[str, Any]] = [
        {
            "methodId": AGENT_METHOD,
            "type": "agent",
            "name": "API key",
            "description": "Use the key from the environment, the configuration file or `login`.",
        }
    ]
    if client.auth_terminal:
        found.append(
            {
                "methodId": LOGIN_METHOD,
                "type": "terminal",
                "name": "Sign in",
                "description": "Store an API key, in a terminal.",
                "args": [LOGIN_FLAG],
                "env": [],
            }
        )
    return found
