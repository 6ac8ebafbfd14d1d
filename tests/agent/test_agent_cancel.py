"""Cancelling at every moment of a turn: one end, a sound history, and the next prompt works."""

from collections.abc import Awaitable, Callable
import contextlib
from typing import Any

from agent_bench import Bench, Gate, Person, Reply, calls, ends, failure, results, text, types
import anyio
import pytest

from dsh_acp.agent.session import Session
from dsh_acp.errors import DshError, PromptError
from dsh_acp.messages import BlockStart, Message, Text, TextDelta, ToolCallDelta
from dsh_acp.tools.tool import Outcome


def note(words: str) -> Message:
    return Message.user((Text(words),))


def before_the_first_byte(bench: Bench, gate: Gate) -> Awaitable[None]:
    bench.say([gate])
    return gate.reached.wait()


def in_the_middle_of_text(bench: Bench, gate: Gate) -> Awaitable[None]:
    bench.say([BlockStart(0, "text"), TextDelta(0, "half an ans"), gate])
    return gate.reached.wait()


def in_the_middle_of_arguments(bench: Bench, gate: Gate) -> Awaitable[None]:
    bench.say(
        [
            BlockStart(0, "tool-call"),
            ToolCallDelta(index=0, id="c1", name="slow", arguments_delta='{"pa'),
            gate,
        ]
    )
    return gate.reached.wait()


def while_a_tool_runs(bench: Bench, gate: Gate) -> Awaitable[None]:
    bench.tool("slow", gate)
    bench.tool("other")
    bench.say(calls(("c1", "slow"), ("c2", "other"), ("c3", "slow")))
    return gate.reached.wait()


def while_tools_overlap(bench: Bench, gate: Gate) -> Awaitable[None]:
    bench.tool("slow", gate, safe=True)
    bench.tool("fast", safe=True)
    bench.say(calls(("c1", "slow"), ("c2", "fast"), ("c3", "slow"), ("c4", "fast")))
    return gate.reached.wait()


def while_a_question_is_open(bench: Bench, gate: Gate) -> Awaitable[None]:
    bench.settings["permission"] = "ask"
    bench.person = Person()
    bench.tool("guarded", effect="execute")
    bench.say(calls(("c1", "guarded"), ("c2", "guarded")))
    return bench.person.waiting.wait()


def while_waiting_to_retry(bench: Bench, gate: Gate) -> Awaitable[None]:
    bench.clock.stuck = True
    bench.say(failure("RATE_LIMIT", retry_after_ms=120_000))
    return bench.clock.sleeping.wait()


def while_a_hook_thinks(bench: Bench, gate: Gate) -> Awaitable[None]:
    async def think(_: Any, proceed: Callable[[], Awaitable[Any]]) -> Any:
        bench.hooks.pre_step.clear()
        await gate()

    bench.hooks.pre_step.append(think)
    return gate.reached.wait()


MOMENTS = (
    before_the_first_byte,
    in_the_middle_of_text,
    in_the_middle_of_arguments,
    while_a_tool_runs,
    while_tools_overlap,
    while_a_question_is_open,
    while_waiting_to_retry,
    while_a_hook_thinks,
)


def history_is_sound(messages: tuple[Message, ...]) -> bool:
    """Every call is followed by its result before anything else is said."""
    waiting: set[str] = set()
    for message in messages:
        for block in message.content:
            tag = type(block).__name__
            if tag == "ToolCall":
                waiting.add(block.id)  # type: ignore[union-attr]
            elif tag == "ToolResult":
                waiting.remove(block.tool_call_id)  # type: ignore[union-attr]
            elif waiting and message.role == "user":
                return False
    return not waiting


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
async def test_a_cancel_ends_the_turn_once_and_the_next_prompt_works(
    bench: Bench, moment: Callable[[Bench, Gate], Awaitable[None]]
) -> None:
    reached = moment(bench, Gate())
    async with bench.running() as session:
        session.followup(note("go"))
        await reached
        await session.cancel()
        assert session.status == "idle"
        assert ends(session) == ["aborted"]
        last = list(session.log.events())[-1]
        assert last.data == b'{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"user"}}}'
        requests = len(bench.model.requests)
        bench.clock.stuck = False
        bench.model.replies[:] = [text("fine")]
        await bench.prompt(session, "again")
        assert ends(session) == ["aborted", "completed"]
        assert len(bench.model.requests) == requests + 1
        assert history_is_sound(bench.model.requests[-1].messages)
        answered = set(results(session))
        called = {e.payload.call_id for e in session.log.events() if e.type == "tool/call"}
        assert answered == called


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
async def test_closing_the_session_ends_the_turn_as_disposed_and_it_can_be_opened_again(
    bench: Bench, moment: Callable[[Bench, Gate], Awaitable[None]]
) -> None:
    reached = moment(bench, Gate())
    async with bench.running() as session:
        session.followup(note("go"))
        await reached
        session.followup(note("later"))
        await session.close()
        reason = list(session.log.events())[-1].payload.reason
        assert reason.reason == {"kind": "disposed"}
        id = session.id
    bench.clock.stuck = False
    bench.settings["permission"] = "full-access"
    async with bench.running(bench.store.open(id)) as session:
        assert [m.text for m in session.pending()] == ["later"]
        bench.model.replies[:] = [text("fine"), text("fine")]
        await bench.prompt(session, "again")
        assert history_is_sound(bench.model.requests[-1].messages)
        assert ends(session) == ["aborted", "completed", "completed"]


async def test_results_are_recorded_in_order_and_unstarted_calls_as_not_dispatched(
    bench: Bench,
) -> None:
    reached = while_a_tool_runs(bench, Gate())
    async with bench.running() as session:
        session.followup(note("go"))
        await reached
        await session.cancel()
        assert types(session)[-8:] == [
            "tool/call",
            "tool/result",
            "tool/call",
            "tool/result",
            "tool/call",
            "tool/result",
            "step/end",
            "turn/end",
        ]
        assert results(session) == {
            "c1": "Error: tool call aborted",
            "c2": "Error: tool call aborted before dispatch",
            "c3": "Error: tool call aborted before dispatch",
        }
        codes = [e.payload.error.code for e in session.log.events() if e.type == "tool/result"]
        assert codes == ["ABORTED", "ABORTED_BEFORE_DISPATCH", "ABORTED_BEFORE_DISPATCH"]


async def test_a_finished_neighbour_keeps_its_result_when_the_turn_is_cancelled(
    bench: Bench,
) -> None:
    gate, finished = Gate(), anyio.Event()

    async def finish(args: Any, ctx: Any) -> Outcome:
        finished.set()
        return Outcome(content=(Text("made it"),))

    bench.tool("slow", gate, safe=True)
    bench.tool("fast", finish, safe=True)
    bench.say(calls(("c1", "slow"), ("c2", "fast")))
    async with bench.running() as session:
        session.followup(note("go"))
        await gate.reached.wait()
        await finished.wait()
        await anyio.lowlevel.checkpoint()
        await session.cancel()
        assert results(session) == {"c1": "Error: tool call aborted", "c2": "made it"}


async def test_a_tool_that_swallows_its_cancellation_is_still_aborted(bench: Bench) -> None:
    gate = Gate()

    async def stubborn(args: Any, ctx: Any) -> Outcome:
        with contextlib.suppress(BaseException):
            await gate()
        return Outcome(content=(Text("I finished anyway"),))

    bench.tool("stubborn", stubborn)
    bench.say(calls(("c1", "stubborn")))
    async with bench.running() as session:
        session.followup(note("go"))
        await gate.reached.wait()
        await session.cancel()
        assert results(session) == {"c1": "Error: tool call aborted"}
        assert ends(session) == ["aborted"]


async def test_a_cancel_takes_back_everything_that_waits(bench: Bench) -> None:
    gate = Gate()
    bench.say([gate])
    async with bench.running() as session:
        session.followup(note("a"))
        await gate.reached.wait()
        session.followup(note("b"))
        session.inject(note("c"))
        await session.cancel()
        assert session.pending() == ()
        outcomes = [
            (e.payload.target, e.payload.outcome)
            for e in session.log.events()
            if e.type == "agent/inbox/spliced" and e.payload.outcome == "canceled"
        ]
        assert outcomes == [("next-step", "canceled"), ("next-turn", "canceled")]


async def test_a_cancel_can_leave_what_waits(bench: Bench) -> None:
    gate = Gate()
    bench.say([gate])
    async with bench.running() as session:
        session.followup(note("a"))
        await gate.reached.wait()
        session.followup(note("b"))
        await session.cancel(keep_inbox=True)
        assert [m.text for m in session.pending()] == ["b"]
        assert session.status == "idle"


async def test_a_prompt_sent_right_after_the_cancel_gets_its_own_turn(bench: Bench) -> None:
    gate = Gate()
    bench.say([gate], text("fresh"))
    async with bench.running() as session:
        session.followup(note("a"))
        await gate.reached.wait()
        session.abort()
        session.steer(note("b"))
        await session.when_idle()
        assert ends(session) == ["aborted", "completed"]
        target = [
            e.payload.target
            for e in session.log.events()
            if e.type == "agent/inbox/spliced" and e.payload.inserted
        ]
        assert target == ["next-turn", "next-turn"]


async def test_the_first_cause_wins(bench: Bench) -> None:
    gate = Gate()
    bench.say([gate])
    async with bench.running() as session:
        session.followup(note("a"))
        await gate.reached.wait()
        session.abort({"kind": "hook", "reason": "over budget"})
        await session.cancel()
        reason = list(session.log.events())[-1].payload.reason
        assert reason.reason == {"kind": "hook", "reason": "over budget"}


async def test_a_cancel_before_the_turn_begins_leaves_no_turn(bench: Bench) -> None:
    bench.say(text("ok"))
    async with bench.running() as session:
        session.followup(note("a"))
        await session.cancel()
        assert "turn/start" not in types(session)
        await bench.prompt(session)
        assert ends(session) == ["completed"]


async def test_a_cancel_of_an_idle_session_changes_nothing_later(bench: Bench) -> None:
    bench.say(text("ok"))
    async with bench.running() as session:
        await session.cancel()
        await bench.prompt(session)
        assert ends(session) == ["completed"]


async def test_a_closed_session_takes_no_input(bench: Bench) -> None:
    async with bench.running() as session:
        await session.close()
        with pytest.raises(PromptError, match="closed"):
            session.followup(note("a"))


async def test_a_job_between_turns_can_be_cancelled_and_latches_prompts(bench: Bench) -> None:
    gate = Gate()
    bench.say(text("ok"))

    async def run(session: Session) -> None:
        with pytest.raises(DshError, match="cancelled"):
            await session.run_maintenance(gate)

    async with bench.running() as session, anyio.create_task_group() as group:
        group.start_soon(run, session)
        await gate.reached.wait()
        assert session.status == "idle"
        with pytest.raises(DshError, match="already has active work"):
            await session.run_maintenance(gate)
        await session.cancel()
        await bench.prompt(session)
        assert ends(session) == ["completed"]


async def test_a_prompt_during_a_job_runs_after_it(bench: Bench) -> None:
    bench.say(text("ok"))

    async def job(_: Any) -> str:
        session.followup(note("meanwhile"))
        await anyio.lowlevel.checkpoint()
        assert types(session) == ["agent/inbox/spliced"]
        return "done"

    async with bench.running() as session:
        assert await session.run_maintenance(job) == "done"
        await session.when_idle()
        assert ends(session) == ["completed"]


async def test_cancelling_the_host_ends_the_turn_as_disposed(bench: Bench) -> None:
    gate = Gate()
    reply: Reply = [BlockStart(0, "text"), TextDelta(0, "half"), gate]
    bench.say(reply)
    session = bench.session()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            session.start(group)
            session.followup(note("a"))
            await gate.reached.wait()
            group.cancel_scope.cancel()
    assert list(session.log.events())[-1].payload.reason.reason == {"kind": "disposed"}
    session.log.close()
