"""Open prompts of one session, and when each of them ends.

A prompt is bound by its message's id: to the turn whose claim took the message out of the inbox,
or to the splice that cancelled it. It is answered at the end of its own turn, by whoever writes
that turn's updates, so the answer can only come behind them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dsh_acp.agent.inbox import PendingFold
from dsh_acp.agent.session import Session
from dsh_acp.log.events import Event
from dsh_acp.log.payloads import InboxSpliced, TurnEnd, TurnEndReason, TurnStart
from dsh_acp.messages import Failure
from dsh_acp.wire.frames import INTERNAL_ERROR, RpcError
from dsh_acp.wire.jsonrpc import Call

AUTH_REQUIRED: Final = -32000

_STOP_REASONS: Final[Mapping[str, str]] = {
    "completed": "end_turn",
    "max-tokens": "max_tokens",
    "max-turn-requests": "max_turn_requests",
    "blocked": "refusal",
    "interrupted": "cancelled",
}
_REFUSALS: Final = frozenset({"CONTENT_FILTER", "REFUSAL", "SAFETY"})
_AUTH: Final = frozenset({"AUTH", "MISSING_CREDENTIAL"})


class Prompt:
    """One `session/prompt` on its way. `turn` is known once it is claimed."""

    def __init__(self, call: Call, message_id: str) -> None:
        self.call: Final = call
        self.message_id: Final = message_id
        self.turn: int | None = None
        self.is_cancelled = False


class Prompts(ABC):
    """The open prompts, following the log. Each protocol version says how they are answered."""

    def __init__(self, session: Session) -> None:
        self.waiting: Final = PendingFold(session.log.header.seed_length or 0)
        self.turn = session.log.last_turn
        self.later: Callable[[float, Callable[[], bytes]], None] = _never
        """Has lines written after some seconds."""
        self._open: dict[str, Prompt] = {}

    @abstractmethod
    def finish(self, prompt: Prompt, outcome: "str | RpcError") -> bytes:
        """The lines that end `prompt`: a stop reason, or an error."""

    @abstractmethod
    def commanded(self, call: Call, outcome: str) -> bytes:
        """The lines that are due when a slash command has ended, or `call` got no further."""

    @abstractmethod
    def unlogged(self, call: Call, text: str) -> bytes:
        """The lines that are due for a slash command that does not get into the log."""

    @abstractmethod
    def commanding(self, call: Call) -> None:
        """A slash command begins."""

    @abstractmethod
    def asking(self, is_open: bool) -> bytes:
        """The lines that are due when a question to the person opens, and when it is over."""

    @abstractmethod
    def standing(self) -> bytes:
        """The lines that say what the session is doing, for a client that has just joined."""

    def closing(self) -> bytes:
        """The lines that are due when all that the session did has been stopped."""
        return b""

    def seed(self, event: Event) -> None:
        """Take in an event of an earlier life."""
        if event.type == InboxSpliced.TYPE:
            self.waiting.apply(event)

    def add(self, prompt: Prompt) -> None:
        """Follow `prompt`. To be called before its message is in the inbox."""
        self._open[prompt.message_id] = prompt

    def drop(self, prompt: Prompt) -> bytes:
        """Its message never reached the inbox; the lines that are due."""
        self._open.pop(prompt.message_id, None)
        return b""

    def __contains__(self, prompt: Prompt) -> bool:
        return self._open.get(prompt.message_id) is prompt

    @property
    def open(self) -> tuple[Prompt, ...]:
        """Those that have not ended yet, in the order of their arrival."""
        return tuple(self._open.values())

    def settle(self, prompt: Prompt, outcome: str | RpcError) -> bytes:
        """End `prompt`; empty when it has ended. Cancelling always wins over an error."""
        if prompt not in self:
            return b""
        del self._open[prompt.message_id]
        return self.finish(prompt, "cancelled" if prompt.is_cancelled else outcome)

    def apply(self, event: Event) -> bytes:
        """The lines that `event` makes due."""
        match event.payload:
            case TurnStart(turn=turn):
                self.turn = turn
            case InboxSpliced() as splice:
                return self._spliced(event, splice)
            case TurnEnd(turn=turn, reason=reason):
                ended = [prompt for prompt in self._open.values() if prompt.turn == turn]
                return b"".join(self.settle(prompt, outcome(reason)) for prompt in ended)
            case _:
                pass
        return b""

    def _spliced(self, event: Event, splice: InboxSpliced) -> bytes:
        items = self.waiting.lists.get(splice.target, [])
        removed = items[splice.start : splice.start + (splice.removed_count or 0)]
        self.waiting.apply(event)
        inserted = {message.id for message in splice.inserted}
        for id in inserted & self._open.keys():
            self._open[id].turn = None
        gone = [message.id for message in removed if message.id not in inserted]
        return b"".join(self._removed(gone, splice))

    def _removed(self, ids: Iterable[str], splice: InboxSpliced) -> Iterable[bytes]:
        for id in ids:
            prompt = self._open.get(id)
            if prompt is None:
                continue
            if splice.outcome == "canceled":
                yield self.settle(prompt, "cancelled")
            else:
                prompt.turn = self.turn


def _never(seconds: float, lines: Callable[[], bytes]) -> None:
    pass


def outcome(reason: TurnEndReason) -> str | RpcError:
    """How the end of a turn answers its prompt."""
    if reason.kind == "aborted":
        cause = reason.reason if isinstance(reason.reason, dict) else {}
        return "end_turn" if cause.get("kind") == "hook" else "cancelled"
    if reason.kind != "error":
        return _STOP_REASONS.get(reason.kind, "end_turn")
    failure = reason.error if isinstance(reason.error, Failure) else None
    if failure is None:
        return RpcError(INTERNAL_ERROR, "The turn failed.")
    if failure.code in _REFUSALS:
        return "refusal"
    data: dict[str, Any] = {"code": failure.code, "reason": failure.message}
    if isinstance(failure.status, int):
        data["status"] = failure.status
    if isinstance(failure.request_id, str):
        data["requestId"] = failure.request_id
    code = AUTH_REQUIRED if failure.code in _AUTH else INTERNAL_ERROR
    return RpcError(code, failure.message or "The turn failed.", data)
