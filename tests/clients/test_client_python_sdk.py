"""The official Python SDK's client against the real process."""

import asyncio  # noqa: TID251 - the SDK is written for asyncio
import os
from pathlib import Path
import sys
from typing import Any

import acp
from acp.schema import AllowedOutcome, ClientCapabilities, FileSystemCapabilities
import anyio

from dsh_acp.llm.fake import FakeLlm

PROJECT = Path(__file__).resolve().parents[2]


class Editor(acp.Client):
    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.choice = "allow-once"

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, options: Any, session_id: str, tool_call: Any, **_: Any
    ) -> acp.RequestPermissionResponse:
        self.asked.append(tool_call)
        outcome = AllowedOutcome(outcome="selected", option_id=self.choice)
        return acp.RequestPermissionResponse(outcome=outcome)

    def said(self) -> str:
        return "".join(
            update.content.text
            for update in self.updates
            if update.session_update == "agent_message_chunk"
        )

    def statuses(self) -> list[str | None]:
        return [
            update.status
            for update in self.updates
            if update.session_update in ("tool_call", "tool_call_update")
        ]


async def test_the_official_client_prompts_approves_denies_cancels_and_loads(
    tmp_path: Path,
) -> None:
    touch = {
        "name": "bash",
        "arguments": {"command": "touch made", "description": "Touch a file"},
    }
    script = [{"tool_calls": [touch]}, "success", {"tool_calls": [touch]}, "success", "stall"]

    def is_conversation(request: Any) -> bool:
        return bool(request.json.get("tools"))

    answers = iter(script)
    with FakeLlm(lambda request: next(answers) if is_conversation(request) else "success") as fake:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": str(PROJECT),
            "DSH_ACP_MODEL": "openai/m",
            "OPENAI_BASE_URL": fake.url,
            "OPENAI_API_KEY": "x",
        }
        editor = Editor()
        command = (sys.executable, "-m", "dsh_acp")
        with anyio.fail_after(30):
            async with acp.spawn_agent_process(editor, *command, env=env, cwd=tmp_path) as (
                agent,
                process,
            ):
                await _talk(agent, editor, tmp_path, fake)
            await process.wait()


async def _talk(agent: Any, editor: Editor, cwd: Path, fake: FakeLlm) -> None:
    capabilities = ClientCapabilities(
        fs=FileSystemCapabilities(read_text_file=False, write_text_file=False)
    )
    made = await agent.initialize(protocol_version=1, client_capabilities=capabilities)
    assert made.protocol_version == 1 and made.agent_info.name == "dsh-acp"
    session = (await agent.new_session(cwd=str(cwd), mcp_servers=[])).session_id
    result = await agent.prompt(prompt=[acp.text_block("make it")], session_id=session)
    assert result.stop_reason == "end_turn" and await anyio.Path(cwd / "made").exists()
    assert editor.statuses() == ["pending", "in_progress", "completed"]
    assert "mock response" in editor.said()

    editor.choice = "reject-once"
    result = await agent.prompt(prompt=[acp.text_block("again")], session_id=session)
    assert result.stop_reason == "end_turn" and editor.statuses()[-1] == "failed"

    running = asyncio.ensure_future(
        agent.prompt(prompt=[acp.text_block("stall")], session_id=session)
    )
    # A title is asked for behind the first turn.
    assert await anyio.to_thread.run_sync(fake.wait_for_requests, 6)
    await agent.cancel(session_id=session)
    assert (await running).stop_reason == "cancelled"

    before = len(editor.updates)
    await agent.load_session(cwd=str(cwd), session_id=session, mcp_servers=[])
    replayed = [update.session_update for update in editor.updates[before:]]
    assert replayed.count("user_message_chunk") == 3 and replayed.count("tool_call") == 2
