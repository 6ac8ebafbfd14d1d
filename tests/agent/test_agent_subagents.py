"""Subagents: sessions of their own that work for a call."""

import json
from pathlib import Path
from typing import Any

from agent_bench import Bench, FakeTool, Gate, Person, Reply, calls, ends, failure, results, text
import anyio
import pytest

from dsh_acp.agent.delegation import MAX_DEPTH
from dsh_acp.agent.hooks import Hooks, PreStep, Reject
from dsh_acp.agent.services import LiveCall, LiveOutput
from dsh_acp.errors import ToolError
from dsh_acp.log.audit import audit_log
from dsh_acp.log.load import LoadedLog
from dsh_acp.log.payloads import UserMessage
from dsh_acp.messages import Finish, FinishReason, Message, Text
from dsh_acp.tools.delegation import Subagent, SubagentFork
from dsh_acp.tools.tool import Outcome

ERRAND = json.dumps({"description": "Count  files", "prompt": "Count the files."})


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.tools["subagent"] = Subagent()  # type: ignore[assignment]
    bench.tools["subagent_fork"] = SubagentFork()  # type: ignore[assignment]
    return bench


def delegate(id: str = "s", name: str = "subagent") -> Reply:
    return calls((id, name, ERRAND))


def children(bench: Bench, session: Any) -> list[LoadedLog]:
    return [bench.store.read(id) for id in bench.store.descendants(session.id)]


def kinds(log: LoadedLog, start: int = 0) -> list[str]:
    return [event.type for event in log.events(start)]


async def test_a_subagent_answers_with_its_last_message(bench: Bench) -> None:
    bench.say(delegate(), text("There are 3."), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {"s": "There are 3."}
        (child,) = children(bench, session)
        header = child.header
        assert (header.parent_session, header.origin) == (session.id, "subagent")
        assert (header.delegation_depth, header.seed_length) == (1, None)
        assert header.cwd == str(bench.cwd)
        assert kinds(child)[:9] == [
            "permission/preset",
            "sandbox/mode",
            "approval/policy",
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "subagent/descriptor",
            "step/start",
            "user/message",
        ]
        assert json.loads(next(iter(child.events(6))).data) == {
            "version": 2,
            "mode": "one-shot",
            "provider": "spawn",
            "label": "Count files",
        }
        assert [json.loads(event.data).get("source") for event in child.events(1)][:2] == [
            "delegation"
        ] * 2
        prompt = next(iter(child.events(8))).payload
        assert isinstance(prompt, UserMessage) and prompt.message.text == "Count the files."
        assert "You are a subagent" in bench.model.requests[1].messages[1].text
        assert "You are a subagent" not in bench.model.requests[0].messages[1].text


async def test_the_logs_of_both_explain_every_request(bench: Bench) -> None:
    bench.tool("look")
    bench.say(delegate(), calls(("1", "look")), text("3"), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        ids = [session.id, *bench.store.descendants(session.id)]
    assert len(ids) == 2
    for id in ids:
        report = audit_log(bench.store.raw(id), lambda request: bench.model.body(request).data)
        assert report.ok and report.requests


async def test_a_fork_knows_the_finished_turns_and_not_the_running_one(bench: Bench) -> None:
    bench.say(text("Noted."), delegate(name="subagent_fork"), text("MARMALADE"), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session, "The word is MARMALADE.")
        end = next(e.seq for e in session.log.events() if e.type == "turn/end")
        await bench.prompt(session, "Ask a fork.")
        assert results(session) == {"s": "MARMALADE"}
        said = [message.text for message in bench.model.requests[2].messages]
        assert "The word is MARMALADE." in said and "Ask a fork." not in said
        (child,) = children(bench, session)
        assert child.header.seed_length == end + 1
        own = kinds(child, end + 1)
        assert own[0] == "session/end-seed" and "subagent/descriptor" in own
        assert "permission/preset" not in own
        headers = [e.payload.reason for e in child.events() if e.type == "request/header"]
        assert headers == ["initial", "resume"]


async def test_a_fork_of_nothing_starts_afresh(bench: Bench) -> None:
    bench.say(delegate(name="subagent_fork"), text("ok"), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        (child,) = children(bench, session)
        assert child.header.seed_length is None


async def test_subagents_of_one_answer_run_at_the_same_time(bench: Bench) -> None:
    both = anyio.Event()
    waiting: list[str] = []

    async def meet(args: Any, ctx: Any) -> Outcome:
        waiting.append(ctx.call_id)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        return Outcome(content=(Text("met"),))

    bench.tool("meet", meet)
    bench.say(
        calls(("a", "subagent", ERRAND), ("b", "subagent", ERRAND)),
        calls(("1", "meet")),
        calls(("1", "meet")),
        text("ok"),
        text("ok"),
        text("Done."),
    )
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {"a": "ok", "b": "ok"}
        assert len(children(bench, session)) == 2


# ---------------------------------------------------------------- how it may end


def cut() -> Reply:
    return [*text("partial one")[:-1], Finish(FinishReason("max-tokens"))]


@pytest.mark.parametrize(
    ("replies", "result"),
    [
        (
            [cut()],
            "subagent run hit its token limit before finishing\n"
            "Partial output before the run ended:\npartial one",
        ),
        (
            [calls(("1", "look"), before="I looked."), failure("AUTH", "the key is wrong")],
            "subagent run failed\nDiagnostic: the key is wrong\n"
            "Partial output before the run ended:\nI looked.",
        ),
        ([failure("AUTH", "no")], "subagent run failed\nDiagnostic: no"),
    ],
)
async def test_a_subagent_that_does_not_finish_says_how_far_it_came(
    bench: Bench, replies: list[Reply], result: str
) -> None:
    bench.tool("look")
    bench.say(delegate(), *replies, text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {"s": f"Error: {result}"}
        assert ends(session) == ["completed"]


async def test_a_blocked_subagent_declined(bench: Bench) -> None:
    async def block(payload: PreStep, proceed: Any) -> Any:
        is_child = payload.session.log.header.origin == "subagent"
        return Reject() if is_child else await proceed()

    bench.hooks = Hooks(pre_step=[block])
    bench.say(delegate(), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {"s": "Error: subagent declined the task"}


async def test_cancelling_the_parent_stops_its_subagents_in_order(bench: Bench) -> None:
    gate = Gate()
    bench.tool("hang", gate)
    bench.say(delegate(), calls(("1", "hang")))
    async with bench.running() as session:
        session.followup(Message.user((Text("go"),)))
        await gate.reached.wait()
        await session.cancel()
        assert results(session) == {"s": "Error: tool call aborted"}
        (child,) = children(bench, session)
        (end,) = [e.payload.reason for e in child.events() if e.type == "turn/end"]
        assert (end.kind, end.reason) == ("aborted", {"kind": "parent"})
        assert child.open_turn is None
        bench.say(text("again"))
        await bench.prompt(session)
        assert ends(session) == ["aborted", "completed"]


async def test_closing_the_session_leaves_every_log_complete(bench: Bench) -> None:
    gate = Gate()
    bench.tool("hang", gate)
    bench.say(delegate(), calls(("1", "hang")))
    async with bench.running() as session:
        session.followup(Message.user((Text("go"),)))
        await gate.reached.wait()
    for log in (bench.store.read(session.id), *children(bench, session)):
        assert [e.payload.reason.kind for e in log.events() if e.type == "turn/end"] == ["aborted"]
    assert not bench.store.open(session.id).closed


async def test_subagents_go_three_deep_and_no_further(bench: Bench) -> None:
    bench.say(*[delegate()] * (MAX_DEPTH + 1), *[text("back")] * (MAX_DEPTH + 1))
    async with bench.running() as session:
        await bench.prompt(session)
        depths = [child.header.delegation_depth for child in children(bench, session)]
        assert depths == [1, 2, 3]
        deepest = children(bench, session)[-1]
        (result,) = [e.payload for e in deepest.events() if e.type == "tool/result"]
        assert result.message.content[0].content == (
            Text("Error: subagent depth 4 exceeds maxDepth 3"),
        )


async def test_subagents_are_not_listed_as_sessions(bench: Bench) -> None:
    bench.say(delegate(), text("ok"), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        assert [summary.id for summary in bench.store.list()] == [session.id]


# ---------------------------------------------------------------- permissions and progress


async def test_the_parents_person_is_asked_under_an_id_of_its_own(bench: Bench) -> None:
    bench.settings["permission"] = "ask"
    bench.person = Person("allow_once", "reject_once")
    bench.tool("bash", effect="execute")
    bench.say(delegate(), calls(("1", "bash")), calls(("1", "bash")), text("ok"), text("Done."))
    shown: list[Any] = []
    async with bench.running() as session:
        session.live = shown.append
        await bench.prompt(session)
        assert [question.call_id for question in bench.person.asked] == ["s/1", "s/1+"]
        (child,) = children(bench, session)
        outcomes = [e.payload.outcome for e in child.events() if e.type == "approval/decided"]
        assert outcomes == ["allowed-once", "rejected"]
        states = [(c.call_id, c.status) for c in shown if isinstance(c, LiveCall)]
        assert states == [
            ("s/1", "pending"),
            ("s/1", "in_progress"),
            ("s/1", "completed"),
            ("s/1+", "pending"),
            ("s/1+", "failed"),
        ]
        progress = [output for output in shown if isinstance(output, LiveOutput)]
        assert progress == [LiveOutput("s", "- bash {}\n")] * 2


async def test_an_answer_for_good_holds_for_parent_and_later_subagents(bench: Bench) -> None:
    bench.settings["permission"] = "ask"
    bench.person = Person("allow_always")
    bench.tool("bash", effect="execute", scope="make")
    bash = calls(("1", "bash"))
    bench.say(delegate("s1"), bash, text("ok"), delegate("s2"), bash, text("ok"))
    bench.say(calls(("9", "bash")), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session)["9"] == "done" and len(bench.person.asked) == 1


@pytest.mark.parametrize(("preset", "runs"), [("plan", 0), ("full-access", 1)])
async def test_the_parents_permissions_hold_for_a_subagent(
    bench: Bench, preset: str, runs: int
) -> None:
    bench.settings["permission"] = preset
    tool = bench.tool("bash", effect="execute")
    bench.say(delegate(), calls(("1", "bash")), text("ok"), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        assert len(tool.runs) == runs


async def test_permissions_chosen_meanwhile_reach_a_running_subagent(bench: Bench) -> None:
    bench.settings["permission"] = "full-access"
    tool = bench.tool("bash", effect="execute")

    async def choose() -> None:
        session.select("preset", "plan")

    bench.say(delegate(), [choose, *calls(("1", "bash"))], text("ok"), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        assert not tool.runs


async def test_a_subagent_cannot_ask_the_user(bench: Bench) -> None:
    async def ask(args: Any, ctx: Any) -> Outcome:
        with pytest.raises(ToolError) as caught:
            await ctx.ask([{"id": "q", "question": "Which?"}])
        assert caught.value.code == "DELEGATED_CALLER"
        return Outcome(content=(Text("refused"),))

    tool: FakeTool = bench.tool("ask", ask)
    bench.say(delegate(), calls(("1", "ask")), text("ok"), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        assert tool.runs and results(session) == {"s": "ok"}


@pytest.mark.parametrize(
    "name",
    [
        "subagent-spawn-in-process",
        "subagent-fork-in-process",
        "subagent-max-tokens-partial",
        "subagent-parallel",
    ],
)
async def test_recorded_subagents_give_the_recorded_results(
    bench: Bench, shared: Path, name: str
) -> None:
    from dsh_acp.llm.replay import ReplayProvider, read
    from dsh_acp.tools.todo import TodoWrite

    recorded = shared / "dsh-sessions" / name
    provider = ReplayProvider(read(f"replay:{recorded / 'session.jsonl'}"))
    bench.models._models[provider.name] = provider  # type: ignore[assignment]
    bench.options.update(provider=provider.name, model=provider.default_model)
    bench.tools["todo_write"] = TodoWrite()  # type: ignore[assignment]
    steps = json.loads((recorded / "input.json").read_bytes())["steps"]
    events = [json.loads(line) for line in (recorded / "session.jsonl").read_bytes().splitlines()]
    wanted = {
        block["toolCallId"]: block["content"][0]["text"]
        for event in events
        if event["type"] == "tool/result"
        for block in event["data"]["message"]["content"]
    }
    async with bench.running() as session:
        for step in steps:
            if step["op"] == "prompt":
                await bench.prompt(session, step["text"])
        assert results(session) == wanted
        assert len(children(bench, session)) == len(list(recorded.glob("session.*.jsonl")))
