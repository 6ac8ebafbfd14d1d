"""A Chat Completions response, from bytes to chunks.

The answer is over at `[DONE]`, or at the end of the body after a finish reason. A body that ends
with neither was cut, and what it says is no answer.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from dsh_acp import jsontext
from dsh_acp.llm.chat_answer import ChatAnswer, new_call_id
from dsh_acp.llm.chat_wire import DONE, WirePiece, decode, tolerant, values
from dsh_acp.llm.place import Place
from dsh_acp.llm.sse import BodyReader, Event
from dsh_acp.messages import Chunk, Failure, FinishReason, ToolSchema

MAX_EVENT: Final = 64 * 1024 * 1024


class ChatStream:
    """Feed it the body; it gives chunks. Nothing follows the `Finish`, and there is always one.

    `tools` are those of the request: with them, calls that leaked into the content are read back.
    `taken` are the ids of the calls before this answer. `request_id`, when the response's head
    names one, goes into failures.
    """

    def __init__(
        self,
        place: Place,
        tools: Sequence[ToolSchema] = (),
        taken: Collection[str] = (),
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self.request_id: str | None = None
        self._place = place
        self._answer = ChatAnswer(place, tools, new_id, taken)
        self._body = BodyReader()
        self._pending = b""

    @property
    def is_done(self) -> bool:
        """Whether the `Finish` has been given."""
        return self._answer.is_done

    @property
    def is_settled(self) -> bool:
        """Whether the finish reason came; what may still follow is usage."""
        return self._answer.is_settled

    def feed(self, piece: bytes) -> list[Chunk]:
        """The chunks that `piece` completes."""
        if self.is_done:
            return []
        out: list[Chunk] = []
        for event in self._body.feed(piece):
            self._event(event, out)
            if self._answer.is_done:
                break
        if self._body.sse.size > MAX_EVENT:
            self._fail("MALFORMED_RESPONSE", "one event of the stream is larger than 64 MiB", out)
        return out

    def end(self) -> list[Chunk]:
        """The chunks at the end of the body, up to and with the `Finish`."""
        out: list[Chunk] = []
        if self.is_done:
            return out
        if self._body.kind == "page":
            self._page(self._body.whole, out)
        elif self._body.kind == "json":
            self._whole(self._body.whole, out)
        else:
            for event in self._body.sse.end():
                if not self.is_done:
                    self._event(event, out)
        if not self.is_done:
            if self.is_settled and not self._pending:
                self._answer.finish(out)
            else:
                self._cut(out)
        return out

    def fail(self, failure: Failure) -> list[Chunk]:
        """End the stream with `failure`; usage that came is kept."""
        out: list[Chunk] = []
        if not self.is_done:
            self._answer.close(FinishReason("error", failure), out)
        return out

    def _event(self, event: Event, out: list[Chunk]) -> None:
        data = event.data
        if event.name == "error":
            self._complain(_json_or_text(data), out)
            return
        if self._pending:
            self._odd(data, out)
            return
        if data == b"[DONE]":
            self._finish(out)
            return
        try:
            piece = decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._odd(data, out)
        else:
            self._piece(piece, data, out)

    def _odd(self, data: bytes, out: list[Chunk]) -> None:
        """An event of another shape: the terminator, several values, or a part of one.

        A part waits for the next event. When the two do not make a value, but the next one is
        whole by itself, the stream is broken and says so.
        """
        whole, rest = values(self._pending + data)
        if self._pending and not whole:
            alone, _ = values(data)
            if alone or len(self._pending) > MAX_EVENT:
                self._malformed(out)
                return
        self._pending = rest
        for value in whole:
            if self.is_done:
                return
            if value == DONE:
                self._finish(out)
            else:
                self._piece(tolerant(value), value, out)

    def _piece(self, piece: WirePiece, source: Any, out: list[Chunk]) -> None:
        if piece.complains:
            self._answer.feed(WirePiece(usage=piece.usage), out)
            self._complain(jsontext.loads(source) if isinstance(source, bytes) else source, out)
        else:
            self._answer.feed(piece, out)

    def _finish(self, out: list[Chunk]) -> None:
        if self._pending:
            self._malformed(out)
        else:
            self._answer.finish(out)

    def _malformed(self, out: list[Chunk]) -> None:
        shown = self._pending.decode("utf-8", "replace")[:120]
        text = f"{self._place.provider} sent an event that is not JSON: {shown}"
        self._fail("MALFORMED_RESPONSE", text, out)

    def _cut(self, out: list[Chunk]) -> None:
        text = f"the stream from {self._place.provider} ended before the answer did"
        if self._body.sse.stray:
            text += f": {self._body.sse.stray}"
        # Before anything was said, a cut is a failed transport and can be repeated unseen.
        self._fail("TRANSPORT" if self._answer.is_silent else "STREAM_CLOSED", text, out)

    def _fail(self, code: str, message: str, out: list[Chunk]) -> None:
        from dsh_acp.llm.failures import from_transport

        out.extend(self.fail(from_transport(self._place, code, message, self.request_id)))

    def _complain(self, value: Any, out: list[Chunk]) -> None:
        from dsh_acp.llm.failures import from_stream

        out.extend(self.fail(from_stream(self._place, value, self.request_id)))

    def _whole(self, body: bytes, out: list[Chunk]) -> None:
        """A body of JSON instead of events: one answer, or one value in each line."""
        found, rest = values(body)
        for value in found:
            if not self.is_done and value != DONE:
                self._piece(tolerant(value), value, out)
        if self.is_done or rest:
            return
        if self._answer.is_blank:
            shown = body[:400].decode("utf-8", "replace")
            text = f"{self._place.provider} answered with JSON that is no completion: {shown}"
            self._fail("MALFORMED_RESPONSE", text, out)
        else:
            self._finish(out)

    def _page(self, body: bytes, out: list[Chunk]) -> None:
        from dsh_acp.llm.failures import from_page

        page = body[:100_000].decode("utf-8", "replace")
        out.extend(self.fail(from_page(self._place, page, self.request_id)))


def _json_or_text(data: bytes) -> Any:
    try:
        return jsontext.loads(data)
    except jsontext.DecodeError:
        return data.decode("utf-8", "replace")
