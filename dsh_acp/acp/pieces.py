"""Small parts of frames that are the same in all protocol versions."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from dsh_acp.errors import DshError
from dsh_acp.messages import AudioRef, MediaRef

ReadMedia: TypeAlias = Callable[[MediaRef], bytes]


def iso(milliseconds: int) -> str:
    """A time as ISO 8601 in UTC with milliseconds: `2026-07-25T04:53:00.000Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def attached(ref: MediaRef, read: ReadMedia) -> dict[str, Any]:
    """An image or a recording as a content block; its name when it cannot be read any more."""
    from base64 import b64encode

    try:
        data = read(ref)
    except (DshError, OSError):
        what = "recording" if isinstance(ref, AudioRef) else "image"
        return {"type": "text", "text": f"[{what} {ref.name or ref.attachment_id}]"}
    kind = "audio" if isinstance(ref, AudioRef) else "image"
    return {"type": kind, "data": b64encode(data).decode("ascii"), "mimeType": ref.media_type}
