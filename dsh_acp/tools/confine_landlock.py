"""Landlock: the kernel's own rules for an unprivileged thread and all that it starts.

The rules are laid upon a thread of this process, which starts the command and ends. Children
inherit them; the other threads never had them.

Why not in the child: between fork and exec of a process with threads Python must not run, and a
helper program that confines itself and executes the command costs the start of an interpreter.
"""

from collections.abc import Callable, Sequence
import ctypes
import errno
from functools import cache
import os
from pathlib import Path
import socket
import struct
import subprocess
import tempfile
import threading
from typing import Final, TypeVar

from dsh_acp.tools import confine_filter
from dsh_acp.tools.sandbox import Launch

T = TypeVar("T")

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH: Final = 1
_ASK_VERSION: Final = 1

_WRITE_FILE: Final = 1 << 1
_MAKE_CHAR: Final = 1 << 6
_MAKE_BLOCK: Final = 1 << 11
_REFER: Final = 1 << 13
_TRUNCATE: Final = 1 << 14
_IOCTL_DEVICE: Final = 1 << 15
# remove_dir, remove_file, make_char, make_dir, make_reg, make_sock, make_fifo, make_block, make_sym
_CHANGES: Final = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
# Rights by the version that brought them.
_BROUGHT: Final = ((1, _CHANGES), (2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE))
# Whoever could make a device could write to any disk.
_NEVER: Final = _MAKE_CHAR | _MAKE_BLOCK
_ON_FILES: Final = _WRITE_FILE | _TRUNCATE | _IOCTL_DEVICE
_TCP_FROM, _SCOPES_FROM = 4, 6
_BIND_AND_CONNECT: Final = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS: Final = 0b11

_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _DROP_BOUND = 38, 22, 24
_FILTER_MODE: Final = 2
# Rights of root that reach past files: dac_read_search, linux_immutable, net_admin, net_raw,
# sys_module, sys_rawio, sys_ptrace, sys_admin, sys_boot, sys_time, mknod, setfcap, mac_override,
# mac_admin, syslog, perfmon, bpf, checkpoint_restore.
_POWERS: Final = (2, 9, 12, 13, 16, 17, 19, 21, 22, 25, 27, 31, 32, 33, 34, 38, 39, 40)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(what: str, number: int, *arguments: object) -> int:
    result = int(_libc().syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _prctl(option: int, *arguments: object) -> None:
    four = [*arguments, *[ctypes.c_ulong(0)] * (4 - len(arguments))]
    if _libc().prctl(option, *four) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


def version() -> int:
    """The kernel's version of Landlock; 0 when it has none, or it is switched off."""
    try:
        return _call("version", _CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    except OSError:
        return 0


def restrict(writable: Sequence[str], *, network: bool, abi: int) -> None:
    """Hold this thread, and whatever it will start, to `writable`; there is no way back.

    Raises:
        OSError: the kernel refuses.
    """
    rights = sum(bits for since, bits in _BROUGHT if since <= abi)
    ports = _BIND_AND_CONNECT if abi >= _TCP_FROM and not network else 0
    scopes = _ABSTRACT_SOCKETS_AND_SIGNALS if abi >= _SCOPES_FROM else 0
    # What a kernel does not know of must be zero, and then may be there.
    rules = struct.pack("=QQQ", rights, ports, scopes)
    ruleset = _call("ruleset", _CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    try:
        for path in writable:
            _admit(ruleset, path, rights & ~_NEVER, rights & _ON_FILES)
        for name in _DEVICES:
            _admit(ruleset, f"/dev/{name}", rights & _ON_FILES, rights & _ON_FILES)
        if os.geteuid() == 0:
            for power in _POWERS:
                try:
                    _prctl(_DROP_BOUND, ctypes.c_ulong(power))
                except OSError as exc:
                    # A kernel that does not know it, or a root that cannot give it away.
                    if exc.errno not in (errno.EINVAL, errno.EPERM):
                        raise
        _prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1))
        _call("restrict", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    if not network:
        forbid_sockets(confine_filter.families(own_network=False), truncates=abi < 3)


def _admit(ruleset: int, path: str, in_folder: int, on_file: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no right
    try:
        rights = in_folder if Path(path).is_dir() else on_file
        rule = struct.pack("=Qi", rights, fd)
        _call(f"rule for {path}", _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)


def forbid_sockets(allowed: tuple[int, ...], *, truncates: bool) -> bool:
    """Let this thread make sockets of `allowed` families only; whether the machine is known.

    Raises:
        OSError: the kernel refuses.
    """
    program = confine_filter.program(allowed, truncates=truncates)
    if program is None:
        return False
    text = ctypes.create_string_buffer(program, len(program))
    length = len(program) // 8
    # struct sock_fprog, with the padding that its pointer needs.
    record = struct.pack("@HP", length, ctypes.addressof(text))
    _prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1))
    _prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER_MODE), record)
    return True


def apart(job: Callable[[], T]) -> T:
    """Run `job` in a thread of its own, which ends with it, and give back what it gave or raised.

    What `job` lays upon itself is gone with the thread.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(job())
        except BaseException as exc:  # noqa: BLE001 - raised again in the thread that asked
            failures.append(exc)

    thread = threading.Thread(target=run, name="confined start", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


class Landlock:
    """A `Means`."""

    def __init__(self, abi: int) -> None:
        self.name: Final = "Landlock"
        self.abi: Final = abi

    @property
    def limits(self) -> str:
        """See `Means.limits`."""
        found = ["mode, owner and times of files elsewhere can still be changed"]
        if confine_filter.program((), truncates=False) is None:
            tcp = self.abi >= _TCP_FROM
            found.append("of the network only TCP is refused" if tcp else "the network is open")
        return ", and ".join(found)

    def start(
        self,
        argv: Sequence[str],
        cwd: str,
        launch: Launch,
        writable: Sequence[str],
        *,
        network: bool,
    ) -> "subprocess.Popen[bytes]":
        """See `Means.start`."""

        def confined() -> "subprocess.Popen[bytes]":
            restrict(writable, network=network, abi=self.abi)
            return launch(argv)

        return apart(confined)


def find() -> Landlock | None:
    """Landlock, if a thread under it is really refused what it must not do."""
    abi = version()
    if abi < 1:
        return None
    known = confine_filter.program((), truncates=False) is not None

    def refused(path: str) -> bool:
        restrict((), network=False, abi=abi)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
        except PermissionError:
            pass
        else:
            return False
        try:
            socket.socket().close()
        except OSError:
            return True
        return not known

    try:
        with tempfile.NamedTemporaryFile() as file:
            return Landlock(abi) if apart(lambda: refused(file.name)) else None
    except OSError:
        return None
