"""What commands print: the tail that is kept, and the text that a model can read."""

import os
from pathlib import Path
import re
from typing import Final

KEPT_BYTES: Final = 64_000
SPILL_BYTES: Final = 256 * 1024 * 1024


class Tail:
    """The last bytes of a stream; once there are more than `limit`, all of it goes to a file.

    Never raises: a disk that refuses costs the file, not the command. The file ends with a line
    that says so when the stream has more than 256 MiB.
    """

    def __init__(self, spill: Path | None, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._spill = spill
        self._kept = bytearray()
        self._fd: int | None = None
        self._spilled = 0
        self.truncated = False

    def feed(self, data: bytes) -> None:
        """More of the stream."""
        self._kept += data
        if self._fd is not None:
            self._write(data)
        elif not self.truncated and len(self._kept) > self._limit:
            self.truncated = True
            self._open()
        if len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]

    def close(self) -> None:
        """No more is to come."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @property
    def kept(self) -> bytes:
        """At most `limit` bytes, from a character boundary on."""
        if not self.truncated:
            return bytes(self._kept)
        return from_boundary(bytes(self._kept[-self._limit :]))

    @property
    def full(self) -> str | None:
        """The file that has everything, when the stream was truncated and the disk took it."""
        return str(self._spill) if self.truncated and self._spill is not None else None

    def _open(self) -> None:
        if self._spill is None:
            return
        try:
            self._spill.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._fd = os.open(self._spill, flags, 0o600)
        except OSError:
            self._spill = None
            return
        self._write(bytes(self._kept))

    def _write(self, data: bytes) -> None:
        fd = self._fd
        if fd is None:
            return
        try:
            rest = memoryview(data[: SPILL_BYTES - self._spilled])
            self._spilled += len(rest)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if self._spilled >= SPILL_BYTES:
                os.write(fd, b"\n[the rest was not kept]\n")
                self.close()
        except OSError:
            self.close()
            self._spill = None


def from_boundary(data: bytes) -> bytes:
    """`data` without the rest of a UTF-8 character that was cut at its start."""
    for start in range(min(3, len(data)) + 1):
        if start == len(data) or data[start] & 0xC0 != 0x80:
            return data[start:]
    return data


def to_boundary(data: bytes) -> bytes:
    """`data` without the beginning of a UTF-8 character that was cut at its end."""
    for back in range(1, min(3, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 == 0x80:
            continue
        length = 2 if 0xC2 <= lead < 0xE0 else 3 if lead & 0xF0 == 0xE0 else 4
        whole = lead < 0xC2 or lead > 0xF4 or back >= length
        return data if whole else data[:-back]
    return data


_ESCAPES: Final = re.compile(
    r"""
    \x1b\[[0-?]*[ -/]*[@-~]                        # CSI: colours, cursor, erasing
    | \x9b[0-?]*[ -/]*[@-~]
    | [\x1b][\]PX^_] .*? (?:\x07|\x1b\\|\x9c|(?=\n)|\Z) # OSC, DCS, SOS, PM, APC
    | \x1b[ -/]*[0-~]?                              # the two-character ones
    """,
    re.VERBOSE,
)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_OVERSTRIKE: Final = re.compile(r"[^\n\x08]\x08")
_VARYING: Final = re.compile(r"[\d.,%/]+|[^\w\s]+|[\u2500-\u28ff]+")


def readable(text: str) -> str:
    """`text` without terminal control, progress bars reduced to where they ended.

    Of a line that was redrawn with carriage returns, the last state stays, and the first when it
    was a sentence of its own.
    """
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\x08" in text:
        text = _OVERSTRIKE.sub("", text)
    if "\r" in text:
        text = "\n".join(_settle(line) for line in text.replace("\r\n", "\n").split("\n"))
    return _CONTROLS.sub("", text) if _CONTROLS.search(text) else text


def _settle(line: str) -> str:
    if "\r" not in line:
        return line
    states = [state for state in line.split("\r") if state.strip()]
    if len(states) < 2:
        return states[0] if states else ""
    first, last = states[0], states[-1]
    progress = any(char.isdigit() for char in first) or _shape(first) == _shape(states[1])
    return last if progress else f"{first}\n{last}"


def _shape(state: str) -> str:
    return " ".join(_VARYING.sub("#", state).split())


def decode(data: bytes) -> str:
    """Output as text: UTF-8, each undecodable byte replaced; plain noise is only counted."""
    text = data.decode("utf-8", "replace")
    noise = text.count("\ufffd") + text.count("\0")
    if noise > 64 and noise * 5 > len(text):
        return f"(binary output: {len(data)} bytes not shown)"
    return text
