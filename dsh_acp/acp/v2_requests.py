"""The params of version 2's methods, where they are not those of version 1.

Unknown fields are ignored and `null` is the same as absent; what this version has a rule for is
checked.
"""

from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from dsh_acp.wire.frames import INVALID_PARAMS, RpcError


class _Params(Struct, frozen=True, rename="camel", kw_only=True):
    pass


class NewSession(_Params, frozen=True):
    """`session/new`."""

    cwd: str
    additional_directories: tuple[str, ...] | None = None
    mcp_servers: list[Any] | None = None


class _Cursor(_Params, frozen=True):
    type: str


class ResumeSession(_Params, frozen=True):
    """`session/resume`."""

    session_id: str
    cwd: str
    additional_directories: tuple[str, ...] | None = None
    mcp_servers: list[Any] | None = None
    replay_from: _Cursor | None = None


class SetConfigOption(_Params, frozen=True):
    """`session/set_config_option`."""

    session_id: str
    config_id: str
    type: str
    value: Any


class OfCall(_Params, frozen=True):
    """`tool_call/cancel`."""

    session_id: str
    tool_call_id: str


class OfTerminal(_Params, frozen=True):
    """`terminal/cancel`."""

    session_id: str
    terminal_id: str


class OfMessage(_Params, frozen=True):
    """`_session/withdraw` and `_session/steer`."""

    session_id: str
    message_id: str


class Edit(_Params, frozen=True):
    """`_session/edit`."""

    session_id: str
    message_id: str
    prompt: list[Any]


NEW_SESSION: Final = msgspec.json.Decoder(NewSession)
RESUME_SESSION: Final = msgspec.json.Decoder(ResumeSession)
SET_CONFIG_OPTION: Final = msgspec.json.Decoder(SetConfigOption)
OF_CALL: Final = msgspec.json.Decoder(OfCall)
OF_TERMINAL: Final = msgspec.json.Decoder(OfTerminal)
OF_MESSAGE: Final = msgspec.json.Decoder(OfMessage)
EDIT: Final = msgspec.json.Decoder(Edit)


def is_replay(cursor: _Cursor | None) -> bool:
    """Whether history is wanted.

    Raises:
        RpcError: `-32602`, from a place that is not the start.
    """
    if cursor is None:
        return False
    if cursor.type != "start":
        raise RpcError(INVALID_PARAMS, f'History cannot be replayed from "{cursor.type}".')
    return True


class _Named(Struct, frozen=True):
    name: str
    value: str


class _Stdio(Struct, frozen=True, tag_field="type", tag="stdio"):
    name: str
    command: str
    args: tuple[str, ...] | None = None
    env: tuple[_Named, ...] | None = None


class _Http(Struct, frozen=True, tag_field="type", tag="http"):
    name: str
    url: str
    headers: tuple[_Named, ...] | None = None


def servers(listed: list[Any] | None) -> list[Any]:
    """The MCP servers, each of a kind that was offered.

    Raises:
        RpcError: `-32602`.
    """
    names: set[str] = set()
    for position, server in enumerate(listed or (), 1):
        fields = cast(dict[str, Any], server) if isinstance(server, dict) else {}
        if fields.get("type") not in ("stdio", "http"):
            raise _bad_server(position, "the types are stdio and http.")
        try:
            found = msgspec.convert(fields, _Stdio | _Http)
        except msgspec.ValidationError as exc:
            raise _bad_server(position, f"{exc}.") from None
        if isinstance(found, _Stdio) and not Path(found.command).is_absolute():
            raise _bad_server(position, "command must be an absolute path.")
        if isinstance(found, _Http) and not found.url.startswith(("http://", "https://")):
            raise _bad_server(position, "url must begin with http:// or https://.")
        if not found.name:
            raise _bad_server(position, "name is empty.")
        if found.name in names:
            taken = f'another one is named "{found.name}".'
            raise _bad_server(position, taken, {"name": found.name})
        names.add(found.name)
    return list(listed or ())


def _bad_server(position: int, sentence: str, data: Any = None) -> RpcError:
    return RpcError(INVALID_PARAMS, f"mcpServers {position}: {sentence}", data)
