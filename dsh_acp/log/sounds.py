"""What kind of recording some bytes are, by their beginning.

Only the two kinds that the wire of Chat Completions has a name for are known. Nothing is decoded;
what looks right at the start and is damaged later is for the model's endpoint to refuse.
"""

from typing import Final

WAV: Final = "audio/wav"
MP3: Final = "audio/mpeg"

_CHUNK: Final = 8
_TAG: Final = 10
_FRAME: Final = 4


def audio_type(data: bytes) -> str | None:
    """`audio/wav`, `audio/mpeg`, or `None` for anything else."""
    if data[:4] == b"RIFF":
        return WAV if data[8:12] == b"WAVE" and _has_samples(data) else None
    return MP3 if _is_frame(data, _past_tags(data)) else None


def _has_samples(data: bytes) -> bool:
    """Whether a format and then the beginning of samples are among the chunks of a RIFF file."""
    at = 12
    has_format = False
    while at + _CHUNK <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"data":
            return has_format and at + _CHUNK < len(data)
        has_format = has_format or (name == b"fmt " and size >= 16)
        at += _CHUNK + size + size % 2
    return False


def _past_tags(data: bytes) -> int:
    """Where the first frame may be: after ID3v2 tags and the zeros that pad them."""
    at = 0
    while data[at : at + 3] == b"ID3" and len(data) >= at + _TAG:
        size = 0
        for byte in data[at + 6 : at + _TAG]:
            size = size << 7 | byte & 0x7F
        has_footer = data[at + 5] & 0x10
        at += _TAG + size + (_TAG if has_footer else 0)
    return at + len(data[at:]) - len(data[at:].lstrip(b"\0")) if at else 0


def _is_frame(data: bytes, at: int) -> bool:
    """Whether the header of a frame of MPEG audio, layer III, begins at `at`."""
    if len(data) < at + _FRAME:
        return False
    sync, kind, rates, _ = data[at : at + _FRAME]
    version, layer = kind >> 3 & 3, kind >> 1 & 3
    is_synced = sync == 0xFF and kind & 0xE0 == 0xE0
    return is_synced and version != 1 and layer == 1 and rates >> 4 != 15 and rates >> 2 & 3 != 3
