"""The calls of a session as cards: a fold that the projection carries along.

A call is shown when it is recorded, and before that when its arguments take long to arrive. It is
changed when it begins to run and when it has its result, and closed as failed when it can no
longer get one. Ids that a model uses twice are told apart for the editor.
"""

from collections.abc import Callable
import logging
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dsh_acp import jsontext
from dsh_acp.acp.cards import fallback_card
from dsh_acp.acp.fragments import Fragment, fragment
from dsh_acp.acp.updates import CallChanged, CallShown, Status, Update
from dsh_acp.log.events import Event, Replace
from dsh_acp.log.packed import Entry
from dsh_acp.log.payloads import ErrorInfo, ToolCallEvent, ToolResultEvent
from dsh_acp.messages import Block, ToolResult, text_of
from dsh_acp.tools.legible import one_line
from dsh_acp.tools.tool import Card, Kind, ToolSet

_log = logging.getLogger(__name__)

_SLOW_CALL_MS: Final = 400
"""A call whose arguments take longer than this to arrive is shown before they are complete."""

_STOPPED: Final = frozenset({"ABORTED", "ABORTED_BEFORE_DISPATCH", "TOOL_NOT_STARTED"})
"""Codes of results of calls that were stopped, or never begun."""

_NO_CARD: Final = Card()


class _Content(Struct, frozen=True):
    content: tuple[Block, ...]


class _Result(Struct, frozen=True):
    turn: int
    step: int
    message: _Content
    meta: Raw | UnsetType = UNSET


_result: Final = msgspec.json.Decoder(_Result)
_meta: Final = msgspec.json.Decoder(dict[str, Any])


def _read(event: Event) -> tuple[ToolResult | None, Raw | UnsetType]:
    """The block of a recorded result, and what was recorded beside it."""
    try:
        found = _result.decode(event.raw)
        blocks, meta = found.message.content, found.meta
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        payload = event.payload
        if not isinstance(payload, ToolResultEvent):
            return None, UNSET
        blocks, meta = payload.message.content, UNSET
        if isinstance(payload.meta, dict):
            meta = Raw(jsontext.encode(payload.meta))
    for block in blocks:
        if isinstance(block, ToolResult):
            return block, meta
    return None, UNSET


def _was_stopped(event: Event) -> bool:
    """Whether a recorded failure is that somebody stopped the call."""
    payload = event.payload
    error = payload.error if isinstance(payload, ToolResultEvent) else None
    return isinstance(error, ErrorInfo) and error.code in _STOPPED


def _object(recorded: Raw) -> dict[str, Any] | None:
    try:
        return jsontext.decode(bytes(recorded), _meta)
    except msgspec.ValidationError:
        return None


class _Call(Struct):
    call_id: str
    name: str
    arguments: str
    """`""` while they still arrive."""
    is_started: bool = False
    is_stopped: bool = False

    @property
    def is_arriving(self) -> bool:
        return not self.arguments


class Calls:
    """The fold. `tools` may be replaced while the session lives."""

    def __init__(self, cwd: str, tools: ToolSet) -> None:
        self._cwd: Final = cwd
        self.tools = tools
        self.makes_cards = True
        """Off while a history is only remembered, not shown."""
        self.place: tuple[int, int] = (0, 0)
        """The turn and step of what comes next."""
        self._open: dict[str, _Call] = {}
        self._used_ids: set[str] = set()
        self._arriving: dict[int, tuple[str, str, int]] = {}
        self._pieces: list[Entry] = []
        self._since: int | None = None

    def call_id(self, id: str) -> str:
        """The editor's id for the model's open call of that id, or for a subagent's call."""
        call = self._open.get(id)
        if call is not None:
            return call.call_id
        parent, slash, rest = id.partition("/")
        return f"{self._open[parent].call_id}/{rest}" if slash and parent in self._open else id

    def is_open(self, id: str) -> bool:
        """Whether the call was recorded and has no result yet."""
        call = self._open.get(id)
        return call is not None and not call.is_arriving

    # ------------------------------------------------------------ life of a call

    def arrive(self, piece: Entry, first: int, last: int) -> list[Update]:
        """A piece of some call's arguments, which arrived from `first` to `last`."""
        since = self._since
        if since is None or first < since:
            self._since = since = first
        self._pieces.append(piece)
        # Histories have tens of thousands, and what a piece says matters once a call is slow.
        return [] if last - since < _SLOW_CALL_MS else self._read_pieces()

    def _read_pieces(self) -> list[Update]:
        found: list[Update] = []
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            part = fragment(piece)
            if part is not None:
                found += self._progress(part)
        return found

    def _progress(self, part: Fragment) -> list[Update]:
        known_id, known_name, since = self._arriving.get(part.index, ("", "", part.first))
        id, name = part.id or known_id, part.name or known_name
        self._arriving[part.index] = (id, name, since)
        known = self._open.get(id)
        if not id or not name or part.last - since < _SLOW_CALL_MS or (known and known.is_arriving):
            return []
        call = self._admit(id, name, "")
        return [CallShown(call.call_id, name, Card(title=one_line(name), kind=self._kind(name)))]

    def record(self, event: ToolCallEvent) -> list[Update]:
        """The call is recorded; it runs next, or is asked about."""
        card = self._call_card(event.name, event.arguments)
        arguments = event.arguments or "{}"
        known = self._open.get(event.call_id)
        if known is not None and known.is_arriving:
            known.arguments = arguments
            return [CallChanged(known.call_id, "pending", card, event.name)]
        call = self._admit(event.call_id, event.name, arguments)
        return [CallShown(call.call_id, event.name, card)]

    def start(self, id: str) -> list[Update]:
        """The call begins to run."""
        call = self._open.get(id)
        if call is None or call.is_started:
            return []
        call.is_started = True
        return [CallChanged(call.call_id, "in_progress")]

    def finish(self, event: Event) -> list[Update]:
        """The call has its result, which `event` records."""
        if isinstance(event.placement, Replace):
            return []  # trimming rewrites history; it is not a second execution
        block, recorded = _read(event)
        if block is None:
            return []
        found: list[Update] = []
        call = self._open.pop(block.tool_call_id, None)
        if call is None:
            # Written by repair: the result of a call that was never recorded as started.
            call = self._admit(block.tool_call_id, "", "{}")
            del self._open[block.tool_call_id]
            found.append(CallShown(call.call_id, "", fallback_card("", "")))
        is_error = block.is_error is True
        card = self._result_card(call, block, is_error, recorded)
        status: Status = "failed" if is_error or _exited_badly(card) else "completed"
        if is_error and (call.is_stopped or _was_stopped(event)):
            status = "cancelled"
        output = text_of(block.content)
        return [*found, CallChanged(call.call_id, status, card, output=output)]

    def close_arriving(self) -> list[Update]:
        """The attempt is over; calls whose arguments were still arriving will never run."""
        if self._since is not None:
            self._since = None
            self._pieces.clear()
            self._arriving.clear()
        if not self._open:
            return []
        return self._close(lambda call: call.is_arriving, "cancelled")

    def close_all(self, status: Status = "failed") -> list[Update]:
        """The turn is over; nothing that is open will get a result."""
        return self._close(lambda call: True, status)

    def _close(self, which: Callable[[_Call], bool], status: Status) -> list[Update]:
        closed = [id for id, call in self._open.items() if which(call)]
        return [CallChanged(self._open.pop(id).call_id, status) for id in closed]

    def stop(self, id: str) -> None:
        """The person cancelled the call instead of deciding about it."""
        if id in self._open:
            self._open[id].is_stopped = True

    def _admit(self, id: str, name: str, arguments: str) -> _Call:
        public = id
        if not public or public in self._used_ids:
            turn, step = self.place
            suffix = f"{turn}.{step}" if arguments else "arriving"
            public = f"{id or 'call'}.{suffix}"
            while public in self._used_ids:
                public += "+"
        self._used_ids.add(public)
        call = self._open[id] = _Call(public, name, arguments)
        return call

    # ------------------------------------------------------------ cards

    def _kind(self, name: str) -> Kind | None:
        return self._call_card(name, "").kind

    def _call_card(self, name: str, arguments: str) -> Card:
        if not self.makes_cards:
            return _NO_CARD
        tool = self.tools.get(name)
        if tool is not None:
            try:
                return tool.call_card(arguments, self._cwd)
            except Exception:  # noqa: BLE001 - a display fault must not starve what follows
                _log.exception("the card of a call of %s failed", name)
        return fallback_card(name, arguments)

    def _result_card(
        self, call: _Call, block: ToolResult, is_error: bool, recorded: Raw | UnsetType
    ) -> Card:
        if not self.makes_cards:
            return _NO_CARD
        tool = self.tools.get(call.name)
        if tool is not None:
            try:
                meta = None
                # What a tool recorded beside its result can be long, and few cards show it.
                if not isinstance(recorded, UnsetType) and getattr(tool, "shows_meta", True):
                    meta = _object(recorded)
                return tool.result_card(call.arguments, block.content, is_error, meta, self._cwd)
            except Exception:  # noqa: BLE001 - a display fault must not starve what follows
                _log.exception("the card of a result of %s failed", call.name)
        return Card(content=block.content)


def _exited_badly(card: Card) -> bool:
    terminal = card.terminal
    return terminal is not None and bool(terminal.exit_code or terminal.signal)
