"""A recorded log as the model."""

import json
from pathlib import Path
from typing import Any

import anyio
from llm_talk import collect, hello, request
from msgspec import structs
import pytest

from dsh_acp.errors import LlmError
from dsh_acp.llm.assemble import Assembler
from dsh_acp.llm.replay import ReplayProvider, read
from dsh_acp.llm.replay_script import overridden, parse
from dsh_acp.messages import (
    BlockEnd,
    BlockStart,
    Chunk,
    Failure,
    Finish,
    FinishReason,
    Message,
    Reasoning,
    Request,
    Text,
    TextDelta,
    Usage,
    UsageChunk,
)

HEADER = '{"type":"session","version":0,"id":"a","createdAt":1,"delegationDepth":0}'
STOP = {"type": "finish", "reason": {"kind": "stop"}}


def chunk(step: int, value: dict[str, Any], turn: int = 1) -> str:
    return json.dumps(
        {"type": "assistant/chunk", "data": {"turn": turn, "step": step, "chunk": value}}
    )


def said(step: int, text: str) -> list[str]:
    return [chunk(step, {"type": "text-delta", "index": 0, "text": text}), chunk(step, STOP)]


def log(*lines: str, header: str = HEADER) -> bytes:
    return "\n".join([header, *lines, ""]).encode()


def failure(chunks: list[Chunk]) -> Failure:
    last = chunks[-1]
    assert isinstance(last, Finish) and isinstance(last.reason.failure, Failure)
    return last.reason.failure


def in_session(asked: Request, session: str) -> Request:
    return structs.replace(asked, session_id=session)


async def test_each_finish_ends_one_call_of_the_script() -> None:
    script = parse(log(*said(1, "failed attempt"), *said(1, "second"), *said(2, "third")))
    p = ReplayProvider([script])
    for text in ("failed attempt", "second", "third"):
        chunks = await collect(p, hello(p))
        assert chunks == [TextDelta(0, text), Finish(FinishReason("stop"))]
    p.assert_consumed()


async def test_packed_rows_are_replayed_member_by_member() -> None:
    row = {
        "type": "text-chunks",
        "data": {"turn": 1, "step": 1, "index": 0, "dt": [1, 1], "texts": ["a", "", "b"]},
    }
    p = ReplayProvider([parse(log(json.dumps(row), chunk(1, STOP)))])
    asked = hello(p)
    batches = [list(chunks) async for chunks in p.stream(asked, p.body(asked))]
    assert batches[:3] == [[TextDelta(0, "a")], [TextDelta(0, "")], [TextDelta(0, "b")]]


async def test_a_summary_of_a_compaction_is_a_call_of_its_own() -> None:
    summary = {
        "type": "compaction/summary",
        "data": {
            "llmStreamCall": True,
            "rawOutput": [{"type": "text", "text": "sum"}],
            "usage": {"inputTokens": 1, "outputTokens": 2},
        },
    }
    p = ReplayProvider([parse(log(json.dumps(summary)))])
    assert await collect(p, hello(p)) == [
        BlockStart(0, "text"),
        BlockEnd(0, Text("sum")),
        UsageChunk(Usage(1, 2)),
        Finish(FinishReason("stop")),
    ]
    del summary["data"]["rawOutput"]  # type: ignore[attr-defined]
    bad = ReplayProvider([parse(log(json.dumps(summary)))])
    text = "llm-replay: compaction/summary marks an LLM stream call without rawOutput"
    assert failure(await collect(bad, hello(bad))).message == text


async def test_a_call_without_a_finish_needs_an_override() -> None:
    script = parse(log(chunk(1, {"type": "text-delta", "index": 0, "text": "x"}), *said(2, "y")))
    p = ReplayProvider([script])
    assert failure(await collect(p, hello(p))).message == (
        "llm-replay: model call 1/1 ended without a finish chunk (a thrown stream); this scenario "
        "needs a replay.override.json sidecar"
    )
    patch = {"patches": [{"at": 0, "entry": {"kind": "chunks", "chunks": [STOP]}}]}
    patched = ReplayProvider([overridden(script, json.dumps(patch).encode(), "o")])
    assert await collect(patched, hello(patched)) == [Finish(FinishReason("stop"))]
    assert (await collect(patched, hello(patched)))[0] == TextDelta(0, "y")


async def test_a_throw_gives_its_chunks_and_then_its_failure() -> None:
    entry = {
        "kind": "throw",
        "chunks": [{"type": "text-delta", "index": 0, "text": "x"}],
        "message": "simulated provider error (HTTP 401)",
        "code": "AUTH",
    }
    p = ReplayProvider([overridden(parse(log()), json.dumps([entry]).encode(), "o")])
    chunks = await collect(p, hello(p))
    assert chunks[0] == TextDelta(0, "x")
    assert failure(chunks) == Failure("simulated provider error (HTTP 401)", "AUTH")


async def test_a_hang_says_a_little_and_waits_for_the_cancel(tmp_path: Path) -> None:
    marker = tmp_path / "ready"
    entry = {"kind": "hang", "readyFile": str(marker)}
    p = ReplayProvider([overridden(parse(log()), json.dumps([entry]).encode(), "o")])
    seen: list[Chunk] = []

    async def listen() -> None:
        asked = hello(p)
        async for chunks in p.stream(asked, p.body(asked)):
            seen.extend(chunks)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            while not marker.exists():
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    assert seen == [BlockStart(0, "text"), TextDelta(0, "partial")]


async def test_sessions_claim_scripts_in_the_order_of_their_first_calls() -> None:
    p = ReplayProvider([parse(log(*said(1, "primary"))), parse(log(*said(1, "child")))])
    asked = hello(p)
    assert (await collect(p, in_session(asked, "x")))[0] == TextDelta(0, "primary")
    with pytest.raises(LlmError, match="never used"):
        p.assert_consumed()
    assert (await collect(p, in_session(asked, "y")))[0] == TextDelta(0, "child")
    stranger = failure(await collect(p, in_session(asked, "z")))
    assert stranger.message == (
        "llm-replay: a model call arrived from an unrecorded session (#3); the scenario recorded "
        "only 2 session(s) — re-record it"
    )
    spent = failure(await collect(p, in_session(asked, "x")))
    assert spent.message == (
        "llm-replay: script exhausted — session requested model call #2 but its script has only "
        "1; re-record the scenario"
    )


async def test_a_title_request_takes_nothing_from_the_script() -> None:
    p = ReplayProvider([parse(log(*said(1, "answer")))])
    title = structs.replace(hello(p), purpose="session-title")
    assert failure(await collect(p, title)).code == "NO_ADAPTER"
    assert (await collect(p, hello(p)))[0] == TextDelta(0, "answer")


async def test_the_call_is_claimed_when_the_stream_is_asked_for() -> None:
    p = ReplayProvider([parse(log(*said(1, "one"), *said(2, "two")))])
    asked = hello(p)
    first = p.stream(asked, p.body(asked))
    second = p.stream(asked, p.body(asked))
    assert await anext(second) == [TextDelta(0, "two")]
    assert await anext(first) == [TextDelta(0, "one")]
    await first.aclose()
    await second.aclose()


async def test_a_log_that_continues_another_counts_from_its_seed() -> None:
    header = HEADER.replace('"createdAt"', '"seedLength":2,"createdAt"')
    p = ReplayProvider([parse(log(*said(1, "inherited"), *said(2, "own"), header=header))])
    assert (await collect(p, hello(p)))[0] == TextDelta(0, "own")


def test_files_are_found_with_their_siblings_and_override(tmp_path: Path) -> None:
    late = HEADER.replace('"createdAt":1', '"createdAt":9')
    (tmp_path / "session.jsonl").write_bytes(log(*said(1, "p")))
    (tmp_path / "session.1.jsonl").write_bytes(log(*said(1, "late"), header=late))
    (tmp_path / "session.2.jsonl").write_bytes(log(*said(1, "early"), header=HEADER))
    (tmp_path / "session.notes.jsonl").write_text("no log", encoding="utf-8")
    override = tmp_path / "o.json"
    override.write_text("[]", encoding="utf-8")
    scripts = read(f"replay:{tmp_path / 'session.jsonl'}")
    texts = [script.entries[0].chunks[0]["text"] for script in scripts]
    assert texts == ["p", "early", "late"]
    replaced = read(f"replay:{tmp_path / 'session.jsonl'}?override={override}")
    assert replaced[0].entries == ()
    with pytest.raises(LlmError, match="cannot be read"):
        read(f"replay:{tmp_path / 'missing.jsonl'}")


BAD_LOGS = [
    ("{bad", "session snapshot line 2 contains invalid JSON"),
    ("[1]", "session snapshot line 2 must be a JSON object"),
    (
        '{"type":"text-chunks","data":{"turn":1}}',
        "session snapshot line 2: malformed text-chunks storage row: data must be exactly "
        "{turn, step, index, dt, texts}",
    ),
]


@pytest.mark.parametrize("line, text", BAD_LOGS)
def test_a_damaged_line_is_named(line: str, text: str) -> None:
    with pytest.raises(LlmError) as caught:
        parse(log(line))
    assert caught.value.message == text


BAD_OVERRIDES: list[tuple[Any, str]] = [
    ("nonsense", "document is not JSON"),
    ({}, "document must be an array of entries"),
    ({"patches": 1}, "document must be an array of entries"),
    ([1], "entry 0 must be an object"),
    ([{"kind": "sing"}], "entry 0 kind must be one of"),
    ([{"kind": "chunks"}], "entry 0 must have exactly the keys chunks, kind"),
    ([{"kind": "hang", "more": 1}], "entry 0 must have exactly the keys kind, readyFile"),
    ([{"kind": "chunks", "chunks": 1}], "entry 0 chunks must be an array"),
    ([{"kind": "throw", "chunks": [], "message": 1, "code": "X"}], "message must be a string"),
    ({"patches": [{"at": 0}]}, "patch 0 must be exactly {at, entry}"),
    ({"patches": [{"at": -1, "entry": {"kind": "hang"}}]}, "at must be a non-negative integer"),
    ({"patches": [{"at": 2, "entry": {"kind": "hang"}}]}, "at 2 is out of range"),
    ({"patches": [{"at": 0, "entry": {"kind": "hang"}}] * 2}, "patches call 0 twice"),
]


@pytest.mark.parametrize("document, text", BAD_OVERRIDES)
def test_a_wrong_override_is_named(document: Any, text: str) -> None:
    script = parse(log(*said(1, "x")))
    data = document.encode() if isinstance(document, str) else json.dumps(document).encode()
    with pytest.raises(LlmError) as caught:
        overridden(script, data, "o.json")
    assert caught.value.message.startswith("llm-replay: invalid override o.json: ")
    assert text in caught.value.message


def test_a_patch_may_append_one_call_after_the_last() -> None:
    script = parse(log(*said(1, "x")))
    patch = {"patches": [{"at": 1, "entry": {"kind": "hang"}}]}
    found = overridden(script, json.dumps(patch).encode(), "o")
    assert [entry.kind for entry in found.entries] == ["chunks", "hang"]


async def test_placeholders_are_filled_from_the_request() -> None:
    text = "id={{fromRequest:job_(\\w+)}} n={{fromRequest:\\d{2}}}"
    entry = {
        "kind": "chunks",
        "chunks": [{"type": "text-delta", "index": 0, "text": text}, STOP],
    }
    script = overridden(parse(log()), json.dumps([entry, entry]).encode(), "o")
    p = ReplayProvider([script])
    asked = request(p, "m", [Message.user((Text("job_a job_b 12 34"),), id="u")])
    assert (await collect(p, asked))[0] == TextDelta(0, "id=b n=34")
    nothing = failure(await collect(p, hello(p)))
    assert "matches nothing in the request" in nothing.message


async def test_a_chunk_that_is_none_fails_the_call() -> None:
    entry = {"kind": "chunks", "chunks": [{"type": "hologram"}]}
    p = ReplayProvider([overridden(parse(log()), json.dumps([entry]).encode(), "o")])
    assert "not a chunk" in failure(await collect(p, hello(p))).message


def test_the_provider_goes_by_the_name_that_was_recorded() -> None:
    header = {"header": {"config": {"provider": "deepseek", "model": "deepseek-v4-pro"}}}
    line = json.dumps({"type": "request/header", "data": header})
    p = ReplayProvider([parse(log(line))])
    assert (p.name, p.default_model) == ("deepseek", "deepseek-v4-pro")
    assert [info.id for info in p.models()] == ["deepseek-v4-flash", "deepseek-v4-pro"]
    asked = request(p, "deepseek-v4-pro", reasoningEffort="high")
    assert b'"thinking":{"type":"enabled"}' in p.body(asked).data


async def test_recorded_sessions_of_others_replay_into_their_own_messages(shared: Path) -> None:
    logs = sorted((shared / "dsh-sessions").glob("*/session.jsonl"))
    assert logs
    replayed = 0
    for path in logs:
        override = path.with_name("replay.override.json")
        script = parse(path.read_bytes())
        if override.exists():
            overridden(script, override.read_bytes(), override.name)
            continue
        recorded = _messages(path)
        p = ReplayProvider([script])
        for _ in script.entries:
            assembler = Assembler()
            for item in await collect(p, hello(p)):
                assembler.feed(item)
            if assembler.finish.kind == "error" or not recorded:
                continue
            assert list(assembler.blocks()) == recorded.pop(0)
            replayed += 1
    assert replayed > 30


def _messages(path: Path) -> list[list[Any]]:
    found: list[list[Any]] = []
    seed = 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        value = json.loads(line)
        if number == 0:
            seed = value.get("seedLength", 0)
        elif value["type"] == "assistant/message" and not seed:
            content = json.dumps(value["data"]["message"]).encode()
            blocks = Message(content).content
            found.append([b for b in blocks if b != Reasoning("")])
    return found
