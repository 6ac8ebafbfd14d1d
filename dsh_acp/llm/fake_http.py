"""HTTP as the fake provider needs it, over blocking sockets."""

import select
import socket
import struct
from typing import Any, Final

from dsh_acp import jsontext

_RESET: Final = struct.pack("ii", 1, 0)


def read_request(
    connection: socket.socket, rest: bytes
) -> tuple[str, str, dict[str, str], bytes, bytes] | None:
    """Method, path, headers, body, and what was read beyond; `None` when the peer is gone."""
    while b"\r\n\r\n" not in rest:
        piece = connection.recv(65536)
        if not piece:
            return None
        rest += piece
    head, _, rest = rest.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    pieces = [rest]
    missing = int(headers.get("content-length", 0)) - len(rest)
    while missing > 0:
        piece = connection.recv(min(missing, 1 << 20))
        if not piece:
            return None
        pieces.append(piece)
        missing -= len(piece)
    body = b"".join(pieces)
    length = int(headers.get("content-length", 0))
    return method, path, headers, body[:length], body[length:]


def send_json(connection: socket.socket, status: int, value: Any, extra: str = "") -> bool:
    """A whole answer; always `True`: the connection stays open."""
    body = jsontext.encode(value)
    head = f"HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\n{extra}"
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return True


def closed_within(connection: socket.socket, seconds: float | None) -> bool:
    """Wait `seconds` (or for ever), or less when the peer closes: then `True`."""
    readable, _, _ = select.select([connection], [], [], seconds)
    if not readable:
        return False
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def reset_on_close(connection: socket.socket) -> None:
    """Make closing `connection` send a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
