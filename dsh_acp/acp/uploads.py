"""Files that came with a prompt and are not for the log: saved privately, named by content.

Nothing of what a client says about a file becomes part of its path but an extension that is known
to be harmless, so an odd name or media type can neither leave the folder nor speak to the model.
"""

import hashlib
import os
from pathlib import Path
from typing import Any, Final

from dsh_acp.log.sounds import MP3, WAV, audio_type

_EXTENSIONS: Final = frozenset(
    (
        "bin csv gif html jpeg jpg json md pdf png rtf svg tar txt webp xml yaml yml zip "
        "aac aiff flac m4a mp3 ogg opus wav weba"
    ).split()
)
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type(data: bytes) -> str | None:
    """The media type of a picture by its first bytes; `None` when it is none of the known four."""
    for signature, media_type in _SIGNATURES:
        if data.startswith(signature):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


_SOUNDS: Final = {
    WAV: "wav",
    MP3: "mp3",
    "audio/aac": "aac",
    "audio/aiff": "aiff",
    "audio/flac": "flac",
    "audio/mp4": "m4a",
    "audio/ogg": "ogg",
    "audio/opus": "opus",
    "audio/webm": "weba",
    "audio/x-m4a": "m4a",
}


def sound_name(data: bytes, claimed: Any) -> str:
    """A name for a recording; its ending is that of its bytes, else of the `claimed` media type."""
    kind = audio_type(data) or str(claimed).partition(";")[0].strip().lower()
    return f"recording.{_SOUNDS.get(kind, 'bin')}"


class Uploads:
    """A private folder."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder

    def save(self, data: bytes, name: str) -> str:
        """Keep `data`; the path of the file, which only its owner can read.

        Raises:
            OSError: the disk refused.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        kind = image_type(data)
        extension = kind.rpartition("/")[2] if kind else name.rpartition(".")[2].lower()
        if extension not in _EXTENSIONS:
            extension = "bin"
        path = self.folder / f"{hashlib.sha256(data).hexdigest()[:32]}.{extension}"
        if not path.exists():
            temporary = path.with_suffix(f".{os.getpid()}.tmp")
            with open(temporary, "wb", opener=_private) as file:
                file.write(data)
            temporary.replace(path)
        return str(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
