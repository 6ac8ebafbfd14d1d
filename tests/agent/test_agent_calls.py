"""Tool calls: order, overlap, and exactly one result for each."""

from typing import Any

from agent_bench import Bench, Gate, calls, ends, results, text, types
import anyio
from hypothesis import HealthCheck, given, settings, strategies as st
import pytest

from dsh_acp.agent.hooks import (
    Accept,
    Allow,
    Ask,
    Deny,
    Finished,
    Proceed,
    Refuse,
    ToolUse,
    Verdict,
)
from dsh_acp.errors import ToolError
from dsh_acp.messages import Message, Text
from dsh_acp.tools.tool import Outcome


def note(words: str) -> Message:
    return Message.user((Text(words),))


def order(session: Any) -> list[str]:
    """Calls and results as they stand in the log."""
    found: list[str] = []
    for event in session.log.events():
        if event.type == "tool/call":
            found.append(f"call {event.payload.call_id}")
        elif event.type == "tool/result":
            found.append(f"result {event.payload.message.source['callId']}")
    return found


async def test_neighbours_that_allow_it_overlap_and_are_answered_in_model_order(
    bench: Bench,
) -> None:
    last_runs = anyio.Event()

    async def wait(args: dict[str, Any], ctx: Any) -> Outcome:
        if args["n"] == 3:
            last_runs.set()
        else:
            await last_runs.wait()
        return Outcome(content=(Text(f"{args['n']}"),))

    bench.tool("wait", wait, safe=True)
    bench.say(calls(*[(f"c{n}", "wait", f'{{"n":{n}}}') for n in (1, 2, 3)]), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert order(session) == [
            "call c1",
            "call c2",
            "call c3",
            "result c1",
            "result c2",
            "result c3",
        ]
        assert results(session) == {"c1": "1", "c2": "2", "c3": "3"}


async def test_no_more_calls_overlap_than_configured(bench: Bench) -> None:
    running = most = 0
    full = anyio.Event()

    async def count(args: dict[str, Any], ctx: Any) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await full.wait()
        await anyio.lowlevel.checkpoint()
        running -= 1
        return Outcome(content=(Text("x"),))

    bench.settings["max_parallel_tool_calls"] = 3
    bench.tool("count", count, safe=True)
    bench.say(calls(*[(f"c{n}", "count") for n in range(9)]), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert most == 3
        assert len(results(session)) == 9


async def test_an_exclusive_call_runs_alone_between_its_neighbours(bench: Bench) -> None:
    running: set[str] = set()
    seen: list[set[str]] = []

    async def note_company(args: dict[str, Any], ctx: Any) -> Outcome:
        running.add(ctx.call_id)
        await anyio.lowlevel.checkpoint()
        seen.append(set(running))
        running.discard(ctx.call_id)
        return Outcome(content=(Text("x"),))

    bench.tool("share", note_company, safe=True)
    bench.tool("alone", note_company)
    bench.say(
        calls(("a", "share"), ("b", "share"), ("c", "alone"), ("d", "share"), ("e", "share")),
        text("ok"),
    )
    async with bench.running() as session:
        await bench.prompt(session)
        assert {"c"} in seen
        assert all(company == {"c"} for company in seen if "c" in company)
        assert order(session).index("result b") < order(session).index("call c")
        assert order(session).index("result c") < order(session).index("call d")


async def test_an_unknown_tool_is_answered_with_the_names_that_exist(bench: Bench) -> None:
    bench.tool("read")
    bench.tool("edit")
    bench.say(calls(("c1", "raed")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {"c1": 'Error: unknown tool "raed"; the tools are: edit, read'}
        result = next(e for e in session.log.events() if e.type == "tool/result")
        assert (result.payload.error.name, result.payload.error.code) == (
            "ToolNotFoundError",
            "UNKNOWN_TOOL",
        )
        assert ends(session) == ["completed"]


@pytest.mark.parametrize("arguments", ['{"a":', "[1]", "nonsense", "[" * 5000])
async def test_arguments_that_do_not_fit_are_never_executed(bench: Bench, arguments: str) -> None:
    tool = bench.tool("look")
    bench.say(calls(("c1", "look", arguments)), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert tool.runs == []
        call = next(e for e in session.log.events() if e.type == "tool/call")
        assert call.payload.arguments == arguments
        assert results(session)["c1"].startswith("Error: invalid arguments")
        result = next(e for e in session.log.events() if e.type == "tool/result")
        assert result.payload.error.code == "INVALID_ARGS"


async def test_empty_arguments_are_an_empty_object(bench: Bench) -> None:
    tool = bench.tool("look")
    bench.say(calls(("c1", "look", "")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert tool.runs == [{}]


async def test_a_tool_error_is_told_with_its_code_and_a_plain_failure_without(
    bench: Bench,
) -> None:
    async def fail(args: dict[str, Any], ctx: Any) -> Outcome:
        if "code" in args:
            raise ToolError("no such file", code=args["code"], name="FsError")
        raise ValueError("oops")

    bench.tool("fail", fail)
    bench.say(
        calls(("c1", "fail", '{"code":"FS_NOT_FOUND"}'), ("c2", "fail"), ("c3", "fail")),
        text("ok"),
    )
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {
            "c1": "Error: no such file",
            "c2": "Error: oops",
            "c3": "Error: oops",
        }
        errors = [e.payload.error for e in session.log.events() if e.type == "tool/result"]
        assert (errors[0].name, errors[0].code) == ("FsError", "FS_NOT_FOUND")
        assert not errors[1]


async def test_a_tool_may_add_context_log_events_and_conclude_the_turn(bench: Bench) -> None:
    async def conclude(args: dict[str, Any], ctx: Any) -> Outcome:
        ctx.add_context(note("by the way"))
        return Outcome(content=(Text("done"),), meta={"k": 1}, concludes_turn=True)

    bench.tool("conclude", conclude)
    bench.say(calls(("c1", "conclude")), text("after the context"))
    async with bench.running() as session:
        await bench.prompt(session)
        found = types(session)
        result = found.index("tool/result")
        assert found[result + 1] == "agent/inbox/spliced"
        assert found.count("step/start") == 2
        event = next(e for e in session.log.events() if e.type == "tool/result")
        assert event.payload.meta == {"k": 1}
        assert [m.text for m in bench.model.requests[1].messages][-1] == "by the way"


async def test_a_concluding_result_ends_the_turn_without_another_request(bench: Bench) -> None:
    async def conclude(args: dict[str, Any], ctx: Any) -> Outcome:
        return Outcome(content=(Text("done"),), concludes_turn=True)

    bench.tool("conclude", conclude)
    bench.say(calls(("c1", "conclude")))
    async with bench.running() as session:
        await bench.prompt(session)
        assert ends(session) == ["completed"]
        assert len(bench.model.requests) == 1


async def test_hooks_around_a_call_may_deny_ask_replace_and_refuse(bench: Bench) -> None:
    async def before(use: ToolUse, proceed: Proceed[Verdict]) -> Verdict:
        match use.call_id:
            case "denied":
                return Deny("policy says no")
            case "asked":
                return Ask("just checking")
            case _:
                verdict = await proceed()
                assert isinstance(verdict, Allow)
                return verdict

    async def around(use: ToolUse, proceed: Proceed[Outcome]) -> Outcome:
        outcome = await proceed()
        return Outcome(content=(*outcome.content, Text(" (timed)")))

    async def after(done: Finished, proceed: Proceed[Accept | Refuse]) -> Accept | Refuse:
        if done.use.call_id == "refused":
            return Refuse((Text("not like this"),))
        return Accept(contexts=(note("audited"),)) if done.use.call_id == "plain" else Accept()

    bench.hooks.tool_pre.append(before)
    bench.hooks.tool_execute.append(around)
    bench.hooks.tool_post.append(after)
    bench.person.answers = ["reject_once"]
    bench.tool("t")
    bench.say(calls(*[(id, "t") for id in ("denied", "asked", "plain", "refused")]), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {
            "denied": "Error: policy says no",
            "asked": 'Error: the user rejected tool "t"',
            "plain": "done (timed)",
            "refused": "not like this",
        }
        assert bench.person.asked[0].reason == "just checking"
        assert "audited" in [m.text for m in bench.model.requests[1].messages]


async def test_live_output_is_shown_and_not_logged(bench: Bench) -> None:
    async def talk(args: dict[str, Any], ctx: Any) -> Outcome:
        ctx.progress("working")
        return Outcome(content=(Text("x"),))

    shown: list[tuple[str, str]] = []
    bench.tool("talk", talk)
    bench.say(calls(("c1", "talk")), text("ok"))
    async with bench.running() as session:
        session.live = lambda output: shown.append((output.call_id, output.text))
        await bench.prompt(session)
        assert shown == [("c1", "working")]
        assert b"working" not in session.log.lines(0)


async def test_everything_is_on_disk_before_a_tool_runs(bench: Bench) -> None:
    seen: list[bytes] = []

    async def look(args: dict[str, Any], ctx: Any) -> Outcome:
        assert session.log.path is not None
        seen.append(session.log.path.read_bytes())
        return Outcome(content=(Text("x"),))

    bench.tool("look", look)
    bench.say(calls(("c1", "look")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert b'"type":"tool/call"' in seen[0].splitlines()[-1]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.sampled_from(["safe", "alone", "broken", "unknown", "hang", "hang-safe", "slow-safe"]),
        min_size=1,
        max_size=7,
    ),
    st.booleans(),
)
def test_every_call_gets_exactly_one_result_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[str], cancel: bool
) -> None:
    async def scenario() -> None:
        root = tmp_path_factory.mktemp("calls")
        bench = Bench(root / "state", root)
        gate = Gate()

        async def fail(args: dict[str, Any], ctx: Any) -> Outcome:
            raise ValueError("oops")

        async def slow(args: dict[str, Any], ctx: Any) -> Outcome:
            await anyio.lowlevel.checkpoint()
            return Outcome(content=(Text("slow"),))

        async def hang(args: dict[str, Any], ctx: Any) -> Outcome:
            if cancel:
                await gate()
            return Outcome(content=(Text("free"),))

        bench.tool("safe", safe=True)
        bench.tool("alone")
        bench.tool("broken", fail, safe=True)
        bench.tool("hang", hang)
        bench.tool("hang-safe", hang, safe=True)
        bench.tool("slow-safe", slow, safe=True)
        bench.say(calls(*[(f"c{n}", name) for n, name in enumerate(wanted)]), text("ok"))
        async with bench.running() as session:
            session.followup(note("go"))
            if cancel and any(name.startswith("hang") for name in wanted):
                await gate.reached.wait()
                await session.cancel()
            await session.when_idle()
            assert sorted(results(session)) == sorted(f"c{n}" for n in range(len(wanted)))
            found = order(session)
            for kind in ("call", "result"):
                ids = [item.split()[1] for item in found if item.startswith(kind)]
                assert ids == [f"c{n}" for n in range(len(wanted))]

    anyio.run(scenario)
