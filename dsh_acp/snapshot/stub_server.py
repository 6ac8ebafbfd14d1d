"""A language server that answers every question for a definition with two places.

The first is the place that was asked about. A program of its own, of the standard library alone.
"""

import json
import sys
from typing import Any


def serve() -> None:
    """Answer on stdout what comes on stdin, until it ends or `exit` is said."""
    while (message := _read()) is not None and message.get("method") != "exit":
        if "id" not in message:
            continue
        result: Any = None
        if message["method"] == "initialize":
            result = {"capabilities": {"textDocumentSync": 1, "definitionProvider": True}}
        elif message["method"] == "textDocument/definition":
            asked = message["params"]
            uri, start = asked["textDocument"]["uri"], asked["position"]
            later = {"line": start["line"] + 1, "character": 0}
            result = [{"uri": uri, "range": {"start": at, "end": at}} for at in (start, later)]
        _write({"jsonrpc": "2.0", "id": message["id"], "result": result})


def _read() -> dict[str, Any] | None:
    length = 0
    while (line := sys.stdin.buffer.readline()).strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return json.loads(sys.stdin.buffer.read(length)) if line else None


def _write(message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
