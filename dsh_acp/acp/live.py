"""What running calls show before they are facts: that they run, and their output so far.

Nothing of this is in the log. It is written only when the log up to now is out, so that it never
overtakes the card it belongs to, and it is bounded: the result brings the kept output anyway.
"""

from collections.abc import Callable, Sequence
import time
from typing import Final

from dsh_acp.acp.calls import Calls
from dsh_acp.acp.codec import Codec
from dsh_acp.acp.updates import Attached, CallChanged, CallShown, Output
from dsh_acp.agent.services import LiveCall, LiveOutput

_INTERVAL_S: Final = 0.05
_MAX_STREAMED: Final = 262_144
_STOPPED: Final = "\n[… the rest is shown when the command has ended …]\n"


class LiveCalls:
    """The running calls of one session.

    `write` writes lines at once and says so, or says that the follower has to call `flush`.
    `later` calls something after some seconds.
    """

    def __init__(
        self,
        calls: Calls,
        codec: Codec,
        write: Callable[[Sequence[bytes]], bool],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._calls: Final = calls
        self._codec: Final = codec
        self._write: Final = write
        self._later: Final = later
        self._starting: list[str] = []
        self._attaching: dict[str, str] = {}
        self._buffered: dict[str, list[str]] = {}
        self._sent: dict[str, int] = {}
        self._delegated: list[LiveCall] = []
        self._last = 0.0

    def take(self, live: LiveOutput | LiveCall) -> None:
        """Something of a running call that is not in the log."""
        if isinstance(live, LiveOutput):
            self.output(live)
        else:
            self._delegated.append(live)
            self._try()

    def started(self, call_id: str) -> None:
        """The call runs."""
        self._starting.append(call_id)
        self._try()

    def attach(self, call_id: str, terminal_id: str) -> None:
        """The client's terminal shows the call's output."""
        self._attaching[call_id] = terminal_id
        self._try()

    def output(self, output: LiveOutput) -> None:
        """The call has said more."""
        sent = self._sent.get(output.call_id, 0)
        if sent > _MAX_STREAMED:
            return
        text = output.text
        self._sent[output.call_id] = sent + len(text)
        if sent + len(text) > _MAX_STREAMED:
            text = text[: _MAX_STREAMED - sent] + _STOPPED
        is_first = not self._buffered
        self._buffered.setdefault(output.call_id, []).append(text)
        if not is_first:
            return  # somebody is to flush already
        if time.monotonic() - self._last >= _INTERVAL_S:
            self._try()
        else:
            self._later(_INTERVAL_S, self._try)

    def _try(self) -> None:
        if self._write(()):
            self._write(self.flush())

    def _delegated_lines(self) -> list[bytes]:
        """Calls of subagents that the person is asked about, as cards of their own."""
        delegated, self._delegated = self._delegated, []
        lines: list[bytes] = []
        for live in delegated:
            id = self._calls.call_id(live.call_id)
            if live.card is not None:
                lines.append(self._codec.encode(CallShown(id, live.name, live.card)))
            else:
                lines.append(self._codec.encode(CallChanged(id, live.status)))
        return lines

    def flush(self, *, keep: bool = False) -> list[bytes]:
        """The lines that are due. What belongs to no open call is dropped, or kept with `keep`.

        Called with `keep` before the log moves on, so that output precedes its call's result, and
        without it behind, when every card that will come is out.
        """
        self._last = time.monotonic()
        lines = self._delegated_lines()
        starting, self._starting = self._starting, []
        for id in starting:
            if keep and not self._calls.is_open(id):
                self._starting.append(id)
            else:
                lines += [self._codec.encode(update) for update in self._calls.start(id)]
        attaching, self._attaching = self._attaching, {}
        for id, terminal_id in attaching.items():
            if self._calls.is_open(id):
                attached = Attached(self._calls.call_id(id), terminal_id)
                lines.append(self._codec.encode(attached))
            elif keep:
                self._attaching[id] = terminal_id
        buffered, self._buffered = self._buffered, {}
        for id, texts in buffered.items():
            if self._calls.is_open(id):
                output = Output(self._calls.call_id(id), "".join(texts))
                lines.append(self._codec.encode(output))
            elif keep:
                self._buffered[id] = texts
            else:
                self._sent.pop(id, None)
        return lines
