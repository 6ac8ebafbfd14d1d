"""A log is a conversation that can be continued: after a restart, a crash, a fork."""

from pathlib import Path
import resource

from agent_bench import Bench, calls, ends, results, text, types
import pytest

from dsh_acp.agent.session import Session
from dsh_acp.errors import PromptError
from dsh_acp.messages import Message, Text


def note(words: str) -> Message:
    return Message.user((Text(words),))


async def recorded(bench: Bench) -> tuple[str, Path]:
    """A session of two turns, one with overlapping calls, and its file."""
    bench.tool("look", safe=True)
    bench.say(calls(("c1", "look"), ("c2", "look"), before="let me see"), text("seen"), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session, "first")
        await bench.prompt(session, "second")
        assert session.log.path is not None
        return session.id, session.log.path


async def test_a_resumed_session_logs_a_header_of_its_own_even_without_drift(
    bench: Bench,
) -> None:
    id, _ = await recorded(bench)
    bench.say(text("third"), text("fourth"))
    async with bench.running(bench.store.open(id)) as session:
        first = session.log.first_live_seq
        await bench.prompt(session)
        await bench.prompt(session)
        headers = [e.payload for e in session.log.events() if e.type == "request/header"]
        assert [h.reason for h in headers] == ["initial", "resume"]
        assert headers[0].header == headers[1].header
        assert [e.payload.turn for e in session.log.events() if e.type == "turn/start"] == [
            1,
            2,
            3,
            4,
        ]
        assert types(session, first)[0] == "session/end-seed"
        before, after = bench.model.requests[-3:-1]
        assert after.messages[: len(before.messages)] == before.messages


async def test_a_resume_starts_no_turn_and_keeps_what_waited(bench: Bench) -> None:
    async with bench.running() as session:
        session.inject(note("context"))
        id = session.id
    async with bench.running(bench.store.open(id)) as session:
        await session.when_idle()
        assert "turn/start" not in types(session)
        bench.say(text("ok"))
        await bench.prompt(session, "go")
        assert [m.text for m in bench.model.requests[0].messages][:2] == ["context", "go"]


async def test_a_log_cut_at_any_line_can_be_continued_with_a_sound_history(
    bench: Bench, tmp_path: Path
) -> None:
    id, path = await recorded(bench)
    whole = path.read_bytes().splitlines(keepends=True)
    for cut in range(2, len(whole), 2):
        path.write_bytes(b"".join(whole[:cut]))
        bench.model.replies[:] = [text("fine")] * 3
        async with bench.running(bench.store.open(id)) as session:
            await bench.prompt(session, "again")
            assert ends(session)[-1] == "completed", f"cut at line {cut}"
            open_calls = 0
            for message in bench.model.requests[-1].messages:
                for block in message.content:
                    name = type(block).__name__
                    open_calls += (name == "ToolCall") - (name == "ToolResult")
            assert open_calls == 0, f"cut at line {cut}"
            results(session)


async def test_a_torn_last_line_is_cut_off_and_the_session_goes_on(bench: Bench) -> None:
    id, path = await recorded(bench)
    path.write_bytes(path.read_bytes() + b'{"type":"user/mess')
    bench.say(text("fine"))
    async with bench.running(bench.store.open(id)) as session:
        await bench.prompt(session)
        assert ends(session)[-1] == "completed"


async def test_calls_cut_short_by_a_crash_are_answered_for_the_model(bench: Bench) -> None:
    id, path = await recorded(bench)
    lines = path.read_bytes().splitlines(keepends=True)
    cut = next(n for n, line in enumerate(lines) if b'"tool/result"' in line)
    path.write_bytes(b"".join(lines[:cut]))
    bench.say(text("fine"))
    async with bench.running(bench.store.open(id)) as session:
        assert ends(session) == ["interrupted"]
        errors = [e.payload.error.code for e in session.log.events() if e.type == "tool/result"]
        assert errors == ["TOOL_OUTCOME_UNKNOWN"] * 2
        await bench.prompt(session)
        assert ends(session) == ["interrupted", "completed"]


async def test_a_fork_goes_its_own_way_with_its_parents_history(bench: Bench) -> None:
    id, _ = await recorded(bench)
    child = bench.store.fork(id)
    bench.say(text("child's"))
    async with bench.running(child) as session:
        parent_messages = bench.store.read(id).messages()
        assert session.log.messages() == parent_messages
        await bench.prompt(session)
        reasons = [e.payload.reason for e in session.log.events() if e.type == "request/header"]
        assert reasons[-1] == "resume"
    assert bench.store.read(id).messages() == parent_messages


async def test_changed_instructions_are_announced_when_a_session_is_resumed(
    bench: Bench,
) -> None:
    file = bench.cwd / "AGENTS.md"
    file.write_text("Use tabs.", encoding="utf-8")
    id, _ = await recorded(bench)

    def told(session: Session) -> list[str]:
        return [m.text for m in session.log.messages() if m.source["kind"] == "agent-instructions"]

    bench.say(text("same"))
    async with bench.running(bench.store.open(id)) as session:
        await bench.prompt(session)
        assert len(told(session)) == 1
    file.write_text("Use spaces.", encoding="utf-8")
    bench.say(text("changed"))
    async with bench.running(bench.store.open(id)) as session:
        await bench.prompt(session)
        assert "have changed" in told(session)[-1] and "Use spaces." in told(session)[-1]
    file.unlink()
    bench.say(text("gone"))
    async with bench.running(bench.store.open(id)) as session:
        await bench.prompt(session)
        assert "no longer apply" in told(session)[-1]


async def test_a_lost_log_file_fails_the_prompt_and_nothing_leaves(bench: Bench) -> None:
    bench.say(text("one"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert session.log.path is not None
        session.log.path.unlink()
        await bench.prompt(session)
        assert len(bench.model.requests) == 1
        assert ends(session) == ["completed", "error"]


async def test_a_full_disk_fails_the_prompt_and_the_log_stays_readable(bench: Bench) -> None:
    async def fill_up() -> None:
        assert session.log.path is not None
        size = session.log.path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    bench.say(text("one"), [fill_up, *text("two")])
    async with bench.running() as session:
        await bench.prompt(session)
        try:
            await bench.prompt(session)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert session.failure is not None
        assert session.status == "idle"
        with pytest.raises(PromptError, match="cannot be written any more"):
            session.followup(note("more"))
        id = session.id
    found = bench.store.read(id)
    assert [m.text for m in found.messages()][-1] == "hello"
