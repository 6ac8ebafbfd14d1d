"""A scripted ACP client over a real agent process.

```python
async with Client.spawn(agent_argv(), cwd=tmp, env=env) as client:
    await client.initialize()
    sid = await client.new_session(str(tmp))
    answer = await client.prompt(sid, "hello")          # {"stopReason": "end_turn"}
    client.text(sid)                                     # what the agent said
```

Every line in both directions is kept in wire order (`lines`), every received frame decoded
(`frames`). Sending never blocks: lines are queued and written by one task. The agent's own
requests are answered by `Desk` (scripted permissions and elicitations), `Buffers` (files) and
`Terminals`; `on` replaces any of them. Ids are integers from 0, as the protocol's own SDKs count.

The client speaks protocol versions 1 and 2; `prompt` waits for the end of the turn in both.
"""

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
import contextlib
from itertools import count
import math
import os
from typing import Any, Final, TypeAlias, cast

import anyio
from anyio.abc import Process, TaskGroup

from dsh_acp import jsontext
from dsh_acp.snapshot.agents import agent_argv as agent_argv, agent_env as agent_env
from dsh_acp.snapshot.calls import AgentEnded, Call, Frame, Line, params_of, pieces, update_of
from dsh_acp.snapshot.children import Child
from dsh_acp.snapshot.desk import HELD, Desk, RpcError
from dsh_acp.snapshot.files import Buffers
from dsh_acp.snapshot.terminals import Terminals

Handler: TypeAlias = Callable[[Frame], Awaitable[Any]]
"""Gets the params of a request, returns its result or raises `RpcError`."""

GRACE_S: Final = 5.0


class Client:
    """See the module. Make one with `spawn`."""

    def __init__(
        self, process: Process | Child, tasks: TaskGroup, cwd: str | os.PathLike[str]
    ) -> None:
        self.process: Final = process
        self.lines: Final[list[Line]] = []
        self.frames: Final[list[Frame]] = []
        """Received frames that are JSON objects, in order."""
        self.garbage: Final[list[bytes]] = []
        """Received lines that are not a JSON object: each one is a fault of the agent."""
        self.stderr: bytearray = bytearray()
        self.desk: Final = Desk()
        self.buffers: Final = Buffers()
        self.terminals: Final = Terminals(tasks, cwd)
        self.ended: bool = False
        self.version: int = 1
        self.capabilities: Frame = {}
        """The result of `initialize`."""
        self._tasks = tasks
        self._answers = True
        self._ids = count()
        self._calls: dict[Any, Call] = {}
        self._held: dict[Any, Frame] = {}
        self._news = anyio.Event()
        self._outbox, self._queue = anyio.create_memory_object_stream[bytes | None](math.inf)
        self._handlers: dict[str, Handler] = {
            "session/request_permission": self.desk.permission,
            "elicitation/create": self.desk.elicitation,
            **self.buffers.handlers(),
            **self.terminals.handlers(),
        }

    @classmethod
    @contextlib.asynccontextmanager
    async def spawn(
        cls,
        argv: Sequence[str],
        cwd: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        *,
        answers: bool = True,
        own_group: bool = False,
        start: Callable[[], Child | None] = lambda: None,
    ) -> "AsyncGenerator[Client]":
        """Start `argv` and talk to it; leaving closes its stdin and awaits its exit.

        `env` is the whole environment (default: this process's own). An agent that has not ended
        `GRACE_S` after its stdin closed is killed, as it is at once when the block raises. Without
        `answers` the agent's requests stay open until somebody sends a response. With `own_group`
        a Ctrl-C in the terminal reaches this process alone, which then ends the agent. `start` may
        give the process, instead of a new one.
        """
        try:
            async with anyio.create_task_group() as tasks:
                process = start() or await anyio.open_process(
                    argv, cwd=cwd, env=env, start_new_session=own_group
                )
                client = cls(process, tasks, cwd)
                client._answers = answers
                for task in (client._read, client._write, client._drain_stderr):
                    tasks.start_soon(task)
                try:
                    yield client
                    await client.close()
                finally:
                    await client._dispose()
        except BaseExceptionGroup as group:
            # A failed assertion in the block should look like one.
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise

    # ------------------------------------------------------------ sending

    def start(self, method: str, params: Any = None) -> Call:
        """Send a request and go on; await the answer through the returned `Call`."""
        call = Call(next(self._ids), method)
        self._calls[call.id] = call
        frame: Frame = {"jsonrpc": "2.0", "id": call.id, "method": method}
        if params is not None:
            frame["params"] = params
        self.send(frame)
        if self.ended:
            call.settle(None, self._gone(method))
        return call

    async def request(self, method: str, params: Any = None) -> Any:
        """Send a request and await its answer (see `Call.result`)."""
        return await self.start(method, params).result()

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        frame: Frame = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            frame["params"] = params
        self.send(frame)

    def send(self, frame: Any) -> None:
        """Send any JSON value as one line."""
        self.send_raw(jsontext.encode(frame))

    def send_raw(self, line: bytes) -> None:
        """Send a line as it is; the newline is added."""
        self.lines.append(Line(True, line))
        self._enqueue(line)

    def _enqueue(self, line: bytes | None) -> None:
        # Once the writer has ended nobody reads any more; what was owed fails through `_read`.
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._outbox.send_nowait(line)

    def on(self, method: str, handler: Handler) -> None:
        """Answer the agent's requests for `method` with `handler` from now on."""
        self._handlers[method] = handler

    # ------------------------------------------------------------ the protocol

    async def initialize(
        self, capabilities: Frame | None = None, *, version: int = 1, **extra: Any
    ) -> Frame:
        """Shake hands; remembers the answered version. `extra` are further params."""
        if version >= 2:
            info = {"name": "dsh-acp-snapshot", "version": "1"}
            params: Frame = {"protocolVersion": version, "info": info}
            params["capabilities"] = capabilities or {}
        else:
            params = {"protocolVersion": version, "clientCapabilities": capabilities or {}}
        self.capabilities = await self.request("initialize", params | extra)
        self.version = int(self.capabilities.get("protocolVersion", version))
        return self.capabilities

    async def new_session(self, cwd: str | os.PathLike[str], **extra: Any) -> str:
        """Create a session; returns its id. `extra` are further params."""
        params: Frame = {"cwd": os.fspath(cwd), "mcpServers": []}
        return cast(str, (await self.request("session/new", params | extra))["sessionId"])

    async def load_session(self, sid: str, cwd: str | os.PathLike[str], **extra: Any) -> Frame:
        """Load a stored session with replay; returns the answer."""
        params: Frame = {"sessionId": sid, "cwd": os.fspath(cwd), "mcpServers": []}
        if self.version >= 2:
            params["replayFrom"] = {"type": "start"}
        method = "session/load" if self.version < 2 else "session/resume"
        return await self.request(method, params | extra)

    def start_prompt(self, sid: str, prompt: str | Iterable[Frame], **extra: Any) -> Call:
        """Send a prompt (text or content blocks) and go on."""
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        return self.start("session/prompt", {"sessionId": sid, "prompt": blocks} | extra)

    async def prompt(self, sid: str, prompt: str | Iterable[Frame], **extra: Any) -> Frame:
        """Prompt and await the end of the turn: `{"stopReason": …}` in both versions."""
        since = len(self.frames)
        answer = await self.start_prompt(sid, prompt, **extra).result()
        if self.version < 2:
            return answer
        return await self.idle(sid, since)

    async def idle(self, sid: str, since: int = 0) -> Frame:
        """Version 2: the first `idle` state update of `sid` from frame `since` on."""

        def is_idle(frame: Frame) -> bool:
            update = update_of(frame, sid)
            return update is not None and update.get("state") == "idle"

        return update_of(await self.until(is_idle, since)) or {}

    def cancel(self, sid: str) -> None:
        """Cancel the session's turn; held questions are answered `cancelled`, as the rules ask."""
        self.notify("session/cancel", {"sessionId": sid})
        for id, frame in list(self._held.items()):
            if params_of(frame).get("sessionId") == sid:
                self.answer(id, self.desk.cancelled(frame["method"]))

    def answer(self, id: Any, result: Any) -> None:
        """Answer a request that the desk holds open (see `held`)."""
        del self._held[id]
        self.send({"jsonrpc": "2.0", "id": id, "result": result})

    @property
    def held(self) -> Mapping[Any, Frame]:
        """The agent's requests that a scripted `hold` keeps open, by id."""
        return self._held

    # ------------------------------------------------------------ observing

    def updates(self, sid: str | None = None, kind: str | None = None) -> list[Frame]:
        """The `update` objects received so far, of one session and `sessionUpdate` kind."""
        found = (update_of(frame, sid) for frame in self.frames)
        return [u for u in found if u is not None and kind in (None, u.get("sessionUpdate"))]

    def text(self, sid: str | None = None) -> str:
        """What the agent said: all `agent_message_chunk` texts, joined."""
        chunks = self.updates(sid, "agent_message_chunk")
        return "".join(chunk["content"].get("text", "") for chunk in chunks)

    def requests(self, method: str) -> list[Frame]:
        """The params of the agent's requests for `method`, in order."""
        return [f["params"] for f in self.frames if f.get("method") == method and "id" in f]

    async def until(self, matches: Callable[[Frame], bool], since: int = 0) -> Frame:
        """The first received frame at or after index `since` that `matches`; waits for it.

        Raises:
            AgentEnded: there will be none.
        """
        at = since
        while True:
            news = self._news
            while at < len(self.frames):
                at += 1
                if matches(self.frames[at - 1]):
                    return self.frames[at - 1]
            if self.ended:
                raise self._gone("an expected frame")
            await news.wait()

    async def until_line(self, number: int) -> bytes:
        """The received line with this number, from 0; waits for it.

        Raises:
            AgentEnded: there will be none.
        """
        while True:
            news = self._news
            received = [line.data for line in self.lines if not line.sent]
            if number < len(received):
                return received[number]
            if self.ended:
                raise self._gone("an expected line")
            await news.wait()

    async def until_update(self, sid: str, since: int = 0, **fields: Any) -> Frame:
        """The first update of `sid` that carries all `fields`; waits for it."""

        def matches(frame: Frame) -> bool:
            update = update_of(frame, sid)
            return update is not None and all(update.get(k) == v for k, v in fields.items())

        return update_of(await self.until(matches, since)) or {}

    async def until_held(self) -> Frame:
        """The first question that is held open; waits for it."""
        while not self._held:
            if self.ended:
                raise self._gone("a question")
            await self._news.wait()
        return next(iter(self._held.values()))

    # ------------------------------------------------------------ the end

    def close_stdin(self) -> None:
        """Tell the agent that nothing more will come."""
        self._enqueue(None)

    async def close(self) -> int:
        """Close the agent's stdin, await its exit and the rest of its output; its exit code.

        An agent that stays is killed after `GRACE_S`; its exit code is then negative.
        """
        self.close_stdin()
        with anyio.move_on_after(GRACE_S):
            await self.process.wait()
        if self.process.returncode is None:
            self.process.kill()
        code = await self.process.wait()
        with anyio.move_on_after(GRACE_S):
            while not self.ended:
                await self._news.wait()
        return code

    async def _dispose(self) -> None:
        with anyio.CancelScope(shield=True):
            if self.process.returncode is None:
                self.process.kill()
            self.close_stdin()
            self.terminals.kill_all()
            await self.process.aclose()
        self._tasks.cancel_scope.cancel()

    def _gone(self, what: str) -> AgentEnded:
        words = bytes(self.stderr).decode("utf-8", "replace").strip().split("\n")[-1]
        said = f"; its last words: {words[:300]}" if words else ""
        return AgentEnded(f"the agent ended before {what}{said}")

    # ------------------------------------------------------------ tasks

    async def _write(self) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        try:
            async for line in self._queue:
                if line is None:
                    break
                await stdin.send(line + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return
        finally:
            self._outbox.close()
            self._queue.close()
            with anyio.CancelScope(shield=True):
                await stdin.aclose()

    async def _drain_stderr(self) -> None:
        async for piece in pieces(self.process.stderr):
            self.stderr += piece

    async def _read(self) -> None:
        rest = bytearray()
        async for piece in pieces(self.process.stdout):
            rest += piece
            *lines, tail = rest.split(b"\n") if b"\n" in piece else (rest,)
            rest = bytearray(tail)
            for line in lines:
                self._receive(bytes(line))
        if rest:
            self._receive(bytes(rest))
        self.ended = True
        for call in self._calls.values():
            call.settle(None, self._gone(f"the answer to {call.method}"))
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    def _receive(self, line: bytes) -> None:
        if not line.strip():
            return
        self.lines.append(Line(False, line))
        try:
            frame = jsontext.loads(line)
        except jsontext.DecodeError:
            frame = None
        if not isinstance(frame, dict):
            self.garbage.append(line)
        else:
            self.frames.append(cast(Frame, frame))
            self._dispatch(cast(Frame, frame))
        self._wake()

    def _dispatch(self, frame: Frame) -> None:
        if "method" not in frame:
            call = self._calls.pop(frame.get("id"), None)
            if call is not None:
                error = frame.get("error")
                failure = None if error is None else RpcError.from_json(error)
                call.settle(frame.get("result"), failure)
        elif "id" in frame and self._answers:
            self._tasks.start_soon(self._reply, frame)
        elif frame["method"] == "$/cancel_request":
            held = self._held.pop(params_of(frame).get("requestId"), None)
            if held is not None:
                error = {"code": -32800, "message": "Request cancelled"}
                self.send({"jsonrpc": "2.0", "id": held["id"], "error": error})

    async def _reply(self, frame: Frame) -> None:
        answer: Frame = {"jsonrpc": "2.0", "id": frame["id"]}
        handler = self._handlers.get(frame["method"])
        try:
            if handler is None:
                raise RpcError(-32601, f'"Method not found": {frame["method"]}')
            result = await handler(params_of(frame))
        except RpcError as exc:
            self.send(answer | {"error": exc.to_json()})
            return
        if result is HELD:
            self._held[frame["id"]] = frame
            self._wake()
        else:
            self.send(answer | {"result": result})
