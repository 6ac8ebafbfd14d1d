"""Version 2 on the wire: updates as `session/update` frames.

A message is told of by an upsert, and by chunks from then on; a call and a terminal by upserts
alone. Text chunks are nearly all of the traffic, so their frames are put together from bytes that
are prepared once per message.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dsh_acp.acp import cards, patches, v2_parts
from dsh_acp.acp.codec import Asking
from dsh_acp.acp.pieces import ReadMedia, attached, iso
from dsh_acp.acp.updates import (
    Attached,
    Block,
    CallChanged,
    CallShown,
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
    Role,
    Title,
    Update,
    Used,
)
from dsh_acp.messages import AudioRef, ImageRef
from dsh_acp.tools.legible import one_line
from dsh_acp.tools.tool import Card, TerminalView
from dsh_acp.wire import frames

_KINDS: Final[Mapping[Role, str]] = {
    "agent": "agent_message",
    "thought": "agent_thought",
    "user": "user_message",
}
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_RESULT_SHOWN: Final = 2_000
_STREAMED: Final = 262_144
"""How many bytes of a terminal are streamed; its end brings what was kept of more."""

_CANCELLABLE: Final[Mapping[str, Any]] = {"cancel": {}}


class Codec:
    """Frames for one session. Remembers which messages, calls and terminals were told of.

    `is_replaying` while history is sent: a notice is no history, so its words become a message.
    """

    def __init__(self, session_id: str, read: ReadMedia) -> None:
        self.is_replaying = False
        self._session_id: Final = session_id
        self._read: Final = read
        self._prefix: Final = (
            b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%b,"update":'
            % frames.encode(session_id)
        )
        self._told: set[tuple[Role, str]] = set()
        self._chunk: tuple[str, str] = ("", "")
        self._chunk_head = b""
        self._running: set[str] = set()
        self._terminals: dict[str, bytearray] = {}
        self._streamed: set[str] = set()

    def frame(self, update: Mapping[str, Any]) -> bytes:
        """One `session/update` line."""
        return self._prefix + frames.encode(update) + b"}}\n"

    def encode(self, update: Update) -> bytes:
        """The lines for `update`."""
        match update:
            case Chunk():
                return self._text(update)
            case Block():
                return self._block(update)
            case CallShown():
                return self._call_shown(update)
            case CallChanged():
                return self._call_changed(update)
            case Output():
                return self._output(update)
            case Plan():
                return self.frame(v2_parts.plan(update))
            case Title():
                info = {"title": update.title, "updatedAt": iso(update.time)}
                return self.frame({"sessionUpdate": "session_info_update", **info})
            case Used():
                return self.frame(v2_parts.used(update)) if update.size else b""
            case Notice():
                return self._notice(update)
            case Compaction():
                return self.frame(v2_parts.compaction(update))
            case Commands():
                listed = v2_parts.commands(update.commands)
                return self.frame(
                    {"sessionUpdate": "available_commands_update", "availableCommands": listed}
                )
            case Choices():
                listed = v2_parts.choices(update.choices)
                return self.frame(
                    {"sessionUpdate": "config_option_update", "configOptions": listed}
                )
            case JobStarted():
                return self._job_started(update)
            case JobOutput(id=id, output=data):
                return self._printed(id, data)
            case JobEnded():
                status = _exit_status(TerminalView("", "", None, update.exit_code, update.signal))
                shown = {"output": {"data": _base64(update.output)}} if update.output else {}
                ended = {**shown, "exitStatus": status, "capabilities": {}}
                return self._terminal(update.id, ended)
            case Attached():
                return b""  # terminals are the agent's own

    # ------------------------------------------------------------ messages

    def _text(self, chunk: Chunk) -> bytes:
        key = (chunk.role, chunk.message_id)
        if key not in self._told:
            return self._message(*key, {"type": "text", "text": chunk.text})
        if key != self._chunk:
            self._chunk = key
            self._chunk_head = (
                self._prefix
                + b'{"sessionUpdate":"%b_chunk","messageId":%b,"content":{"type":"text","text":'
                % (_KINDS[chunk.role].encode(), frames.encode(chunk.message_id))
            )
        return self._chunk_head + frames.encode(chunk.text) + b"}}}}\n"

    def _block(self, block: Block) -> bytes:
        content = block.content
        if isinstance(content, ImageRef | AudioRef):
            content = attached(content, self._read)
        if (block.role, block.message_id) not in self._told:
            return self._message(block.role, block.message_id, content)
        kind = f"{_KINDS[block.role]}_chunk"
        return self.frame(
            {"sessionUpdate": kind, "messageId": block.message_id, "content": content}
        )

    def _message(self, role: Role, id: str, *content: Mapping[str, Any]) -> bytes:
        self._told.add((role, id))
        return self.frame({"sessionUpdate": _KINDS[role], "messageId": id, "content": content})

    def _notice(self, notice: Notice) -> bytes:
        if self.is_replaying:
            text = notice.text or notice.title
            return self._text(Chunk("agent", notice.message_id, text))
        update = {
            "sessionUpdate": "notice",
            "severity": notice.severity,
            "title": notice.title or notice.text or "Notice",
        }
        if notice.description:
            update["description"] = notice.description
        return self.frame(update)

    # ------------------------------------------------------------ calls

    def _call_shown(self, shown: CallShown) -> bytes:
        update: dict[str, Any] = {"title": shown.card.title or shown.name or "Tool call"}
        if shown.name:
            update["name"] = shown.name
        update["kind"] = shown.card.kind or "other"
        update["status"] = "pending"
        return self._described(shown.call_id, update, shown.card)

    def _call_changed(self, changed: CallChanged) -> bytes:
        id, card, status = changed.call_id, changed.card, changed.status
        update: dict[str, Any] = {}
        if card is not None and card.title:
            update["title"] = card.title
        if card is not None and changed.output is None:
            update["kind"] = card.kind or "other"
            if changed.name:
                update["name"] = changed.name
        update["status"] = status
        if status == "in_progress":
            self._running.add(id)
            update["capabilities"] = _CANCELLABLE
            return self._started(id) + self._call(id, update)
        if status in _ENDED:
            if id in self._running:
                self._running.discard(id)
                update["capabilities"] = {}
            ended = self._ended(id, card)
            if card is not None and changed.output is not None:
                self._conclude(update, card, changed.output, status)
            return ended + self._call(id, update)
        return self._described(id, update, card) if card is not None else self._call(id, update)

    def _call(self, id: str, update: Mapping[str, Any]) -> bytes:
        return self.frame({"sessionUpdate": "tool_call_update", "toolCallId": id, **update})

    def _described(self, id: str, update: dict[str, Any], card: Card) -> bytes:
        line = b""
        content = _content(card)
        if card.terminal is not None:
            self._terminals[id] = bytearray()
            terminal = {"command": card.terminal.command, "cwd": card.terminal.cwd}
            line = self._terminal(id, terminal)
            content.append({"type": "terminal", "terminalId": id})
        _place(update, card, content)
        return line + self._call(id, update)

    def _conclude(self, update: dict[str, Any], card: Card, output: str, status: str) -> None:
        if card.terminal is not None:
            if card.locations:
                update["locations"] = cards.locations(card.locations)
            update["rawOutput"] = _exit_status(card.terminal)
            return
        content = _content(card)
        if not content and (status != "completed" or card.content is not None):
            content = [cards.text_content(cards.bounded(cards.plain(output)))] if output else []
        _place(update, card, content)
        update.pop("rawInput", None)
        if card.diffs and output:
            update["rawOutput"] = {"result": output[:_RESULT_SHOWN]}

    # ------------------------------------------------------------ terminals

    def _terminal(self, id: str, update: Mapping[str, Any]) -> bytes:
        return self.frame({"sessionUpdate": "terminal_update", "terminalId": id, **update})

    def _started(self, id: str) -> bytes:
        if id not in self._terminals:
            return b""
        return self._terminal(id, {"capabilities": _CANCELLABLE})

    def _output(self, output: Output) -> bytes:
        id, data = output.call_id, output.text.encode("utf-8", "replace")
        shown = self._terminals.get(id)
        if shown is None:
            content = cards.text_content(cards.plain(output.text))
            return self.frame(
                {"sessionUpdate": "tool_call_content_chunk", "toolCallId": id, "content": content}
            )
        shown += data
        return self._printed(id, data)

    def _printed(self, id: str, data: bytes) -> bytes:
        chunk = {"sessionUpdate": "terminal_output_chunk", "terminalId": id}
        return self.frame({**chunk, "data": _base64(data)})

    def _ended(self, id: str, card: Card | None) -> bytes:
        """The terminal of a call that has ended; its output where it was not streamed whole."""
        shown = self._terminals.pop(id, None)
        if shown is None:
            return b""
        view = card.terminal if card is not None else None
        update: dict[str, Any] = {}
        remarks = b""
        if view is not None and view.output and not 0 < len(shown) < _STREAMED:
            data = cards.bounded(view.output).encode("utf-8", "replace")
            update["output"] = {"data": _base64(data)}
        elif view is not None and shown:
            remarks = self._remarks(id, view.output or "", shown)
        update["exitStatus"] = {} if view is None else _exit_status(view)
        update["capabilities"] = {}
        return remarks + self._terminal(id, update)

    def _remarks(self, id: str, output: str, shown: bytearray) -> bytes:
        """What is said of a command below its output, such as that its time was up."""
        found: list[str] = []
        for line in reversed(output.rstrip("\n").split("\n")):
            if not (line.startswith("[") and line.endswith("]")) or line.encode() in shown:
                break
            found.insert(0, line)
        if not found:
            return b""
        start = "" if shown.endswith(b"\n") else "\n"
        text = start + "\n".join(found) + "\n"
        return self._printed(id, text.encode("utf-8", "replace"))

    def _job_started(self, job: JobStarted) -> bytes:
        terminal: dict[str, Any] = {"command": job.command, "cwd": job.cwd}
        if job.output:
            terminal["output"] = {"data": _base64(job.output)}
        terminal["capabilities"] = _CANCELLABLE
        shown = {
            "sessionUpdate": "tool_call_content_chunk",
            "toolCallId": job.call_id,
            "content": {"type": "terminal", "terminalId": job.id},
        }
        return self._terminal(job.id, terminal) + self.frame(shown)

    def beside(self) -> bytes:
        """Which calls run, and what their terminals show so far."""
        lines = b""
        for id in self._running:
            shown = self._terminals.get(id)
            if shown is not None:
                snapshot = {"output": {"data": _base64(bytes(shown))}} if shown else {}
                lines += self._terminal(id, {**snapshot, "capabilities": _CANCELLABLE})
            lines += self._call(id, {"status": "in_progress", "capabilities": _CANCELLABLE})
        return lines

    # ------------------------------------------------------------ questions

    def permission(self, asking: Asking) -> dict[str, Any]:
        """What is asked in words of its own, and the command or the call that it is about."""
        params: dict[str, Any] = {"sessionId": self._session_id}
        if asking.command is not None and asking.cwd is not None:
            first, _, more = asking.command.strip().partition("\n")
            params["title"] = f"Run {one_line(first) or 'a command'}{' …' if more else ''}"
            subject: dict[str, Any] = {
                "type": "command",
                "command": asking.command,
                "cwd": asking.cwd,
                "toolCallId": asking.call_id,
            }
            if asking.call_id in self._terminals:
                subject["terminalId"] = asking.call_id
        else:
            params["title"] = asking.title or asking.name
            call: dict[str, Any] = {"toolCallId": asking.call_id, "title": asking.title}
            call["kind"] = asking.card.kind or "other"
            call["status"] = "pending"
            card = asking.plain_card
            _place(call, card, _content(card))
            subject = {"type": "tool_call", "toolCall": call}
        if asking.description:
            params["description"] = asking.description
        return {**params, "subject": subject, "options": asking.options}


# ---------------------------------------------------------------- parts of frames


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _content(card: Card) -> list[dict[str, Any]]:
    found = [cards.text_content(text) for text in cards.texts(card)]
    return found + patches.diffs(card.diffs)


def _place(update: dict[str, Any], card: Card, content: Sequence[Mapping[str, Any]]) -> None:
    if card.raw_input is not None:
        update["rawInput"] = card.raw_input
    places = [place for place in card.locations if Path(place.path).is_absolute()]
    if places:
        update["locations"] = cards.locations(places)
    if content:
        update["content"] = content


def _exit_status(terminal: TerminalView) -> dict[str, Any]:
    if terminal.exit_code is not None:
        return {"exitCode": terminal.exit_code}
    return {"signal": terminal.signal} if terminal.signal is not None else {}
