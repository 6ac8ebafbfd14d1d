"""A system call filter: no new sockets, and no way around that.

Seccomp filters see numbers, not memory, so addresses cannot be told apart: what is decided is
which families of sockets may be made. `socketpair` stays, because it reaches nobody else.
"""

import errno
import os
import struct
from typing import Final

from msgspec import Struct

_LOAD: Final = 0x20
_EQUALS: Final = 0x15
_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_IO_URING_SETUP: Final = 425  # it makes sockets without `socket`; the same number everywhere

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

Instruction = tuple[int, int, int, int]


class _Machine(Struct, frozen=True):
    """Numbers of one architecture, and of the 32-bit one that it also runs."""

    audit: int
    socket: int
    truncate: int
    old_audit: int
    old_refused: tuple[int, ...]
    old_truncates: tuple[int, ...]
    numbers_end: int | None = None
    """From here on numbers belong to yet another ABI, which nothing needs."""


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, 41, 76, 0x40000003, (102, 359), (92, 193), 0x40000000),
    "aarch64": _Machine(0xC00000B7, 198, 45, 0x40000028, (102, 281), (92, 193)),
}


def families(*, own_network: bool) -> tuple[int, ...]:
    """Sockets that a command without network may make.

    In a network namespace of its own (`own_network`) that is all that leads nowhere else. Local
    sockets are refused, because behind those of other programs (container engines, session buses,
    terminal multiplexers) is somebody who would act unconfined.
    """
    harmless = () if os.geteuid() == 0 else (AF_NETLINK,)  # root could change routes with it
    return (AF_INET, AF_INET6, AF_NETLINK) if own_network else harmless


def program(allowed: tuple[int, ...], *, truncates: bool) -> bytes | None:
    """The filter as the kernel takes it; `None` for a machine whose numbers are not known.

    With `truncates` it also refuses to shorten files by name, for kernels whose Landlock does not
    know of that.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return None
    own: list[Instruction] = [(_LOAD, 0, 0, _NUMBER)]
    if machine.numbers_end is not None:
        own += [(_AT_LEAST, 0, 1, machine.numbers_end), _refuse(errno.ENOSYS)]
    own += _when(_IO_URING_SETUP, errno.ENOSYS)
    if truncates:
        own += _when(machine.truncate, errno.EPERM)
    own += [(_EQUALS, 1, 0, machine.socket), (_RETURN, 0, 0, _ALLOW)]
    own.append((_LOAD, 0, 0, _FIRST_ARGUMENT))
    for family in allowed:
        own += [(_EQUALS, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
    own.append(_refuse(errno.EPERM))
    old: list[Instruction] = [(_LOAD, 0, 0, _NUMBER), *_when(_IO_URING_SETUP, errno.ENOSYS)]
    for number in (*machine.old_refused, *(machine.old_truncates if truncates else ())):
        old += _when(number, errno.EPERM)
    old.append((_RETURN, 0, 0, _ALLOW))
    whole = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUALS, 0, len(own), machine.audit),
        *own,
        (_EQUALS, 0, len(old), machine.old_audit),
        *old,
        _refuse(errno.ENOSYS),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in whole)


def _refuse(number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _when(number: int, refusal: int) -> list[Instruction]:
    return [(_EQUALS, 0, 1, number), _refuse(refusal)]
