"""Server-sent events from bytes.

Lines end at `\\n`, `\\r\\n` or `\\r` and nowhere else: U+2028 and its kin are legal inside JSON.
Bytes may be cut anywhere; the events are the same.
"""

from typing import Final, Literal, NamedTuple

_BOM: Final = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event: its `data` lines joined with a newline, and its name (`""` when it has none)."""

    data: bytes
    name: str = ""


class SseDecoder:
    """Feed it the pieces of a response body as they come.

    `stray` is the last line that is no field of an event stream: where a relay fails in the middle
    of a stream, its complaint is there.
    """

    def __init__(self) -> None:
        self.stray = ""
        self.size = 0
        self._rest: list[bytes] = []
        self._starts = True
        self._after_cr = False
        self._after_lf = False

    def feed(self, piece: bytes) -> list[Event]:
        """The events that `piece` completes. `size` is what waits for the rest of its event."""
        if self._after_cr and piece:
            # A \r at the end of the last piece was taken for a line end; its \n is not another.
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        if not piece:
            return []
        if b"\r" in piece:
            self._after_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        ends = b"\n\n" in piece or (self._after_lf and piece.startswith(b"\n"))
        self._after_lf = piece.endswith(b"\n")
        self._rest.append(piece)
        self.size += len(piece)
        if not ends:
            # Joined only when an event is complete: one that comes byte by byte stays cheap.
            return []
        complete, _, rest = b"".join(self._rest).rpartition(b"\n\n")
        self._rest = [rest]
        self.size = len(rest)
        return self._events(complete)

    def end(self) -> list[Event]:
        """The event that the end of the body left without its blank line, if any."""
        rest, self._rest, self.size = b"".join(self._rest), [], 0
        return self._events(rest)

    def _events(self, text: bytes) -> list[Event]:
        found: list[Event] = []
        if self._starts:
            text = text.removeprefix(_BOM)
            self._starts = False
        for block in text.split(b"\n\n"):
            if block.startswith(b"data: ") and b"\n" not in block:
                found.append(Event(block[6:]))
            elif block and (event := self._event(block)) is not None:
                found.append(event)
        return found

    def _event(self, block: bytes) -> Event | None:
        data: list[bytes] = []
        name = ""
        for line in block.split(b"\n"):
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif line.startswith(b"event:"):
                name = line[6:].removeprefix(b" ").decode("utf-8", "replace")
            elif line and not line.startswith((b":", b"id:", b"retry:")) and line != b"data":
                self.stray = line.decode("utf-8", "replace")
        return Event(b"\n".join(data), name) if data else None


class BodyReader:
    """A response body of a kind that nobody promises: events, JSON, or a web page.

    Whatever the content type claims, the first byte tells. Events come as they are complete; the
    rest is `whole` once the body has ended.
    """

    def __init__(self) -> None:
        self.kind: Literal["events", "json", "page"] | None = None
        self.sse: Final = SseDecoder()
        self._held: list[bytes] = []

    def feed(self, piece: bytes) -> list[Event]:
        """The events that `piece` completes, if it is events at all."""
        if self.kind == "events":
            return self.sse.feed(piece)
        self._held.append(piece)
        if self.kind is not None:
            return []
        held = b"".join(self._held)
        start = held.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if not start:
            return []
        self.kind = "json" if start in b"{[" else "page" if start == b"<" else "events"
        if self.kind != "events":
            return []
        self._held.clear()
        return self.sse.feed(held)

    @property
    def whole(self) -> bytes:
        """Everything, when it is no events."""
        return b"".join(self._held)
