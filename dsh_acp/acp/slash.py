"""Slash commands in prompts, and the list of them that the client offers."""

import re
from typing import Any, Final

from dsh_acp.acp.conversation import Conversation
from dsh_acp.agent.commands import CommandInfo
from dsh_acp.messages import Message

_COMMAND: Final = re.compile(r"\s*/([a-z][a-z0-9_:-]*)(?=\s|\Z)(.*)\Z", re.DOTALL)


def recognise(text: str) -> tuple[str, str] | None:
    """The command's name and the rest of its line; `None` for an ordinary prompt.

    A path such as `/etc/hosts` is no command.
    """
    found = _COMMAND.match(text)
    return (found[1], found[2].strip()) if found else None


async def run(conversation: Conversation, name: str, args: str) -> Message | None:
    """Run a command and show its answer; a message is to be sent as a prompt instead.

    An unknown name is answered like a command that failed. Returns when all of it has been sent.
    """
    known = {info.name for info in conversation.session.commands.list()}
    result = await conversation.session.commands.run(name, args)
    if result.prompt is not None:
        # What the person typed is shown by the command's own event.
        return Message.user(result.prompt.content, {"kind": "user", "blocks": []})
    await conversation.caught_up()
    if name not in known:
        conversation.write(conversation.voice.say(f"Error: {result.text}"))
    if has_changed(conversation):
        conversation.write(announcement(conversation))
    conversation.write(conversation.voice.changes())
    return None


def announcement(conversation: Conversation) -> bytes:
    """The complete list as an update."""
    listed = conversation.session.commands.list()
    conversation.announced = tuple(listed)
    update = {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [_item(info) for info in listed],
    }
    return conversation.frame(update)


def has_changed(conversation: Conversation) -> bool:
    """Whether the list differs from the one last announced."""
    return tuple(conversation.session.commands.list()) != conversation.announced


def _item(info: CommandInfo) -> dict[str, Any]:
    item: dict[str, Any] = {"name": info.name, "description": info.description or info.name}
    if info.hint:
        item["input"] = {"hint": info.hint}
    return item
