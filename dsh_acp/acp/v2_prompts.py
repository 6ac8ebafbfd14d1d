"""Version 2 answers a prompt when it enters the conversation, and says what the session does.

The response is a receipt: the message is in its place, where the claim put it. That a turn runs,
waits for the person or has ended, and how, is said by state updates of the session.
"""

from typing import Any, Final

from dsh_acp.acp import v2
from dsh_acp.acp.background import Background
from dsh_acp.acp.client import Client
from dsh_acp.acp.codec import Codec
from dsh_acp.acp.pieces import ReadMedia
from dsh_acp.acp.prompts import Prompt, Prompts, outcome
from dsh_acp.agent.session import Session
from dsh_acp.log.events import Event
from dsh_acp.log.payloads import (
    InboxSpliced,
    StepStart,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
)
from dsh_acp.log.plugin_payloads import CommandRun
from dsh_acp.messages import Message, new_id, source_kind
from dsh_acp.wire.frames import INTERNAL_ERROR, REQUEST_CANCELLED, RpcError
from dsh_acp.wire.jsonrpc import Call

_WATCH_S: Final = 0.25


class Version2:
    """See `Dialect`."""

    echoes = True
    owns_terminals = True

    def codec(self, session_id: str, client: Client, read: ReadMedia) -> Codec:
        """Frames of version 2."""
        return v2.Codec(session_id, read)

    def prompts(self, codec: Codec, session: Session) -> Prompts:
        """Prompts that are answered by a receipt."""
        assert isinstance(codec, v2.Codec)
        return Receipts(codec, session)


class Receipts(Prompts):
    """The open prompts, the session's state, and what waits behind the running turn."""

    def __init__(self, codec: v2.Codec, session: Session) -> None:
        super().__init__(session)
        self.background: Final = Background(session.parts.tool_state)
        self._session: Final = session
        self._listed: list[dict[str, Any]] = []
        self._codec: Final = codec
        self._state = "idle"
        self._stopped: dict[str, Any] = {}
        self._is_turn = self._has_claimed = False
        self._is_watching = self._is_over = False
        self._commands: list[Call] = []
        self._passed: Call | None = None
        """The command that stands for a prompt; its words are in the log, or will be."""
        self._questions = 0
        self._shown: list[Any] = []

    # ------------------------------------------------------------ states

    def _say(self, state: str, **more: Any) -> bytes:
        self._state = state
        lines = b"".join(map(self._codec.encode, self.background.look()))
        listed = self._listed = self._at_work()
        update = {"sessionUpdate": "state_update", "state": state, "background": listed, **more}
        if self.background.running and not self._is_watching and not self._is_over:
            self._is_watching = True
            self.later(_WATCH_S, self._watch)
        return lines + self._codec.frame(update)

    def _watch(self) -> bytes:
        """What is printed in the background, from time to time while something runs there."""
        self._is_watching = bool(self.background.running) and not self._is_over
        if self._is_over:
            return b""
        if self._is_watching:
            self.later(_WATCH_S, self._watch)
        return b"".join(map(self._codec.encode, self.background.printed()))

    def _at_work(self) -> list[dict[str, Any]]:
        """What runs in the background. For subagents there is no word but our own."""
        running = filter(self.background.is_running, self.background.running)
        found: list[dict[str, Any]] = [{"type": "terminal", "terminalId": id} for id in running]
        agents = self._session.companions
        for id, status, label in () if agents is None else agents.list():
            if status == "running":
                found.append({"type": "_subagent", "sessionId": id, "title": label})
        return found

    def _look(self) -> bytes:
        """The state once more when the work in its background is not as it was told."""
        if self._at_work() == self._listed:
            return b""
        return self._say(self._state, **(self._stopped if self._state == "idle" else {}))

    def _run(self) -> bytes:
        return b"" if self._state != "idle" else self._say("running")

    def _rest(self, outcome: str | RpcError) -> bytes:
        """Idle, unless something else still runs or it was said before."""
        if self._state == "idle" or self._is_turn or self._commands:
            return b""
        self._stopped = _stop(outcome)
        return self._say("idle", **self._stopped)

    def asking(self, is_open: bool) -> bytes:
        """The person is needed, or the work goes on."""
        self._questions += 1 if is_open else -1
        if is_open and self._state == "running":
            return self._say("requires_action")
        if not self._questions and self._state == "requires_action":
            return self._say("running")
        return b""

    def standing(self) -> bytes:
        """The state as it is, and what waits."""
        more = self._stopped if self._state == "idle" else {}
        lines = self._say(self._state, **more)
        return lines + (self._pending_update() if self._shown else b"")

    def jobs(self) -> bytes:
        """What runs in the background, for a client whose view starts anew."""
        return b"".join(map(self._codec.encode, self.background.again()))

    def closing(self) -> bytes:
        """The end of what ran in the background; nothing is told afterwards."""
        self._is_over = True
        return self._look()

    # ------------------------------------------------------------ prompts

    def apply(self, event: Event) -> bytes:
        """The lines that `event` makes due; the person's words are out by then."""
        match event.payload:
            case TurnStart(turn=turn):
                self.turn, self._is_turn, self._has_claimed = turn, True, False
                return self._run()
            case StepStart():
                self._has_claimed = True
                return self._pending()
            case InboxSpliced(inserted=inserted):
                # A job that has ended says so to the model, which is how it is noticed here.
                lines = super().apply(event) + self._look()
                is_claimed_next = bool(inserted) and not (self._has_claimed or self._commands)
                return lines if is_claimed_next else lines + self._pending()
            case UserMessage(message=message):
                prompt = self._open.get(message.id)
                return b"" if prompt is None else prompt.call.settle({"messageId": message.id})
            case TurnEnd(turn=turn, reason=reason):
                return self._turn_end(turn, reason)
            case CommandRun(command_id=id):
                return self._command_run(id)
            case _:
                return b""

    def _command_run(self, id: str) -> bytes:
        call = self._commands[-1] if self._commands else self._passed
        self._passed = None
        if call is None or call.answered:
            return b""
        return self._run() + call.settle({"messageId": id})

    def _turn_end(self, turn: int, reason: TurnEndReason) -> bytes:
        ends = outcome(reason)
        lines = b""
        was_cancelled = False
        for prompt in [prompt for prompt in self._open.values() if prompt.turn == turn]:
            was_cancelled = was_cancelled or prompt.is_cancelled
            del self._open[prompt.message_id]
            lines += self._not_inserted(prompt, ends)
        self._is_turn = self._has_claimed = False
        return lines + self._rest("cancelled" if was_cancelled else ends) + self._pending()

    def finish(self, prompt: Prompt, outcome: str | RpcError) -> bytes:
        """An error when the message never got in; else the end of what it began."""
        if not prompt.call.answered:
            return self._not_inserted(prompt, outcome)
        if prompt.turn is not None:
            self._is_turn = self._has_claimed = False
        return self._rest(outcome)

    def _not_inserted(self, prompt: Prompt, ends: str | RpcError) -> bytes:
        if prompt.call.answered:
            return b""
        if isinstance(ends, RpcError):
            return prompt.call.settle_error(ends)
        if ends == "refusal":
            refused = RpcError(INTERNAL_ERROR, "The prompt was refused.", {"stopReason": ends})
            return prompt.call.settle_error(refused)
        return prompt.call.settle_error(RpcError(REQUEST_CANCELLED, "The prompt was cancelled."))

    def add(self, prompt: Prompt) -> None:
        """Follow `prompt`; a command that stands for it is over."""
        super().add(prompt)
        if prompt.call in self._commands:
            self._commands.remove(prompt.call)
            self._passed = prompt.call

    def drop(self, prompt: Prompt) -> bytes:
        """Nothing came of it."""
        super().drop(prompt)
        return self._rest("end_turn")

    # ------------------------------------------------------------ slash commands

    def commanding(self, call: Call) -> None:
        """The call is answered when the command is in the log."""
        self._commands.append(call)

    def unlogged(self, call: Call, text: str) -> bytes:
        """The person's words, which no event has, and their receipt."""
        id = new_id()
        content = [{"type": "text", "text": text}]
        update = {"sessionUpdate": "user_message", "messageId": id, "content": content}
        return self._run() + self._codec.frame(update) + call.settle({"messageId": id})

    def commanded(self, call: Call, outcome: str) -> bytes:
        """The end of a command, or of a prompt that was cancelled while it was read."""
        if call in self._commands:
            self._commands.remove(call)
        cancelled = RpcError(REQUEST_CANCELLED, "The prompt was cancelled.")
        return call.settle_error(cancelled) + self._rest(outcome)

    # ------------------------------------------------------------ what waits

    def pending(self) -> list[dict[str, Any]]:
        """The person's input that waits, in the order in which it would be taken."""
        return [
            {
                "messageId": message.id,
                "target": target.replace("-", "_"),
                "content": [{"type": "text", "text": message.text}],
            }
            for target in ("next-step", "next-turn")
            for message in self.waiting.lists[target]
            if source_kind(message) == "user"
        ]

    def _pending(self) -> bytes:
        """What waits, when that has changed; not what is claimed as soon as it comes."""
        waiting = self.pending()
        if waiting == self._shown:
            return b""
        self._shown = waiting
        return self._pending_update()

    def _pending_update(self) -> bytes:
        return self._codec.frame({"sessionUpdate": "_pending_update", "pending": self._shown})


def waiting(prompts: Prompts, message_id: str) -> Message | None:
    """The person's message that waits under this id."""
    for message in prompts.waiting.messages:
        if message.id == message_id and source_kind(message) == "user":
            return message
    return None


def _stop(outcome: str | RpcError) -> dict[str, Any]:
    if not isinstance(outcome, RpcError):
        return {"stopReason": outcome}
    error: dict[str, Any] = {"code": outcome.code, "message": " ".join(outcome.message.split())}
    if outcome.data is not None:
        error["data"] = outcome.data
    return {"stopReason": "error", "error": error}
