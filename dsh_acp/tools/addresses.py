"""Where a fetch may go: addresses of the public internet, and nothing nearer unless allowed."""

from collections.abc import Sequence
import ipaddress
import socket
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAMES: Final = (".localhost", ".local", ".internal", ".lan", ".home.arpa")


def is_public(text: str) -> bool:
    """Whether an address belongs to the public internet; what wraps another is what it wraps."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return all(
        each.is_global and not (each.is_multicast or each.is_reserved or each.is_unspecified)
        for each in _meant(address)
    )


def _meant(address: Address) -> Sequence[Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _NAT64:
        return (ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF),)
    return (address,)


def is_nearby(host: str) -> bool:
    """Whether a host names this machine or its network at first sight, without asking anybody."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(_LOCAL_NAMES):
        return True
    try:
        return not is_public(str(ipaddress.ip_address(name.partition("%")[0])))
    except ValueError:
        pass
    if not name[:1].isdigit():
        return False
    try:
        # Short and octal forms such as 127.1 mean what the system makes of them.
        return not is_public(socket.inet_ntoa(socket.inet_aton(name)))
    except OSError:
        return False
