"""The floor: how fast an agent can be that does nothing but stream.

JSON and asyncio, one HTTP connection, no log, no tools, no permissions, no checks. What the real
agent takes beyond this is what its promises cost.
"""

import asyncio
import json
import os
import sys
from urllib.parse import urlsplit

URL = urlsplit(os.environ.get("OPENAI_BASE_URL", ""))
SESSIONS: dict[str, list[dict[str, str]]] = {}
RUNNING: dict[str, asyncio.Task[None]] = {}
POOL: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []


def write(*frames: dict) -> None:
    data = b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames)
    while data:
        data = data[os.write(1, data) :]


def update(session: str, text: str) -> dict:
    content = {"type": "text", "text": text}
    chunk = {"sessionUpdate": "agent_message_chunk", "content": content}
    return {"method": "session/update", "params": {"sessionId": session, "update": chunk}}


async def stream(body: bytes):
    """Pieces of the response body, as they come."""
    reader, writer = (
        POOL.pop() if POOL else await asyncio.open_connection(URL.hostname, URL.port, limit=1 << 20)
    )
    kept = False
    try:
        head = (
            f"POST {URL.path}/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
        )
        writer.write(head.encode() + b"\r\nContent-Type: application/json\r\n\r\n" + body)
        await reader.readuntil(b"\r\n\r\n")
        while size := int(await reader.readline(), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
        kept = True
    finally:
        POOL.append((reader, writer)) if kept else writer.close()


async def turn(id: int, session: str, text: str) -> None:
    messages = SESSIONS[session]
    messages.append({"role": "user", "content": text})
    body = json.dumps({"model": "m", "messages": messages, "stream": True, "tools": []})
    said, rest, reason = [], b"", "end_turn"
    try:
        async for piece in stream(body.encode()):
            *events, rest = (rest + piece).split(b"\n\n")
            deltas = [
                choice["delta"].get("content", "")
                for event in events
                if event.startswith(b"data: {")
                for choice in json.loads(event[6:]).get("choices", [])
            ]
            said += deltas
            if frames := [update(session, delta) for delta in deltas if delta]:
                write(*frames)
    except asyncio.CancelledError:
        reason = "cancelled"
    messages.append({"role": "assistant", "content": "".join(said)})
    write({"id": id, "result": {"stopReason": reason}})


async def main() -> None:
    reader = asyncio.StreamReader(limit=1 << 26)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        frame = json.loads(line)
        params = frame.get("params", {})
        match frame["method"]:
            case "initialize":
                capabilities = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
                write({"id": frame["id"], "result": capabilities})
            case "session/new":
                session = f"s{len(SESSIONS)}"
                SESSIONS[session] = []
                write({"id": frame["id"], "result": {"sessionId": session}})
            case "session/prompt":
                session = params["sessionId"]
                task = asyncio.create_task(turn(frame["id"], session, params["prompt"][0]["text"]))
                RUNNING[session] = task
            case "session/cancel":
                RUNNING[params["sessionId"]].cancel()


asyncio.run(main())
