"""What a person said, for a client that does not know it yet."""

from collections.abc import Mapping
from typing import Any, cast

from dsh_acp.acp.updates import Block, Chunk, Update
from dsh_acp.messages import Audio, Image, MediaRef, Message, Text


def own_words(message: Message) -> list[Update]:
    """A person's message as they typed it, where the model was given something else for it."""
    shown = message.source.get("blocks")
    if isinstance(shown, list):
        attached = {
            block.attachment.attachment_id: block.attachment
            for block in message.content
            if isinstance(block, Image | Audio)
        }
        return [_shown(message.id, block, attached) for block in cast(list[Any], shown)]
    found: list[Update] = []
    for block in message.content:
        match block:
            case Text(text=text) if text:
                found.append(Chunk("user", message.id, text))
            case Image() | Audio():
                found.append(Block("user", message.id, block.attachment))
            case _:
                pass
    return found


def _shown(message_id: str, shown: Any, attached: Mapping[str, MediaRef]) -> Update:
    block = cast(dict[str, Any], shown if isinstance(shown, dict) else {})
    match block.get("type"):
        case "text":
            return Chunk("user", message_id, str(block.get("text", "")))
        case "attachment" if block.get("id") in attached:
            return Block("user", message_id, attached[block["id"]])
        case _:
            return Block("user", message_id, block)
