"""Log entries as what a person sees: one fold, used for live streaming and for replay.

Given the same entries it gives the same updates, whether they come one by one while the model
speaks or all at once from a file; only the person's own words are left out while live, since the
editor shows them already.

Ids are made here and are functions of the log: a message is one block of one attempt of one step.
"""

from collections.abc import Callable, Iterable, Mapping
import logging
import re
from typing import Any, Final
import zlib

from dsh_acp.acp import shapes
from dsh_acp.acp.calls import Calls
from dsh_acp.acp.own_words import own_words
from dsh_acp.acp.prompts import outcome
from dsh_acp.acp.updates import (
    Block,
    Chunk,
    Compaction,
    Notice,
    Plan,
    Role,
    Title,
    Update,
    Used,
)
from dsh_acp.agent.usage import PriceOf, UsageFold
from dsh_acp.log.envelope import decode_payload
from dsh_acp.log.events import Event, Replace
from dsh_acp.log.packed import ROW_TYPES, ChunkRow, Entry
from dsh_acp.log.payloads import (
    AssistantChunk,
    AssistantMessage,
    RequestContext,
    RequestDigest,
    RequestHeader,
    StepEnd,
    StepStart,
    TodoWrite,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
)
from dsh_acp.log.plugin_payloads import (
    ApprovalAsked,
    ApprovalDecided,
    CommandDone,
    CommandRun,
    CompactionEnd,
    CompactionStart,
    CompactionSummary,
    HookResult,
    LlmRetry,
    SessionTitle,
)
from dsh_acp.messages import (
    BlockEnd,
    Failure,
    Image,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCallDelta,
    source_kind,
)
from dsh_acp.tools.tool import ToolSet
from dsh_acp.wire.frames import RpcError

_log = logging.getLogger(__name__)

_MARKER: Final = 0xFFF

_CHUNK: Final = AssistantChunk.TYPE
_KIND: Final = b'"chunk":{"type":"'
_KIND_SIZE: Final = len(_KIND)
_WITHIN: Final = 256
"""Where in the line of a chunk its kind has been said, if the keys are in the format's order."""

_QUIET: Final = frozenset((b"block-start", b'usage","usa', b'finish","re'))
"""How the kinds of chunks begin that show nothing; logs are full of them."""

_FRAGMENT: Final = b"tool-call-d"
_END: Final = b'block-end",'
_BLOCK_END: Final = re.compile(rb'block-end","index":(\d+),')
_CALL: Final = b',"block":{"type":"tool-call",'
_BLOCK_WITHIN: Final = 64
"""Where after the kind a block has begun that ended, if the keys are in the format's order."""

_FIRST_ATTEMPT: Final = b'"attempt":1,'
_COMPLETED: Final = b'"reason":{"kind":"completed"}}}'


_RARE: Final = (
    CommandDone.TYPE,
    CommandRun.TYPE,
    CompactionEnd.TYPE,
    CompactionStart.TYPE,
    CompactionSummary.TYPE,
    HookResult.TYPE,
    LlmRetry.TYPE,
    RequestContext.TYPE,
    SessionTitle.TYPE,
    TodoWrite.TYPE,
)

NOT_THE_MODEL: Final = frozenset({"UNKNOWN", "BUG", "INVARIANT"})
"""Failure codes that do not come from a model."""


class Projection:
    """The fold of one session. `tools` give the cards; `price_of` the costs."""

    def __init__(self, session_id: str, cwd: str, tools: ToolSet, price_of: PriceOf) -> None:
        self.calls: Final = Calls(cwd, tools)
        self.is_live = False
        """Whether the ends of turns are told by answers to their prompts as well."""
        self._node: Final = f"{zlib.crc32(session_id.encode()):08x}{len(session_id) & 0xFFFF:04x}"
        self._usage: Final = UsageFold(price_of)
        self._turn = 0
        self._step = 0
        self._attempt = 1
        self._is_prompted = False
        self._ids: dict[int, str] = {}
        self._streamed: set[int] = set()
        self._asked: dict[str, str] = {}
        self._shows: Final[Mapping[str, Callable[[Any, bool], list[Update]]]] = {
            **dict.fromkeys(ROW_TYPES, self._row),
            **dict.fromkeys(_RARE, self._rare),
            ApprovalAsked.TYPE: self._ask,
            ApprovalDecided.TYPE: self._decide,
            AssistantMessage.TYPE: self._answer,
            RequestDigest.TYPE: self._digest,
            RequestHeader.TYPE: self._header,
            StepEnd.TYPE: self._step_end,
            StepStart.TYPE: self._step_start,
            ToolCallEvent.TYPE: self._call,
            ToolResultEvent.TYPE: self._result,
            TurnEnd.TYPE: self._turn_end,
            TurnStart.TYPE: self._turn_start,
            UserMessage.TYPE: self._user_message,
        }

    # ------------------------------------------------------------ entry points

    def apply(self, entry: Entry, *, replay: bool = False) -> list[Update]:
        """What `entry` changes for the person. A fault in showing it is reported, not raised."""
        return self._show((entry,), replay)

    def replay(self, entries: Iterable[Entry]) -> list[Update]:
        """`apply` each of `entries` as a part of the history."""
        return self._show(entries, True)

    def _show(self, entries: Iterable[Entry], replay: bool) -> list[Update]:
        shows, arrive, updates = self._shows, self.calls.arrive, list[Update]()
        for entry in entries:
            kind = entry.type
            try:
                # More than half of a log is chunks, and few of them show anything.
                if kind == _CHUNK and isinstance(entry, Event):
                    line = entry.line
                    at = line.find(_KIND, 0, _WITHIN) + _KIND_SIZE
                    start = line[at : at + 11]
                    if start in _QUIET:
                        continue
                    if start == _FRAGMENT:
                        found = arrive(entry, entry.time, entry.time)
                    elif start == _END and (
                        line.find(_CALL, at, at + _BLOCK_WITHIN) > 0 or self._has_shown(line, at)
                    ):
                        continue
                    else:
                        found = self._chunk(entry)
                else:
                    show = shows.get(kind)
                    if show is None:
                        continue
                    found = show(entry, replay)
            except Exception:  # noqa: BLE001 - a display fault must not starve what follows the entry
                _log.exception("entry %d cannot be shown", entry.seq)
                continue
            if found:
                updates += found
        return updates

    # ------------------------------------------------------------ streaming

    def _row(self, row: ChunkRow, replay: bool) -> list[Update]:
        kind = row.kind
        if kind == "tool-call":
            return self.calls.arrive(row, row.time0, row.end_time)
        return self._text("agent" if kind == "text" else "thought", row.index, row.text)

    def _text(self, role: Role, index: int, text: str) -> list[Update]:
        if not text:
            return []
        self._streamed.add(index)
        return [Chunk(role, self._message_id(index), text)]

    def _message_id(self, index: int) -> str:
        found = self._ids.get(index)
        if found is None:
            found = self._ids[index] = (
                f"{self._turn & 0xFFFFFFFF:08x}-{self._step & 0xFFFF:04x}"
                f"-4{self._attempt & 0xFFF:03x}-8{index & 0xFFF:03x}-{self._node}"
            )
        return found

    def _new_attempt(self, attempt: int) -> list[Update]:
        self._attempt = attempt
        self._ids.clear()
        self._streamed.clear()
        return self.calls.close_arriving()

    def _has_shown(self, line: bytes, at: int) -> bool:
        """Whether the block that ends here was streamed."""
        end = _BLOCK_END.match(line, at)
        return end is not None and int(end[1]) in self._streamed

    def _chunk(self, event: Event) -> list[Update]:
        payload = decode_payload(event.type, event.raw)  # looked at once, so not kept
        match payload.chunk if isinstance(payload, AssistantChunk) else None:
            case TextDelta(index=index, text=text):
                return self._text("agent", index, text)
            case ReasoningDelta(index=index, text=text):
                return self._text("thought", index, text)
            case ToolCallDelta():
                return self.calls.arrive(event, event.time, event.time)
            case BlockEnd(index=index, block=Text(text=text)) if index not in self._streamed:
                return self._text("agent", index, text)
            case BlockEnd(index=index, block=Reasoning(text=text)) if index not in self._streamed:
                return self._text("thought", index, text)
            case _:
                return []

    # ------------------------------------------------------------ events

    def _turn_start(self, event: Event, replay: bool) -> list[Update]:
        self._usage.begin_turn()
        return self._begin(shapes.PLACE.decode(event.raw).turn, 0)

    def _step_start(self, event: Event, replay: bool) -> list[Update]:
        return self._begin(self._turn, shapes.PLACE.decode(event.raw).step)

    def _begin(self, turn: int, step: int) -> list[Update]:
        self._turn, self._step = turn, step
        self.calls.place = (turn, step)
        self._is_prompted = self._is_prompted and step > 0
        return self._new_attempt(1)

    def _step_end(self, event: Event, replay: bool) -> list[Update]:
        return self.calls.close_arriving()

    def _digest(self, event: Event, replay: bool) -> list[Update]:
        if self._attempt == 1 and event.line.find(_FIRST_ATTEMPT, 0, _WITHIN) > 0:
            return []
        if not isinstance(payload := event.payload, RequestDigest):
            return []
        return [] if payload.attempt == self._attempt else self._new_attempt(payload.attempt)

    def _header(self, event: Event, replay: bool) -> list[Update]:
        self._usage.apply(event)
        return []

    def _call(self, event: Event, replay: bool) -> list[Update]:
        payload = decode_payload(event.type, event.raw)
        return self.calls.record(payload) if isinstance(payload, ToolCallEvent) else []

    def _result(self, event: Event, replay: bool) -> list[Update]:
        self._usage.apply(event)
        return self.calls.finish(event)

    def _ask(self, event: Event, replay: bool) -> list[Update]:
        asked = shapes.read(event, shapes.ASKED)
        if asked is not None and asked.call_id is not None:
            self._asked[asked.id] = asked.call_id
        return []

    def _decide(self, event: Event, replay: bool) -> list[Update]:
        decided = shapes.read(event, shapes.DECIDED)
        if decided is None:
            return []
        call_id = self._asked.pop(decided.id, "")
        if decided.outcome == "allowed-once":
            return self.calls.start(call_id)
        if decided.outcome == "cancelled":
            self.calls.stop(call_id)
        return []

    def _user_message(self, event: Event, replay: bool) -> list[Update]:
        self._usage.apply(event)
        if isinstance(event.placement, Replace):
            return [self._used({})] if self._usage.context_used else []
        if not isinstance(payload := event.payload, UserMessage):
            return []
        if source_kind(payload.message) != "user":
            return []
        self._is_prompted = True
        return own_words(payload.message) if replay else []

    def _rare(self, event: Event, replay: bool) -> list[Update]:
        if event.type in self._usage.types:
            self._usage.apply(event)
        match event.payload:
            case TodoWrite(todos=todos):
                return [Plan(tuple((todo.content, todo.status) for todo in todos))]
            case SessionTitle(title=title):
                return [Title(title, event.time)]
            case HookResult(point="UserPromptSubmit", decision="block") as refused:
                return [self._refused(refused)]
            case LlmRetry() as retry:
                return self._retry(retry)
            case CommandRun() as run if replay:
                args = run.args if isinstance(run.args, str) else ""
                return [Chunk("user", run.command_id, f"/{run.name}{_spaced(args)}")]
            case CommandDone() as done if isinstance(done.text, str) and done.text:
                text = done.text if done.kind == "success" else f"Error: {done.text}"
                return [Chunk("agent", f"{done.command_id}-answer", text)]
            case CompactionStart(compaction_id=id):
                return [Compaction(id, "in_progress")]
            case CompactionSummary() as summary:
                text = "".join(str(block.get("text", "")) for block in summary.summary)
                return [Compaction(summary.compaction_id, "completed", summary=text)]
            case CompactionEnd(compaction_id=id, error=str() as error):
                return [Compaction(id, "failed", error=error)]
            case RequestContext():
                return [self._used({})] if self._usage.context_used else []
            case _:
                pass
        return []

    def _answer(self, event: Event, replay: bool) -> list[Update]:
        usage = self._usage.apply(event)
        found: list[Update] = []
        if not self._streamed and isinstance(answer := event.payload, AssistantMessage):
            for index, block in enumerate(answer.message.content):
                match block:
                    case Text(text=text):
                        found += self._text("agent", index, text)
                    case Reasoning(text=text):
                        found += self._text("thought", index, text)
                    case Image(attachment=image):
                        found.append(Block("agent", self._message_id(index), image))
                    case _:
                        pass
        if usage is not None:
            tokens = {
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
                "cacheReadTokens": usage.cache_read_tokens or 0,
                "cacheWriteTokens": usage.cache_write_tokens or 0,
                "reasoningTokens": usage.reasoning_tokens or 0,
            }
            found.append(self._used(tokens))
        return found

    def _used(self, tokens: dict[str, int]) -> Used:
        usage = self._usage
        costs = tuple((currency, round(amount, 6)) for currency, amount in usage.costs.items())
        return Used(usage.context_used, usage.context_window, costs, tokens)

    # ------------------------------------------------------------ failures

    def _retry(self, retry: LlmRetry) -> list[Update]:
        count = f"{retry.retry}/{retry.max_retries}" if retry.max_retries else f"{retry.retry}"
        delay = round(retry.delay_ms)
        reason = retry.failure.message
        notice = Notice(
            "warning",
            f"Retrying ({count})",
            f"The model's attempt failed and is discarded: {reason}",
            self._message_id(_MARKER),
            f"\n\n[Previous model attempt discarded; retrying {count} in {delay}ms: {reason}]\n\n",
        )
        return [notice, *self._new_attempt(self._attempt + 1)]

    def _refused(self, refused: HookResult) -> Notice:
        summary = refused.stderr_summary
        why = summary if isinstance(summary, str) else "it gave no reason"
        said = f"A hook refused the prompt: {why}"
        return Notice("warning", "Prompt refused", said, self._message_id(_MARKER), f"{said}\n\n")

    def _turn_end(self, event: Event, replay: bool) -> list[Update]:
        if event.line.endswith(_COMPLETED):
            return self.calls.close_all()
        if not isinstance(end := event.payload, TurnEnd):
            return []
        was_stopped = end.reason.kind in ("aborted", "interrupted")
        found = self.calls.close_all("cancelled" if was_stopped else "failed")
        error = end.reason.error
        if isinstance(error, Failure) and error.code not in NOT_THE_MODEL:
            found += self._failed(end.reason, error.message)
        return found

    def _failed(self, reason: TurnEndReason, message: str) -> list[Update]:
        """That the model failed, unless the answer to the prompt says all there is to say."""
        told, text = message, f"any partial output above is discarded: {message}"
        if self.is_live and self._is_prompted and isinstance(outcome(reason), RpcError):
            if not self._streamed:
                return []
            told = "The partial output above is discarded."
            text = "the partial output above is discarded"
        text = f"\n\n[Model attempt failed; {text}]\n\n"
        return [Notice("error", "The model failed", told, self._message_id(_MARKER), text)]


def _spaced(args: str) -> str:
    return args if not args or args[0].isspace() else f" {args}"
