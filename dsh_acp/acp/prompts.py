"""Open prompts of one session, and when each of them is answered.

A prompt is bound by its message's id: to the turn whose claim took the message out of the inbox,
or to the splice that cancelled it. It is answered at the end of its own turn, by whoever writes
that turn's updates, so the answer can only come behind them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dsh_acp.agent.inbox import PendingFold
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
    """One `session/prompt` that waits for its answer. `turn` is known once it is claimed."""

    def __init__(self, call: Call, message_id: str) -> None:
        self.call: Final = call
        self.message_id: Final = message_id
        self.turn: int | None = None
        self.is_cancelled = False

    def settle(self, outcome: "str | RpcError") -> bytes:
        """The answer's line: a stop reason, or an error. Cancelling always wins over an error."""
        if self.is_cancelled:
            outcome = "cancelled"
        if isinstance(outcome, RpcError):
            return self.call.settle_error(outcome)
        return self.call.settle({"stopReason": outcome})


class Prompts:
    """The open prompts, following the log."""

    def __init__(self, seed_length: int, turn: int) -> None:
        self._waiting: Final = PendingFold(seed_length)
        self._open: dict[str, Prompt] = {}
        self._turn = turn

    def seed(self, event: Event) -> None:
        """Take in an event of an earlier life."""
        if event.type == InboxSpliced.TYPE:
            self._waiting.apply(event)

    def add(self, prompt: Prompt) -> None:
        """Follow `prompt`. To be called before its message is in the inbox."""
        self._open[prompt.message_id] = prompt

    def drop(self, prompt: Prompt) -> None:
        """Its message never reached the inbox."""
        self._open.pop(prompt.message_id, None)

    def __contains__(self, prompt: Prompt) -> bool:
        return self._open.get(prompt.message_id) is prompt

    @property
    def open(self) -> tuple[Prompt, ...]:
        """Those that are not answered yet, in the order of their arrival."""
        return tuple(self._open.values())

    def settle(self, prompt: Prompt, outcome: str | RpcError) -> bytes:
        """Answer `prompt`; empty when it was answered before."""
        if prompt not in self:
            return b""
        del self._open[prompt.message_id]
        return prompt.settle(outcome)

    def apply(self, event: Event) -> bytes:
        """The lines of answers that `event` makes due."""
        match event.payload:
            case TurnStart(turn=turn):
                self._turn = turn
            case InboxSpliced() as splice:
                return self._spliced(event, splice)
            case TurnEnd(turn=turn, reason=reason):
                ended = [prompt for prompt in self._open.values() if prompt.turn == turn]
                return b"".join(self.settle(prompt, outcome(reason)) for prompt in ended)
            case _:
                pass
        return b""

    def _spliced(self, event: Event, splice: InboxSpliced) -> bytes:
        items = self._waiting.lists.get(splice.target, [])
        removed = items[splice.start : splice.start + (splice.removed_count or 0)]
        self._waiting.apply(event)
        return b"".join(self._removed([message.id for message in removed], splice))

    def _removed(self, ids: Iterable[str], splice: InboxSpliced) -> Iterable[bytes]:
        for id in ids:
            prompt = self._open.get(id)
            if prompt is None:
                continue
            if splice.outcome == "canceled":
                yield self.settle(prompt, "cancelled")
            else:
                prompt.turn = self._turn


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
