"""A process that somebody else has forked for this one, with the face of an `anyio` process."""

from contextlib import suppress
import os
import signal
import struct
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream


class _Reading(ByteReceiveStream):
    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd: int | None = fd

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while True:
            if self._fd is None:
                raise anyio.ClosedResourceError
            try:
                data = os.read(self._fd, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._fd)
                continue
            await anyio.lowlevel.checkpoint()
            if not data:
                raise anyio.EndOfStream
            return data

    async def aclose(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            anyio.notify_closing(fd)
            os.close(fd)


class _Writing(ByteSendStream):
    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd: int | None = fd

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            if self._fd is None:
                raise anyio.ClosedResourceError
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._fd)
            except BrokenPipeError as exc:
                raise anyio.BrokenResourceError from exc
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            anyio.notify_closing(fd)
            os.close(fd)


class Child:
    """Pipes to a process, and how it ended. `end` is where its exit code will be read."""

    def __init__(self, pid: int, stdin: int, stdout: int, stderr: int, end: int) -> None:
        self.pid: Final = pid
        self.stdin: Final[ByteSendStream] = _Writing(stdin)
        self.stdout: Final[ByteReceiveStream] = _Reading(stdout)
        self.stderr: Final[ByteReceiveStream] = _Reading(stderr)
        self.returncode: int | None = None
        self._end = _Reading(end)
        self._ended = anyio.Lock()

    async def wait(self) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        async with self._ended:
            if self.returncode is None:
                number = await self._end.receive(8)
                (self.returncode,) = struct.unpack("!q", number)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def aclose(self) -> None:
        """Close the pipes and await the end."""
        with anyio.CancelScope(shield=True):
            for stream in (self.stdin, self.stdout, self.stderr):
                await stream.aclose()
            await self.wait()
            await self._end.aclose()
