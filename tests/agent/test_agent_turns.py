"""Turns and steps: what is logged, in which order, and what the model is sent."""

from agent_bench import Bench, calls, ends, results, text, types
import anyio

from dsh_acp.messages import Message, Text


async def test_a_text_turn_logs_its_events_in_the_order_of_the_format(bench: Bench) -> None:
    bench.say(text("Hel|lo"))
    async with bench.running() as session:
        await bench.prompt(session, "hi there")
        assert types(session) == [
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "step/start",
            "user/message",
            "session/title",
            "user/message",
            "request/header",
            "request/context",
            "request/digest",
            *["assistant/chunk"] * 6,
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        assert ends(session) == ["completed"]
        assert session.title == "hi there"


async def test_a_tool_turn_runs_the_call_and_gives_its_result_to_the_next_step(
    bench: Bench,
) -> None:
    bench.tool("look")
    bench.say(calls(("c1", "look", '{"a":1}')), text("seen"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {"c1": "done"}
        assert bench.tools["look"].runs == [{"a": 1}]
        first, second = bench.model.requests
        assert second.messages[: len(first.messages)] == first.messages
        assert [message.role for message in second.messages[len(first.messages) :]] == [
            "assistant",
            "user",
        ]
        assert ends(session) == ["completed"]


async def test_a_cancelled_answer_keeps_what_it_said_and_the_next_prompt_works(
    bench: Bench,
) -> None:
    reached = anyio.Event()

    async def hang() -> None:
        reached.set()
        await anyio.sleep_forever()

    answer = text("part|ial")
    bench.say([*answer[:2], hang], text("again"))
    async with bench.running() as session:
        session.followup(Message.user((Text("go"),)))
        await reached.wait()
        await session.cancel()
        assert ends(session) == ["aborted"]
        kept = [e for e in session.log.events() if e.type == "assistant/message"]
        assert kept[0].payload.interrupted is True
        assert kept[0].payload.message.text == "part"
        assert bench.model.closed == 1
        await bench.prompt(session)
        assert ends(session) == ["aborted", "completed"]
