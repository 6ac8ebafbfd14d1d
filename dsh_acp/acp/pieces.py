"""Small parts of frames that are the same in all protocol versions."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from dsh_acp.errors import DshError
from dsh_acp.messages import ImageRef

ReadImage: TypeAlias = Callable[[ImageRef], bytes]


def iso(milliseconds: int) -> str:
    """A time as ISO 8601 in UTC with milliseconds: `2026-07-25T04:53:00.000Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def picture(image: ImageRef, read: ReadImage) -> dict[str, Any]:
    """An image as a content block; its name when it cannot be read any more."""
    from base64 import b64encode

    try:
        data = read(image)
    except (DshError, OSError):
        return {"type": "text", "text": f"[image {image.name or image.attachment_id}]"}
    return {"type": "image", "data": b64encode(data).decode("ascii"), "mimeType": image.media_type}
