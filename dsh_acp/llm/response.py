"""One HTTP response, taken apart as its bytes come.

Why httptools: a head and the chunks around a body are read in microseconds. What it knows too
little of for a client is added here: where a response ends that has no length, that something
follows it, and how much may come without saying anything.
"""

from typing import Final

import httptools

QUIET_LIMIT: Final = 256 * 1024
"""How many bytes may come without any of the body: of heads, trailers, sizes of chunks."""

_SWITCHING: Final = 101


class Malformed(Exception):
    """What came is no HTTP response."""


class Response:
    """Feed it what comes, and `end` when the server closes; then look at what there is.

    `status` is 0 and `headers` is empty until the head is complete; interim answers (1xx) are
    passed over. Header names are lower-case; of two with one name the later counts. Trailers are
    left out.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_over = False
        self.is_followed = False
        """Something came after its end, which nobody asked for."""
        self._failure = ""
        self._keeps = False
        self._lasts = False
        self._quiet = 0
        self._read: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._parser: Final = httptools.HttpResponseParser(self)
        # Old and home-made servers end lines with a bare line feed and fold long headers. Nothing
        # stands between such a server and us that could read its answer in another way.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True
        )

    @property
    def keeps_connection(self) -> bool:
        """It was read to its end, nothing followed, and the server will take another request."""
        return self.is_over and self._keeps and not self.is_followed

    def feed(self, data: bytes) -> None:
        """What came next. After a failure nothing does."""
        if self._failure:
            return
        if self.is_over:
            self.is_followed = True
            return
        self._quiet += len(data)
        # The parser does not say where a response ended. With the last byte held back, it has
        # ended before the last byte or with it.
        view = memoryview(data)
        self._parse(view[:-1])
        if self.is_over:
            self.is_followed = True
        else:
            self._parse(view[-1:])
        if self._quiet > QUIET_LIMIT and not self.is_over:
            self._failure = "the server sends heads without end"

    def end(self) -> None:
        """The server has closed the connection."""
        if self.is_over or self._failure:
            return
        if not self.status:
            self._failure = "the server closed it without an answer"
        elif self._lasts:
            self.is_over = True
        else:
            self._failure = "the server closed it within its answer"

    def check(self) -> None:
        """Ask, once everything is taken, whether more can come.

        Raises:
            Malformed: what came last is no HTTP response.
        """
        if self._failure:
            raise Malformed(self._failure)

    def take(self) -> bytes:
        """What has come of the body since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _parse(self, data: memoryview) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            if not self.is_over:
                self._failure = self._failure or str(exc)

    # ------------------------------------------------------------ what the parser tells

    @property
    def _is_settled(self) -> bool:
        # One read may bring more than what was decided by its beginning.
        return self.is_over or bool(self._failure)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_settled:
            self._read[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        if self._is_settled:
            return
        status = self._parser.get_status_code()
        if status == _SWITCHING:
            self._failure = "the server speaks another protocol from here on"
            return
        if status < 100:
            self._failure = f"there is no status {status}"
            return
        read, self._read = self._read, {}
        if status < 200:
            return
        self.status, self.headers = status, read
        codings = read.get("transfer-encoding", "").lower()
        self._lasts = "content-length" not in read and not codings.endswith("chunked")

    def on_body(self, data: bytes) -> None:
        if not self._is_settled:
            self._pieces.append(data)
            self._quiet = 0

    def on_message_complete(self) -> None:
        if self.status and not self._is_settled:
            self.is_over = True
            self._keeps = self._parser.should_keep_alive()
