"""Frames against the protocol's own definitions."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh_acp.snapshot.calls import Line
from dsh_acp.snapshot.conformity import schema_folder, violations
from dsh_acp.snapshot.runner import Options, run
from dsh_acp.snapshot.scenario import Scenario

ASK = {"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {}}
TEXT = {"type": "text", "text": "hello"}
SAID = {"sessionUpdate": "agent_message_chunk", "content": TEXT}


def update(**fields: Any) -> dict[str, Any]:
    params = {"sessionId": "s", "update": fields}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def told(*frames: dict[str, Any], folder: Path | None = None) -> list[str]:
    lines = [Line(sent=True, data=json.dumps(ASK).encode())]
    lines += [Line(sent=False, data=json.dumps(frame).encode()) for frame in frames]
    return violations(lines, folder)


def test_frames_of_the_protocol_are_fine(shared: Path):
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn"}}
    assert told(update(**SAID), answer, folder=schema_folder(shared / "dsh-sessions")) == []


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"id": 1, "result": {"stopReason": "end_turn"}}, 'a frame without "jsonrpc"'),
        ({"jsonrpc": "2.0", "id": 1}, "needs exactly one of result and error"),
        ({"jsonrpc": "2.0", "result": None}, "neither method nor id"),
        ({"jsonrpc": "2.0", "id": 1, "result": {}, "more": 1}, "unknown fields in a frame: more"),
        (
            {"jsonrpc": "2.0", "id": 1, "error": {"code": "x", "message": "no"}},
            "an error without integer code",
        ),
    ],
)
def test_an_envelope_that_is_no_json_rpc_is_told(frame: dict[str, Any], words: str):
    assert any(words in problem for problem in told(frame))


FAULTS = [
    (update(sessionUpdate="agent_message_chunk", content="hello"), "session/update"),
    (update(sessionUpdate="tool_call", title="Read"), "session/update"),
    ({"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "tired"}}, "session/prompt (response)"),
]


@pytest.mark.parametrize(("frame", "where"), FAULTS)
def test_a_frame_of_another_shape_is_told_by_the_published_schema(
    shared: Path, frame: dict[str, Any], where: str
):
    pytest.importorskip("jsonschema")
    problems = told(frame, folder=shared / "acp-schema")
    assert any(where in problem and "schema: $" in problem for problem in problems)


@pytest.mark.parametrize(("frame", "where"), FAULTS)
def test_a_frame_of_another_shape_is_told_by_the_official_sdk(frame: dict[str, Any], where: str):
    pytest.importorskip("acp")
    assert any(where in problem and "SDK: " in problem for problem in told(frame))


def test_a_method_that_the_protocol_does_not_have_is_told(shared: Path):
    pytest.importorskip("jsonschema")
    frame = {"jsonrpc": "2.0", "method": "session/sing", "params": {}}
    assert told(frame, folder=shared / "acp-schema") == [
        "session/sing (notification): the protocol has no such method"
    ]


async def test_an_agent_that_breaks_the_protocol_fails_its_scenario(
    tmp_path: Path, fake: list[str]
):
    pytest.importorskip("acp")
    steps = [{"op": "initialize"}, {"op": "newSession"}, {"op": "prompt", "text": "sing"}]
    document = {"shows": "x", "agent": {"argv": fake}, "comparesLog": False, "steps": steps}
    (tmp_path / "input.json").write_text(json.dumps(document), encoding="utf-8")
    with anyio.fail_after(30):
        result = await run(Scenario(tmp_path), Options(mode="refresh"))
    assert any("session/update (notification)" in problem for problem in result.problems)
