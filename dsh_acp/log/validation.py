"""What an event and a session header must look like to be accepted, with the format's own words.

Everything is first decoded by a strict shape; only what that refuses is looked at again, to say
which rule it broke.
"""

from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta, Raw, Struct

from dsh_acp import jsontext
from dsh_acp.errors import LogError
from dsh_acp.log.envelope import Event

_Named = Annotated[str, Meta(min_length=1)]


class _Typed(Struct, frozen=True):
    type: str


class _Kind(Struct, frozen=True):
    kind: str


class _User(Struct, frozen=True):
    role: Literal["user"]
    id: _Named
    source: _Kind
    content: list[_Typed]


class _Model(Struct, frozen=True):
    kind: Literal["model"]
    provider: _Named
    model: _Named


class _Assistant(Struct, frozen=True):
    role: Literal["assistant"]
    id: _Named
    source: _Model
    content: list[_Typed]


class _AssistantHolder(Struct, frozen=True):
    message: _Assistant


class _ToolSource(Struct, frozen=True, rename="camel"):
    kind: Literal["tool"]
    call_id: str


class _ToolBlock(Struct, frozen=True, rename="camel"):
    type: Literal["tool-result"]
    tool_call_id: str
    content: list[_Typed]


class _ToolMessage(Struct, frozen=True):
    role: Literal["user"]
    id: _Named
    source: _ToolSource
    content: Annotated[list[_ToolBlock], Meta(min_length=1, max_length=1)]


class _ToolHolder(Struct, frozen=True):
    message: _ToolMessage


class _Config(Struct, frozen=True, rename="camel"):
    provider: str
    model: str
    reasoning_effort: _Named | msgspec.UnsetType = msgspec.UNSET


class _Header(Struct, frozen=True, rename="camel"):
    config: _Config
    adapter_defaults: Raw | msgspec.UnsetType = msgspec.UNSET


class _HeaderData(Struct, frozen=True):
    header: _Header
    reason: Raw = Raw(b"null")


_user: Final = msgspec.json.Decoder(_User)
_assistant: Final = msgspec.json.Decoder(_AssistantHolder)
_tool: Final = msgspec.json.Decoder(_ToolHolder)
_header: Final = msgspec.json.Decoder(_HeaderData)


def refused(text: str) -> LogError:
    """The error of an event that is not accepted."""
    return LogError(text, code="INVALID_EVENT")


def check_event(event: Event, subject: str) -> None:
    """Refuse message and header payloads that a later reader could not interpret.

    Raises:
        LogError: `INVALID_EVENT`; `subject` opens the sentence.
    """
    kind, data = event.type, event.raw
    try:
        if kind == "user/message":
            jsontext.decode(data, _user)
        elif kind == "assistant/message":
            jsontext.decode(data, _assistant)
        elif kind == "tool/result":
            message = jsontext.decode(data, _tool).message
            if message.source.call_id != message.content[0].tool_call_id:
                raise refused(f"{subject} has mismatched tool call ids")
        elif kind == "request/header":
            found = jsontext.decode(data, _header)
            if bytes(found.reason) == b'"fallback"':
                raise refused(f'{subject} uses unsupported legacy request/header reason "fallback"')
            if not isinstance(found.header.adapter_defaults, msgspec.UnsetType):
                _check_defaults(data, subject)
    except msgspec.ValidationError:
        value = jsontext.loads(bytes(data))
        if kind == "request/header":
            raise refused(f"{subject} {_header_fault(value)}") from None
        raise refused(f"{subject} {_message_fault(kind, value)}") from None


def _check_defaults(data: bytes, subject: str) -> None:
    header = cast(dict[str, Any], jsontext.loads(bytes(data)))["header"]
    defaults, config = header["adapterDefaults"], header["config"]
    valid = isinstance(defaults, dict) and all(
        key in ("reasoningEffort", "maxTokens") and value is True and key in config
        for key, value in cast(dict[str, Any], defaults).items()
    )
    if not valid:
        raise refused(f"{subject} has invalid adapterDefaults")


def _header_fault(value: Any) -> str:
    config = _object(_object(value).get("header")).get("config")
    fields = _object(config)
    if not (isinstance(fields.get("provider"), str) and isinstance(fields.get("model"), str)):
        return "lacks provider/model"
    return "has an invalid reasoningEffort"


def _message_fault(kind: str, value: Any) -> str:
    message = _object(value if kind == "user/message" else _object(value).get("message"))
    identity = message.get("id")
    if not (isinstance(identity, str) and identity):
        return "lacks an identified message"
    role = "assistant" if kind == "assistant/message" else "user"
    if message.get("role") != role:
        return f'message must have role "{role}"'
    source = message.get("source")
    if not isinstance(_object(source).get("kind"), str):
        return "message has invalid source"
    content = message.get("content")
    if not isinstance(content, list) or not _blocks(cast(list[Any], content)):
        return "message has invalid content"
    return _origin_fault(kind, _object(source), cast(list[Any], content))


def _origin_fault(kind: str, source: dict[str, Any], content: list[Any]) -> str:
    if kind == "assistant/message":
        return "message must have model source"
    if source.get("kind") != "tool" or not isinstance(source.get("callId"), str):
        return "message must have tool source"
    if len(content) != 1 or _object(content[0]).get("type") != "tool-result":
        return "message must contain one tool-result block"
    inner = _object(content[0]).get("content")
    if not isinstance(inner, list) or not _blocks(cast(list[Any], inner)):
        return "message has invalid content"
    return "message has mismatched tool call ids"


def _object(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _blocks(values: list[Any]) -> bool:
    return all(isinstance(_object(value).get("type"), str) for value in values)


# ---------------------------------------------------------------- session header


class SessionHeader(Struct, frozen=True, kw_only=True):
    """The immutable facts of a session; `created_at` is Unix milliseconds."""

    id: str
    created_at: int
    cwd: str | None = None
    parent_session: str | None = None
    seed_length: int | None = None
    origin: str | None = None
    delegation_depth: int = 0
    agent_preset: str | None = None
    version: int = 0
    line: bytes = b""
    """The line on disk when it was read from one."""

    def encode(self) -> bytes:
        """The first line of the log, without the newline."""
        return self.line or jsontext.encode(
            {
                key: value
                for key, value in (
                    ("type", "session"),
                    ("version", self.version),
                    ("id", self.id),
                    ("createdAt", self.created_at),
                    ("cwd", self.cwd),
                    ("parentSession", self.parent_session),
                    ("seedLength", self.seed_length),
                    ("origin", self.origin),
                    ("delegationDepth", self.delegation_depth),
                    ("agentPreset", self.agent_preset),
                )
                if value is not None
            }
        )


def decode_session_header(line: bytes, *, placeholders: bool = False) -> SessionHeader:
    """The header of a log's first line; `placeholders` is the latitude of fixtures.

    The version is not judged here.

    Raises:
        LogError: `CORRUPT`, it is not a session header.
    """
    try:
        fields = _object(jsontext.loads(line))
    except jsontext.DecodeError:
        raise _corrupt("corrupt session log: header line is not valid JSON") from None
    version = fields.get("version")
    if fields.get("type") != "session" or not _count(version):
        raise _corrupt("corrupt session log: first line is not a session header")
    if version != 0:
        identity = fields.get("id")
        return SessionHeader(
            id=identity if isinstance(identity, str) else "",
            created_at=0,
            version=cast(int, version),
            line=line,
        )
    _check_fields(fields, placeholders)
    return SessionHeader(
        id=fields["id"],
        created_at=fields["createdAt"],
        cwd=fields.get("cwd"),
        parent_session=fields.get("parentSession"),
        seed_length=fields.get("seedLength"),
        origin=fields.get("origin"),
        delegation_depth=fields.get("delegationDepth", 0),
        agent_preset=fields.get("agentPreset"),
        line=line,
    )


def _check_fields(fields: dict[str, Any], placeholders: bool) -> None:
    if "sandboxMode" in fields or "approvalPolicy" in fields:
        raise _corrupt("session header uses retired policy baseline fields")
    if not isinstance(fields.get("id"), str):
        raise _corrupt("corrupt session log: first line is not a session header")
    for key in ("createdAt", "seedLength", "delegationDepth"):
        optional = key == "seedLength" or (placeholders and key == "delegationDepth")
        if not _count(fields.get(key, 0 if optional else None)):
            raise _corrupt(f"session header {key} must be a non-negative safe integer")
    cwd = fields.get("cwd", "/")
    if not isinstance(cwd, str):
        raise _corrupt("session header cwd must be a string")
    if not is_absolute(cwd) and not (placeholders and cwd.startswith("{{")):
        raise _corrupt(f'session header cwd must be an absolute path, got "{cwd}"')
    for key in ("parentSession", "agentPreset"):
        if not isinstance(fields.get(key, ""), str):
            raise _corrupt(f"session header {key} must be a string")
    if fields.get("origin", "subagent") != "subagent":
        raise _corrupt('session header origin must be "subagent"')


def is_absolute(path: str) -> bool:
    """Whether `path` is absolute on any system: logs travel."""
    drive = len(path) > 2 and path[0].isalpha() and path[1] == ":" and path[2] in "/\\"
    return path.startswith(("/", "\\\\")) or drive


def _count(value: object) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return 0 <= value <= jsontext.MAX_SAFE_INTEGER


def _corrupt(text: str) -> LogError:
    return LogError(text, code="CORRUPT")
