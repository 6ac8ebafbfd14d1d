"""`initialize`: which version a connection speaks, and what each side can do in it.

Kept free of everything else, because it is answered before the rest of the program is imported.
A version's own part is imported when it is spoken.
"""

from typing import Any, Final

import msgspec
from msgspec import Struct

from dsh_acp.acp.client import Client
from dsh_acp.wire import frames
from dsh_acp.wire.frames import INVALID_PARAMS, INVALID_REQUEST, RpcError

SUPPORTED: Final = (1, 2)
"""Protocol versions, oldest first."""

UNSUPPORTED_VERSION: Final = -32022


class _Asked(Struct, frozen=True, rename="camel"):
    protocol_version: int


_decoder: Final = msgspec.json.Decoder(_Asked)


def _requested(params: bytes) -> int:
    """The version that `initialize`'s params ask for.

    Raises:
        RpcError: `-32602`, no integer protocol version.
    """
    asked = frames.decode_params(params, _decoder).protocol_version
    if asked < 0:
        raise RpcError(INVALID_PARAMS, f"Invalid params: there is no protocol version {asked}")
    return asked


def negotiate(asked: int) -> int:
    """The highest version at or below the requested one.

    Raises:
        RpcError: `-32022`, there is none.
    """
    fitting = [version for version in SUPPORTED if version <= asked]
    if not fitting:
        raise RpcError(
            UNSUPPORTED_VERSION,
            f"Protocol version {asked} is not supported.",
            {"requested": asked, "supported": list(SUPPORTED)},
        )
    return fitting[-1]


def decode(params: bytes) -> Client:
    """The client behind `initialize`'s params, with the version that is spoken with it.

    Raises:
        RpcError: `-32602`, they do not fit the version; `-32022`.
    """
    asked = _requested(params)
    if negotiate(asked) == 1:
        from dsh_acp.acp import v1_handshake

        return v1_handshake.decode(params, asked)
    from dsh_acp.acp import v2_handshake

    return v2_handshake.decode(params, asked)


def result(client: Client) -> dict[str, Any]:
    """The answer to `initialize`."""
    if client.version == 1:
        from dsh_acp.acp import v1_handshake

        return v1_handshake.result(client)
    from dsh_acp.acp import v2_handshake

    return v2_handshake.result(client)


def auth_methods(client: Client) -> list[dict[str, Any]]:
    """How to sign in, as `initialize` says it."""
    return result(client)["authMethods"]


class Early(Struct, frozen=True):
    """An answer that was possible at once, and the client that it went to (if it was no error)."""

    line: bytes
    client: Client | None = None


def early(line: bytes) -> Early | None:
    """Answer the connection's first line when it is an `initialize`; `None` for anything else."""
    frame = frames.decode(line)
    if not isinstance(frame, frames.Request) or frame.method != "initialize" or frame.id is None:
        return None
    try:
        client = decode(frame.params)
        if client.version > 1 and not is_plain_id(frame.id):
            return Early(odd_id())
    except RpcError as exc:
        return Early(frames.error(frame.id, exc))
    return Early(frames.result(frame.id, result(client)), client)


def is_plain_id(id: bytes) -> bool:
    """Whether a request's id is a string or an integer, as versions after the first want it."""
    return id.startswith(b'"') or id.removeprefix(b"-").isdigit()


def odd_id() -> bytes:
    """The answer to a request with any other id."""
    error = RpcError(INVALID_REQUEST, "Invalid request: an id is a string or an integer")
    return frames.error(frames.NULL_ID, error)
