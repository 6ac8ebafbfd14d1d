"""`session/list`: one page, and an opaque cursor to the next."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
import os
from typing import Any, Final

import msgspec

from dsh_acp import jsontext
from dsh_acp.acp.pieces import iso
from dsh_acp.log.catalog import SessionSummary
from dsh_acp.log.store import Store
from dsh_acp.wire.frames import INVALID_PARAMS, RpcError

PAGE: Final = 50

_places: Final = msgspec.json.Decoder(tuple[int, str])


def page(store: Store, cwd: str | None, cursor: str | None) -> dict[str, Any]:
    """The sessions behind `cursor`, newest first; of `cwd` alone when it is given.

    A cursor names the last session of the page before, so it stays right when sessions come and go.

    Raises:
        RpcError: `-32602`, a relative `cwd` or a cursor that is none of ours.
    """
    if cwd is not None and not os.path.isabs(cwd):  # noqa: PTH117 - text in and out
        raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path: {cwd}")
    after = None if cursor is None else _place(cursor)
    found = [
        summary
        for summary in store.list(None if cwd is None else os.path.normpath(cwd))
        if summary.cwd and (after is None or _key(summary) > after)
    ]
    shown = found[:PAGE]
    result: dict[str, Any] = {"sessions": [_item(summary) for summary in shown]}
    if len(found) > PAGE:
        result["nextCursor"] = _cursor(shown)
    return result


def _key(summary: SessionSummary) -> tuple[int, str]:
    return (-summary.updated_at_ms, summary.id)


def _item(summary: SessionSummary) -> dict[str, Any]:
    item: dict[str, Any] = {"sessionId": summary.id, "cwd": summary.cwd}
    if summary.additional_directories:
        item["additionalDirectories"] = summary.additional_directories
    if summary.title:
        item["title"] = summary.title
    item["updatedAt"] = iso(summary.updated_at_ms)
    return item


def _cursor(shown: Sequence[SessionSummary]) -> str:
    return urlsafe_b64encode(jsontext.encode(_key(shown[-1]))).decode("ascii").rstrip("=")


def _place(cursor: str) -> tuple[int, str]:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return _places.decode(urlsafe_b64decode(padded))
    except (ValueError, UnicodeEncodeError) as exc:
        raise RpcError(INVALID_PARAMS, "The cursor is not one of this agent's.") from exc
