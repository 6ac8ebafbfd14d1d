"""The params of version 1's methods, as far as they are read.

Decoding is tolerant: unknown fields are ignored, `null` is the same as absent, and values whose
shape clients do not agree on stay free JSON until their owner looks at them.
"""

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct


class _Params(Struct, frozen=True, rename="camel", kw_only=True):
    pass


class Authenticate(_Params, frozen=True):
    """`authenticate`."""

    method_id: str


class NewSession(_Params, frozen=True):
    """`session/new`."""

    cwd: str
    additional_directories: tuple[str, ...] | None = None
    mcp_servers: Any = None


class OpenSession(_Params, frozen=True):
    """`session/load`, `session/resume` and `session/fork`."""

    session_id: str
    cwd: str | None = None
    additional_directories: tuple[str, ...] | None = None
    mcp_servers: Any = None


class ListSessions(_Params, frozen=True):
    """`session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class OfSession(_Params, frozen=True):
    """`session/close`, `session/delete` and `session/cancel`."""

    session_id: str


class SetMode(_Params, frozen=True):
    """`session/set_mode`."""

    session_id: str
    mode_id: str


class SetConfigOption(_Params, frozen=True):
    """`session/set_config_option`."""

    session_id: str
    config_id: str
    value: Any = None


Meta: TypeAlias = dict[str, Any]


class Prompt(_Params, frozen=True):
    """`session/prompt`; the blocks are read by `content`."""

    session_id: str
    prompt: list[Any]
    meta: Any = msgspec.field(default=None, name="_meta")


AUTHENTICATE: Final = msgspec.json.Decoder(Authenticate)
NEW_SESSION: Final = msgspec.json.Decoder(NewSession)
OPEN_SESSION: Final = msgspec.json.Decoder(OpenSession)
LIST_SESSIONS: Final = msgspec.json.Decoder(ListSessions)
OF_SESSION: Final = msgspec.json.Decoder(OfSession)
SET_MODE: Final = msgspec.json.Decoder(SetMode)
SET_CONFIG_OPTION: Final = msgspec.json.Decoder(SetConfigOption)
PROMPT: Final = msgspec.json.Decoder(Prompt)
