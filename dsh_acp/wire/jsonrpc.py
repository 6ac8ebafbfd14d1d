"""A JSON-RPC peer: answers calls, makes calls, and keeps both apart from any protocol.

`feed` takes the lines of one read in the loop's thread and starts a task for each call, in their
order. Handlers run concurrently, so what a handler does before its first await happens in the
order of the wire. A handler may answer later than it returns (`DEFERRED`), which lets whoever
writes a request's notifications write its response right behind them.

A fault in a handler is answered with -32603 and nothing else; its traceback goes to stderr. It
ends neither the connection nor another call.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
import sys
import traceback
from typing import Any, Final, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup
import msgspec

from dsh_acp.wire import frames
from dsh_acp.wire.frames import RpcError
from dsh_acp.wire.stdio import MAX_LINE, Overlong

T = TypeVar("T")

DEFERRED: Final = object()
"""What a handler returns when the call is answered by somebody else, or already was."""


class Closed(RpcError):
    """The connection ended before the peer answered."""

    def __init__(self) -> None:
        super().__init__(frames.INTERNAL_ERROR, "the connection is closed")


class Call:
    """One incoming request or notification.

    `cancelled` is called when the peer asks for the call's cancellation; without it, the
    handler's task is cancelled and the call answered with -32800.
    """

    __slots__ = ("_peer", "answered", "cancelled", "id", "method", "params", "scope")

    def __init__(self, peer: "Peer", frame: frames.Request) -> None:
        self._peer = peer
        self.id = frame.id
        self.method = frame.method
        self.params = frame.params
        self.answered = frame.id is None
        self.scope = anyio.CancelScope()
        self.cancelled: Callable[[], None] | None = None

    def decode(self, decoder: "msgspec.json.Decoder[T]") -> T:
        """The params.

        Raises:
            RpcError: `-32602`, naming the field that is wrong.
        """
        return frames.decode_params(self.params, decoder)

    def settle(self, result: Any) -> bytes:
        """Mark the call as answered with `result`; the caller writes the returned line.

        Empty when the call was answered before, or is a notification.
        """
        return self._settled(lambda id: frames.result(id, result))

    def settle_error(self, error: RpcError) -> bytes:
        """`settle`, with an error."""
        return self._settled(lambda id: frames.error(id, error))

    def reply(self, result: Any, then: Iterable[bytes] = ()) -> None:
        """Answer, and write the lines of `then` right behind, in one write."""
        self._peer.write(self.settle(result) + b"".join(then))

    def fail(self, error: RpcError) -> None:
        """Answer with an error."""
        self._peer.write(self.settle_error(error))

    def _settled(self, line: Callable[[bytes], bytes]) -> bytes:
        if self.answered or self.id is None:
            return b""
        self.answered = True
        self._peer.forget(self)
        return line(self.id)


Handler: TypeAlias = Callable[[Call], Awaitable[Any]]
Translate: TypeAlias = Callable[[Exception], RpcError | None]


async def _no_drain() -> None:
    pass


def _all(call: Call) -> bool:
    return True


class _Pending:
    __slots__ = ("done", "response")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.response: frames.Response | None = None


class Peer:
    """One connection.

    `handlers` is read at each call, so it may be replaced while the connection lives.
    `translate` gives the error for an exception that is not an `RpcError`, or `None` for a bug.
    `admits` sees each call first, in the order of the wire; what it turns down is its to answer.
    `drain` waits while the other end reads slower than is written; whoever writes much awaits it.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        handlers: Mapping[str, Handler],
        translate: Translate = lambda exc: None,
        drain: Callable[[], Awaitable[None]] = _no_drain,
    ) -> None:
        self.write: Final = write
        self.drain: Final = drain
        self.handlers = handlers
        self.admits: Callable[[Call], bool] = _all
        self._translate: Final = translate
        self._tasks: TaskGroup | None = None
        self._calls: Final[dict[bytes, Call]] = {}
        self._pending: Final[dict[bytes, _Pending]] = {}
        self._given_up: Final[set[bytes]] = set()
        self._next_id = 0
        self._closed = False

    def start(self, tasks: TaskGroup) -> None:
        """Run handlers in `tasks`. Must precede `feed`."""
        self._tasks = tasks

    # ------------------------------------------------------------ incoming

    def feed(self, lines: Sequence[bytes | Overlong]) -> None:
        """Take the lines of one read. In the loop's thread; never raises for what they say."""
        for line in lines:
            if isinstance(line, Overlong):
                self._skip(line)
                continue
            match frames.decode(line):
                case frames.Request() as request:
                    self._begin(Call(self, request))
                case frames.Response() as response:
                    self._resolve(response)
                case frames.Invalid() as invalid:
                    self.write(invalid.reply)

    def _skip(self, line: Overlong) -> None:
        pending = self._pending.get(frames.find_id(line.head, line.tail) or b"")
        if pending is not None and b'"method"' not in line.head:
            error = RpcError(frames.INTERNAL_ERROR, f"the answer is longer than {MAX_LINE} bytes")
            pending.response = frames.Response(b"", frames.NULL_ID, error)
            pending.done.set()
        else:
            self.write(frames.overlong(line.head, line.tail, MAX_LINE).reply)

    def _begin(self, call: Call) -> None:
        assert self._tasks is not None
        if call.method == "$/cancel_request" and call.id is None:
            self._cancel(call)
            return
        if not self.admits(call):
            return
        handler = self.handlers.get(call.method)
        if handler is None:
            call.fail(
                RpcError(
                    frames.METHOD_NOT_FOUND,
                    f"Method not found: {call.method}",
                    {"method": call.method},
                )
            )
            return
        if call.id is not None:
            self._calls[call.id] = call
        self._tasks.start_soon(self._run, handler, call)

    async def _run(self, handler: Handler, call: Call) -> None:
        try:
            with call.scope:
                result = await handler(call)
                if result is not DEFERRED:
                    call.reply(result)
                return
            call.fail(RpcError(frames.REQUEST_CANCELLED, "Request cancelled"))
        except RpcError as exc:
            call.fail(exc)
        except Exception as exc:  # noqa: BLE001 - the border: a handler's bug ends its call only
            error = self._translate(exc)
            if error is None:
                traceback.print_exception(exc, file=sys.stderr)
                error = RpcError(frames.INTERNAL_ERROR, "Internal error")
            call.fail(error)
        finally:
            if call.answered:
                self.forget(call)

    def _cancel(self, notification: Call) -> None:
        with suppress(RpcError):
            target = notification.decode(_CANCEL).request_id
            call = self._calls.get(bytes(target))
            if call is None:
                return
            if call.cancelled is not None:
                call.cancelled()
            else:
                call.scope.cancel()

    def forget(self, call: Call) -> None:
        """The call is answered and can no longer be cancelled."""
        if call.id is not None and self._calls.get(call.id) is call:
            del self._calls[call.id]

    # ------------------------------------------------------------ outgoing

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self.write(frames.notification(method, params))

    async def request(self, method: str, params: Any) -> bytes:
        """Ask the peer; returns the raw JSON of the result.

        Cancelling the wait sends `$/cancel_request` and forgets the answer.

        Raises:
            RpcError: the peer's error; `Closed` when the connection ended first.
        """
        if self._closed:
            raise Closed
        number, self._next_id = self._next_id, self._next_id + 1
        id = b"%d" % number
        pending = self._pending[id] = _Pending()
        self.write(frames.request(number, method, params))
        try:
            await pending.done.wait()
        except anyio.get_cancelled_exc_class():
            if not self._closed:
                self._given_up.add(id)
                self.notify("$/cancel_request", {"requestId": number})
            raise
        finally:
            self._pending.pop(id, None)
        response = pending.response
        if response is None:
            raise Closed
        if response.error is not None:
            raise response.error
        return response.result

    def _resolve(self, response: frames.Response) -> None:
        pending = self._pending.get(response.id)
        if pending is not None:
            pending.response = response
            pending.done.set()
        elif response.id in self._given_up:
            self._given_up.discard(response.id)
        elif response.is_bare:
            # No answer to anything, so a call that lost its method; its sender waits.
            invalid = RpcError(frames.INVALID_REQUEST, "Invalid request: no method")
            self.write(frames.error(response.id, invalid))

    def close(self) -> None:
        """The connection is over: every open request of ours raises `Closed`."""
        self._closed = True
        for pending in self._pending.values():
            pending.done.set()


class _CancelParams(msgspec.Struct, frozen=True, rename="camel"):
    request_id: msgspec.Raw


_CANCEL: Final = msgspec.json.Decoder(_CancelParams)
