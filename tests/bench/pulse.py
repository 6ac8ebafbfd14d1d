"""A model endpoint whose every chunk carries the time at which it was sent.

Prints its port, then answers each POST with `COUNT` chunks, one every `INTERVAL_MS`.
Usage: pulse.py COUNT INTERVAL_MS
"""

import contextlib
import json
import sys
import time

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

COUNT, INTERVAL_S = int(sys.argv[1]), float(sys.argv[2]) / 1000
STAMP_DIGITS = 20


def event(delta: dict, **more) -> bytes:
    choice = {"index": 0, "delta": delta, **more}
    data = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(client: SocketStream) -> None:
    reader = BufferedByteReceiveStream(client)
    async with client:
        while True:
            try:
                head = await reader.receive_until(b"\r\n\r\n", 1 << 16)
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                return
            lines = head.lower().split(b"\r\n")
            length = next((int(x[15:]) for x in lines if x.startswith(b"content-length:")), 0)
            body = await reader.receive_exactly(length)
            # Conversations carry tools; a request for a title must not double the load.
            count = COUNT if b'"tools"' in body else 1
            if not head.startswith(b"POST"):
                await client.send(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n")
                continue
            await client.send(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            start = anyio.current_time()
            for number in range(count):
                await anyio.sleep_until(start + number * INTERVAL_S)
                await client.send(event({"content": f"{time.monotonic_ns():0{STAMP_DIGITS}}"}))
            done = b"data: [DONE]\n\n"
            await client.send(event({}, finish_reason="stop"))
            await client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done))


async def serve_until_gone(client: SocketStream) -> None:
    with contextlib.suppress(anyio.BrokenResourceError, anyio.IncompleteRead):
        await serve(client)


async def main() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await listener.serve(serve_until_gone)


if __name__ == "__main__":
    anyio.run(main)
