"""Agent processes that are forked from one which has loaded the modules already.

Starting Python and loading an agent takes longer than most scenarios. A process of the nursery is
one of its own, with its own pipes, folder and environment, and runs the same command line; it only
finds the modules loaded. Linux alone; elsewhere `Nursery.start` says that there is none.

`python -m dsh_acp.snapshot.nursery FD` is the process that is forked. It is spoken to over the
socket FD: a request brings four descriptors (stdin, stdout, stderr, and where the exit code is to
be written) and what to run; it is answered with the process's id.
"""

import array
import atexit
from collections.abc import Mapping, Sequence
from contextlib import suppress
import gc
import importlib
import os
from pathlib import Path
import random
import signal
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from dsh_acp.snapshot.children import Child

_MODULES: Final = (
    "dsh_acp.acp.connection",
    "dsh_acp.acp.v2_handshake",
    "dsh_acp.acp.v2_methods",
    "dsh_acp.llm.replay",
    "dsh_acp.tools.arguments",
)
_NUMBER: Final = struct.Struct("!q")
_LARGEST: Final = 1 << 20


class Order(msgspec.Struct, array_like=True):
    """What to run, where, and in which environment; `argv` is what follows `dsh-acp`."""

    argv: list[str]
    cwd: str
    env: dict[str, str]


class Nursery:
    """The side of whoever wants processes. One serves a whole process, in any event loop."""

    def __init__(self) -> None:
        self._link: socket.socket | None = None
        self._mother: subprocess.Popen[bytes] | None = None

    def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> "Child | None":
        """A new agent with these arguments; `None` where there is no nursery.

        Blocks for as long as a fork takes, the first time until the modules are loaded.
        """
        from dsh_acp.snapshot.children import Child

        if sys.platform != "linux":
            return None
        link = self._link or self._open()
        order = msgspec.json.encode(Order(list(argv), cwd, dict(env)))
        (in_r, in_w), (out_r, out_w), (err_r, err_w), (end_r, end_w) = (os.pipe() for _ in range(4))
        given = (in_r, out_w, err_w, end_w)
        try:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", given))
            link.sendmsg([order], [rights])
            (pid,) = _NUMBER.unpack(link.recv(_NUMBER.size))
        except (OSError, struct.error):
            self.close()  # it is gone: a process of the ordinary kind will do
            for fd in (in_w, out_r, err_r, end_r):
                os.close(fd)
            return None
        finally:
            for fd in given:
                os.close(fd)
        return Child(pid, in_w, out_r, err_r, end_r)

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._mother = subprocess.Popen(
                [sys.executable, "-m", "dsh_acp.snapshot.nursery", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
        self._link = ours
        atexit.register(self.close)
        return ours

    def close(self) -> None:
        """No more processes are wanted; those that run go on."""
        link, mother = self._link, self._mother
        self._link = self._mother = None
        if link is not None and mother is not None:
            link.close()
            mother.wait()
            atexit.unregister(self.close)


NURSERY: Final = Nursery()


# ---------------------------------------------------------------- the process that is forked


def serve(link: socket.socket) -> Order | None:
    """Fork whenever asked; returns the order in the child, `None` once nobody asks any more."""
    ends: dict[int, int] = {}

    def report(*_: object) -> None:
        _report(ends)

    signal.signal(signal.SIGCHLD, report)
    while True:
        try:
            text, rights, _, _ = link.recvmsg(_LARGEST, socket.CMSG_SPACE(4 * 4))
        except OSError:
            return None
        if not text:
            return None
        fds = array.array("i")
        fds.frombytes(rights[0][2])
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            link.close()
            _become(list(fds), list(ends.values()))
            return msgspec.json.decode(text, type=Order)
        ends[pid] = fds[3]
        for fd in fds[:3]:
            os.close(fd)
        link.send(_NUMBER.pack(pid))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _report(ends: dict[int, int]) -> None:
    """Tell of each process that has ended how it did, as `subprocess` counts."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            end = ends.pop(pid)
            with suppress(OSError):
                os.write(end, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
            os.close(end)


def _become(fds: Sequence[int], others: Sequence[int]) -> None:
    """Take over the pipes of a new process; forget those of its brothers."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    for target, fd in enumerate(fds[:3]):
        os.dup2(fd, target)
    for fd in (*fds, *others):
        os.close(fd)
    # The streams that Python made knew other files.
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _run(order: Order) -> Any:
    os.environ.clear()
    os.environ.update(order.env)
    os.chdir(order.cwd)
    random.seed()
    for path in reversed(order.env.get("PYTHONPATH", "").split(os.pathsep)):
        if path and path not in sys.path:
            sys.path.insert(0, path)
    sys.argv = ["dsh-acp", *order.argv]
    return importlib.import_module("dsh_acp.cli").main()


def main(link_fd: int) -> Any:
    """Load the modules, then serve."""
    for name in _MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    order = serve(socket.socket(fileno=link_fd))
    return None if order is None else _run(order)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
