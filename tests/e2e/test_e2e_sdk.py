"""The protocol's own Python SDK drives the installed command: an editor that is not ours."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
import json
from pathlib import Path
import sys
from typing import Any

import acp
from acp.connection import StreamEvent
import acp.schema
import anyio
from e2e_agent import PROJECT, bash, bodies, environment, script, tool
import pytest

from dsh_acp.llm.fake import FakeLlm
from dsh_acp.snapshot.calls import Line
from dsh_acp.snapshot.conformity import schema_folder, violations

COMMAND = Path(sys.executable).with_name("dsh-acp")

Answer = Callable[[list[acp.schema.PermissionOption]], acp.RequestPermissionResponse]


def choose(kind: str) -> Answer:
    """Answers questions with the option of this kind."""

    def answer(options: list[acp.schema.PermissionOption]) -> acp.RequestPermissionResponse:
        option = next(option for option in options if option.kind == kind)
        outcome = acp.schema.AllowedOutcome(option_id=option.option_id, outcome="selected")
        return acp.RequestPermissionResponse(outcome=outcome)

    return answer


def _read(path: str) -> str:
    return Path(path).read_text("utf-8")


def _write(path: str, content: str) -> None:
    Path(path).write_text(content, "utf-8")


class Editor(acp.Client):
    """What the SDK calls: keeps updates, answers questions, has files."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.written: dict[str, str] = {}
        self.answer: Answer = choose("allow_once")
        self.is_told = anyio.Event()

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)
        self.is_told.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **kwargs: Any
    ) -> acp.RequestPermissionResponse:
        self.asked.append(tool_call)
        return self.answer(options)

    async def read_text_file(
        self, session_id: str, path: str, **kwargs: Any
    ) -> acp.ReadTextFileResponse:
        return acp.ReadTextFileResponse(content=_read(path))

    async def write_text_file(
        self, session_id: str, path: str, content: str, **kwargs: Any
    ) -> acp.WriteTextFileResponse:
        self.written[path] = content
        _write(path, content)
        return acp.WriteTextFileResponse()

    def kinds(self) -> list[str]:
        return [update.session_update for update in self.updates]

    def text(self, kind: str = "agent_message_chunk") -> str:
        found = [u.content.text for u in self.updates if u.session_update == kind]
        return "".join(found)

    def calls(self) -> dict[str, tuple[str, str | None]]:
        """Title and last status of each tool call."""
        found: dict[str, tuple[str, str | None]] = {}
        for update in self.updates:
            if update.session_update in ("tool_call", "tool_call_update"):
                title, status = found.get(update.tool_call_id, ("", None))
                found[update.tool_call_id] = (update.title or title, update.status or status)
        return found


class Desk:
    """One SDK connection to one agent process, and every line of it."""

    def __init__(self, connection: Any, process: Any, editor: Editor, lines: list[Line]) -> None:
        self.agent = connection
        self.process = process
        self.editor = editor
        self.lines = lines

    async def initialize(self) -> acp.InitializeResponse:
        capabilities = acp.schema.ClientCapabilities(
            fs=acp.schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
        )
        return await self.agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION, client_capabilities=capabilities
        )

    async def prompt(self, session: str, text: str) -> acp.PromptResponse:
        return await self.agent.prompt(session_id=session, prompt=[acp.text_block(text)])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n", "utf-8")
    return folder


@asynccontextmanager
async def desk(tmp_path: Path, project: Path, fake: FakeLlm) -> AsyncGenerator[Desk]:
    """An agent under the SDK; afterwards, every line of its stdout is judged."""
    if not COMMAND.exists():
        pytest.skip("the command dsh-acp is not installed beside this interpreter")
    editor, lines = Editor(), list[Line]()

    def observe(event: StreamEvent) -> None:
        data = json.dumps(event.message, ensure_ascii=False).encode()
        lines.append(Line(event.direction.value == "outgoing", data))

    with anyio.fail_after(60):
        async with acp.spawn_agent_process(
            editor,
            str(COMMAND),
            env=environment(tmp_path / "home", fake.url),
            cwd=project,
            transport_kwargs={"limit": 1 << 26},
            observers=[observe],
        ) as (connection, process):
            yield Desk(connection, process, editor, lines)
    assert process.returncode == 0
    assert await process.stderr.read() == b""
    assert violations(lines, schema_folder(PROJECT / "README.md")) == []
    assert sum(not line.sent for line in lines) > 1


async def test_the_sdk_shakes_hands_opens_prompts_approves_and_gets_everything(
    tmp_path: Path, project: Path, fake: FakeLlm
) -> None:
    edit = tool("c2", "edit", file_path="a.txt", old_string="two", new_string="three")
    fake.use(
        script(
            {
                "reasoning": "First I look.",
                "tool_calls": [tool("c1", "read", file_path="a.txt")],
            },
            {"text": "Now the edit.", "tool_calls": [edit]},
            {"tool_calls": [bash("c3", "cat a.txt")]},
            {"text": "Done."},
        )
    )
    async with desk(tmp_path, project, fake) as here:
        shaken = await here.initialize()
        assert shaken.protocol_version == 1
        assert shaken.agent_info is not None and shaken.agent_info.name == "dsh-acp"
        assert shaken.agent_capabilities is not None and shaken.agent_capabilities.load_session
        session = (await here.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        answer = await here.prompt(session, "change it")
        editor = here.editor
        assert answer.stop_reason == "end_turn"
        assert editor.text() == "Now the edit.Done."
        assert editor.text("agent_thought_chunk") == "First I look."
        assert [asked.kind for asked in editor.asked] == ["edit", "execute"]
        assert {status for _, status in editor.calls().values()} == {"completed"}
        assert len(editor.calls()) == 3
        assert (project / "a.txt").read_text("utf-8") == "one\nthree\n"
        assert editor.written == {str(project / "a.txt"): "one\nthree\n"}
        diffs = [c for u in editor.asked for c in (u.content or []) if c.type == "diff"]
        assert [(d.old_text, d.new_text) for d in diffs] == [("one\ntwo", "one\nthree")]


async def test_a_denial_reaches_the_model_and_the_turn_ends_well(
    tmp_path: Path, project: Path, fake: FakeLlm
) -> None:
    fake.use(script({"tool_calls": [bash("c1", "touch never")]}, {"text": "Then not."}))
    async with desk(tmp_path, project, fake) as here:
        here.editor.answer = choose("reject_once")
        await here.initialize()
        session = (await here.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        answer = await here.prompt(session, "go")
        assert answer.stop_reason == "end_turn"
        assert here.editor.text() == "Then not."
        assert [status for _, status in here.editor.calls().values()] == ["failed"]
        assert not (project / "never").exists()
    told = bodies(fake)[1]["messages"][-1]
    assert told["role"] == "tool" and told["tool_call_id"] == "c1"


async def test_a_cancel_ends_the_turn_and_the_next_prompt_works(
    tmp_path: Path, project: Path, fake: FakeLlm
) -> None:
    fake.use(script("partial_stall", {"text": "Here again."}))
    async with desk(tmp_path, project, fake) as here:
        await here.initialize()
        session = (await here.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        answers: list[acp.PromptResponse] = []

        async def prompt() -> None:
            answers.append(await here.prompt(session, "talk"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            while not here.editor.text():
                await here.editor.is_told.wait()
                here.editor.is_told = anyio.Event()
            await here.agent.cancel(session_id=session)
        assert [answer.stop_reason for answer in answers] == ["cancelled"]
        assert (await here.prompt(session, "again")).stop_reason == "end_turn"
        assert here.editor.text().endswith("Here again.")


async def test_a_session_is_loaded_by_another_process_and_goes_on(
    tmp_path: Path, project: Path, fake: FakeLlm
) -> None:
    fake.use(
        script(
            {"reasoning": "Hm.", "text": "Looking.", "tool_calls": [bash("c1", "echo found")]},
            {"text": "That is it."},
            {"text": "Yes, still here."},
        )
    )
    async with desk(tmp_path, project, fake) as first:
        await first.initialize()
        session = (await first.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        await first.prompt(session, "look")
    async with desk(tmp_path, project, fake) as second:
        await second.initialize()
        listed = await second.agent.list_sessions(cwd=str(project))
        assert [(s.session_id, s.cwd) for s in listed.sessions] == [(session, str(project))]
        await second.agent.load_session(session_id=session, cwd=str(project), mcp_servers=[])
        was, now = first.editor, second.editor
        assert now.text("user_message_chunk") == "look"
        assert now.text() == was.text() == "Looking.That is it."
        assert now.text("agent_thought_chunk") == "Hm."
        assert now.calls() == was.calls() != {}
        assert (await second.prompt(session, "and now?")).stop_reason == "end_turn"
        assert now.text().endswith("Yes, still here.")
    before, after = bodies(fake)[-2:]
    assert after["messages"][: len(before["messages"])] == before["messages"]
