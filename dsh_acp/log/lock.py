"""One writer per file: advisory locks that the system drops when their holder dies."""

import sys

if sys.platform == "win32":
    import msvcrt
    import os

    _FAR = 2**40

    def acquire(fd: int, *, wait: bool = False) -> bool:
        """Take the lock on the open file; `False` when somebody else holds it."""
        at = os.lseek(fd, 0, os.SEEK_CUR)
        try:
            os.lseek(fd, _FAR, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(fd, at, os.SEEK_SET)
        return True
else:
    import fcntl

    def acquire(fd: int, *, wait: bool = False) -> bool:
        """Take the lock on the open file; `False` when somebody else holds it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True
