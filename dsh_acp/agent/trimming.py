"""Long tool results, shortened in the middle once the window fills up.

A shortened result takes the place of the whole one on the surface; the log keeps both. Shortening
is deterministic, and shortening what is short already changes nothing.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

from dsh_acp import jsontext
from dsh_acp.log.events import Event, Replace
from dsh_acp.log.payloads import ToolResultEvent
from dsh_acp.log.plugin_payloads import CompactionPrune, ShadowedRange
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.token_meter import price_message
from dsh_acp.messages import Message

THRESHOLD: Final = 8192
HEAD: Final = 4096
TAIL: Final = 1024
MARKER: Final = "\n\n[... tool result middle pruned ...]\n\n"


def shorten(texts: Sequence[str]) -> list[str] | None:
    """The texts of one result with their middle removed; `None` when they are short enough.

    Lengths are code points over all texts. The marker stands in the first text that loses some.
    """
    total = sum(map(len, texts))
    if total <= THRESHOLD:
        return None
    cut_from, cut_to = HEAD, total - TAIL
    shortened: list[str] = []
    position = 0
    marked = False
    for text in texts:
        start, end = position, position + len(text)
        position = end
        if end <= cut_from or start >= cut_to:
            shortened.append(text)
            continue
        head = text[: max(0, cut_from - start)]
        tail = text[max(0, cut_to - start) :] if end > cut_to else ""
        shortened.append(head + ("" if marked else MARKER) + tail)
        marked = True
    return shortened


def shortened_message(message: Message) -> Message | None:
    """The result message with its middle removed; `None` when it is short enough.

    Everything but the texts stays as it is, the message id included.
    """
    data = cast(dict[str, Any], jsontext.loads(message.json))
    block = data["content"][0]
    inner = cast(list[dict[str, Any]], block["content"])
    texts = [item["text"] for item in inner if item.get("type") == "text"]
    short = shorten(texts)
    if short is None:
        return None
    left = iter(short)
    kept: list[dict[str, Any]] = []
    for item in inner:
        if item.get("type") != "text":
            kept.append(item)
        elif text := next(left):
            kept.append({**item, "text": text})
    block["content"] = kept
    return Message(jsontext.encode(data))


def trim(log: SessionLog, seqs: Sequence[int]) -> int:
    """Shorten the tool results among the surface nodes `seqs`; how many were long."""
    return sum(_trim(log, log.event(seq)) for seq in seqs)


def _trim(log: SessionLog, event: Event) -> bool:
    result = event.payload
    if not isinstance(result, ToolResultEvent):
        return False
    short = shortened_message(result.message)
    if short is None:
        return False
    price = price_message(result.message)
    span = ShadowedRange(event.seq, event.seq)
    log.append(CompactionPrune(span, (event.seq,), price))
    log.append(
        ToolResultEvent(result.turn, result.step, short, result.error, result.meta),
        surface=Replace(event.seq, event.seq),
        sources=(event.seq,),
    )
    return True
