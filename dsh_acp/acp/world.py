"""The editor's world: files as the person sees them, unsaved buffers included.

The disk is read beside the buffer, because each alone can mislead: a buffer may be stale after a
command changed the file, and the disk does not have what was typed and not saved. Where both agree
the bytes of the disk count, so that line endings and encoding survive; where they differ, whichever
changed since they last agreed is the truth.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
import hashlib
import os
from pathlib import Path
from typing import Any, Final

from anyio import to_thread
import msgspec
from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.acp.client import Client
from dsh_acp.acp.terminals import ClientTerminals
from dsh_acp.errors import ToolError
from dsh_acp.tools import disk
from dsh_acp.tools.sandbox import Sandbox
from dsh_acp.tools.tool import CommandEnd, FileRead, Version, World
from dsh_acp.wire.frames import RpcError

CURRENT_CALL: Final[ContextVar[str]] = ContextVar("current_call", default="")
"""The call that runs in this task."""

Ask = Callable[[str, Any], Awaitable[bytes]]

_BOM: Final = b"\xef\xbb\xbf"


class _TextFile(Struct, frozen=True):
    content: str


_text_files: Final = msgspec.json.Decoder(_TextFile)


class EditorWorld:
    """A `World` over the client's `fs/*` and, when asked for, `terminal/*`.

    What the client does not offer, or refuses, is done by `local`.
    """

    def __init__(
        self,
        session_id: str,
        client: Client,
        ask: Ask,
        local: World,
        terminals: ClientTerminals | None = None,
    ) -> None:
        self._session_id: Final = session_id
        self._client: Final = client
        self._ask: Final = ask
        self._local: Final = local
        self._terminals: Final = terminals
        self._agreed: dict[str, bytes] = {}

    # ------------------------------------------------------------ reading

    async def read(self, path: str, max_bytes: int | None = None) -> FileRead:
        """The buffer's text where it is newer than the disk; see `World.read`."""
        try:
            on_disk = await self._local.read(path, max_bytes)
        except ToolError as exc:
            if exc.code != "FS_NOT_FOUND":
                raise
            buffer = await self._buffer(path)
            if buffer is None:
                raise
            return _buffered(buffer)
        if not self._client.reads_files or not _is_text(on_disk.data):
            return on_disk
        buffer = await self._buffer(path)
        return on_disk if buffer is None else self._reconcile(path, on_disk, buffer)

    def _reconcile(self, path: str, on_disk: FileRead, buffer: str) -> FileRead:
        disk_mark, buffer_mark = _mark(_decoded(on_disk.data)), _mark(buffer)
        if disk_mark == buffer_mark:
            self._agreed[path] = disk_mark
            return on_disk
        if self._agreed.get(path) == buffer_mark:
            return on_disk  # the file changed under a buffer that nobody touched
        return _buffered(_with_endings_of(buffer, on_disk.data))

    async def _buffer(self, path: str) -> str | None:
        if not self._client.reads_files:
            return None
        params = {"sessionId": self._session_id, "path": path}
        try:
            raw = await self._ask("fs/read_text_file", params)
            return jsontext.decode(raw, _text_files).content
        except (RpcError, ValueError):
            return None  # not a file of the editor's, or not text: the disk decides

    # ------------------------------------------------------------ writing

    async def write(
        self, path: str, data: bytes, expected: Version | None, *, real: str | None = None
    ) -> Version:
        """Through the editor where it takes text, so that its buffer and undo stay right.

        What is reported is what then is stored, for editors that format on save.

        Raises:
            ToolError: `FS_STALE_VERSION`, and as `World.read`.
        """
        if not self._client.writes_files:
            await self._refuse_unsaved(path, expected)
            return await self._local.write(path, data, expected, real=real)
        text = _plain_text(data)
        current = await self._current(path)
        _check(path, current, expected)
        if text is None:
            if current is not None and current.buffer:
                raise ToolError(
                    f"{path} has unsaved changes in the editor and the new content is not plain "
                    "UTF-8 text; ask the user to save the file",
                    code="FS_STALE_VERSION",
                )
            return await self._local.write(path, data, expected, real=real)
        await to_thread.run_sync(_make_parents, path)
        await to_thread.run_sync(_check_place, path, real)
        params = {"sessionId": self._session_id, "path": path, "content": text}
        try:
            await self._ask("fs/write_text_file", params)
        except RpcError:
            if current is not None and current.buffer:
                raise ToolError(
                    f"the editor did not accept the change to {path}, which has unsaved changes; "
                    "ask the user to save it",
                    code="FS_STALE_VERSION",
                ) from None
            return await self._local.write(path, data, expected, real=real)
        return await self._stored(path, data, real)

    async def _refuse_unsaved(self, path: str, expected: Version | None) -> None:
        """Without a way into the buffer, what was typed and not saved must not be lost."""
        if expected is not None and expected.stat is None and self._client.reads_files:
            raise ToolError(
                f"{path} has unsaved changes in the editor; ask the user to save it",
                code="FS_STALE_VERSION",
            )

    async def _current(self, path: str) -> FileRead | None:
        try:
            return await self.read(path)
        except ToolError as exc:
            if exc.code == "FS_NOT_FOUND":
                return None
            raise

    async def _stored(self, path: str, data: bytes, real: str | None) -> Version:
        try:
            on_disk = await self._local.read(path)
        except ToolError:
            return _buffered(_decoded(data)).version  # the editor keeps it unsaved
        if on_disk.data != data and _same_but_endings(on_disk.data, data):
            # The editor wrote its own line endings or dropped the final newline's twin.
            version = await self._local.write(path, data, on_disk.version, real=real)
            self._agreed[path] = _mark(_decoded(data))
            return version
        buffer = await self._buffer(path)
        if buffer is None or _mark(buffer) == _mark(_decoded(on_disk.data)):
            self._agreed[path] = _mark(_decoded(on_disk.data))
            return on_disk.version
        return _buffered(_with_endings_of(buffer, data)).version

    # ------------------------------------------------------------ commands

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        timeout_ms: int,
        env: Mapping[str, str] | None = None,
        output: Callable[[bytes], None] | None = None,
        spill_dir: str | None = None,
        sandbox: Sandbox | None = None,
    ) -> CommandEnd:
        """In the client's terminal when there is one; see `World.run`."""
        # What runs in the client is not held by anything here.
        if self._terminals is not None and sandbox is None:
            ended = await self._terminals.run(
                command, call_id=CURRENT_CALL.get(), cwd=cwd, timeout_ms=timeout_ms, env=env
            )
            if ended is not None:
                return ended
        return await self._local.run(
            command,
            cwd=cwd,
            timeout_ms=timeout_ms,
            env=env,
            output=output,
            spill_dir=spill_dir,
            sandbox=sandbox,
        )


# ---------------------------------------------------------------- text and bytes


def _buffered(text: str) -> FileRead:
    data = text.encode("utf-8", "replace")
    return FileRead(data, Version(hashlib.sha256(data).hexdigest()), buffer=True)


def _is_text(data: bytes) -> bool:
    if b"\0" in data[:8192]:
        return False
    try:
        data.decode()
    except UnicodeDecodeError as exc:
        return exc.start >= len(data) - 3 and exc.reason == "unexpected end of data"
    return True


def _decoded(data: bytes) -> str:
    return data.removeprefix(_BOM).decode("utf-8", "replace")


def _plain_text(data: bytes) -> str | None:
    """The text to hand to an editor; `None` for what would not come back the same."""
    if data.startswith(_BOM) or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _mark(text: str) -> bytes:
    """A digest that does not see line endings: editors show `\\n` whatever the file has."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return hashlib.sha256(plain.encode("utf-8", "replace")).digest()


def _with_endings_of(text: str, data: bytes) -> str:
    """An editor's text with the line endings of the file that it shows."""
    if b"\r\n" in data and "\r\n" not in text:
        return text.replace("\n", "\r\n")
    return text


def _same_but_endings(left: bytes, right: bytes) -> bool:
    return left.replace(b"\r\n", b"\n") == right.replace(b"\r\n", b"\n")


def _check(path: str, current: FileRead | None, expected: Version | None) -> None:
    if expected is None:
        if current is not None:
            raise ToolError(f"{path} exists; read it first", code="FS_STALE_VERSION")
    elif current is None or current.version.digest != expected.digest:
        raise ToolError(f"{path} changed since it was read; read it again", code="FS_STALE_VERSION")


def _check_place(path: str, real: str | None) -> None:
    """The editor follows symlinks itself; a look right before is what there is."""
    found = os.path.realpath(path)
    if real is not None and found != real:
        raise disk.moved(path, real, found)


def _make_parents(path: str) -> None:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ToolError(f"{path}: {exc.strerror}", code="FS_PERMISSION_DENIED") from exc
