"""Bodies that come compressed, as servers do it rather than as the standard has it."""

from typing import Final
import zlib

_GZIP: Final = b"\x1f\x8b"
_ANY_WINDOW: Final = zlib.MAX_WBITS | 32
"""Both gzip and zlib, told by the first bytes."""

_NAMES: Final = frozenset({"gzip", "x-gzip", "deflate"})


class Inflate:
    """Undoes gzip, zlib and the bare deflate that some call `deflate`, whatever the pieces."""

    def __init__(self, *, may_be_bare: bool) -> None:
        self._may_be_bare: Final = may_be_bare
        self._start = b""
        self._stream = zlib.decompressobj(_ANY_WINDOW)
        self._is_told = not may_be_bare

    def feed(self, data: bytes) -> bytes:
        """What `data` adds.

        Raises:
            zlib.error: it is none of these.
        """
        if not self._is_told:
            data = self._start = self._start + data
            if len(data) < 2:
                return b""
            self._is_told = True
            is_zlib = data[0] & 15 == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
            if not is_zlib and not data.startswith(_GZIP):
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        return self._stream.decompress(data)

    def end(self) -> bytes:
        """What is left when the body is over."""
        return self._stream.flush()


def inflate(encoding: str) -> Inflate | None:
    """What undoes a `content-encoding`; `None` when there is nothing to undo."""
    names = {name.strip() for name in encoding.lower().split(",")} & _NAMES
    return Inflate(may_be_bare="deflate" in names) if names else None
