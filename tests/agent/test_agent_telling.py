"""What is told about a session: its title, its tokens, its cost, and notices to the model."""

from agent_bench import Bench, Gate, Model, Models, calls, failure, text, types
from hypothesis import given, settings, strategies as st
import pytest

from dsh_acp.agent import reminders, titles, usage
from dsh_acp.agent.reminders import Repetition
from dsh_acp.llm.provider import Price
from dsh_acp.log.events import UserMessage
from dsh_acp.messages import Message, Text, Usage

# ---------------------------------------------------------------- titles


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("Use the bash tool to run echo", "Use the bash tool to"),
        ("  Start a\n\tlong   task; this takes time", "Start a long task; this"),
        ("Reply with exactly DIRECT_CHILD_OK and stop", "Reply with exactly DIRECT_CHILD_OK and"),
        ("请修复这个非常非常长的没有空格的问题描述", "请修复这个非常非常长的没有"),
        ("", ""),
    ],
)
def test_the_first_words_of_a_prompt_make_a_title(words: str, title: str) -> None:
    assert titles.fallback(words) == title


@settings(max_examples=30)
@given(st.text())
def test_a_title_is_never_long_and_never_torn(words: str) -> None:
    title = titles.fallback(words)
    assert len(title.encode()) <= 40
    assert title == title.strip()


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Terminal check", "Terminal check"),
        ('\n\n"Fix the **parser**"\nBecause…', "Fix the **parser"),
        ("# Title\x1b[31m", "Title[31m"),
        ("", ""),
    ],
)
def test_a_models_title_is_one_plain_line(answer: str, title: str) -> None:
    assert titles.clean(answer) == title


async def test_a_title_is_logged_right_after_the_prompt_that_it_is_made_of(bench: Bench) -> None:
    bench.say(text("one"), text("two"))
    async with bench.running() as session:
        session.inject(Message.user((Text("context"),), {"kind": "plugin", "plugin": "x"}))
        await bench.prompt(session, "Fix the parser")
        await bench.prompt(session, "And the lexer")
        found = [e for e in session.log.events() if e.type == "session/title"]
        assert [e.payload.title for e in found] == ["Fix the parser"]
        assert session.log.event(found[0].seq - 1).seq == found[0].payload.message_seqs[0]


async def test_the_model_may_find_a_better_title_once_the_turn_has_ended(bench: Bench) -> None:
    bench.options["llm_titles"] = True
    bench.say(text("one"), text("Parser repair"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session, "Fix the parser")
        follower = session.log.follow(session.log.seq)
        while session.title != "Parser repair":
            await follower.wait()
            follower.take()
        request = bench.model.requests[1]
        assert request.purpose == "session-title"
        assert not request.header.tools
        found = types(session)
        assert found[-2:] == ["session/title-llm-request", "session/title"]
        await bench.prompt(session)
        assert session.title == "Parser repair"
        assert types(session).count("session/title-llm-request") == 1
        assert request.messages[0] not in bench.model.requests[2].messages


async def test_a_model_of_its_own_may_find_the_title(bench: Bench) -> None:
    bench.options["llm_titles"] = True
    bench.settings["title_model"] = "other/small"
    other = Model(text("Parser repair"), name="other")
    bench.models = Models(bench.model, other)
    bench.say(text("one"))
    async with bench.running() as session:
        await bench.prompt(session, "Fix the parser")
        follower = session.log.follow(session.log.seq)
        while session.title != "Parser repair":
            await follower.wait()
            follower.take()
        (title,) = [e.payload for e in session.log.events() if e.type == "session/title"][1:]
    assert title.source["model"] == {"provider": "other", "model": "small"}
    assert [request.config.model for request in other.requests] == ["small"]
    assert len(bench.model.requests) == 1


async def test_a_title_that_cannot_be_had_leaves_the_old_one(bench: Bench) -> None:
    bench.options["llm_titles"] = True
    bench.say(text("one"), failure("AUTH"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session, "Fix the parser")
        await bench.prompt(session)
        assert session.title == "Fix the parser"


async def test_a_title_in_the_making_does_not_hold_up_the_end(bench: Bench) -> None:
    bench.options["llm_titles"] = True
    gate = Gate()
    bench.say(text("one"), [gate])
    async with bench.running() as session:
        await bench.prompt(session, "Fix the parser")
        await gate.reached.wait()
        assert session.status == "idle"


# ---------------------------------------------------------------- usage


async def test_tokens_are_summed_per_session_and_per_turn(bench: Bench) -> None:
    bench.tool("look")
    bench.say(
        calls(("c1", "look")),
        text("one", usage=Usage(100, 20, cache_read_tokens=1000, reasoning_tokens=5)),
        text("two", usage=Usage(7, 3)),
    )
    async with bench.running() as session:
        await bench.prompt(session)
        assert (session.usage.turn.input, session.usage.turn.output) == (110, 25)
        assert session.usage.context_used == 1120
        assert session.usage.context_window == 100_000
        await bench.prompt(session)
        assert (session.usage.turn.input, session.usage.turn.requests) == (7, 1)
        total = session.usage.session
        assert (total.input, total.output, total.cache_read, total.reasoning) == (117, 28, 1000, 5)
        cost = (117 * 1.0 + 28 * 2.0 + 1000 * 0.5) / 1_000_000
        assert session.usage.costs == {"USD": pytest.approx(cost)}
        again = usage.fold(session.log.events(), lambda *_: Price(1.0, 2.0, 0.5))
        assert (again.session, again.costs) == (total, session.usage.costs)


async def test_calls_of_unknown_price_are_counted_as_such(bench: Bench) -> None:
    bench.say(text("one"))
    async with bench.running() as session:
        await bench.prompt(session)
        found = usage.fold(session.log.events(), lambda *_: None)
        assert (found.costs, found.unpriced) == ({}, 1)


def test_a_cached_token_costs_what_the_price_says_or_a_full_one() -> None:
    used = Usage(0, 0, cache_read_tokens=1_000_000, cache_write_tokens=1_000_000)
    assert usage.cost(used, Price(3.0, 9.0)) == 6.0
    assert usage.cost(used, Price(3.0, 9.0, 1.0, 2.0)) == 3.0


# ---------------------------------------------------------------- reminders


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["{}", '{"x":1}'])), max_size=30))
def test_a_notice_comes_at_the_thresholds_of_an_unbroken_chain(
    made: list[tuple[str, str]],
) -> None:
    repetition = Repetition()
    chain = 0
    last: tuple[str, str] | None = None
    for call in made:
        chain = chain + 1 if call == last else 1
        last = call
        notice = repetition.note(*call)
        assert (notice is not None) == (chain in reminders.THRESHOLDS)


def test_key_order_does_not_make_a_call_another_one() -> None:
    repetition = Repetition()
    repetition.note("t", '{"a":1,"b":2}')
    repetition.note("t", '{"b":2,"a":1}')
    notice = repetition.note("t", '{ "a": 1, "b": 2 }')
    assert notice is not None and notice.source["summary"] == "t × 3"


def test_a_word_from_the_person_begins_the_count_anew() -> None:
    repetition = Repetition()
    repetition.note("t", "not json")
    repetition.note("t", "not json")
    repetition.reset()
    assert repetition.note("t", "not json") is None


def test_a_notice_about_long_arguments_shows_their_beginning() -> None:
    repetition = Repetition()
    notices = [repetition.note("t" * 300, "x" * 2000) for _ in range(5)]
    last = notices[-1]
    assert last is not None and "x" * 500 + "…" in last.text
    assert len(last.source["summary"]) == 120
    assert UserMessage(last).encode()
