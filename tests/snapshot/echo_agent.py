"""The echo agent of the official SDK's examples, as a program: it says what it is told."""

import asyncio  # noqa: TID251 - the SDK is written for asyncio
from typing import Any
import uuid

import acp


class Echo(acp.Agent):
    """Sends every text block back."""

    def on_connect(self, conn: Any) -> None:
        self.conn = conn

    async def initialize(self, protocol_version: int, **_: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **_: Any) -> acp.NewSessionResponse:
        return acp.NewSessionResponse(session_id=uuid.uuid4().hex)

    async def prompt(self, prompt: Any, session_id: str, **_: Any) -> acp.PromptResponse:
        for block in prompt:
            said = acp.update_agent_message(acp.text_block(block.text))
            await self.conn.session_update(session_id=session_id, update=said)
        return acp.PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Echo()))
