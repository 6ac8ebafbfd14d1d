"""Lines through file descriptors: stdin and stdout, claimed for the protocol alone.

Reading blocks in a daemon thread until there is an event loop that can wait for the descriptor
itself: a line that comes through a thread comes a tenth of a millisecond later. What cannot be
polled, like a regular file, stays with the thread; the process ends without waiting for it.

Writing is tried at once on the loop's thread, and only what the other end does not take now goes
to a second daemon thread, so that a slow reader never stops the loop and the common write costs
one system call.

This module imports no event loop: the first frame is answered before one is needed.
"""

from collections import deque
from collections.abc import Callable
import os
import select
import stat
import sys
import threading
import time
from typing import Final

from msgspec import Struct

MAX_LINE: Final = 64 * 1024 * 1024
_READ: Final = 1 << 20
_KEPT_HEAD: Final = 65_536
_KEPT_TAIL: Final = 512
_SLICE: Final = 4096
_HIGH: Final = 1 << 20
_ROOMY: Final = 1 << 20


def claim() -> tuple[int, int]:
    """Take descriptors 0 and 1 for the protocol; returns private duplicates of both.

    Afterwards 0 is the null device and 1 is stderr, so neither a stray `print` nor a child
    process can read or write a frame. The duplicates are not inherited.
    """
    for stream in (sys.stdout, sys.stderr):
        # A diagnostic must not raise because the locale cannot spell it. Done while each stream
        # still is on the descriptor it was opened for, since a text layer may seek.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # started without a stderr
        os.dup2(null, 1)
    os.close(null)
    return source, sink


# ---------------------------------------------------------------- reading


class Overlong(Struct, frozen=True):
    """A line beyond the limit; only its two ends were kept."""

    head: bytes
    tail: bytes


class LineSplitter:
    """Bytes in, lines out. Splits at `\\n` only, drops one trailing `\\r` and blank lines.

    U+2028 and its like are content. The cost is linear in the bytes fed, whatever the pieces.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.limit: Final = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None

    def feed(self, data: bytes) -> list[bytes | Overlong]:
        """The lines that `data` completes."""
        first, *rest = data.split(b"\n")
        if not rest:
            self._extend(first)
            return []
        lines: list[bytes | Overlong] = []
        self._extend(first)
        self._finish(lines)
        for whole in rest[:-1]:
            self._extend(whole)
            self._finish(lines)
        self._extend(rest[-1])
        return lines

    def end(self) -> list[bytes | Overlong]:
        """The unterminated line at the end of the stream, if there is one."""
        lines: list[bytes | Overlong] = []
        self._finish(lines)
        return lines

    def _extend(self, piece: bytes) -> None:
        if not piece:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > self.limit:
            joined = b"".join(self._parts)
            if self._head is None:
                self._head = joined[:_KEPT_HEAD]
            self._parts = [joined[-_KEPT_TAIL:]]

    def _finish(self, lines: list[bytes | Overlong]) -> None:
        if not self._parts:
            return
        line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if self._head is not None:
            lines.append(Overlong(self._head, line[-_KEPT_TAIL:]))
        elif line.strip():
            lines.append(line[:-1] if line[-1:] == b"\r" else line)
        self._parts, self._size, self._head = [], 0, None


class Input:
    """The lines of a descriptor: first synchronously, then from a daemon thread or a loop."""

    def __init__(self, fd: int, limit: int = MAX_LINE) -> None:
        self.fd: Final = fd
        self._splitter: Final = LineSplitter(limit)
        self._started: Final = threading.Event()
        self._deliver: Callable[[list[bytes | Overlong]], None] = lambda _: None
        self._over: Callable[[], None] = lambda: None
        self._take_over: Callable[[], None] | None = None
        self._pollable: Final = _is_pollable(fd)
        self._roused, self._rouse = os.pipe() if self._pollable else (-1, -1)
        self.ended = False

    def read(self) -> list[bytes | Overlong]:
        """The next lines, waiting for at least one; `[]` once the stream has ended."""
        while not self.ended:
            self._wait()
            lines = self.read_once()
            if lines:
                return lines
        return []

    def read_once(self) -> list[bytes | Overlong]:
        """What one read brings; it blocks unless the descriptor is ready. Sets `ended`."""
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:  # somebody else made it non-blocking, or took what was there
            return []
        except OSError:  # a vanished terminal or socket is an end like any other
            data = b""
        if data:
            return self._splitter.feed(data)
        self.ended = True
        return self._splitter.end()

    def listen(self, unwanted: Callable[[], None]) -> None:
        """Read on in a daemon thread; what arrives waits there until `start`.

        `unwanted` is called, in that thread, when the stream ends with nothing waiting and no
        `start` so far.
        """
        threading.Thread(target=self._listen, args=(unwanted,), name="stdin", daemon=True).start()

    def start(
        self,
        deliver: Callable[[list[bytes | Overlong]], None],
        ended: Callable[[], None],
        take_over: Callable[[], None] | None = None,
    ) -> None:
        """Hand over what arrives; every callable is called in the reading thread.

        `deliver` may block, which stops reading: that is the backpressure. Any exception from it
        ends the thread. With `take_over`, where `fd` can be polled, the thread delivers what it
        has, calls that and ends: from then on the caller waits for `fd` and calls `read_once`.
        """
        self._deliver, self._over = deliver, ended
        if take_over is not None and self._pollable:
            self._take_over = take_over
        self._started.set()
        # Only now: a thread that is roused before it is started takes that for the end.
        if self._take_over is not None:
            os.write(self._rouse, b"\n")

    def _listen(self, unwanted: Callable[[], None]) -> None:
        while not self.ended:
            if self._wait():
                break
            lines = self.read_once()
            if lines:
                self._started.wait()
                self._deliver(lines)
        if not self._started.is_set():
            unwanted()
        self._started.wait()
        if self.ended or self._take_over is None:
            self._over()
        else:
            self._take_over()

    def _wait(self) -> bool:
        """Wait until there is something to read; whether it no longer is the thread's to read."""
        if not self._pollable:
            return False
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        poll.register(self._roused, select.POLLIN)
        return any(fd == self._roused for fd, _ in poll.poll())


def _is_pollable(fd: int) -> bool:
    """Whether an event loop can wait for `fd`, and a read that follows does not block."""
    if sys.platform == "win32":
        return False
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


# ---------------------------------------------------------------- writing


class Output:
    """Ordered writes to a descriptor that never block the caller.

    `broken` is called once, from whichever thread notices, when the other end is gone; from then
    on writes are dropped quietly. `relieved` is called from the writer's thread when a backlog of
    more than 1 MiB has shrunk.
    """

    def __init__(
        self,
        fd: int,
        broken: Callable[[], None] = lambda: None,
        relieved: Callable[[], None] = lambda: None,
    ) -> None:
        self._fd: Final = fd
        self.broken = broken
        self.relieved = relieved
        self.closed = False
        self._backlog: deque[memoryview] = deque()
        self._size = 0
        self._changed: Final = threading.Condition()
        self._thread: threading.Thread | None = None
        self._write_now: Final = _direct_writer(fd)

    @property
    def congested(self) -> bool:
        """Whether producers should pause until `relieved`."""
        return self._size > _HIGH

    def write(self, data: bytes) -> None:
        """Write `data` after everything written before. Returns at once."""
        with self._changed:
            if self.closed:
                return
            if not self._size:
                try:
                    written = self._write_now(data)
                except OSError:
                    self._end()
                    return
                if written == len(data):
                    return
            else:
                written = 0
            rest = memoryview(data)[written:]
            self._backlog.append(rest)
            self._size += len(rest)
            if self._thread is None:
                self._thread = threading.Thread(target=self._drain, name="stdout", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, patience: float = 0.08) -> None:
        """Wait until the backlog is out, as long as the other end takes something.

        Gives up after `patience` seconds without progress.
        """
        with self._changed:
            while self._size and not self.closed:
                before = self._size
                self._changed.wait(patience)
                if self._size == before:
                    break
            self.closed = True
            self._changed.notify_all()

    def _end(self) -> None:
        self.closed = True
        self._backlog.clear()
        self._size = 0
        self._changed.notify_all()
        self.broken()

    def _drain(self) -> None:
        while True:
            with self._changed:
                while not self._backlog:
                    if self.closed:
                        return
                    self._changed.wait()
                data = self._backlog[0]
            # The head stays in the backlog while it is written, so that the loop's thread keeps
            # queueing behind it.
            try:
                written = os.write(self._fd, data[: _HIGH // 16])
            except BlockingIOError:
                time.sleep(0.002)  # a descriptor that somebody else made non-blocking
                continue
            except OSError:
                with self._changed:
                    self._end()
                return
            with self._changed:
                if self.closed and not self._backlog:
                    return
                was_congested = self.congested
                if written == len(data):
                    self._backlog.popleft()
                else:
                    self._backlog[0] = data[written:]
                self._size -= written
                self._changed.notify_all()
                relieved = was_congested and not self.congested
            if relieved:
                self.relieved()


def _direct_writer(fd: int) -> Callable[[bytes], int]:
    """How to write to `fd` without blocking; the result is the number of bytes taken.

    The descriptor is left in blocking mode: its description may be shared with the parent.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return lambda data: os.write(fd, data)
    if sys.platform == "win32":
        return lambda data: 0
    if stat.S_ISSOCK(mode):
        return _socket_writer(fd)
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    capacity = _pipe_capacity(fd) if stat.S_ISFIFO(mode) else 0

    def write(data: bytes) -> int:
        view = memoryview(data)
        done = 0
        while done < len(data):
            # An empty pipe takes its whole capacity. A pipe that holds something promises only
            # one page, since each earlier write may occupy a page of its own.
            room = capacity if len(data) - done > _SLICE and capacity and _is_empty(fd) else _SLICE
            if room == _SLICE and not poll.poll(0):
                break
            done += os.write(fd, view[done : done + room])
        return done

    return write


def _socket_writer(fd: int) -> Callable[[bytes], int]:
    import socket

    connection = socket.socket(fileno=os.dup(fd))

    def write(data: bytes) -> int:
        try:
            return connection.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    return write


if sys.platform == "linux":
    import fcntl
    import termios

    def _pipe_capacity(fd: int) -> int:
        # A history is megabytes; each time the pipe is full, two processes change places.
        try:
            return fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _ROOMY)
        except OSError:  # the user has many such pipes
            return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)

    def _is_empty(fd: int) -> bool:
        held = bytearray(4)
        fcntl.ioctl(fd, termios.FIONREAD, held)
        return not any(held)

else:

    def _pipe_capacity(fd: int) -> int:
        return 0

    def _is_empty(fd: int) -> bool:
        return False
