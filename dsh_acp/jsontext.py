"""JSON text as bytes: compact, in insertion order, UTF-8, tolerant when reading.

Reading accepts what editors and models really send. msgspec refuses lone surrogates and deep
nesting; both are legal JSON, so a failed decode is tried once more through a tolerant path that
replaces lone surrogates by U+FFFD. Writing is always msgspec: no spaces, non-ASCII unescaped.
"""

import json
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

MAX_SAFE_INTEGER: Final = 2**53 - 1

encode: Final = msgspec.json.Encoder().encode
"""Any JSON-like value or struct to compact bytes."""

_LOADS: Final = json.JSONDecoder(strict=False)


class DecodeError(ValueError):
    """Bytes that are not JSON, or JSON nested too deeply to read."""


def clean(text: str) -> str:
    """`text` with lone surrogates replaced by U+FFFD, so that it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # A pair split over two \\u escapes is still a character; only the lonely are replaced.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {clean(key): _clean(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value


def normalise(text: bytes) -> bytes:
    """`text` as compact JSON that every strict reader accepts.

    Raises:
        DecodeError: it is not JSON, or too deep.
    """
    try:
        return encode(_clean(_LOADS.decode(text.decode("utf-8", "replace").strip("\ufeff \t\r\n"))))
    except (ValueError, RecursionError) as exc:
        raise DecodeError(
            "not valid JSON" if isinstance(exc, ValueError) else "nested too deeply"
        ) from exc


def decode(text: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """Decode with `decoder`, tolerating lone surrogates and invalid UTF-8.

    `text` may be anything with a buffer, such as `msgspec.Raw`.

    Raises:
        DecodeError: it is not JSON, or too deep.
        msgspec.ValidationError: it is JSON of another shape.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decoder.decode(normalise(bytes(text)))


_ANY: Final = msgspec.json.Decoder()


def loads(text: bytes) -> Any:
    """Any JSON value.

    Raises:
        DecodeError: it is not JSON, too deep, or holds a number that is none here.
    """
    try:
        return decode(text, _ANY)
    except msgspec.ValidationError as exc:
        raise DecodeError(str(exc)) from exc
