"""Images beside the log, and the archive of a session."""

import io
from pathlib import Path
import struct
import zipfile
import zlib

from log_samples import Recorder
from msgspec import structs
import pytest

from dsh_acp.errors import LogError, PromptError
from dsh_acp.log.attachments import Attachments, dimensions
from dsh_acp.log.events import UserMessage
from dsh_acp.log.export import export, file_name, write
from dsh_acp.log.store import Store
from dsh_acp.messages import Image, Message, Text


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + bytes(3 * width) for _ in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    app = b"\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
    table = b"\xff\xc4\x00\x05\0\0\0"
    frame = b"\xff\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + bytes(10)
    return b"\xff\xd8" + app + table + b"\xff\x01" + frame + b"\xff\xd9"


def webp(kind: bytes, body: bytes) -> bytes:
    return (
        b"RIFF"
        + struct.pack("<I", 12 + len(body))
        + b"WEBP"
        + kind
        + struct.pack("<I", len(body))
        + body
    )


IMAGES = [
    ("image/png", 3, 2, png(3, 2)),
    ("image/jpeg", 640, 480, jpeg(640, 480)),
    ("image/gif", 7, 9, b"GIF89a" + struct.pack("<HH", 7, 9) + bytes(3)),
    (
        "image/webp",
        300,
        200,
        webp(b"VP8X", bytes(4) + (299).to_bytes(3, "little") + (199).to_bytes(3, "little")),
    ),
    ("image/webp", 300, 200, webp(b"VP8L", b"\x2f" + (299 | 199 << 14).to_bytes(4, "little"))),
    (
        "image/webp",
        300,
        200,
        webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 300, 200)),
    ),
]


@pytest.mark.parametrize(("kind", "width", "height", "data"), IMAGES)
def test_kind_and_size_are_read_from_the_bytes(
    kind: str, width: int, height: int, data: bytes
) -> None:
    assert dimensions(data) == (kind, width, height)
    for size in range(len(data)):
        found = dimensions(data[:size])
        assert found is None or found == (kind, width, height)


def test_an_image_is_kept_once_under_its_digest(tmp_path: Path) -> None:
    attachments = Attachments(tmp_path)
    data = png(3, 2)
    ref = attachments.put(data, "image/jpeg", "shot.png")
    assert (ref.media_type, ref.width, ref.height, ref.bytes) == ("image/png", 3, 2, len(data))
    assert ref.name == "shot.png"
    digest = ref.attachment_id.removeprefix("sha256:")
    path = tmp_path / "attachments" / "v1" / "objects" / digest[:2] / digest
    assert path.read_bytes() == data
    assert attachments.put(data, "image/png").attachment_id == ref.attachment_id
    assert attachments.get(ref) == data
    assert [each.name for each in path.parent.iterdir()] == [digest]


def test_what_is_not_an_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptError) as caught:
        Attachments(tmp_path).put(b"hello", "image/png")
    assert caught.value.code == "UNSUPPORTED_CONTENT"


def test_a_missing_or_changed_object_fails_loud(tmp_path: Path) -> None:
    attachments = Attachments(tmp_path)
    ref = attachments.put(png(3, 2), "image/png")
    path = attachments.path(ref)
    for other in (
        structs.replace(ref, bytes=1),
        structs.replace(ref, width=9),
        structs.replace(ref, media_type="image/gif"),
        structs.replace(ref, attachment_id="sha256:../../x"),
        structs.replace(ref, attachment_id="x"),
    ):
        with pytest.raises(LogError) as caught:
            attachments.get(other)
        assert caught.value.code == "ATTACHMENT_CORRUPT"
    path.write_bytes(png(2, 3))
    with pytest.raises(LogError) as caught:
        attachments.get(ref)
    assert caught.value.code == "ATTACHMENT_CORRUPT"
    path.unlink()
    with pytest.raises(LogError) as caught:
        attachments.get(ref)
    assert caught.value.code == "ATTACHMENT_MISSING"


@pytest.mark.parametrize(
    "left", [b"", png(2, 3), png(3, 2)[:-1] + b"!"], ids=["empty", "another", "changed"]
)
def test_an_object_that_was_damaged_is_whole_again_when_the_same_comes_again(
    tmp_path: Path, left: bytes
) -> None:
    attachments = Attachments(tmp_path)
    path = attachments.path(attachments.put(png(3, 2), "image/png"))
    path.write_bytes(left)
    ref = attachments.put(png(3, 2), "image/png")
    assert attachments.get(ref) == png(3, 2)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_where_nothing_can_be_written_images_live_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    attachments = Attachments(tmp_path / "file")
    ref = attachments.put(png(3, 2), "image/png")
    assert attachments.get(ref) == png(3, 2)


def test_an_archive_holds_logs_and_images_and_is_always_the_same(tmp_path: Path) -> None:
    store, attachments = Store(tmp_path), Attachments(tmp_path)
    ref = attachments.put(png(3, 2), "image/png")
    log = store.create("/w", id="a b")
    Recorder(log).tool_turn()
    log.append(UserMessage(Message.user([Text("see"), Image(ref)])))
    child = store.create("/w", id="child/1", parent="a b", origin="subagent")
    Recorder(child).tool_turn()
    child.close()
    data = export(store, "a b", attachments)
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.namelist() == [
        "session.jsonl",
        "subagents/child_1/session.jsonl",
        f"media/{ref.attachment_id}.png",
    ]
    assert archive.read("session.jsonl") == log.lines()
    assert archive.read(f"media/{ref.attachment_id}.png") == png(3, 2)
    assert export(store, "a b", attachments) == data
    assert file_name("a b") == "dsh-session-a_b.zip"
    assert write(store, "a b", attachments, tmp_path).read_bytes() == data
    attachments.path(ref).unlink()
    with pytest.raises(LogError, match="is missing"):
        export(store, "a b", attachments)
    log.close()
