"""The whole of it: a model over HTTP, the real tools, real files, and the audit afterwards."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
import itertools
import json
from pathlib import Path
from typing import Any

from agent_bench import Patience, Person, ends, results
import anyio
import pytest

from dsh_acp.agent.services import Services, SessionOptions
from dsh_acp.agent.session import Session
from dsh_acp.config import ProviderSettings, Secret, Settings
from dsh_acp.llm.fake import FakeLlm
from dsh_acp.llm.registry import Providers
from dsh_acp.log.audit import audit_log
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.store import Store
from dsh_acp.messages import Message, Text
from dsh_acp.tools.catalog import builtin
from dsh_acp.tools.world import LocalWorld


class Workshop:
    """A project, a person and a fake endpoint."""

    def __init__(self, root: Path, fake: FakeLlm) -> None:
        self.project = root / "project"
        self.project.mkdir()
        self.person = Person()
        self.clock = Patience()
        self.fake = fake
        self.settings = Settings(
            home=root / "state",
            config_path=root / "c.toml",
            config_dir=root,
            model="mock/fake-model",
            providers={
                "mock": ProviderSettings(
                    name="mock", base_url=fake.url, api_key=Secret("k"), context_window=50_000
                )
            },
        )
        self.store = Store(self.settings.home)
        self.providers = Providers(self.settings)

    @asynccontextmanager
    async def session(self, log: SessionLog | None = None) -> AsyncGenerator[Session]:
        services = Services(
            settings=self.settings,
            store=self.store,
            providers=self.providers,
            tools=builtin(self.settings),
            world=LocalWorld(),
            asker=self.person,
            clock=self.clock,
        )
        options = SessionOptions(cwd=str(self.project))
        opened = log or self.store.create(str(self.project))
        with anyio.fail_after(30):
            try:
                async with Session(opened, services=services, options=options).running() as live:
                    yield live
            finally:
                await self.providers.aclose()

    def proved(self, session: Session) -> int:
        """How many bodies the audit built again, after it found nothing wrong."""

        def body(request: Any) -> bytes:
            provider = self.providers.get("mock")
            assert provider is not None
            return provider.body(request).data

        report = audit_log(session.log.lines(0), body)
        assert report.ok, report.problems
        return sum(request.proved is True for request in report.requests)


@pytest.fixture
def workshop(tmp_path: Path) -> Any:
    with FakeLlm() as fake:
        yield Workshop(tmp_path, fake)


async def say(session: Session, words: str) -> None:
    session.followup(Message.user((Text(words),)))
    await session.when_idle()


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": json.dumps(arguments)}


async def test_a_bug_is_read_fixed_after_approval_and_checked(workshop: Workshop) -> None:
    file = workshop.project / "sum.py"
    file.write_text("print(1 - 1)\n", encoding="utf-8")
    path = str(file)
    workshop.person.answers = ["allow_once", "allow_once"]
    workshop.fake.use(
        [
            {"reasoning": "look first", "tool_calls": [call("c1", "read", file_path=path)]},
            {
                "text": "I see.",
                "tool_calls": [
                    call("c2", "edit", file_path=path, old_string="1 - 1", new_string="1 + 1")
                ],
            },
            {
                "tool_calls": [
                    call("c3", "bash", command="python3 sum.py", description="Run it"),
                    call("c4", "grep", pattern="print", path=str(workshop.project)),
                ]
            },
            {"text": "Fixed: it prints 2 now."},
        ]
    )
    async with workshop.session() as session:
        await say(session, "Fix the sum")
        assert ends(session) == ["completed"]
        assert file.read_text(encoding="utf-8") == "print(1 + 1)\n"
        assert [q.tool for q in workshop.person.asked] == ["edit", "bash"]
        assert "print(1 + 1)" in workshop.person.asked[0].diffs[0].new
        assert workshop.person.asked[1].intent.command == "python3 sum.py"
        found = results(session)
        assert "print(1 - 1)" in found["c1"]
        assert found["c3"].startswith("2")
        assert workshop.proved(session) == 4
        bodies = [json.loads(request.body) for request in workshop.fake.requests]
        assert len(bodies) == 4
        for before, after in itertools.pairwise(bodies):
            assert after["messages"][: len(before["messages"])] == before["messages"]


async def test_a_resumed_session_is_proved_too(workshop: Workshop) -> None:
    workshop.fake.use(["success", "success"])
    async with workshop.session() as session:
        await say(session, "hello")
        id = session.id
    async with workshop.session(workshop.store.open(id)) as session:
        await say(session, "again")
        assert ends(session) == ["completed"] * 2
        assert workshop.proved(session) == 2


async def test_an_endpoint_that_recovers_is_asked_again(workshop: Workshop) -> None:
    workshop.fake.use(["rate_limit", "server_error", "empty", "success"])
    async with workshop.session() as session:
        await say(session, "hello")
        assert ends(session) == ["completed"]
        assert len(workshop.fake.requests) == 4
        assert workshop.clock.slept[0] == 1.0
        assert workshop.proved(session) == 4


async def test_a_stream_that_is_cut_off_is_an_error_and_the_next_prompt_works(
    workshop: Workshop,
) -> None:
    workshop.fake.use(["partial_eof", "success"])
    async with workshop.session() as session:
        await say(session, "hello")
        reason = list(session.log.events())[-1].payload.reason
        assert (reason.kind, reason.error.code) == ("error", "STREAM_CLOSED")
        await say(session, "again")
        assert ends(session) == ["error", "completed"]


async def test_a_cancel_closes_the_connection_to_the_model(workshop: Workshop) -> None:
    workshop.fake.use(["partial_stall", "success"])
    async with workshop.session() as session:
        session.followup(Message.user((Text("hello"),)))
        follower = session.log.follow(0)
        while not any(e.type == "assistant/chunk" for e in session.log.events()):
            await follower.wait()
            follower.take()
        await session.cancel()
        assert ends(session) == ["aborted"]
        assert await anyio.to_thread.run_sync(workshop.fake.wait_for_outcomes)
        await say(session, "again")
        assert ends(session) == ["aborted", "completed"]


async def test_a_running_command_dies_with_the_turn(workshop: Workshop) -> None:
    late = workshop.project / "late"
    workshop.person.answers = ["allow_once"]
    command = f"echo started; sleep 30; touch {late}"
    workshop.fake.use(
        [{"tool_calls": [call("c1", "bash", command=command, description="Wait")]}, "success"]
    )
    started = anyio.Event()
    async with workshop.session() as session:
        session.live = lambda output: started.set()
        session.followup(Message.user((Text("hello"),)))
        await started.wait()
        await session.cancel()
        assert results(session) == {"c1": "Error: tool call aborted"}
        await say(session, "again")
        assert ends(session) == ["aborted", "completed"]
    assert not late.exists()


async def test_arguments_that_break_the_schema_are_answered_with_every_mistake(
    workshop: Workshop,
) -> None:
    workshop.fake.use(
        [{"tool_calls": [{"id": "c1", "name": "bash", "arguments": "{}"}]}, "success"]
    )
    async with workshop.session() as session:
        await say(session, "hello")
        assert results(session)["c1"].startswith("Error: invalid arguments: ")
        assert workshop.person.asked == []
