"""Files on the local disk: bounded reads, and replacement that keeps what is not content.

Everything here blocks and is meant for a worker thread. Nothing waits on a device or a pipe: a
path is looked at before it is opened, and opened so that it cannot block.

A replacement goes through a new file in the same folder and a rename, so that a reader sees the
old text or the new one. The folder is not synced: a rename that a power cut undoes gives the old
file back whole. Two kinds of file are rewritten in place instead, because a rename would
change what they are: files with several hard links, and files whose owner or folder would not
survive it.
"""

from collections.abc import Generator, Iterator
import contextlib
import errno
import hashlib
import os
from pathlib import Path
import stat as modes
from typing import Final

from dsh_acp.errors import ToolError
from dsh_acp.tools.tool import FileRead, Version

PIECE: Final = 1 << 20
SMALL: Final = 64 * 1024


def fs_error(verb: str, path: str, reason: str, code: str) -> ToolError:
    """The refusal `cannot <verb> "<path>": <reason>`."""
    return ToolError(f'cannot {verb} "{path}": {reason}', code=code, name="FsError")


def translate(verb: str, path: str, exc: Exception) -> ToolError:
    """What the operating system said, in the words and codes that tools use."""
    if isinstance(exc, ToolError):
        return exc
    if not isinstance(exc, OSError):
        return fs_error(verb, path, "not a valid path", "FS_NOT_FOUND")
    match exc.errno:
        case errno.ENOENT:
            return fs_error(verb, path, "not found", "FS_NOT_FOUND")
        case errno.ENOTDIR:
            return fs_error(verb, path, "not a directory", "FS_NOT_DIRECTORY")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return fs_error(verb, path, "permission denied", "FS_PERMISSION_DENIED")
        case errno.ENXIO | errno.EISDIR | errno.ENODEV:
            return fs_error(verb, path, "not a regular file", "FS_NOT_REGULAR_FILE")
        case errno.ELOOP:
            reason = "too many levels of symbolic links"
        case errno.ENOSPC | errno.EDQUOT:
            reason = "no space left on the disk"
        case _:
            reason = exc.strerror or "input/output error"
    return fs_error(verb, path, reason, "FS_IO_ERROR")


def identity(status: os.stat_result) -> tuple[int, int, int, int, int]:
    """The stat part of a `Version`."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def is_small(path: str) -> bool:
    """Whether `path` is a regular file that is read at once."""
    try:
        status = os.stat(path)  # noqa: PTH116 - cheaper
    except (OSError, ValueError):
        return False
    return modes.S_ISREG(status.st_mode) and 0 < status.st_size <= SMALL


def digest(data: bytes) -> str:
    """The digest part of a `Version`."""
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def opened(path: str, verb: str = "read") -> Generator[tuple[int, os.stat_result]]:
    """A descriptor of a regular file and its status.

    Raises:
        ToolError: it is missing, not a regular file, or not readable.
    """
    try:
        if not modes.S_ISREG(Path(path).stat().st_mode):
            raise fs_error(verb, path, "not a regular file", "FS_NOT_REGULAR_FILE")
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as exc:
        raise translate(verb, path, exc) from exc
    try:
        status = os.fstat(fd)
        # The path may have become something else between the look and the open.
        if not modes.S_ISREG(status.st_mode):
            raise fs_error(verb, path, "not a regular file", "FS_NOT_REGULAR_FILE")
        yield fd, status
    except OSError as exc:
        raise translate(verb, path, exc) from exc
    finally:
        os.close(fd)


def pieces(fd: int) -> Iterator[bytes]:
    """The rest of a file, a mebibyte at a time."""
    while data := os.read(fd, PIECE):
        yield data


def read_file(path: str, max_bytes: int | None = None, verb: str = "read") -> FileRead:
    """The whole content, unless it has more than `max_bytes`.

    The size that a file claims is not believed: files of `/proc` claim 0.

    Raises:
        ToolError: as `World.read`.
    """
    with opened(path, verb) as (fd, status):
        found: list[bytes] = []
        total = status.st_size if max_bytes is not None and status.st_size > max_bytes else 0
        while max_bytes is None or total <= max_bytes:
            data = os.read(fd, PIECE)
            if not data:
                content = found[0] if len(found) == 1 else b"".join(found)
                return FileRead(content, Version(digest(content), identity(status)))
            found.append(data)
            total += len(data)
        raise fs_error(verb, path, f"larger than {max_bytes} bytes", "FS_TOO_LARGE")


def beginning(path: str | os.PathLike[str], limit: int) -> bytes:
    """The first bytes of a regular file, one more than `limit` when it has more.

    For files that are read because they are there: a pipe or a device in their place would block,
    or act.

    Raises:
        OSError: it is missing, no regular file, or cannot be read.
    """
    if not modes.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a text or a path
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(fd, "rb") as file:  # noqa: PTH123 - the descriptor is open already
        if not modes.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(limit + 1)


def digest_file(path: str, verb: str = "read") -> Version:
    """The version of a file of any size, in constant memory."""
    with opened(path, verb) as (fd, status):
        running = hashlib.sha256()
        for piece in pieces(fd):
            running.update(piece)
        return Version(running.hexdigest(), identity(status))


def write_file(
    path: str, data: bytes, expected: Version | None, real: str | None = None
) -> Version:
    """Put `data` at `path`, following symlinks; see `World.write`.

    Missing folders are made for a new file. The file is compared by content with `expected`, and
    by identity once more right before it is replaced.

    Raises:
        ToolError: as `World.write`.
    """
    try:
        target = os.path.realpath(path)
        if real is not None and target != real:
            raise moved(path, real, target)
        if expected is None:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
        with _pinned(path, target) as held:
            if expected is None:
                return _create(path, held, data)
            return _change(path, held, data, expected)
    except (OSError, ValueError) as exc:
        raise translate("write", path, exc) from exc


def _change(path: str, target: str, data: bytes, expected: Version) -> Version:
    try:
        current = digest_file(target, "write")
    except ToolError as exc:
        if exc.code != "FS_NOT_FOUND":
            text = str(exc).replace(target, path)
            raise ToolError(text, code=exc.code, name=exc.name) from exc
        reason = "file no longer exists — re-read the file, then retry"
        raise fs_error("write", path, reason, "FS_STALE_VERSION") from exc
    if current.digest != expected.digest:
        raise stale(path)
    return _replace(path, target, data, current)


@contextlib.contextmanager
def _pinned(path: str, target: str) -> Generator[str]:
    """`target` by way of its folder as it is now: no symlink on the way counts any more.

    Its last part may still become a symlink; whoever writes must not follow one. Where a
    descriptor is no path, the folder is only looked at.
    """
    folder, name = os.path.split(target)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        held = f"/proc/self/fd/{fd}"
        by_descriptor = os.path.isdir(held)  # noqa: PTH112 - there is no /proc everywhere
        found = str(Path(held).readlink()) if by_descriptor else os.path.realpath(folder)
        if found != folder:
            raise moved(path, target, os.path.join(found, name))  # noqa: PTH118 - texts
        yield f"{held}/{name}" if by_descriptor else target
    finally:
        os.close(fd)


def moved(path: str, allowed: str, found: str) -> ToolError:
    """A symlink on the way was changed after the call had been allowed."""
    reason = f"it led to {allowed} when this was allowed, and now leads to {found}"
    return fs_error("write", path, reason, "FS_STALE_VERSION")


def stale(path: str, verb: str = "write") -> ToolError:
    """Somebody else changed the file."""
    reason = "file changed since it was read — re-read the file, then retry"
    return fs_error(verb, path, reason, "FS_STALE_VERSION")


def _create(path: str, target: str, data: bytes) -> Version:
    temporary = _temporary(Path(target).parent)
    # 0o666 lets the kernel apply the umask, which cannot be read without changing it.
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            _write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        try:
            # Unlike a rename, a link never replaces a file that appeared meanwhile.
            os.link(temporary, target)
        except FileExistsError as exc:
            reason = "it already exists — read the file, then retry"
            raise fs_error("write", path, reason, "FS_STALE_VERSION") from exc
        except OSError:
            if os.path.lexists(target):
                raise
            temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    return Version(digest(data), identity(Path(target).stat()))


def _replace(path: str, target: str, data: bytes, current: Version) -> Version:
    status = Path(target).stat()
    if not os.access(target, os.W_OK):
        raise fs_error("write", path, "permission denied", "FS_PERMISSION_DENIED")
    if status.st_nlink > 1 or not _swap(path, target, data, status, current):
        _overwrite(path, target, data, current)
    return Version(digest(data), identity(Path(target).stat()))


def _swap(path: str, target: str, data: bytes, status: os.stat_result, current: Version) -> bool:
    """Replace by rename; `False` when that would lose the owner or the folder refuses."""
    folder = Path(target).parent
    temporary = _temporary(folder)
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except PermissionError:
        return False
    try:
        try:
            mine = os.fstat(fd)
            if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
                try:
                    os.fchown(fd, status.st_uid, status.st_gid)
                except OSError:
                    return False
            _write_all(fd, data)
            os.fchmod(fd, modes.S_IMODE(status.st_mode))
            _copy_attributes(target, fd)
            os.fsync(fd)
        finally:
            os.close(fd)
        if identity(Path(target).stat()) != current.stat:
            raise stale(path)
        try:
            temporary.rename(target)
        except OSError as exc:
            # A file that is a mount point cannot be renamed over.
            if exc.errno != errno.EBUSY:
                raise
            return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _overwrite(path: str, target: str, data: bytes, current: Version) -> None:
    """Rewrite in place. Space is reserved first, so that a full disk damages nothing."""
    fd = os.open(target, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if identity(status) != current.stat:
            raise stale(path)
        if len(data) > status.st_size and hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(fd, 0, len(data))
            except OSError as exc:
                os.ftruncate(fd, status.st_size)
                if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
        _write_all(fd, data)
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)


def _temporary(folder: Path) -> Path:
    return folder / f".dsh-{os.urandom(8).hex()}.tmp"


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _copy_attributes(source: str, fd: int) -> None:
    """Extended attributes, POSIX access lists among them, as far as the system lets us."""
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):
        for name in os.listxattr(source):
            with contextlib.suppress(OSError):
                os.setxattr(fd, name, os.getxattr(source, name))
