"""Making room: trimming, checkpoints, overflow, and that no turn fails because of it."""

import json
from typing import Any

from agent_bench import Bench, Reply, calls, ends, failure, results, text, types
from hypothesis import given, settings, strategies as st
import pytest

from dsh_acp.agent import summary, trimming, usage
from dsh_acp.agent.session import Session
from dsh_acp.log.audit import rebuild_request
from dsh_acp.log.token_meter import price_header, price_message
from dsh_acp.messages import Message, Text, ToolCall, Usage
from dsh_acp.tools.tool import Outcome

CHECKPOINT = text("## Primary Request and Intent\nto test")


def note(words: str) -> Message:
    return Message.user((Text(words),))


def said(session: Session) -> list[str]:
    return [message.text for message in session.log.messages()]


async def fill(bench: Bench, session: Session, turns: int, size: int = 2000) -> None:
    """Some turns of long answers."""
    for n in range(turns):
        bench.say(text(f"answer {n} " + "x" * size))
        await bench.prompt(session, f"question {n}")


# ---------------------------------------------------------------- trimming


@settings(max_examples=30)
@given(st.lists(st.text(max_size=60), max_size=6))
def test_short_results_are_left_alone(texts: list[str]) -> None:
    assert trimming.shorten(texts) is None


@settings(max_examples=30)
@given(st.lists(st.integers(0, 12_000), min_size=1, max_size=5))
def test_a_long_result_keeps_head_and_tail_around_one_marker(lengths: list[int]) -> None:
    texts = [chr(ord("a") + n) * length for n, length in enumerate(lengths)]
    whole = "".join(texts)
    found = trimming.shorten(texts)
    if len(whole) <= trimming.THRESHOLD:
        assert found is None
        return
    assert found is not None
    joined = "".join(found)
    assert joined == whole[: trimming.HEAD] + trimming.MARKER + whole[-trimming.TAIL :]
    assert trimming.shorten(found) is None


def test_trimming_counts_code_points() -> None:
    found = trimming.shorten(["😀" * 9000])
    assert found == ["😀" * 4096 + trimming.MARKER + "😀" * 1024]


# ---------------------------------------------------------------- what the summariser gets


def conversation(rounds: int, size: int) -> list[Message]:
    messages: list[Message] = []
    for n in range(rounds):
        messages += [
            note(f"question {n} " + "q" * size),
            Message.assistant(
                (ToolCall(f"c{n}", "look", "{}"), ToolCall(f"d{n}", "look", "{}")), "p", "m"
            ),
            Message.tool_result(f"c{n}", (Text("r" * size),), False),
            Message.tool_result(f"d{n}", (Text("r" * size),), False),
            Message.assistant((Text("a" * size),), "p", "m"),
        ]
    return messages


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(0, 3000), st.integers(600, 8000))
def test_what_is_summarised_always_fits_and_never_separates_a_call_from_its_result(
    rounds: int, size: int, limit: int
) -> None:
    messages = conversation(rounds, size)
    fitted = summary.fitted(messages, limit, price_message)
    assert fitted == summary.fitted(messages, limit, price_message) or len(fitted) > 0
    assert sum(map(price_message, fitted)) <= max(limit, 700)
    assert len(summary.balanced_cuts(fitted)) > 0
    assert summary.balanced_cuts(fitted)[-1] == len(fitted)
    if sum(map(price_message, messages)) <= limit:
        assert fitted == tuple(messages)


# ---------------------------------------------------------------- manual


async def test_a_manual_compaction_puts_a_checkpoint_in_place_of_the_history(
    bench: Bench,
) -> None:
    async with bench.running() as session:
        await fill(bench, session, 3)
        start = session.log.seq
        bench.say(CHECKPOINT)
        result = await session.commands.run("compact", " the tests")
        assert not result.is_error, result.text
        assert types(session, start) == [
            "command/run",
            "compaction/start",
            "compaction/summary",
            "user/message",
            "compaction/end",
            "command/done",
        ]
        run, begin, summarised, message, end, _ = session.log.events(start)
        assert begin.payload.turn is None
        assert begin.payload.source_command_id == run.payload.command_id
        assert message.source_event_seqs == (
            begin.seq,
            summarised.seq,
            *summarised.payload.shadowed_seqs,
        )
        assert not end.payload.error
        assert len(session.log.messages()) == 2
        assert "to test" in said(session)[0]
        request = bench.model.requests[-1]
        assert request.purpose == "compaction"
        assert request.header.tools == bench.model.requests[0].header.tools
        assert "the tests" in request.messages[-1].text
        bench.say(text("going on"))
        await bench.prompt(session, "and now")
        assert ends(session)[-1] == "completed"


async def test_after_a_compaction_the_context_in_use_is_an_estimate_of_what_is_left(
    bench: Bench,
) -> None:
    async with bench.running() as session:
        for n in range(3):
            # Far fewer tokens than the estimate says: the provider's count sets the scale.
            counted = Usage(100 + 300 * n, 100)
            bench.say(text(f"answer {n} " + "x" * 4000, usage=counted))
            await bench.prompt(session, f"question {n}")
        before = session.usage.context_used
        assert before == 800
        bench.say(CHECKPOINT)
        await session.commands.run("compact", "")
        left = session.usage.context_used
        assert 0 < left < before
        assert left == pytest.approx(
            before * _weight(session) / _weight(session, after=False), abs=1
        )
        again = usage.fold(session.log.events(), lambda *_: None)
        assert again.context_used == left
        bench.say(text("short", usage=Usage(70, 5)))
        await bench.prompt(session, "on it goes")
        assert session.usage.context_used == 75


def _weight(session: Session, *, after: bool = True) -> int:
    """The estimate of a request with what the compaction left, or with what it found."""
    log = session.log
    if after:
        return price_header(log.request_header()) + sum(map(price_message, log.messages()))
    seq = next(e.seq for e in log.events() if e.type == "compaction/summary")
    found = rebuild_request("s", [e for e in log.events() if e.seq < seq])
    return price_header(log.request_header()) + sum(map(price_message, found.messages))


async def test_the_newest_prompt_survives_a_compaction_word_for_word(bench: Bench) -> None:
    async with bench.running() as session:
        await fill(bench, session, 2)
        bench.say(CHECKPOINT)
        await session.commands.run("compact")
        assert "verbatim:\n\nquestion 1" in said(session)[0]


async def test_a_second_compaction_folds_the_first_one_in(bench: Bench) -> None:
    async with bench.running() as session:
        for _ in range(2):
            await fill(bench, session, 3)
            bench.say(CHECKPOINT)
            assert not (await session.commands.run("compact")).is_error
        assert sum("<compacted-summary>" in words for words in said(session)) == 1
        asked = bench.model.requests[-1].messages
        assert summary.is_checkpoint(asked[0])


async def test_what_surrounds_the_session_is_told_again_after_a_compaction(bench: Bench) -> None:
    (bench.cwd / "AGENTS.md").write_text("Use tabs.", encoding="utf-8")
    async with bench.running() as session:
        await fill(bench, session, 3)
        assert sum("Use tabs." in words for words in said(session)) == 1
        bench.say(CHECKPOINT)
        await session.commands.run("compact")
        assert not any("Use tabs." in words for words in said(session))
        await fill(bench, session, 1)
        assert sum("Use tabs." in words for words in said(session)) == 1
        assert sum(words.startswith("Current runtime context.") for words in said(session)) == 1


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (failure("AUTH", "no key"), "no key"),
        (text("## Half", "max-tokens"), "summarization truncated at the token cap"),
        (text("  "), "summarization produced no text summary content"),
        (text("long " * 20_000), "summary is not smaller than the shadowed content"),
    ],
)
async def test_a_compaction_that_fails_says_why_and_changes_nothing(
    bench: Bench, reply: Reply, told: str
) -> None:
    async with bench.running() as session:
        await fill(bench, session, 3)
        before = session.log.messages()
        bench.say(reply)
        result = await session.commands.run("compact")
        assert result.is_error and told in result.text
        end = [e for e in session.log.events() if e.type == "compaction/end"]
        assert told in end[0].payload.error
        assert session.log.messages() == before
        bench.say(CHECKPOINT)
        assert not (await session.commands.run("compact")).is_error


async def test_an_empty_session_has_nothing_to_compact(bench: Bench) -> None:
    async with bench.running() as session:
        result = await session.commands.run("compact")
        assert result.is_error and "nothing to compact" in result.text


# ---------------------------------------------------------------- pressure


async def test_pressure_is_relieved_before_the_step_inside_the_turn(bench: Bench) -> None:
    bench.model.window = 7_000
    async with bench.running() as session:
        await fill(bench, session, 3, size=7000)
        bench.say(CHECKPOINT, text("fresh"))
        start = session.log.seq
        await bench.prompt(session, "next")
        found = types(session, start)
        assert found[:8] == [
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "compaction/start",
            "compaction/summary",
            "user/message",
            "compaction/end",
            "step/start",
        ]
        assert ends(session)[-1] == "completed"
        assert len(bench.model.bodies[-1]) < len(bench.model.bodies[-3])


async def test_the_providers_own_count_counts(bench: Bench) -> None:
    bench.model.window = 100_000
    async with bench.running() as session:
        await fill(bench, session, 3)
        assert "compaction/start" not in types(session)
        bench.say(text("short", usage=Usage(90_000, 10)), CHECKPOINT, text("fresh"))
        await bench.prompt(session)
        await bench.prompt(session)
        assert types(session).count("compaction/summary") == 1


async def test_what_the_model_may_answer_is_not_part_of_the_budget(bench: Bench) -> None:
    bench.model.window = 27_000
    bench.model.max_output = 20_000
    async with bench.running() as session:
        await fill(bench, session, 3, size=7000)
        bench.say(CHECKPOINT, text("fresh"))
        await bench.prompt(session, "next")
        assert "compaction/summary" in types(session)


async def test_a_failing_pressure_compaction_only_warns(bench: Bench) -> None:
    bench.model.window = 7_000
    async with bench.running() as session:
        await fill(bench, session, 3, size=7000)
        bench.say(failure("SERVER"), text("fine all the same"))
        await bench.prompt(session, "next")
        assert ends(session)[-1] == "completed"
        assert "compaction/summary" not in types(session)


async def test_compaction_can_be_turned_off(bench: Bench) -> None:
    bench.model.window = 10_000
    bench.settings["auto_compact"] = False
    async with bench.running() as session:
        await fill(bench, session, 4, size=7000)
        assert "compaction/start" not in types(session)


async def test_long_results_that_the_model_has_seen_are_trimmed_first(bench: Bench) -> None:
    async def long(args: dict[str, Any], ctx: Any) -> Outcome:
        return Outcome(content=(Text("r" * 30_000),), meta={"m": 1})

    bench.tool("long", long)
    async with bench.running() as session:
        bench.say(calls(("c1", "long")), text("seen", usage=Usage(83_000, 10)))
        await bench.prompt(session)
        assert "compaction/prune" not in types(session)
        bench.say(text("next"))
        await bench.prompt(session)
        found = [e for e in session.log.events() if e.type == "tool/result"]
        assert len(found) == 2
        old, new = (json.loads(e.data) for e in found)
        assert old["message"]["id"] == new["message"]["id"]
        assert old["meta"] == new["meta"]
        assert trimming.MARKER in new["message"]["content"][0]["content"][0]["text"]
        assert "compaction/summary" not in types(session)


# ---------------------------------------------------------------- overflow


async def test_an_overflowing_attempt_is_compacted_once_and_repeated_in_the_same_step(
    bench: Bench,
) -> None:
    bench.model.window = None
    async with bench.running() as session:
        await fill(bench, session, 3)
        start = session.log.seq
        bench.say(failure("CONTEXT_WINDOW_EXCEEDED"), CHECKPOINT, text("fits"))
        await bench.prompt(session, "the newest question")
        found = types(session, start)
        at = found.index("compaction/start")
        assert found[at - 1 : at + 5] == [
            "assistant/chunk",
            "compaction/start",
            "compaction/summary",
            "user/message",
            "compaction/end",
            "request/digest",
        ]
        assert found.count("step/start") == 1
        assert ends(session)[-1] == "completed"
        assert "the newest question" in said(session)


async def test_an_overflow_that_stays_ends_the_turn_and_the_session_stays_usable(
    bench: Bench,
) -> None:
    bench.model.window = None
    async with bench.running() as session:
        await fill(bench, session, 3)
        overflow = failure("CONTEXT_WINDOW_EXCEEDED", "too long")
        bench.say(overflow, CHECKPOINT, overflow)
        await bench.prompt(session)
        reason = list(session.log.events())[-1].payload.reason
        assert (reason.kind, reason.error.code) == ("error", "CONTEXT_WINDOW_EXCEEDED")
        assert not any("too long" in words for words in said(session))
        size = len(bench.model.bodies[-1])
        bench.say(text("better"))
        await bench.prompt(session, "hi")
        assert ends(session)[-1] == "completed"
        assert len(bench.model.bodies[-1]) < size + 3000


async def test_a_history_twice_the_limit_is_compacted_by_requests_that_fit(bench: Bench) -> None:
    bench.model.window = None
    async with bench.running() as session:
        await fill(bench, session, 12, size=6000)
        bench.model.refuse_over = len(bench.model.bodies[-1]) // 2
        bench.say(CHECKPOINT, text("fits now"))
        await bench.prompt(session, "the newest question")
        assert ends(session)[-1] == "completed"
        assert "the newest question" in said(session)
        assert len(bench.model.bodies[-1]) <= bench.model.refuse_over
        bench.say(text("still fits"))
        await bench.prompt(session)
        assert ends(session)[-1] == "completed"


async def test_one_enormous_round_is_told_as_text_when_it_is_summarised(bench: Bench) -> None:
    async def long(args: dict[str, Any], ctx: Any) -> Outcome:
        return Outcome(content=tuple(Text("r" * 8000) for _ in range(1)))

    bench.model.window = None
    bench.tool("long", long)
    async with bench.running() as session:
        bench.say(calls(*[(f"c{n}", "long") for n in range(20)]), text("done"))
        await bench.prompt(session)
        bench.model.refuse_over = 40_000
        bench.say(CHECKPOINT, text("fits now"))
        await bench.prompt(session, "the newest question")
        assert ends(session)[-1] == "completed"
        assert len(results(session)) == 20


async def test_a_cut_is_made_only_between_rounds(bench: Bench) -> None:
    bench.tool("look", safe=True)
    bench.model.window = None
    async with bench.running() as session:
        for n in range(3):
            bench.say(
                calls((f"a{n}", "look"), (f"b{n}", "look"), before="w" * 3000), text("w" * 3000)
            )
            await bench.prompt(session)
        overflow = failure("CONTEXT_WINDOW_EXCEEDED")
        bench.say(calls(("z1", "look"), ("z2", "look")), overflow, CHECKPOINT, text("ok"))
        await bench.prompt(session)
        assert ends(session)[-1] == "completed"
        messages = bench.model.requests[-1].messages
        assert summary.balanced_cuts(messages)[-1] == len(messages)
        assert sum(map(summary.balance, messages)) == 0
