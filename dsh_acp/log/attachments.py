"""Images and recordings beside the log: content-addressed objects, verified whenever they are read.

An object is on disk before anything refers to it. The reference repeats what a reader of the log
needs to know, and is checked against the object before its bytes reach a model.
"""

import contextlib
import hashlib
import os
from pathlib import Path
import struct
from typing import Final

from msgspec import UNSET

from dsh_acp.errors import LogError, PromptError
from dsh_acp.log.logfile import UNWRITABLE, disk_error
from dsh_acp.log.sounds import audio_type
from dsh_acp.messages import AudioRef, ImageRef, MediaRef

MEDIA_TYPES: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")


def dimensions(data: bytes) -> tuple[str, int, int] | None:
    """Media type, width and height of an image, from its first bytes; `None` if not known."""
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        return ("image/png", *struct.unpack(">II", data[16:24]))
    if data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 10:
        return ("image/gif", *struct.unpack("<HH", data[6:10]))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data[:2] == b"\xff\xd8":
        return _jpeg(data)
    return None


def _webp(data: bytes) -> tuple[str, int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        width = int.from_bytes(data[24:27], "little") + 1
        return "image/webp", width, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return "image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and len(data) >= 30:
        width, height = struct.unpack("<HH", data[26:30])
        return "image/webp", width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(data: bytes) -> tuple[str, int, int] | None:
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker in (0x01, *range(0xD0, 0xD9)):
            at += 2
            continue
        # Start-of-frame markers, without the three tables in their range.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return "image/jpeg", width, height
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


class Attachments:
    """The objects under `<home>/attachments`; kept in memory when that cannot be written."""

    def __init__(self, home: Path) -> None:
        self._root = home / "attachments" / "v1" / "objects"
        self._memory: dict[str, bytes] = {}

    def put(self, data: bytes, media_type: str, name: str | None = None) -> ImageRef:
        """Store an image; its object is durable when this returns.

        The media type found in the bytes wins over the one that was claimed.

        Raises:
            PromptError: `UNSUPPORTED_CONTENT`, not an image that models accept.
            LogError: `DISK_FULL`, `IO`.
        """
        found = dimensions(data)
        if found is None:
            raise PromptError(
                f"the attached {media_type} is not a PNG, JPEG, WebP or GIF image",
                code="UNSUPPORTED_CONTENT",
            )
        digest = hashlib.sha256(data).hexdigest()
        self._keep(digest, data)
        return ImageRef(
            attachment_id=f"sha256:{digest}",
            media_type=found[0],
            bytes=len(data),
            width=found[1],
            height=found[2],
            name=UNSET if name is None else name,
        )

    def put_audio(self, data: bytes, name: str | None = None) -> AudioRef:
        """Store a recording; its object is durable when this returns.

        Raises:
            PromptError: `UNSUPPORTED_CONTENT`, neither WAV nor MP3.
            LogError: `DISK_FULL`, `IO`.
        """
        found = audio_type(data)
        if found is None:
            raise PromptError("the recording is neither WAV nor MP3", code="UNSUPPORTED_CONTENT")
        digest = hashlib.sha256(data).hexdigest()
        self._keep(digest, data)
        return AudioRef(
            attachment_id=f"sha256:{digest}",
            media_type=found,
            bytes=len(data),
            name=UNSET if name is None else name,
        )

    def path(self, ref: MediaRef) -> Path:
        """Where the object lies, or would."""
        return self._path(ref.attachment_id.removeprefix("sha256:"))

    def _path(self, digest: str) -> Path:
        return self._root / digest[:2] / digest

    def _keep(self, digest: str, data: bytes) -> None:
        path = self._path(digest)
        if _holds(path, data):
            return
        temporary = path.with_name(f"{digest}.{os.urandom(6).hex()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            temporary.replace(path)
            _sync_folder(path.parent)
        except OSError as exc:
            with contextlib.suppress(OSError):
                temporary.unlink()
            if exc.errno not in UNWRITABLE:
                raise disk_error(exc, "the attachment") from exc
            self._memory[digest] = data

    def get(self, ref: MediaRef) -> bytes:
        """The bytes behind `ref`, checked against everything it says about them.

        Raises:
            LogError: `ATTACHMENT_MISSING`, `ATTACHMENT_CORRUPT`.
        """
        digest = ref.attachment_id.removeprefix("sha256:")
        if not ref.attachment_id.startswith("sha256:") or not _is_digest(digest):
            raise _corrupt(ref, "its id is not a digest")
        data = self._memory.get(digest)
        if data is None:
            try:
                data = self._path(digest).read_bytes()
            except OSError as exc:
                raise LogError(
                    f"the attachment {ref.attachment_id} is missing: {exc.strerror or exc}",
                    code="ATTACHMENT_MISSING",
                ) from exc
        if hashlib.sha256(data).hexdigest() != digest:
            raise _corrupt(ref, "its bytes do not have that digest")
        if len(data) != ref.bytes or not _is_kind(data, ref):
            raise _corrupt(ref, "its recorded size or kind is not that of its bytes")
        return data


def _holds(path: Path, data: bytes) -> bool:
    # What is there may have been damaged since it was written.
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


def _is_kind(data: bytes, ref: MediaRef) -> bool:
    if isinstance(ref, AudioRef):
        return audio_type(data) == ref.media_type
    return dimensions(data) == (ref.media_type, ref.width, ref.height)


def _is_digest(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def _corrupt(ref: MediaRef, why: str) -> LogError:
    return LogError(
        f"the attachment {ref.attachment_id} is corrupt: {why}", code="ATTACHMENT_CORRUPT"
    )


def _sync_folder(folder: Path) -> None:
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # a system that cannot open directories keeps their entries by itself
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
