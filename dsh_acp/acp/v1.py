"""Protocol version 1 on the wire: updates as `session/update` frames.

Text chunks are nearly all of the traffic, so their frames are put together from bytes that are
prepared once per message.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dsh_acp.acp import cards
from dsh_acp.acp.client import Client
from dsh_acp.acp.codec import Asking
from dsh_acp.acp.pieces import ReadMedia, attached, iso
from dsh_acp.acp.updates import (
    Attached,
    Block,
    CallChanged,
    CallShown,
    Choice,
    Choices,
    Chunk,
    Commands,
    Compaction,
    JobEnded,
    JobOutput,
    JobStarted,
    Notice,
    Output,
    Plan,
    Title,
    Update,
    Used,
    Value,
)
from dsh_acp.agent.commands import CommandInfo
from dsh_acp.messages import AudioRef, ImageRef
from dsh_acp.tools.tool import Card, TerminalView
from dsh_acp.wire import frames

_KINDS: Final[Mapping[str, str]] = {
    "agent": "agent_message_chunk",
    "thought": "agent_thought_chunk",
    "user": "user_message_chunk",
}
_STATUSES: Final = frozenset({"pending", "in_progress", "completed"})
_RESULT_SHOWN: Final = 2_000
_LIVE_SHOWN: Final = 8_000


class Codec:
    """Frames for one session and one client. Remembers which calls are shown as terminals."""

    def __init__(self, session_id: str, client: Client, read: ReadMedia) -> None:
        self.is_replaying = False
        self._session_id: Final = session_id
        self._client: Final = client
        self._read: Final = read
        self._prefix: Final = (
            b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%b,"update":'
            % frames.encode(session_id)
        )
        self._chunk: tuple[str, str] = ("", "")
        self._chunk_head = b""
        self._chunk_tail = b""
        self._terminals: set[str] = set()
        self._streamed: dict[str, str] = {}
        self._attached: set[str] = set()

    def frame(self, update: Mapping[str, Any]) -> bytes:
        """One `session/update` line."""
        return self._prefix + frames.encode(update) + b"}}\n"

    def encode(self, update: Update) -> bytes:
        """The line for `update`; empty when this client does not show such things."""
        match update:
            case Chunk():
                return self._text(update)
            case CallShown():
                return self.frame(self._call_shown(update))
            case CallChanged():
                return self.frame(self._call_changed(update))
            case Block():
                return self.frame(self._block(update))
            case Plan():
                return self.frame(_plan(update))
            case Title():
                return self.frame(
                    {
                        "sessionUpdate": "session_info_update",
                        "title": update.title,
                        "updatedAt": iso(update.time),
                    }
                )
            case Used():
                return self.frame(_used(update)) if update.size else b""
            case Notice():
                return self._notice(update)
            case Compaction():
                return self.frame(_compaction(update)) if self._client.compaction else b""
            case Output():
                return self._output(update.call_id, update.text)
            case Attached():
                return self._attach(update.call_id, update.terminal_id)
            case Commands():
                return self.frame(
                    {
                        "sessionUpdate": "available_commands_update",
                        "availableCommands": [_command(info) for info in update.commands],
                    }
                )
            case Choices():
                return self._choices(update)
            case JobStarted() | JobOutput() | JobEnded():
                return b""  # the model tells of them

    def _choices(self, update: Choices) -> bytes:
        lines = b""
        if update.is_new_mode:
            mode = update.choices[0].current
            lines = self.frame({"sessionUpdate": "current_mode_update", "currentModeId": mode})
        return lines + self.frame(
            {"sessionUpdate": "config_option_update", "configOptions": choices(update.choices)}
        )

    # ------------------------------------------------------------ messages

    def _text(self, chunk: Chunk) -> bytes:
        key = (chunk.role, chunk.message_id)
        if key != self._chunk:
            self._chunk = key
            self._chunk_head = (
                self._prefix
                + b'{"sessionUpdate":"%b","content":{"type":"text","text":'
                % _KINDS[chunk.role].encode()
            )
            self._chunk_tail = b'},"messageId":%b}}}\n' % frames.encode(chunk.message_id)
        return self._chunk_head + frames.encode(chunk.text) + self._chunk_tail

    def _block(self, block: Block) -> dict[str, Any]:
        content = block.content
        if isinstance(content, ImageRef | AudioRef):
            content = attached(content, self._read)
        return {
            "sessionUpdate": _KINDS[block.role],
            "content": content,
            "messageId": block.message_id,
        }

    def _notice(self, notice: Notice) -> bytes:
        if not self._client.notices:
            return (
                self._text(Chunk("agent", notice.message_id, notice.text)) if notice.text else b""
            )
        update = {
            "sessionUpdate": "notice",
            "severity": notice.severity,
            "title": notice.title,
        }
        if notice.description:
            update["description"] = notice.description
        return self.frame(update)

    # ------------------------------------------------------------ calls

    def _call_shown(self, shown: CallShown) -> dict[str, Any]:
        update: dict[str, Any] = {
            "sessionUpdate": "tool_call",
            "toolCallId": shown.call_id,
            "title": shown.card.title or shown.name or "Tool call",
        }
        if shown.name:
            update["name"] = shown.name
        update["kind"] = shown.card.kind or "other"
        update["status"] = "pending"
        self._describe(update, shown.call_id, shown.card)
        return update

    def _call_changed(self, changed: CallChanged) -> dict[str, Any]:
        update: dict[str, Any] = {
            "sessionUpdate": "tool_call_update",
            "toolCallId": changed.call_id,
        }
        card = changed.card
        if card is not None and card.title:
            update["title"] = card.title
        if card is not None and changed.output is None:
            update["kind"] = card.kind or "other"
            if changed.name:
                update["name"] = changed.name
        # This version has no word for a call that was stopped.
        status = "failed" if changed.status == "cancelled" else changed.status
        update["status"] = status
        if card is not None and changed.output is None:
            self._describe(update, changed.call_id, card)
        elif card is not None:
            self._conclude(update, changed.call_id, card, changed.output or "", status)
        return update

    def _describe(self, update: dict[str, Any], call_id: str, card: Card) -> None:
        if card.raw_input is not None:
            update["rawInput"] = card.raw_input
        if card.locations:
            update["locations"] = cards.locations(card.locations)
        content = [cards.text_content(text) for text in cards.texts(card)]
        content += cards.diffs(card.diffs)
        if card.terminal is not None:
            self._terminals.add(call_id)
            if self._client.terminal_output:
                content.append({"type": "terminal", "terminalId": call_id})
                update["_meta"] = {
                    "terminal_info": {"terminal_id": call_id, "cwd": card.terminal.cwd}
                }
        if content:
            update["content"] = content

    def _conclude(
        self, update: dict[str, Any], call_id: str, card: Card, output: str, status: str
    ) -> None:
        if card.locations:
            update["locations"] = cards.locations(card.locations)
        was_terminal = call_id in self._terminals
        self._terminals.discard(call_id)
        streamed = self._streamed.pop(call_id, "")
        if card.terminal is not None and was_terminal:
            if call_id in self._attached:  # the client's own terminal shows everything
                self._attached.discard(call_id)
            elif self._client.terminal_output:
                update["_meta"] = _terminal_end(call_id, card.terminal, bool(streamed))
            elif card.terminal.output:
                update["content"] = [cards.text_content(cards.fenced(card.terminal.output))]
            update["rawOutput"] = _exit(card.terminal)
            return
        content = [cards.text_content(text) for text in cards.texts(card)]
        content += cards.diffs(card.diffs)
        if not content and (status == "failed" or card.content is not None):
            content = [cards.text_content(cards.bounded(cards.plain(output)))] if output else []
        if content:
            update["content"] = content
        if card.diffs and output:
            update["rawOutput"] = {"result": output[:_RESULT_SHOWN]}

    def permission(self, asking: Asking) -> dict[str, Any]:
        """The call, with all that is needed to judge it, and the options."""
        card = asking.card
        call: dict[str, Any] = {
            "toolCallId": asking.call_id,
            "title": card.title or asking.name,
            "kind": card.kind or "other",
            "status": "pending",
        }
        if card.raw_input is not None:
            call["rawInput"] = card.raw_input
        if card.locations:
            call["locations"] = cards.locations(card.locations)
        content = [cards.text_content(text) for text in cards.texts(card)]
        content += cards.diffs(card.diffs)
        if content:
            call["content"] = content
        return {"sessionId": self._session_id, "toolCall": call, "options": asking.options}

    # ------------------------------------------------------------ live terminals

    def beside(self) -> bytes:
        """Nothing: the result brings the output anyway."""
        return b""

    def _output(self, call_id: str, text: str) -> bytes:
        if call_id in self._attached:
            return b""
        before = self._streamed.get(call_id, "")
        update: dict[str, Any] = {"sessionUpdate": "tool_call_update", "toolCallId": call_id}
        if call_id not in self._terminals:
            shown = self._streamed[call_id] = (before + text)[-_LIVE_SHOWN:]
            update["content"] = [cards.text_content(shown)]
        elif self._client.terminal_output:
            self._streamed[call_id] = "…"
            update["_meta"] = {"terminal_output": {"terminal_id": call_id, "data": text}}
        else:
            shown = self._streamed[call_id] = (before + text)[-_LIVE_SHOWN:]
            update["content"] = [cards.text_content(cards.fenced(shown))]
        return self.frame(update)

    def _attach(self, call_id: str, terminal_id: str) -> bytes:
        self._attached.add(call_id)
        return self.frame(
            {
                "sessionUpdate": "tool_call_update",
                "toolCallId": call_id,
                "content": [{"type": "terminal", "terminalId": terminal_id}],
            }
        )


def choices(found: Sequence[Choice]) -> list[dict[str, Any]]:
    """`configOptions`."""
    return [_choice(choice) for choice in found]


def _choice(choice: Choice) -> dict[str, Any]:
    groups = [
        {"group": name, "name": name, "options": [_value(value) for value in values]}
        for name, values in choice.groups
    ]
    return {
        "id": choice.id,
        "name": choice.name,
        "description": choice.description,
        "category": choice.id,
        "type": "select",
        "currentValue": choice.current,
        "options": groups if choice.groups[0][0] else groups[0]["options"],
    }


def _value(value: Value) -> dict[str, Any]:
    found = {"value": value.id, "name": value.name}
    if value.description is not None:
        found["description"] = value.description
    return found


def modes(current: str, presets: Sequence[Value]) -> dict[str, Any]:
    """`modes`."""
    return {
        "currentModeId": current,
        "availableModes": [
            {"id": value.id, "name": value.name, "description": value.description}
            for value in presets
        ],
    }


def _command(info: CommandInfo) -> dict[str, Any]:
    item: dict[str, Any] = {"name": info.name, "description": info.description or info.name}
    if info.hint:
        item["input"] = {"hint": info.hint}
    return item


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "sessionUpdate": "plan",
        "entries": [
            {
                "content": content,
                "priority": "medium",
                "status": status if status in _STATUSES else "pending",
            }
            for content, status in plan.entries
        ],
    }


def _used(used: Used) -> dict[str, Any]:
    update: dict[str, Any] = {
        "sessionUpdate": "usage_update",
        "used": used.used,
        "size": used.size,
    }
    if len(used.costs) == 1:
        currency, amount = used.costs[0]
        update["cost"] = {"amount": amount, "currency": currency}
    if used.tokens:
        update["_meta"] = {"dsh-acp": {"usage": used.tokens}}
    return update


def _compaction(compaction: Compaction) -> dict[str, Any]:
    update: dict[str, Any] = {
        "sessionUpdate": "compaction_update",
        "compactionId": compaction.id,
        "status": compaction.status,
    }
    if compaction.summary is not None:
        update["summary"] = [{"type": "text", "text": compaction.summary}]
    if compaction.error is not None:
        update["error"] = compaction.error
    return update


def _exit(terminal: TerminalView) -> dict[str, Any]:
    if terminal.exit_code is not None:
        return {"exitCode": terminal.exit_code}
    return {"signal": terminal.signal} if terminal.signal is not None else {}


def _terminal_end(call_id: str, terminal: TerminalView, was_streamed: bool) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    if terminal.output and not was_streamed:
        data = cards.bounded(terminal.output)
        meta["terminal_output"] = {"terminal_id": call_id, "data": data}
    ending: dict[str, Any] = {"terminal_id": call_id}
    if terminal.exit_code is not None:
        ending["exit_code"] = terminal.exit_code
    elif terminal.signal is not None:
        ending["signal"] = terminal.signal
    meta["terminal_exit"] = ending
    return meta
