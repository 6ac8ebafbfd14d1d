"""Pages of text files: bounded however large the file or its lines are."""

from collections.abc import Iterator
import hashlib
from typing import Any, Final

from msgspec import Struct

from dsh_acp.errors import ToolError
from dsh_acp.tools import disk, encoding
from dsh_acp.tools.tool import Version

MAX_LINES: Final = 2000
MAX_LINE_UNITS: Final = 2000
MAX_PAGE_BYTES: Final = 50 * 1024
STREAMED_BYTES: Final = 10 * 1024 * 1024
_CUT: Final = f"... (line truncated to {MAX_LINE_UNITS} chars)"
# Enough for 2000 UTF-16 units in any encoding that is streamed.
_LINE_BYTES: Final = 4 * MAX_LINE_UNITS + 16

_LANGUAGES: Final = {
    "c": "c", "cc": "cpp", "cpp": "cpp", "cs": "csharp", "css": "css", "go": "go", "h": "c",
    "hpp": "cpp", "html": "html", "java": "java", "js": "javascript", "json": "json",
    "jsx": "jsx", "kt": "kotlin", "lua": "lua", "md": "markdown", "php": "php", "py": "python",
    "rb": "ruby", "rs": "rust", "scss": "scss", "sh": "bash", "sql": "sql", "swift": "swift",
    "toml": "toml", "ts": "typescript", "tsx": "tsx", "vue": "vue", "xml": "xml", "yaml": "yaml",
    "yml": "yaml", "zig": "zig",
}  # fmt: skip


class Page(Struct, frozen=True):
    """Lines `offset` and following; `capped` when the page was full before the limit."""

    offset: int
    lines: tuple[str, ...]
    total: int
    capped: bool


def language(path: str) -> str | None:
    """The name of a file's language, by its extension."""
    return _LANGUAGES.get(path.rpartition(".")[2].lower())


def page_of(text: str, offset: int, limit: int) -> Page:
    """A page of a text in memory."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return _fill(iter(lines[offset - 1 : offset - 1 + limit]), offset, len(lines))


def _fill(lines: Iterator[str], offset: int, total: int) -> Page:
    kept: list[str] = []
    size = 0
    for line in lines:
        shown = _cut(line.removesuffix("\r"))
        size += len(shown.encode("utf-8", "replace")) + 1
        if kept and size > MAX_PAGE_BYTES:
            return Page(offset, tuple(kept), total, capped=True)
        kept.append(shown)
    return Page(offset, tuple(kept), total, capped=False)


def _cut(line: str) -> str:
    if len(line) <= MAX_LINE_UNITS // 2:
        return line
    units = line.encode("utf-16-le", "surrogatepass")
    if len(units) <= 2 * MAX_LINE_UNITS:
        return line
    return units[: 2 * MAX_LINE_UNITS].decode("utf-16-le", "ignore") + _CUT


def stream(path: str, offset: int, limit: int) -> tuple[Page, Version]:
    """A page of a file of any size, in constant memory. Blocks.

    Raises:
        ToolError: as `World.read`, and `FS_NOT_TEXT`.
    """
    with disk.opened(path) as (fd, status):
        running = hashlib.sha256()
        found = _Window(offset, limit)
        known: encoding.Encoding | None = None
        for piece in disk.pieces(fd):
            running.update(piece)
            if known is None:
                known = _streamable(path, piece)
                found.feed(piece[len(known.bom) :])
            else:
                found.feed(piece)
        version = Version(running.hexdigest(), disk.identity(status))
        codec = (known or encoding.UTF8).codec
        if any(b"\0" in line for line in found.lines):
            raise disk.fs_error("read", path, "binary file", "FS_NOT_TEXT")
        lines = (line.decode(codec, "replace") for line in found.lines)
        return _fill(lines, offset, found.close()), version


def _streamable(path: str, start: bytes) -> encoding.Encoding:
    try:
        known = encoding.detect_start(start[: encoding.SAMPLE])
    except encoding.NotText as exc:
        raise disk.fs_error("read", path, str(exc), "FS_NOT_TEXT") from exc
    if known.codec.startswith(("utf-16", "utf-32")):
        reason = f"too large to read as {known.codec}; convert it first"
        raise disk.fs_error("read", path, reason, "FS_TOO_LARGE")
    return known


class _Window:
    """Counts lines and keeps the beginnings of those wanted."""

    def __init__(self, offset: int, limit: int) -> None:
        self.lines: list[bytes] = []
        self._first = offset - 1
        self._last = offset - 1 + limit
        self._ended = 0
        self._open = bytearray()
        self._any = False

    def feed(self, data: bytes) -> None:
        count = data.count(b"\n")
        if self._ended + count < self._first or self._ended >= self._last:
            self._ended += count
            self._any = not data.endswith(b"\n")
            self._open.clear()
            return
        *whole, rest = data.split(b"\n")
        for line in whole:
            if self._first <= self._ended < self._last:
                self.lines.append(bytes(self._open) + line[: _LINE_BYTES - len(self._open)])
            self._open.clear()
            self._ended += 1
        room = max(0, _LINE_BYTES - len(self._open))
        self._open += rest[:room]
        self._any = bool(rest) or (self._any and not whole)

    def close(self) -> int:
        """The number of lines."""
        if self._any:
            if self._first <= self._ended < self._last:
                self.lines.append(bytes(self._open))
            self._ended += 1
        return self._ended


def envelope(path: str, kind: str, body: str) -> str:
    """How a file is put before the model."""
    return f"<path>{path}</path>\n<type>{kind}</type>\n<content>\n{body}\n</content>"


def render(path: str, page: Page) -> str:
    """The page as the model sees it.

    Raises:
        ToolError: it begins past the end.
    """
    if page.offset > max(page.total, 1):
        text = f'offset {page.offset} is out of range for "{path}" ({page.total} lines)'
        raise ToolError(text, code="FS_NOT_FOUND", name="FsError")
    last = page.offset + len(page.lines) - 1
    onward = f"Use offset={last + 1} to continue.)"
    if page.capped:
        footer = f"(Output capped. Showing lines {page.offset}-{last}. {onward}"
    elif last < page.total:
        footer = f"(Showing lines {page.offset}-{last} of {page.total}. {onward}"
    else:
        footer = f"(End of file - total {page.total} lines)"
    numbered = [f"{page.offset + index}: {line}" for index, line in enumerate(page.lines)]
    return envelope(path, "file", "\n".join([*numbered, "", footer] if numbered else [footer]))


def meta(path: str, page: Page) -> dict[str, Any]:
    """Presentation data of a read."""
    found: dict[str, Any] = {
        "path": path,
        "offset": page.offset,
        "lines": [
            {"number": page.offset + index, "text": line} for index, line in enumerate(page.lines)
        ],
        "totalLines": page.total,
    }
    if (name := language(path)) is not None:
        found["lang"] = name
    return found
