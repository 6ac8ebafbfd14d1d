"""`read_image`."""

import struct

import pytest
from workbench import Workbench

from dsh_acp.errors import PromptError, ToolError
from dsh_acp.messages import Image, ImageRef, Text
from dsh_acp.tools.arguments import ReadImage as Arguments
from dsh_acp.tools.images import ReadImage, media_type, nowhere

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 3, 2)


async def put(data: bytes, kind: str, name: str) -> ImageRef:
    return ImageRef(
        "sha256:00", kind, len(data), 3, 2, name, original_dimensions={"width": 30, "height": 20}
    )


async def test_an_image_comes_with_its_facts(bench: Workbench) -> None:
    path = bench.put("a/Shot.PNG", PNG)
    outcome = await ReadImage(put).run(Arguments(file_path="a/Shot.PNG"), bench)
    text, image = outcome.content
    assert text == Text(
        f"<path>{path}</path>\n<type>image</type>\n<content>\n"
        f"image/png image, 3x2 px, {len(PNG)} bytes (scaled down from 30x20 px)\n</content>"
    )
    assert isinstance(image, Image)
    assert (image.attachment.name, image.attachment.media_type) == ("Shot.PNG", "image/png")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.txt", PNG, "its name is not"),
        ("a.png", b"text", "its content is not"),
        ("missing.png", None, "not found"),
    ],
)
async def test_what_is_no_image_is_refused(
    bench: Workbench, name: str, data: bytes | None, reason: str
) -> None:
    if data is not None:
        bench.put(name, data)
    with pytest.raises(ToolError, match=reason):
        await ReadImage(put).run(Arguments(file_path=name), bench)


async def test_an_image_that_cannot_be_kept_is_refused(bench: Workbench) -> None:
    async def damaged(data: bytes, kind: str, name: str) -> ImageRef:
        raise PromptError("no size in it", code="UNSUPPORTED_CONTENT")

    bench.put("a.png", PNG)
    with pytest.raises(ToolError, match="its content is damaged"):
        await ReadImage(damaged).run(Arguments(file_path="a.png"), bench)
    with pytest.raises(ToolError, match="images are not kept here"):
        await ReadImage(nowhere).run(Arguments(file_path="a.png"), bench)


def test_images_are_told_by_their_first_bytes() -> None:
    assert media_type(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert media_type(b"GIF89a....") == "image/gif"
    assert media_type(b"RIFF\0\0\0\0WEBPVP8 ") == "image/webp"
    assert media_type(b"RIFF\0\0\0\0WAVE") is None
