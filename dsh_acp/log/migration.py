"""Old forms of events: some are refused, some are read as what they became.

Migration happens in memory; the file keeps what was written.
"""

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from dsh_acp import jsontext
from dsh_acp.errors import LogError
from dsh_acp.log.envelope import Event, make_event
from dsh_acp.log.packed import ChunkRow, Entry

_OLD_TYPES: Final = frozenset({"request/header-delta", "mode/set", "steering/message"})
_MAY_BE_OLD: Final = frozenset(
    {"turn/start", "turn/end", "user/message", "assistant/message", "tool/result"}
)


class _Reason(msgspec.Struct, frozen=True):
    reason: msgspec.Raw = msgspec.Raw(b"null")


class _EndReason(msgspec.Struct, frozen=True):
    kind: str
    reason: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class _End(msgspec.Struct, frozen=True):
    reason: _EndReason


class _Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    turn: int


class _Identified(msgspec.Struct, frozen=True):
    id: str


class _Wrapped(msgspec.Struct, frozen=True):
    message: msgspec.Raw


_reason: Final = msgspec.json.Decoder(_Reason)
_end: Final = msgspec.json.Decoder(_End)
_turn: Final = msgspec.json.Decoder(_Turn)
_identified: Final = msgspec.json.Decoder(_Identified)
_wrapped: Final = msgspec.json.Decoder(_Wrapped)


def migrate(session_id: str, entries: list[Entry]) -> list[Entry]:
    """`entries` in today's forms; the same list when nothing was old.

    Raises:
        LogError: `CORRUPT`, a form that no reader understands any more, or a malformed old one.
    """
    changed: dict[int, Event] = {}
    for k, entry in enumerate(entries):
        if isinstance(entry, ChunkRow):
            continue
        kind = entry.type
        if kind in _OLD_TYPES or kind == "request/header":
            _refuse(session_id, entry)
            if kind == "steering/message":
                changed[k] = _migrated(session_id, entry, entries, changed)
        elif kind in _MAY_BE_OLD and not is_current(entry):
            changed[k] = _migrated(session_id, entry, entries, changed)
    if not changed:
        return entries
    return [changed.get(k, entry) for k, entry in enumerate(entries)]


def _refuse(session_id: str, event: Event) -> None:
    old = ""
    if event.type == "request/header-delta":
        old = "request/header-delta event"
    elif event.type == "mode/set":
        old = "mode/set event"
    elif event.type == "request/header":
        try:
            if bytes(jsontext.decode(event.raw, _reason).reason) == b'"fallback"':
                old = 'request/header reason "fallback"'
        except msgspec.ValidationError:
            return
    if old:
        raise LogError(
            f'session "{session_id}" contains unsupported legacy {old} at seq {event.seq}',
            code="CORRUPT",
        )


def is_current(event: Event) -> bool:
    """Whether `event`, of a type that changed, has today's form."""
    data = event.raw
    try:
        if event.type == "turn/start":
            jsontext.decode(data, _turn)
        elif event.type == "turn/end":
            reason = jsontext.decode(data, _end).reason
            missing = (
                (reason.kind == "aborted" and not bytes(reason.reason).startswith(b"{"))
                or (reason.kind == "error" and not bytes(reason.error))
                or reason.kind == "disposed"
            )
            return not missing
        elif event.type == "user/message":
            jsontext.decode(data, _identified)
        else:
            jsontext.decode(data, _wrapped)
    except msgspec.ValidationError:
        return False
    return True


def _migrated(
    session_id: str, event: Event, entries: list[Entry], changed: dict[int, Event]
) -> Event:
    value = jsontext.loads(event.data)
    try:
        data = _FORMS[event.type](cast(dict[str, Any], value), session_id, event)
    except (KeyError, TypeError, AttributeError):
        raise LogError(
            f'session "{session_id}" contains malformed pre-react-loop {event.type}'
            f" at seq {event.seq}",
            code="CORRUPT",
        ) from None
    if event.type == "tool/result" and not isinstance(event.surface_op, str | None):
        data["message"]["id"] = _replaced_id(event.surface_op.start, entries, changed)
    return make_event(
        "user/message" if event.type == "steering/message" else event.type,
        event.seq,
        event.time,
        jsontext.encode(data),
        sources=event.source_event_seqs,
        placement=event.surface_op,
        ignorable=event.ignorable,
    )


def _replaced_id(seq: int, entries: list[Entry], changed: dict[int, Event]) -> str:
    for k, entry in enumerate(entries):
        if entry.seq == seq:
            event = changed.get(k, entry)
            if isinstance(event, Event):
                return jsontext.loads(event.data)["message"]["id"]
    return f"legacy-message:{seq}"


def _turn_start(value: dict[str, Any], session_id: str, event: Event) -> dict[str, Any]:
    return {"turn": _whole(value["turn"])}


def _turn_end(value: dict[str, Any], session_id: str, event: Event) -> dict[str, Any]:
    reason = cast(dict[str, Any], value["reason"])
    kind = reason["kind"]
    if kind == "aborted":
        new: dict[str, Any] = {"kind": "aborted", "reason": {"kind": "legacy"}}
    elif kind == "disposed":
        new = {"kind": "aborted", "reason": {"kind": "disposed"}}
    elif kind == "error":
        failure = reason.get("failure") or {
            "message": reason["message"],
            "code": reason.get("code", "UNKNOWN"),
        }
        new = {"kind": "error", "error": failure}
    else:
        raise KeyError(kind)
    return {"turn": _whole(value["turn"]), "reason": new}


def _user(value: dict[str, Any], session_id: str, event: Event) -> dict[str, Any]:
    return {
        "content": value["content"],
        "source": value["source"],
        "role": "user",
        "id": _identity(session_id, event),
    }


def _assistant(value: dict[str, Any], session_id: str, event: Event) -> dict[str, Any]:
    message = {
        "id": _identity(session_id, event),
        "role": "assistant",
        "content": value["content"],
        "source": {**value["provenance"], "kind": "model"},
    }
    rest = {key: value[key] for key in ("interrupted", "usage") if key in value}
    return {"turn": value["turn"], "step": value["step"], "message": message, **rest}


def _tool(value: dict[str, Any], session_id: str, event: Event) -> dict[str, Any]:
    call = value["callId"]
    block = {
        "type": "tool-result",
        "toolCallId": call,
        "content": value["content"],
        "isError": value["isError"],
    }
    message = {
        "id": _identity(session_id, event),
        "role": "user",
        "source": {"kind": "tool", "callId": call},
        "content": [block],
    }
    rest = {key: value[key] for key in ("error", "meta") if key in value}
    return {"turn": value["turn"], "step": value["step"], "message": message, **rest}


_FORMS: Final[dict[str, Callable[[dict[str, Any], str, Event], dict[str, Any]]]] = {
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "user/message": _user,
    "steering/message": _user,
    "assistant/message": _assistant,
    "tool/result": _tool,
}


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(value)
    return value


def _identity(session_id: str, event: Event) -> str:
    return f"legacy-message:{session_id}:{event.seq}"
