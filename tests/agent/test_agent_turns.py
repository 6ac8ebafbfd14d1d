"""Turns and steps: what is logged, in which order, and what the model is sent."""

from agent_bench import Bench, calls, ends, failure, results, text, types
import anyio

from dsh_acp.agent.hooks import Enter, PreStep, Proceed, Reject, TurnStopping
from dsh_acp.messages import (
    BlockStart,
    Failure,
    Finish,
    FinishReason,
    Message,
    Text,
    TextDelta,
    Usage,
    UsageChunk,
)


def note(words: str) -> Message:
    return Message.user((Text(words),))


def user_texts(request: object) -> list[str]:
    """What people said in a request, without what the program added."""
    messages: tuple[Message, ...] = request.messages  # type: ignore[attr-defined]
    return [m.text for m in messages if m.role == "user" and m.source["kind"] == "user"]


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


async def test_a_fresh_session_begins_with_its_permissions(bench: Bench) -> None:
    bench.settings["permission"] = "workspace-write"
    bench.say(text("ok"))
    async with bench.running() as session:
        assert session.log.seq == 0
        await bench.prompt(session)
        first = [(event.type, event.data) for event in session.log.events()][:4]
        assert first[:3] == [
            ("permission/preset", b'{"preset":"workspace-write"}'),
            ("sandbox/mode", b'{"mode":"workspace-write"}'),
            ("approval/policy", b'{"policy":"ask"}'),
        ]
        assert first[3][0] == "agent/inbox/spliced"


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
        roles = [message.role for message in second.messages[len(first.messages) :]]
        assert roles == ["assistant", "user"]
        assert types(session).count("request/header") == 1
        assert types(session).count("request/digest") == 2


async def test_an_answer_cites_its_own_chunks_and_no_others(bench: Bench) -> None:
    bench.say([BlockStart(0, "text"), *failure("SERVER")], text("fine"))
    async with bench.running() as session:
        await bench.prompt(session)
        events = list(session.log.events())
        retry = next(e.seq for e in events if e.type == "llm/retry-started")
        answer = next(e for e in events if e.type == "assistant/message")
        chunks = [e.seq for e in events if e.type == "assistant/chunk" and e.seq > retry]
        assert list(answer.source_event_seqs or ()) == chunks


async def test_a_retry_is_logged_between_the_attempts_and_needs_no_new_header(
    bench: Bench,
) -> None:
    bench.say(failure("SERVER"), failure("SERVER"), text("fine"))
    async with bench.running() as session:
        await bench.prompt(session)
        found = types(session)
        start = found.index("request/header")
        assert found[start : start + 12] == [
            "request/header",
            "request/context",
            "request/digest",
            "assistant/chunk",
            "llm/retry",
            "llm/retry-started",
            "request/digest",
            "assistant/chunk",
            "llm/retry",
            "llm/retry-started",
            "request/digest",
            "assistant/chunk",
        ]
        retries = [e.payload for e in session.log.events() if e.type == "llm/retry"]
        assert [(r.retry, r.delay_ms) for r in retries] == [(1, 1), (2, 2)]
        assert len({r.retry_id for r in retries}) == 1
        assert bench.clock.slept == [0.001, 0.002]
        attempts = [e.payload.attempt for e in session.log.events() if e.type == "request/digest"]
        assert attempts == [1, 2, 3]
        assert ends(session) == ["completed"]


async def test_the_provider_says_how_long_to_wait(bench: Bench) -> None:
    bench.say(failure("RATE_LIMIT", retry_after_ms=2000), text("fine"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert bench.clock.slept == [2.0]


async def test_a_failure_that_is_not_retried_ends_the_turn_with_its_facts(bench: Bench) -> None:
    bench.say([Finish(FinishReason("error", Failure("no key", "AUTH", status=401)))])
    async with bench.running() as session:
        await bench.prompt(session)
        reason = list(session.log.events())[-1].payload.reason
        assert (reason.kind, reason.error) == ("error", Failure("no key", "AUTH", status=401))


async def test_retries_are_bounded_and_the_last_failure_is_told(bench: Bench) -> None:
    bench.say(*[failure("TIMEOUT", "too slow")] * 6)
    async with bench.running() as session:
        await bench.prompt(session)
        assert len(bench.model.requests) == 6
        assert list(session.log.events())[-1].payload.reason.error.message == "too slow"


async def test_an_aborted_finish_without_a_cancel_is_an_error(bench: Bench) -> None:
    bench.say([Finish(FinishReason("aborted", Failure("cut off", "ABORTED")))])
    async with bench.running() as session:
        await bench.prompt(session)
        reason = list(session.log.events())[-1].payload.reason
        assert (reason.kind, reason.error.code) == ("error", "ABORTED")


async def test_a_refused_answer_ends_the_turn_with_content_filter(bench: Bench) -> None:
    bench.say([TextDelta(0, "I"), *failure("CONTENT_FILTER")])
    async with bench.running() as session:
        await bench.prompt(session)
        assert list(session.log.events())[-1].payload.reason.error.code == "CONTENT_FILTER"
        assert len(bench.model.requests) == 1


async def test_an_empty_answer_hosts_its_usage_and_derives_to_nothing(bench: Bench) -> None:
    bench.say([UsageChunk(Usage(3, 0)), Finish(FinishReason("stop"))], text("hello"))
    async with bench.running() as session:
        await bench.prompt(session)
        await bench.prompt(session)
        answer = next(e for e in session.log.events() if e.type == "assistant/message")
        assert answer.payload.message.content == ()
        assert all(m.role == "user" for m in bench.model.requests[1].messages)


async def test_max_tokens_drops_calls_and_ends_the_turn(bench: Bench) -> None:
    bench.tool("look")
    reply = calls(("c1", "look"), before="thinking")
    reply[-1] = Finish(FinishReason("max-tokens"))
    bench.say(reply)
    async with bench.running() as session:
        await bench.prompt(session)
        assert ends(session) == ["max-tokens"]
        assert "tool/call" not in types(session)


async def test_prompts_run_one_after_another_each_in_its_own_turn(bench: Bench) -> None:
    bench.say(text("one"), text("two"), text("three"))
    async with bench.running() as session:
        for words in ("a", "b", "c"):
            session.followup(note(words))
        await session.when_idle()
        assert ends(session) == ["completed"] * 3
        assert [user_texts(r) for r in bench.model.requests] == [["a"], ["a", "b"], ["a", "b", "c"]]


async def test_steering_joins_the_running_turn_before_a_later_prompt(bench: Bench) -> None:
    bench.say(text("one"), text("two"), text("three"))

    async def steer() -> None:
        session.followup(note("later"))
        session.steer(note("aside"))

    bench.model.replies[0].insert(2, steer)
    async with bench.running() as session:
        await bench.prompt(session, "first")
        assert ends(session) == ["completed"] * 2
        assert [user_texts(r) for r in bench.model.requests] == [
            ["first"],
            ["first", "aside"],
            ["first", "aside", "later"],
        ]


async def test_injected_input_waits_for_the_next_prompt_and_precedes_it(bench: Bench) -> None:
    bench.say(text("ok"))
    async with bench.running() as session:
        session.inject(note("context"))
        await session.when_idle()
        assert bench.model.requests == []
        await bench.prompt(session, "question")
        assert user_texts(bench.model.requests[0]) == ["context", "question"]


async def test_a_failed_turn_leaves_queued_prompts_until_something_wakes_the_session(
    bench: Bench,
) -> None:
    bench.say(failure("AUTH"), text("now"), text("then"))
    async with bench.running() as session:
        session.followup(note("a"))
        session.followup(note("b"))
        await session.when_idle()
        assert ends(session) == ["error"]
        assert [m.text for m in session.pending()] == ["b"]
        await bench.prompt(session, "c")
        assert ends(session) == ["error", "completed", "completed"]


async def test_a_rejected_step_ends_the_turn_blocked_and_its_input_is_gone(bench: Bench) -> None:
    async def refuse(step: PreStep, proceed: Proceed[Enter | Reject]) -> Enter | Reject:
        return Reject("not today")

    bench.hooks.pre_step.append(refuse)
    async with bench.running() as session:
        session.followup(note("a"))
        session.followup(note("b"))
        await session.when_idle()
        assert ends(session) == ["blocked"]
        assert "user/message" not in types(session)
        assert [m.text for m in session.pending()] == ["b"]


async def test_a_hook_may_rewrite_the_batch_before_it_enters(bench: Bench) -> None:
    async def rewrite(step: PreStep, proceed: Proceed[Enter | Reject]) -> Enter | Reject:
        decision = await proceed()
        assert isinstance(decision, Enter)
        return Enter((*decision.messages, note("and be brief")))

    bench.hooks.pre_step.append(rewrite)
    bench.say(text("ok"))
    async with bench.running() as session:
        await bench.prompt(session, "go")
        assert user_texts(bench.model.requests[0]) == ["go", "and be brief"]


async def test_a_stopping_hook_keeps_the_turn_going_by_steering(bench: Bench) -> None:
    asked: list[int] = []

    async def once_more(stopping: TurnStopping) -> None:
        if not asked:
            stopping.session.steer(note("once more"))
        asked.append(stopping.turn)

    bench.hooks.turn_stopping.append(once_more)
    bench.say(text("one"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert asked == [1, 1]
        assert ends(session) == ["completed"]
        assert types(session).count("step/start") == 2


async def test_the_number_of_requests_in_a_turn_is_limited(bench: Bench) -> None:
    bench.settings["max_requests_per_turn"] = 4
    bench.tool("loop")
    bench.say(*[calls((f"c{n}", "loop")) for n in range(9)], text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert len(bench.model.requests) == 4
        assert ends(session) == ["max-turn-requests"]
        assert len(results(session)) == 4


async def test_a_notice_that_waits_does_not_carry_a_runaway_turn_on(bench: Bench) -> None:
    bench.settings["max_requests_per_turn"] = 3
    bench.tool("loop")
    bench.say(*[calls((f"c{n}", "loop")) for n in range(9)])
    async with bench.running() as session:
        await bench.prompt(session)
        assert len(bench.model.requests) == 3
        assert len(session.pending()) == 1
        bench.model.replies[:] = [text("ok")]
        await bench.prompt(session, "stop it")
        assert ends(session) == ["max-turn-requests", "completed"]


async def test_identical_calls_earn_a_notice_at_three_five_and_eight(bench: Bench) -> None:
    bench.tool("same")
    bench.say(*[calls((f"c{n}", "same", '{"b":1,"a":2}')) for n in range(8)], text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        notices = [
            (e.payload.message.source["summary"], e.seq)
            for e in session.log.events()
            if e.type == "user/message"
            and e.payload.message.source.get("plugin") == "repeat-tool-reminder"
        ]
        assert [summary for summary, _ in notices] == ["same × 3", "same × 5", "same × 8"]


async def test_an_exception_in_a_hook_ends_the_turn_and_the_next_prompt_works(
    bench: Bench,
) -> None:
    async def broken(step: PreStep, proceed: Proceed[Enter | Reject]) -> Enter | Reject:
        bench.hooks.pre_step.clear()
        raise ValueError("broken hook")

    bench.hooks.pre_step.append(broken)
    bench.say(text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        reason = list(session.log.events())[-1].payload.reason
        assert (reason.kind, reason.error.code) == ("error", "UNKNOWN")
        assert "broken hook" in reason.error.message
        await bench.prompt(session)
        assert ends(session) == ["error", "completed"]


async def test_a_wake_without_input_opens_and_completes_an_empty_turn(bench: Bench) -> None:
    async with bench.running() as session:
        session.followup(note("never mind"))
        session.parts.inbox.clear()
        await session.when_idle()
        assert ends(session) == ["completed"]
        assert "step/start" not in types(session)


async def test_everything_is_on_disk_before_the_request_leaves(bench: Bench) -> None:
    seen: list[bytes] = []

    async def look() -> None:
        assert session.log.path is not None
        seen.append(session.log.path.read_bytes())

    bench.say([look, *text("ok")])
    async with bench.running() as session:
        await bench.prompt(session)
        assert b'"type":"request/digest"' in seen[0].splitlines()[-1]


async def test_two_sessions_run_at_the_same_time(bench: Bench) -> None:
    bench.say(text("x"), text("y"))
    async with bench.running() as one, bench.running() as two:
        with anyio.fail_after(30):
            one.followup(note("a"))
            two.followup(note("b"))
            await one.when_idle()
            await two.when_idle()
        assert ends(one) == ends(two) == ["completed"]
