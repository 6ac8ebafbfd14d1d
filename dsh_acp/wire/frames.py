"""One line of JSON-RPC as a value, and back. No IO.

An envelope is decoded first and its payload left as raw text, because only the method (or the
request that a response belongs to) tells its type. An id is never interpreted: its text is echoed
as it came, so that `0`, `1.0`, `"a"`, `null` and integers of any size return unchanged.

Lines that are no frame still get the answer that helps their sender: `-32700` for text that is not
JSON, `-32600` for JSON that is not a frame, with the id where it can be found.
"""

import re
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dsh_acp import jsontext

T = TypeVar("T")

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REQUEST_CANCELLED: Final = -32800

NULL_ID: Final = b"null"


class RpcError(Exception):
    """A JSON-RPC error: a number for programs, one sentence for people, optional JSON `data`."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code: Final = code
        self.message: Final = message
        self.data: Final = data


class Request(Struct, frozen=True):
    """A call. `id` is its raw text, or `None` for a notification, which is never answered."""

    id: bytes | None
    method: str
    params: bytes


class Response(Struct, frozen=True):
    """The answer to a request of ours: `result`, or `error`.

    `is_bare` when neither was there: an empty answer, or a call without its method.
    """

    id: bytes
    result: bytes
    error: RpcError | None
    is_bare: bool = False


class Invalid(Struct, frozen=True):
    """A line that is no frame; `reply` is the line to answer it with."""

    reply: bytes


class _Envelope(Struct, frozen=True):
    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _ErrorObject(Struct, frozen=True):
    code: int = INTERNAL_ERROR
    message: str = ""
    data: Any = None


_envelopes: Final = msgspec.json.Decoder(_Envelope)
_errors: Final = msgspec.json.Decoder(_ErrorObject)
_EMPTY: Final = b"{}"

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_ID: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|null')
_LAST_ID: Final = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*)\s*\}\s*$')
_HEAD: Final = 65_536
_TAIL: Final = 512


def decode(line: bytes) -> Request | Response | Invalid:
    """The frame on `line`. Never raises, whatever the bytes."""
    text = line
    try:
        try:
            envelope = _envelopes.decode(line)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Lone surrogates, invalid UTF-8, raw control characters and a leading BOM are all
            # seen in the field. The text is cleaned once; the id is still taken from the original.
            text = jsontext.normalise(line)
            envelope = _envelopes.decode(text)
    except msgspec.ValidationError as exc:
        return _invalid(line, INVALID_REQUEST, f"Invalid request: {exc}")
    except jsontext.DecodeError as exc:
        if isinstance(exc.__cause__, RecursionError):  # JSON, and too much of it
            return _invalid(line, INVALID_REQUEST, f"Invalid request: {exc}")
        return Invalid(error(NULL_ID, RpcError(PARSE_ERROR, f"Parse error: {exc}")))
    if text is line:
        id = UNSET if envelope.id is UNSET else bytes(envelope.id)
    else:
        id = UNSET if envelope.id is UNSET else find_id(line) or bytes(envelope.id)
    if id is not UNSET and not _ID.fullmatch(id):
        return Invalid(error(NULL_ID, RpcError(INVALID_REQUEST, "Invalid request: odd id")))
    if envelope.method is not UNSET:
        params = _EMPTY if envelope.params is UNSET else bytes(envelope.params)
        if params == NULL_ID:
            params = _EMPTY
        return Request(None if id is UNSET else id, envelope.method, params)
    if id is UNSET:
        return _invalid(line, INVALID_REQUEST, "Invalid request: no method")
    if envelope.error is not UNSET and bytes(envelope.error) != NULL_ID:
        return Response(id, NULL_ID, _decode_error(envelope.error))
    # JavaScript peers drop a result of `undefined`, so a bare id is an empty answer.
    if envelope.result is UNSET:
        return Response(id, NULL_ID, None, is_bare=True)
    return Response(id, bytes(envelope.result), None)


def overlong(head: bytes, tail: bytes, limit: int) -> Invalid:
    """The answer to a line of more than `limit` bytes, of which only both ends were kept."""
    id = find_id(head, tail) or NULL_ID
    message = f"Invalid request: the line is longer than {limit} bytes"
    return Invalid(error(id, RpcError(INVALID_REQUEST, message)))


def find_id(head: bytes, tail: bytes | None = None) -> bytes | None:
    """The text of the top-level `id` in JSON that may be damaged, or `None`.

    Looked for in the first 64 KiB, then at the very end.
    """
    depth = 0
    tokens = _TOKEN.finditer(head[:_HEAD])
    for token in tokens:
        match token[0]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
            case b'"id"' if depth == 1:
                colon, value = next(tokens, None), next(tokens, None)
                if colon and value and colon[0] == b":" and _ID.fullmatch(value[0]):
                    return value[0]
            case _:
                pass
    found = _LAST_ID.search((head if tail is None else tail)[-_TAIL:])
    return found[1] if found else None


def _invalid(line: bytes, code: int, message: str) -> Invalid:
    id = find_id(line) if line.lstrip()[:1] == b"{" else None
    return Invalid(error(id or NULL_ID, RpcError(code, message)))


def _decode_error(raw: Raw) -> RpcError:
    try:
        found = jsontext.decode(bytes(raw), _errors)
    except (ValueError, msgspec.ValidationError):
        return RpcError(INTERNAL_ERROR, "the peer answered with a malformed error")
    return RpcError(found.code, found.message or f"error {found.code}", found.data)


def decode_params(params: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """A payload of known type.

    Raises:
        RpcError: `-32602`; the message names the field that is wrong.
    """
    try:
        return jsontext.decode(params, decoder)
    except (msgspec.ValidationError, jsontext.DecodeError) as exc:
        raise RpcError(INVALID_PARAMS, f"Invalid params: {exc}") from exc


# ---------------------------------------------------------------- encoding


def encode(value: Any) -> bytes:
    """Any JSON-like value as compact JSON; lone surrogates become U+FFFD."""
    try:
        return jsontext.encode(value)
    except UnicodeEncodeError:
        return jsontext.encode(_clean(msgspec.to_builtins(value)))


def _clean(value: Any) -> Any:
    match value:
        case str():
            return jsontext.clean(value)
        case list() | tuple():
            return [_clean(item) for item in cast(list[Any], value)]
        case dict():
            items = cast(dict[str, Any], value).items()
            return {jsontext.clean(key): _clean(item) for key, item in items}
        case _:
            return value


def notification(method: str, params: Any) -> bytes:
    """A notification's line, newline included."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}\n' % (encode(method), encode(params))


def request(id: int, method: str, params: Any) -> bytes:
    """A request's line."""
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}\n' % (
        id,
        encode(method),
        encode(params),
    )


def result(id: bytes, value: Any) -> bytes:
    """A successful response's line; `id` is the raw text that the request carried."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id, encode(value))


def error(id: bytes, exc: RpcError) -> bytes:
    """An error response's line. The message is folded into one line."""
    body: dict[str, Any] = {"code": exc.code, "message": " ".join(exc.message.split())}
    if exc.data is not None:
        body["data"] = exc.data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (id, encode(body))
