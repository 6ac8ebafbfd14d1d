"""Subagents in the background."""

from collections.abc import AsyncIterator, Callable, Sequence
import json

from agent_bench import Bench, Gate, Model, Models, Reply, calls, results, text
import anyio
import pytest

from dsh_acp.agent import companions
from dsh_acp.agent.session import Session
from dsh_acp.llm.provider import Body
from dsh_acp.log.audit import audit_log
from dsh_acp.log.payloads import UserMessage
from dsh_acp.messages import Chunk, Request
from dsh_acp.tools.delegation import InterruptAgent, ListAgents, SendMessage, Subagent


@pytest.fixture
def bench(bench: Bench) -> Bench:
    for tool in (Subagent(), SendMessage(), InterruptAgent(), ListAgents()):
        bench.tools[tool.name] = tool  # type: ignore[assignment]
    return bench


def begin(id: str = "s") -> Reply:
    errand = {"description": "Count files", "prompt": "Count them.", "run_in_background": True}
    return calls((id, "subagent", json.dumps(errand)))


def child_id(session: Session, call: str = "s") -> str:
    said = results(session)[call]
    assert said.startswith("started subagent ")
    return said.split()[-1]


def notices(session: Session) -> list[str]:
    found = [e.payload.message for e in session.log.events() if isinstance(e.payload, UserMessage)]
    return [m.text for m in found if m.source.get("kind") == "subagent-settled"]


class Talk(Model):
    """Says different things to the parent and to its subagents."""

    def __init__(self, parent: list[Reply], child: list[Reply]) -> None:
        super().__init__()
        self.parent, self.child = parent, child

    async def stream(self, request: Request, body: Body) -> AsyncIterator[Sequence[Chunk]]:
        is_child = any("You are a subagent" in message.text for message in request.messages)
        self.replies.append((self.child if is_child else self.parent).pop(0))
        async for batch in super().stream(request, body):
            yield batch


def script(bench: Bench, parent: list[Reply], child: list[Reply]) -> None:
    bench.model = Talk(parent, child)
    bench.models = Models(bench.model)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(4):
        while not condition():  # noqa: ASYNC110 - nobody tells of it
            await anyio.sleep(0.002)


async def settled(session: Session, count: int = 1) -> None:
    await until(lambda: len(notices(session)) >= count and session.status == "idle")


async def test_one_goes_on_when_its_call_has_ended_and_wakes_its_parent(bench: Bench) -> None:
    script(bench, [begin(), text("I wait."), text("It found 3.")], [text("There are 3.")])
    async with bench.running() as session:
        await bench.prompt(session)
        id = child_id(session)
        await settled(session)
        assert notices(session) == [
            f"Background subagent {id} finished and will do no further work unless you send it "
            "more.Its closing message:There are 3."
        ]
        assert session.log.messages()[-1].text == "It found 3."
        child = bench.store.read(id)
        first = next(iter(child.events(0)))
        assert first.type == "subagent/descriptor"
        assert json.loads(first.data)["mode"] == "continuable"
        assert child.header.parent_session == session.id
        assert child.header.origin == "subagent"


async def test_it_takes_more_messages_each_a_turn_of_its_own(bench: Bench) -> None:
    started: list[str] = []
    parent = [begin(), text("ok"), text("noted")]
    script(
        bench,
        parent,
        [text("3 files"), text("2 folders")],
    )
    async with bench.running() as session:
        await bench.prompt(session)
        started.append(child_id(session))
        await settled(session)
        said = {"subagent_id": started[0], "message": "And folders?"}
        parent += [calls(("m", "send_message", json.dumps(said))), text("sent"), text("both")]
        await bench.prompt(session, "Ask for folders too.")
        assert results(session)["m"] == (
            f"message queued as the next turn for subagent {started[0]}"
        )
        await settled(session, 2)
        assert notices(session)[1].endswith("Its closing message:2 folders")
        child = bench.store.read(started[0])
        asked = [e.payload.message for e in child.events() if isinstance(e.payload, UserMessage)]
        relayed = [m for m in asked if m.source.get("kind") == "coordinator"]
        assert [m.text for m in relayed] == ["And folders?"]
        assert relayed[0].source["senderSessionId"] == session.id
    for one in (session.id, started[0]):
        report = audit_log(bench.store.raw(one), lambda r: bench.model.body(r).data)
        assert report.ok and report.requests


async def test_stopping_the_parent_stops_it_and_the_end_ends_it(bench: Bench) -> None:
    waiting = Gate()
    bench.tool("wait", waiting)
    script(bench, [begin(), text("ok"), text("It was stopped.")], [calls(("1", "wait"))])
    async with bench.running() as session:
        await bench.prompt(session)
        child_id(session)
        agents = session.parts.agents()
        await until(lambda: waiting.reached.is_set())
        assert [status for _, status, _ in agents.list()] == ["running"]
        await session.cancel()
        await settled(session)
        assert "was stopped before it finished." in notices(session)[0]
        assert [status for _, status, _ in agents.list()] == ["idle"]


async def test_an_interrupted_one_goes_on_with_what_waits(bench: Bench) -> None:
    waiting = Gate()
    bench.tool("wait", waiting)
    parent = [begin(), text("ok"), text("first"), text("second"), text("third")]
    script(bench, parent, [calls(("1", "wait")), text("Resumed.")])
    async with bench.running() as session:
        await bench.prompt(session)
        id = child_id(session)
        agents = session.parts.agents()
        await until(lambda: waiting.reached.is_set())
        agents.interrupt(id)
        await settled(session)
        agents.send(id, "Go on.")
        await settled(session, 2)
        assert notices(session)[1].endswith("Its closing message:Resumed.")


async def test_unknown_ones_are_unavailable_and_there_is_a_limit(bench: Bench) -> None:
    unknown = json.dumps({"subagent_id": "nobody", "message": "Hello?"})
    many = [begin(f"s{k}") for k in range(companions.LIMIT + 1)]
    waiting = Gate()
    bench.tool("hold", waiting)
    parent = [
        calls(("l", "list_agents"), ("m", "send_message", unknown)),
        *many,
        text("Enough."),
        *[text("noted")] * 20,
    ]
    script(
        bench,
        parent,
        [calls((f"h{k}", "hold")) for k in range(companions.LIMIT)] + [text("x")] * 20,
    )
    async with bench.running() as session:
        await bench.prompt(session)
        found = results(session)
        assert found["l"] == "(no subagents)"
        assert found["m"] == 'Error: subagent "nobody" is unavailable'
        assert found[f"s{companions.LIMIT}"].startswith("Error: too many background subagents")
        assert len(session.parts.agents().list()) == companions.LIMIT


async def test_a_parent_is_woken_three_times_in_a_row_at_most(bench: Bench) -> None:
    turns = companions.WAKES + 2
    script(bench, [begin(), *[text("noted")] * 20], [text(f"{k}") for k in range(turns)])
    async with bench.running() as session:
        await bench.prompt(session)
        id = child_id(session)
        agents = session.parts.agents()
        for number in range(1, companions.WAKES + 1):
            await settled(session, number)
            agents.send(id, "More.")
        await until(lambda: bench.store.read(id).last_turn > companions.WAKES)
        await until(lambda: agents.list()[0][1] == "idle")
        assert len(notices(session)) == companions.WAKES
        await bench.prompt(session, "Anything new?")
        assert len(notices(session)) == companions.WAKES + 1
