"""A peer with a few methods over real descriptors; started as a process by the stdio tests."""

import os
import sys

import anyio
from anyio import from_thread, lowlevel
import msgspec

from dsh_acp.wire import stdio
from dsh_acp.wire.frames import RpcError
from dsh_acp.wire.jsonrpc import DEFERRED, Call, Peer

_any = msgspec.json.Decoder()


async def echo(call: Call) -> object:
    return call.decode(_any)


async def size(call: Call) -> object:
    return {"size": len(call.params)}


async def noise(call: Call) -> object:
    print("a stray print", "ü")  # noqa: T201
    os.write(1, b"written to descriptor one\n")
    await anyio.run_process(
        ["sh", "-c", r"printf '\033]0;title\007'; cat; echo child"], stdin=None, stdout=None
    )
    return {}


async def big(call: Call) -> object:
    return {"text": "x" * call.decode(_any)["size"]}


async def later(call: Call) -> object:
    call.reply({"later": True})
    return DEFERRED


async def ask(call: Call) -> object:
    return {"answer": _any.decode(await peer.request("client/ask", {"q": 1}))}


async def bug(call: Call) -> object:
    raise RuntimeError("secret detail")


async def refuse(call: Call) -> object:
    raise RpcError(-32002, "There is\nno such thing.", {"x": 1})


async def hang(call: Call) -> object:
    await anyio.sleep_forever()
    return {}


peer: Peer


async def main(source: int, sink: int) -> None:
    global peer
    output = stdio.Output(sink)
    handlers = {f.__name__: f for f in (echo, size, noise, big, later, ask, bug, refuse, hang)}
    peer = Peer(output.write, handlers)
    token = lowlevel.current_token()
    done = anyio.Event()
    async with anyio.create_task_group() as tasks:
        peer.start(tasks)
        lines = stdio.Input(source)
        lines.listen(unwanted=lambda: None)
        lines.start(
            lambda lines: from_thread.run_sync(peer.feed, lines, token=token),
            lambda: from_thread.run_sync(done.set, token=token),
        )
        await done.wait()
        await anyio.lowlevel.checkpoint()
        if "drain" in sys.argv:
            await anyio.sleep(0.2)
        tasks.cancel_scope.cancel()
    output.close(1)


if __name__ == "__main__":
    anyio.run(main, *stdio.claim())
