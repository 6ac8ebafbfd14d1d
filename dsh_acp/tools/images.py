"""Showing a picture to a model that sees: `read_image`."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from dsh_acp.errors import PromptError, ToolError
from dsh_acp.messages import Image, ImageRef, Text
from dsh_acp.tools import disk
from dsh_acp.tools.builtin import Builtin, absolute, resolved
from dsh_acp.tools.reading import envelope
from dsh_acp.tools.tool import Intent, Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.tools import arguments

MAX_BYTES: Final = 32 * 1024 * 1024

Put: TypeAlias = Callable[[bytes, str, str], Awaitable[ImageRef]]
"""Keeps an image: its bytes, media type and name. It must be durable before the call returns."""

_EXTENSIONS: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
}


def media_type(data: bytes) -> str | None:
    """What the first bytes say an image is; `None` for another kind of file."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return None


async def nowhere(data: bytes, media_type: str, name: str) -> ImageRef:
    """Keeps nothing.

    Raises:
        ToolError: always.
    """
    raise ToolError(f'cannot show "{name}": images are not kept here', code="UNSUPPORTED_CONTENT")


class ReadImage(Builtin):
    """For models that take images; requests to others leave it out."""

    name = "read_image"
    is_concurrent = True

    def __init__(self, put: Put) -> None:
        self._put = put

    def intent(self, args: "arguments.ReadImage", cwd: str) -> Intent:
        """Reads one path."""
        path = resolved(args.file_path, cwd)
        return Intent(effect="read", paths=(path,), cwd=cwd, scope=path)

    async def run(self, args: "arguments.ReadImage", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        path = absolute(args.file_path, ctx.cwd)
        name = path.rpartition("/")[2]
        if name.rpartition(".")[2].lower() not in _EXTENSIONS:
            raise _refused(path, "its name is not that of a PNG, JPEG, WebP or GIF file")
        found = await ctx.world.read(path, MAX_BYTES)
        kind = media_type(found.data)
        if kind is None:
            raise _refused(path, "its content is not a PNG, JPEG, WebP or GIF image")
        try:
            image = await self._put(found.data, kind, name)
        except PromptError as exc:
            raise _refused(path, "its content is damaged") from exc
        size = f"{image.width}x{image.height} px, {image.bytes} bytes"
        text = f"{image.media_type} image, {size}"
        if isinstance(image.original_dimensions, dict):
            given = image.original_dimensions
            text += f" (scaled down from {given.get('width')}x{given.get('height')} px)"
        return Outcome(content=(Text(envelope(path, "image", text)), Image(image)))


def _refused(path: str, reason: str) -> ToolError:
    return disk.fs_error("read", path, reason, "FS_NOT_IMAGE")
