"""What the summariser is asked, and how its answer becomes the new beginning of the history.

The summarising request has to fit as well. What does not fit is left out from the oldest on, in
whole rounds, so that no call loses its result; a last round that is still too long is told as
plain text with its middle removed.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from dsh_acp import jsontext
from dsh_acp.messages import (
    Audio,
    Block,
    Image,
    Message,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    source_kind,
)

PLUGIN: Final = "compact"
INSTRUCTION_PLUGIN: Final = "dsh-compaction-basic"

INSTRUCTION: Final = """\
Your context window is nearly full. Write a checkpoint from which the work can go on: it will \
replace everything above, and whoever continues knows nothing else. Do not use any tool. Answer in \
Markdown with exactly these sections, in this order, and write "(none)" under one that is empty:

## Primary Request and Intent
## Key Technical Concepts
## Files and Code
## Errors and Fixes
## Pending Jobs
## Current Work
## Next Step
## Critical Context

Keep exact names, paths, commands, numbers, error texts and decisions, and the user's own words \
where they set a requirement. Leave out what no longer matters. If there is an earlier \
<compacted-summary> above, merge what still holds into yours instead of copying it."""

PREAMBLE: Final = (
    "The conversation up to here was compacted. This checkpoint stands for it; go on from there."
)
_DROPPED: Final = "[{count} earlier messages were left out because they do not fit.]"
_CUT: Final = "\n[... left out ...]\n"
_VERBATIM_CHARS: Final = 4000

Price = Callable[[Message], int]


def instruction(focus: str = "") -> Message:
    """The request for a checkpoint; `focus` is what the user wants kept above all."""
    text = INSTRUCTION
    if focus.strip():
        text += f"\n\nThe user asks to pay attention to: {focus.strip()}"
    return _plugin(text, INSTRUCTION_PLUGIN)


def _plugin(text: str, plugin: str, **more: Any) -> Message:
    return Message.user((Text(text),), {"kind": "plugin", "plugin": plugin, **more})


def is_checkpoint(message: Message) -> bool:
    """Whether `message` is the checkpoint of an earlier compaction."""
    source = message.source
    return source.get("kind") == "plugin" and source.get("plugin") == PLUGIN


def checkpoint(
    summary: Sequence[Text],
    compaction_id: str,
    command_id: str | None,
    latest_request: Message | None,
) -> Message:
    """The message that stands for what was summarised.

    `latest_request` is the newest prompt if it is among that; it is quoted, so that a summary
    cannot lose it.
    """
    closing = "</compacted-summary>"
    if latest_request is not None and latest_request.text.strip():
        quoted = _middle_out(latest_request.text, _VERBATIM_CHARS)
        closing += f"\n\nThe user's latest request, verbatim:\n\n{quoted}"
    source: dict[str, Any] = {"kind": "plugin", "plugin": PLUGIN, "compactionId": compaction_id}
    if command_id is not None:
        source["sourceCommandId"] = command_id
    return Message.user(
        (Text(f"{PREAMBLE}\n\n<compacted-summary>"), *summary, Text(closing)), source
    )


def balance(message: Message) -> int:
    """Calls that `message` opens minus results that it brings."""
    blocks = message.content
    return sum(isinstance(block, ToolCall) for block in blocks) - sum(
        isinstance(block, ToolResult) for block in blocks
    )


def balanced_cuts(messages: Sequence[Message | None]) -> list[int]:
    """The positions at which the list can be cut without separating a call from its result."""
    cuts = [0]
    open_calls = 0
    for position, message in enumerate(messages, start=1):
        open_calls += 0 if message is None else balance(message)
        if open_calls == 0:
            cuts.append(position)
    return cuts


def fitted(messages: Sequence[Message], limit: int, price: Price) -> tuple[Message, ...]:
    """`messages` within `limit` tokens; the newest are kept, and an earlier checkpoint if it can.

    The answer is the same for the same input. It may exceed a limit of a few hundred tokens.
    """
    prices = [price(message) for message in messages]
    if sum(prices) <= limit:
        return tuple(messages)
    head: tuple[Message, ...] = ()
    if messages and is_checkpoint(messages[0]) and prices[0] <= limit // 4:
        head = (messages[0],)
    room = limit - sum(map(price, head)) - price(_dropped(len(messages)))
    for cut in balanced_cuts(messages):
        if len(head) < cut < len(messages) and sum(prices[cut:]) <= room:
            return (*head, _dropped(cut - len(head)), *messages[cut:])
    cuts = [cut for cut in balanced_cuts(messages) if cut < len(messages)]
    last = max(cuts, default=0)
    told = _middle_out(transcript(messages[last:]), max(200, room) * 4 - 64)
    return (*head, _dropped(max(0, last - len(head))), _plugin(told, INSTRUCTION_PLUGIN))


def _dropped(count: int) -> Message:
    return _plugin(_DROPPED.format(count=count), INSTRUCTION_PLUGIN)


def transcript(messages: Sequence[Message]) -> str:
    """`messages` as plain text."""
    return "\n\n".join(
        f"[{message.role}, {source_kind(message)}]\n"
        + "\n".join(_told(block) for block in message.content)
        for message in messages
    )


def _told(block: Block | Opaque) -> str:
    match block:
        case Text(text):
            return text
        case Reasoning(text):
            return f"(thinking) {text}"
        case ToolCall():
            return f"(call {block.name}) {block.arguments}"
        case ToolResult():
            return "(result) " + "\n".join(_told(item) for item in block.content)
        case Image():
            return "(image)"
        case Audio():
            return "(recording)"
        case Opaque():
            return jsontext.clean(block.json.decode("utf-8", "replace"))


def _middle_out(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = max(0, limit - head - len(_CUT))
    return text[:head] + _CUT + (text[-tail:] if tail else "")
