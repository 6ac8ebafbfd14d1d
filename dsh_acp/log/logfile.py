"""The file under a log: created late, locked while open, appended with one write at a time.

Nothing exists on disk before the first append. The file is then prepared under a temporary name
and published with a hard link, so that no two processes can create the same log.
"""

from collections.abc import Callable, Iterator
import errno
import os
from pathlib import Path
import sys
from typing import Final

from dsh_acp.errors import LogError
from dsh_acp.log import lock

_FULL = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})
UNWRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR})
"""The errors of a place where nothing can be created, as against a full disk or a broken one."""

BLOCK: Final = 65_536
"""How many bytes of a log are read at once: as many as stay in a processor's cache."""

_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def disk_error(exc: OSError, what: str) -> LogError:
    """`exc` as a sentence about `what`, with code `DISK_FULL` or `IO`."""
    if exc.errno in _FULL:
        return LogError(
            f"the disk is full: {what} could not be written. Free some space, then load the"
            " session again.",
            code="DISK_FULL",
        )
    return LogError(f"{what} could not be written: {exc.strerror or exc}", code="IO")


_ADVICE: Final = " close the session and load it to go on with what the log says now"


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_ctime_ns


class LogFile:
    """An append-only file. `size` counts the bytes that are in it.

    The file's time stamps are remembered as our last write left them. When they are others,
    somebody else was there, and `check` compares the content with what should be in it: a touched
    file passes, an edited one is found out.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.size = 0
        self._root = root
        self._fd = -1
        self._new = True
        self._stamp = (0, 0)
        self._is_touched = False

    @classmethod
    def open(cls, path: Path, root: Path) -> "LogFile":
        """Open and lock an existing log.

        Raises:
            LogError: `LOCKED`, `NOT_FOUND`, `READ_ONLY`, `IO`.
        """
        found = cls(path, root)
        try:
            fd = os.open(path, _FLAGS)
        except FileNotFoundError:
            raise LogError(f"there is no session log at {path}", code="NOT_FOUND") from None
        except OSError as exc:
            refused = exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
            raise LogError(
                f"the session log {path} cannot be opened for writing: {exc.strerror}",
                code="READ_ONLY" if refused else "IO",
            ) from exc
        if not lock.acquire(fd):
            os.close(fd)
            raise LogError(
                "the session is open in another dsh-acp process; close it there first",
                code="LOCKED",
            )
        found._fd, found._new = fd, False
        found.size = os.fstat(fd).st_size
        found._stamp = _stamp(os.fstat(fd))
        return found

    @property
    def exists(self) -> bool:
        """Whether anything was written yet."""
        return self._fd >= 0

    def write(self, data: bytes) -> None:
        """Hand `data` to the system; creates the file when it is the first.

        A partly written `data` is taken back.

        Raises:
            OSError: the system refused.
            LogError: `EXISTS`, another process created the log meanwhile.
        """
        if self._fd < 0:
            self._materialise(data)
            return
        if _stamp(os.fstat(self._fd)) != self._stamp:
            self._is_touched = True  # our own write would hide it
        try:
            self._append(self._fd, data, self.size)
        finally:
            self._stamp = _stamp(os.fstat(self._fd))
        self.size += len(data)

    @staticmethod
    def _append(fd: int, data: bytes, size: int) -> None:
        try:
            done = os.write(fd, data)
            while done < len(data):
                done += os.write(fd, data[done:])
        except OSError:
            try:
                os.ftruncate(fd, size)
            except OSError:
                pass  # the torn tail is repaired on the next open
            raise

    def _materialise(self, data: bytes) -> None:
        folder = self.path.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = folder / f"{self.path.name}.{os.urandom(6).hex()}.tmp"
        fd = os.open(temporary, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            lock.acquire(fd)
            self._append(fd, data, 0)
            try:
                os.link(temporary, self.path)
            except FileExistsError:
                raise LogError(
                    f'refusing to materialize "{folder.name}": a log already exists on disk'
                    " (load/resume it instead)",
                    code="EXISTS",
                ) from None
        except BaseException:
            os.close(fd)
            raise
        finally:
            temporary.unlink(missing_ok=True)
        self._fd, self.size = fd, len(data)
        self._stamp = _stamp(os.fstat(fd))

    def check(self, content: Callable[[], bytes]) -> None:
        """The file is still ours and holds `content`, which is asked for only in doubt.

        Raises:
            LogError: `IO`, it was removed or replaced; `CORRUPT`, something else wrote to it.
        """
        if self._fd < 0:
            return
        found = os.fstat(self._fd)
        if found.st_nlink == 0:
            raise LogError(
                f"the session log {self.path} was removed while the session was open;"
                " start a new session",
                code="IO",
            )
        if found.st_size != self.size:
            raise LogError(
                f"the session log {self.path} was changed by another program:"
                f" expected {self.size} bytes, found {found.st_size};{_ADVICE}",
                code="CORRUPT",
            )
        if self._is_touched or _stamp(found) != self._stamp:
            if self.read() != content():
                raise LogError(
                    f"the session log {self.path} was changed by another program:"
                    f" what was written is no longer in it;{_ADVICE}",
                    code="CORRUPT",
                )
            self._stamp, self._is_touched = _stamp(found), False

    def blocks(self) -> Iterator[bytes]:
        """All that the file holds, in pieces of `BLOCK` bytes."""
        for offset in range(0, self.size, BLOCK):
            yield self.read(offset, offset + BLOCK)

    def read(self, offset: int = 0, end: int | None = None) -> bytes:
        """The bytes from `offset` on, or up to `end`.

        Raises:
            LogError: `IO`, the disk refused.
        """
        if self._fd < 0:
            return b""
        last = self.size if end is None else min(end, self.size)
        wanted, parts = last - offset, list[bytes]()
        try:
            os.lseek(self._fd, offset, os.SEEK_SET)
            while wanted > 0:
                part = os.read(self._fd, wanted)
                if not part:
                    break
                parts.append(part)
                wanted -= len(part)
        except OSError as exc:
            raise LogError(f"{self.path} cannot be read: {exc.strerror}", code="IO") from exc
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        """Cut the file down to `size` bytes."""
        os.ftruncate(self._fd, size)
        self.size = size
        self._stamp = _stamp(os.fstat(self._fd))

    def sync(self) -> None:
        """Wait for the disk. The first time, the directories that name the file as well.

        Raises:
            OSError: the disk refused.
        """
        if self._fd < 0:
            return
        _sync_data(self._fd)
        if self._new and sys.platform != "win32":
            folder = self.path.parent
            while True:
                fd = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
                if folder == self._root or folder == folder.parent:
                    break
                folder = folder.parent
        self._new = False

    def close(self) -> None:
        """Close the file, which drops the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
