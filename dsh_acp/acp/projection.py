"""Log entries as what a person sees: one fold, used for live streaming and for replay.

Given the same entries it gives the same updates, whether they come one by one while the model
speaks or all at once from a file; only the person's own words are left out while live, since the
editor shows them already.

Ids are made here and are functions of the log: a message is one block of one attempt of one step.
"""

from collections.abc import Mapping
import logging
from typing import Any, Final, cast
import zlib

from dsh_acp.acp.calls import Calls
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
from dsh_acp.log.events import Event
from dsh_acp.log.packed import ChunkRow, Entry
from dsh_acp.log.payloads import (
    AssistantChunk,
    AssistantMessage,
    RequestContext,
    RequestDigest,
    StepEnd,
    StepStart,
    TodoWrite,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
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
    ImageRef,
    Message,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCallDelta,
)
from dsh_acp.tools.tool import ToolSet

_log = logging.getLogger(__name__)

_MARKER: Final = 0xFFF

NOT_THE_MODEL: Final = frozenset({"UNKNOWN", "BUG", "INVARIANT"})
"""Failure codes that do not come from a model."""


class Projection:
    """The fold of one session. `tools` give the cards; `price_of` the costs."""

    def __init__(self, session_id: str, cwd: str, tools: ToolSet, price_of: PriceOf) -> None:
        self.calls: Final = Calls(cwd, tools)
        self._node: Final = f"{zlib.crc32(session_id.encode()):08x}{len(session_id) & 0xFFFF:04x}"
        self._usage: Final = UsageFold(price_of)
        self._turn = 0
        self._step = 0
        self._attempt = 1
        self._ids: dict[int, str] = {}
        self._streamed: set[int] = set()
        self._asked: dict[str, str] = {}

    # ------------------------------------------------------------ entry points

    def apply(self, entry: Entry, *, replay: bool = False) -> list[Update]:
        """What `entry` changes for the person. A fault in showing it is reported, not raised."""
        try:
            if isinstance(entry, ChunkRow):
                return self._row(entry)
            return self._event(entry, replay)
        except Exception:  # noqa: BLE001 - a display fault must not starve what follows the entry
            _log.exception("entry %d cannot be shown", entry.seq)
            return []

    # ------------------------------------------------------------ streaming

    def _row(self, row: ChunkRow) -> list[Update]:
        if row.kind == "tool-call":
            return self.calls.arrive(
                row.index, row.id or "", row.name or "", row.time0, row.end_time
            )
        return self._text("agent" if row.kind == "text" else "thought", row.index, row.text)

    def _text(self, role: Role, index: int, text: str) -> list[Update]:
        if not text:
            return []
        self._streamed.add(index)
        return [Chunk(role, self._message_id(index), text)]

    @property
    def _suffix(self) -> str:
        return f"{self._turn}.{self._step}"

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

    def _chunk(self, event: Event, payload: AssistantChunk) -> list[Update]:
        match payload.chunk:
            case TextDelta(index=index, text=text):
                return self._text("agent", index, text)
            case ReasoningDelta(index=index, text=text):
                return self._text("thought", index, text)
            case ToolCallDelta() as delta:
                name = delta.name if isinstance(delta.name, str) else ""
                return self.calls.arrive(delta.index, delta.id, name, event.time, event.time)
            case BlockEnd(index=index, block=Text(text=text)) if index not in self._streamed:
                return self._text("agent", index, text)
            case BlockEnd(index=index, block=Reasoning(text=text)) if index not in self._streamed:
                return self._text("thought", index, text)
            case _:
                return []

    # ------------------------------------------------------------ events

    def _event(self, event: Event, replay: bool) -> list[Update]:
        if event.type in self._usage.types:
            self._usage.apply(event)
        match event.payload:
            case AssistantChunk() as payload:
                return self._chunk(event, payload)
            case TurnStart(turn=turn):
                self._turn, self._step = turn, 0
                return self._new_attempt(1)
            case StepStart(step=step):
                self._step = step
                return self._new_attempt(1)
            case RequestDigest(attempt=attempt):
                return self._new_attempt(attempt) if attempt != self._attempt else []
            case AssistantMessage() as answer:
                return self._answer(answer)
            case ToolCallEvent() as call:
                return self.calls.record(call, self._suffix)
            case ToolResultEvent() as result:
                return self.calls.finish(event, result, self._suffix)
            case UserMessage(message=message) if replay:
                return self._user(message)
            case StepEnd():
                return self.calls.close_arriving()
            case TurnEnd() as end:
                return self._turn_end(end)
            case payload:
                return self._plugin_event(event, payload, replay)

    def _plugin_event(self, event: Event, payload: Any, replay: bool) -> list[Update]:
        match payload:
            case TodoWrite(todos=todos):
                return [Plan(tuple((todo.content, todo.status) for todo in todos))]
            case SessionTitle(title=title):
                return [Title(title, event.time)]
            case ApprovalAsked(id=id, call_id=str() as call_id):
                self._asked[id] = call_id
            case ApprovalDecided(id=id, outcome="allowed-once"):
                return self.calls.start(self._asked.pop(id, ""))
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
                done = Compaction(summary.compaction_id, "completed", summary=text)
                return [done, self._used({})]
            case CompactionEnd(compaction_id=id, error=str() as error):
                return [Compaction(id, "failed", error=error)]
            case RequestContext():
                return [self._used({})] if self._usage.context_used else []
            case _:
                pass
        return []

    def _answer(self, answer: AssistantMessage) -> list[Update]:
        found: list[Update] = []
        if not self._streamed:
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
        usage = answer.usage
        if usage:
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

    def _user(self, message: Message) -> list[Update]:
        source = message.source
        if source.get("kind") != "user":
            return []
        shown = source.get("blocks")
        if isinstance(shown, list):
            # What was typed, where the model was given something else for it.
            images = {
                block.attachment.attachment_id: block.attachment
                for block in message.content
                if isinstance(block, Image)
            }
            return [_shown(message.id, block, images) for block in cast(list[Any], shown)]
        found: list[Update] = []
        for block in message.content:
            match block:
                case Text(text=text) if text:
                    found.append(Chunk("user", message.id, text))
                case Image(attachment=image):
                    found.append(Block("user", message.id, image))
                case _:
                    pass
        return found

    # ------------------------------------------------------------ failures

    def _retry(self, retry: LlmRetry) -> list[Update]:
        count = f"{retry.retry}/{retry.max_retries}" if retry.max_retries else f"{retry.retry}"
        delay = int(retry.delay_ms) if float(retry.delay_ms).is_integer() else retry.delay_ms
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

    def _turn_end(self, end: TurnEnd) -> list[Update]:
        found = self.calls.close_all()
        error = end.reason.error
        if isinstance(error, Failure) and error.code not in NOT_THE_MODEL:
            text = (
                "\n\n[Model attempt failed; any partial output above is discarded: "
                f"{error.message}]\n\n"
            )
            found.append(
                Notice("error", "The model failed", error.message, self._message_id(_MARKER), text)
            )
        return found


def _spaced(args: str) -> str:
    return args if not args or args[0].isspace() else f" {args}"


def _shown(message_id: str, shown: Any, images: Mapping[str, ImageRef]) -> Update:
    block = cast(dict[str, Any], shown if isinstance(shown, dict) else {})
    match block.get("type"):
        case "text":
            return Chunk("user", message_id, str(block.get("text", "")))
        case "attachment" if block.get("id") in images:
            return Block("user", message_id, images[block["id"]])
        case _:
            return Block("user", message_id, block)
