"""Slash commands in prompts."""

import re
from typing import Final

from dsh_acp.acp.conversation import Conversation
from dsh_acp.messages import Message
from dsh_acp.wire.jsonrpc import Call

_COMMAND: Final = re.compile(r"\s*/([a-z][a-z0-9_:-]*)(?=\s|\Z)(.*)\Z", re.DOTALL)


def recognise(text: str) -> tuple[str, str] | None:
    """The command's name and the rest of its line; `None` for an ordinary prompt.

    A path such as `/etc/hosts` is no command.
    """
    found = _COMMAND.match(text)
    return (found[1], found[2].strip()) if found else None


async def run(conversation: Conversation, call: Call, name: str, args: str) -> Message | None:
    """Run a command, show its answer and end `call`; a message is to be sent as a prompt instead.

    An unknown name is answered like a command that failed.
    """
    prompts = conversation.prompts
    known = {info.name for info in conversation.session.commands.list()}
    prompts.commanding(call)
    result = await conversation.session.commands.run(name, args)
    if result.prompt is not None:
        # What the person typed is shown by the command's own event.
        return Message.user(result.prompt.content, {"kind": "user", "blocks": []})
    await conversation.caught_up()
    if name not in known:
        conversation.write(prompts.unlogged(call, f"/{name} {args}".strip()))
        conversation.write(conversation.voice.say(f"Error: {result.text}"))
    conversation.write(conversation.voice.new_commands() + conversation.voice.changes())
    conversation.write(prompts.commanded(call, "end_turn"))
    return None
