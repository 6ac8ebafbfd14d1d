"""Text files as text, without losing a byte.

A file is decoded only when encoding it again gives the same bytes, so an edit can put everything
outside the change back exactly as it was. What cannot be read that way is refused in words.
"""

import codecs
from typing import Final

from msgspec import Struct

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY_CONTROLS: Final = frozenset({*range(8), *range(14, 27), 28, 29, 30, 31, 127})
SAMPLE: Final = 64 * 1024


class NotText(Exception):
    """Bytes that are no text here; the message completes `cannot read "…": `."""


class Encoding(Struct, frozen=True):
    """How text is stored: a codec without a byte order mark of its own, and the mark."""

    codec: str
    bom: bytes = b""

    @property
    def label(self) -> str:
        """For sentences."""
        return f"{self.codec} with a byte order mark" if self.bom else self.codec

    def encode(self, text: str) -> bytes:
        """The file's bytes for `text`, the mark before it.

        Raises:
            UnicodeEncodeError: the encoding has no such character.
        """
        return self.bom + text.encode(self.codec)


UTF8: Final = Encoding("utf-8")


def decode(data: bytes) -> tuple[str, Encoding]:
    """The text without its byte order mark, and how to put it back.

    Raises:
        NotText: binary data, or an encoding that is not recognised.
    """
    encoding = detect(data)
    body = data[len(encoding.bom) :]
    try:
        text = body.decode(encoding.codec)
        lossless = encoding.codec == "utf-8" or text.encode(encoding.codec) == body
    except UnicodeError:
        lossless, text = False, ""
    if not lossless:
        raise NotText(f"not valid {encoding.label}")
    return text, encoding


def detect(data: bytes) -> Encoding:
    """Which encoding `data` is in: by its mark, as UTF-8, else by what the bytes look like.

    Raises:
        NotText: binary data, or an encoding that is not recognised.
    """
    for bom, codec in _BOMS:
        if data.startswith(bom):
            return Encoding(codec, bom)
    if b"\0" in data:
        raise NotText("binary file")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return Encoding(_guess(data))
    return UTF8


def detect_start(data: bytes) -> Encoding:
    """As `detect`, for the beginning of a longer file: a character cut at the end is no fault."""
    line = data.rfind(b"\n")
    if line > 0 and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return detect(data[: line + 1])
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=False)
    except UnicodeDecodeError:
        return detect(data)
    if b"\0" in data:
        raise NotText("binary file")
    return Encoding("utf-8", codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else UTF8


def _guess(data: bytes) -> str:
    """A legacy encoding, when the bytes speak clearly for one."""
    counts = [0] * 256
    for value in data[:SAMPLE]:
        counts[value] += 1
    total = min(len(data), SAMPLE)
    if sum(counts[value] for value in _BINARY_CONTROLS) * 50 > total:
        raise NotText("binary file")
    if _looks_chinese(data):
        return "gbk" if _decodes(data, "gbk") else "gb18030"
    high = sum(counts[128:])
    letters = sum(counts[65:91]) + sum(counts[97:123])
    # Western text has accents here and there; other eight-bit alphabets are mostly high bytes.
    if high * 3 <= letters or high <= 2:
        if not sum(counts[128:160]):
            return "latin-1"
        if _decodes(data, "cp1252"):
            return "cp1252"
    raise NotText(
        "neither UTF-8 nor another encoding that can be recognised "
        "(UTF-16 with a byte order mark, GBK, GB18030, Latin-1)"
    )


def _decodes(data: bytes, codec: str) -> bool:
    try:
        data.decode(codec)
    except UnicodeDecodeError:
        return False
    return True


def _looks_chinese(data: bytes) -> bool:
    """Whether the high bytes pair up into characters that people write.

    Western accents are single high bytes between ASCII letters; read as GBK they become rare
    characters whose second byte is ASCII. Common ones have both bytes from 0xA1 up.
    """
    if not _decodes(data, "gb18030"):
        return False
    common = rare = index = 0
    end = min(len(data), SAMPLE) - 1
    while index < end:
        first, second = data[index], data[index + 1]
        if first < 0x80:
            index += 1
            continue
        if 0xB0 <= first <= 0xF7 and second >= 0xA1:
            common += 1
        elif not (0xA1 <= first <= 0xA9 and second >= 0xA1):
            rare += 1
        index += 4 if 0x30 <= second <= 0x39 else 2
    return common > 0 and rare <= common // 4
