"""A package installed beside the agent that frames requests while `FRAMER_WHILE` exists."""

import os
from typing import Any

from dsh_acp.agent.hooks import Framing, Hooks
from dsh_acp.messages import Message, Text


def install(hooks: Hooks) -> None:
    async def request_framing(proposal: Any, proceed: Any) -> Framing:
        framing = await proceed()
        if not os.path.exists(os.environ["FRAMER_WHILE"]):  # noqa: ASYNC240 - it is a test
            return framing
        note = Message.user((Text("This project is written in Python."),), id="note")
        return Framing((*framing.before, note), framing.after)

    hooks.request_framing.append(request_framing)
