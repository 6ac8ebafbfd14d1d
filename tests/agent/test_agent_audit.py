"""No request leaves that the log does not explain."""

from collections.abc import Callable
import json
from typing import Any

from agent_bench import Bench, calls, ends, text, types
import msgspec
import pytest

from dsh_acp.agent.hooks import Framing, FramingProposal, Proceed, Proposal
from dsh_acp.agent.session import Session
from dsh_acp.errors import InvariantError
from dsh_acp.log.payloads import UserMessage
from dsh_acp.messages import CallConfig, Message, Request, Text


def note(words: str) -> Message:
    return Message.user((Text(words),))


async def sent(bench: Bench, session: Session) -> Request:
    """A request that was proved, as a start for tampering."""
    bench.say(text("ok"))
    await bench.prompt(session)
    return bench.model.requests[-1]


def altered(**changes: Any) -> Callable[[Request], Request]:
    def alter(request: Request) -> Request:
        config = msgspec.structs.replace(request.header.config, **changes)
        header = msgspec.structs.replace(request.header, config=config)
        return msgspec.structs.replace(request, header=header)

    return alter


def with_system(request: Request) -> Request:
    header = msgspec.structs.replace(request.header, system="Obey me.")
    return msgspec.structs.replace(request, header=header)


def without_a_message(request: Request) -> Request:
    return msgspec.structs.replace(request, messages=request.messages[1:])


def with_a_phantom(request: Request) -> Request:
    return msgspec.structs.replace(request, messages=(*request.messages, note("phantom")))


def with_another_text(request: Request) -> Request:
    first = Message(request.messages[0].json.replace(b"hello", b"hullo"))
    return msgspec.structs.replace(request, messages=(first, *request.messages[1:]))


def for_another_session(request: Request) -> Request:
    return msgspec.structs.replace(request, session_id="another")


@pytest.mark.parametrize(
    ("alter", "told"),
    [
        (without_a_message, "diverges from the dispatch-time durable derivation"),
        (with_a_phantom, "diverges from the dispatch-time durable derivation"),
        (with_another_text, "diverges from the dispatch-time durable derivation"),
        (with_system, "diverges from the folded request header"),
        (altered(model="cheaper"), "diverges from the folded request header"),
        (altered(max_tokens=5), "diverges from the folded request header"),
        (for_another_session, 'must carry a live session id, got "another"'),
    ],
)
async def test_a_request_altered_after_it_was_built_is_refused(
    bench: Bench, alter: Callable[[Request], Request], told: str
) -> None:
    async with bench.running() as session:
        request = await sent(bench, session)
        # The answer is part of the history by now; go back to what was sent.
        before = msgspec.structs.replace(request, messages=session.log.messages())
        session.parts.requests.prove(before)
        with pytest.raises(InvariantError, match="invariant violated by") as caught:
            session.parts.requests.prove(alter(before))
        assert told in str(caught.value)


async def test_a_message_that_bypasses_the_log_stops_the_turn_before_dispatch(
    bench: Bench,
) -> None:
    async with bench.running() as session:
        await sent(bench, session)
        genuine = session.log.messages
        session.log.messages = lambda: (*genuine(), note("phantom"))  # type: ignore[method-assign]
        await bench.prompt(session)
        assert len(bench.model.requests) == 1
        reason = list(session.log.events())[-1].payload.reason
        assert (reason.kind, reason.error.code) == ("error", "UNKNOWN")
        assert reason.error.message == (
            'invariant violated by "@deepseek-ai/dsh-agent-loop": llm request for session '
            f'"{session.id}" diverges from the dispatch-time durable derivation '
            "(log-reconstruction desync)"
        )
        assert types(session).count("request/digest") == 1
        session.log.messages = genuine  # type: ignore[method-assign]
        bench.say(text("ok"))
        await bench.prompt(session)
        assert ends(session) == ["completed", "error", "completed"]


async def test_a_hook_that_appends_a_message_behind_the_derivation_is_caught(
    bench: Bench,
) -> None:
    async def smuggle(proposal: Proposal, proceed: Proceed[CallConfig]) -> CallConfig:
        proposal.session.log.append(UserMessage(note("smuggled")))
        return await proceed()

    bench.hooks.request_config.append(smuggle)
    async with bench.running() as session:
        await bench.prompt(session)
        assert bench.model.requests == []
        assert "diverges" in list(session.log.events())[-1].payload.reason.error.message


async def test_a_line_deleted_from_the_file_stops_the_next_request(bench: Bench) -> None:
    async with bench.running() as session:
        await sent(bench, session)
        assert session.log.path is not None
        id, path = session.id, session.log.path
    lines = path.read_bytes().splitlines(keepends=True)
    gone = next(n for n, line in enumerate(lines) if b'"assistant/message"' in line)
    async with bench.running(bench.store.open(id)) as session:
        path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
        await bench.prompt(session)
        assert len(bench.model.requests) == 1


async def test_a_byte_changed_in_the_file_stops_the_next_request(bench: Bench) -> None:
    async with bench.running() as session:
        await sent(bench, session)
        assert session.log.path is not None
        id, path = session.id, session.log.path
    async with bench.running(bench.store.open(id)) as session:
        with path.open("r+b") as file:
            data = file.read()
            file.seek(data.index(b'"type":"user/message"'))
            file.seek(data.index(b"hello", file.tell()))
            file.write(b"hullo")
        await bench.prompt(session)
        assert len(bench.model.requests) == 1
        assert session.failure is not None or ends(session)[-1] == "error"


async def test_framing_is_recorded_in_the_header_and_never_becomes_history(bench: Bench) -> None:
    frames = [Framing((note("before"),), (note("after"),)), Framing()]

    async def frame(proposal: FramingProposal, proceed: Proceed[Framing]) -> Framing:
        assert proposal.system
        return frames.pop(0) if frames else await proceed()

    bench.hooks.request_framing.append(frame)
    bench.say(text("one"), text("two"), text("three"))
    async with bench.running() as session:
        for _ in range(3):
            await bench.prompt(session)
        first, second, _ = bench.model.requests
        assert [first.messages[0].text, first.messages[-1].text] == ["before", "after"]
        assert "before" not in [m.text for m in second.messages]
        assert "before" not in [m.text for m in session.log.messages()]
        headers = [e for e in session.log.events() if e.type == "request/header"]
        assert [e.payload.reason for e in headers] == ["initial", "change"]
        data = [json.loads(e.data)["header"] for e in headers]
        assert data[0]["messagePrefix"][0]["content"] == [{"type": "text", "text": "before"}]
        assert "messagePrefix" not in data[1] and "messageSuffix" not in data[1]


async def test_a_hook_sees_a_frozen_seed_and_its_replacement_is_logged_as_a_change(
    bench: Bench,
) -> None:
    async def warm(proposal: Proposal, proceed: Proceed[CallConfig]) -> CallConfig:
        with pytest.raises(AttributeError):
            proposal.seed.temperature = 1  # type: ignore[misc]
        return msgspec.structs.replace(await proceed(), temperature=proposal.turn / 2)

    bench.hooks.request_config.append(warm)
    bench.say(text("one"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session)
        await bench.prompt(session)
        assert [r.config.temperature for r in bench.model.requests] == [0.5, 1]
        reasons = [e.payload.reason for e in session.log.events() if e.type == "request/header"]
        assert reasons == ["initial", "change"]


async def test_each_request_extends_its_predecessor_while_nothing_changes(bench: Bench) -> None:
    bench.tool("look")
    for n in range(4):
        bench.say(calls((f"c{n}", "look")), text("done"))
    async with bench.running() as session:
        for _ in range(4):
            await bench.prompt(session)
        for before, after in zip(bench.model.requests, bench.model.requests[1:], strict=False):
            assert after.messages[: len(before.messages)] == before.messages
            assert after.header == before.header


async def test_the_digest_is_that_of_the_bytes_that_left(bench: Bench) -> None:
    import hashlib

    bench.say(text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        digest = next(e for e in session.log.events() if e.type == "request/digest")
        assert digest.ignorable
        body = bench.model.bodies[0]
        assert digest.payload.sha256 == hashlib.sha256(body).hexdigest()
        assert digest.payload.bytes == len(body)
