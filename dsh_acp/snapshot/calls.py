"""Requests on their way, and a look into frames."""

from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple, TypeAlias, cast

import anyio
from anyio.abc import ByteReceiveStream

Frame: TypeAlias = dict[str, Any]


class Line(NamedTuple):
    """One line of a conversation, without its newline; `sent` by the client."""

    sent: bool
    data: bytes


class AgentEnded(Exception):
    """The agent closed its output while something was still awaited."""


class Call:
    """A request on its way; `result` may be awaited any number of times."""

    def __init__(self, id: int, method: str) -> None:
        self.id: Final = id
        self.method: Final = method
        self._done = anyio.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether the answer has arrived."""
        return self._done.is_set()

    async def result(self) -> Any:
        """The answer.

        Raises:
            RpcError: the agent answered with an error.
            AgentEnded: it will never answer.
        """
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result

    def settle(self, result: Any, error: BaseException | None) -> None:
        """The answer is here; a second one is ignored."""
        if not self._done.is_set():
            self._result, self._error = result, error
            self._done.set()


def update_of(frame: Frame, sid: str | None = None) -> Frame | None:
    """The `update` of a `session/update` frame (of session `sid`), or `None`."""
    if frame.get("method") != "session/update":
        return None
    params = params_of(frame)
    return params.get("update") if sid in (None, params.get("sessionId")) else None


def params_of(frame: Frame) -> Frame:
    """The params of a frame; an empty object when there are none."""
    params = frame.get("params")
    return cast(Frame, params) if isinstance(params, dict) else {}


async def pieces(stream: ByteReceiveStream | None) -> AsyncIterator[bytes]:
    """What a process prints, until it ends."""
    assert stream is not None
    try:
        while True:
            yield await stream.receive(1 << 16)
    except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        return
