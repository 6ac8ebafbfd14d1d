"""The model's script: short forms, what a log implies, patches."""

import json
from typing import Any

import pytest

from dsh_acp.snapshot.replies import ReplyError, compile_override, entries, fill, implied

HEAD = {"type": "session", "version": 0, "id": "s", "createdAt": 0}


def chunk(turn: int, **fields: Any) -> dict[str, Any]:
    return {"type": "assistant/chunk", "data": {"turn": turn, "step": 1, "chunk": fields}}


def finish(turn: int, kind: str = "stop") -> dict[str, Any]:
    return chunk(turn, type="finish", reason={"kind": kind})


def log(*events: dict[str, Any], **head: Any) -> list[bytes]:
    return [json.dumps(event).encode() for event in (HEAD | head, *events)]


def test_a_short_reply_is_spelt_out_in_the_order_of_a_real_stream():
    calls = [{"name": "read", "arguments": {"path": "x"}}]
    reply = {"kind": "reply", "reasoning": "r", "text": ["a", "b"], "calls": calls}
    (entry,) = compile_override([reply])
    kinds = [c["type"] for c in entry["chunks"]]
    assert kinds == ["block-start", "reasoning-delta", "block-end", "block-start", "text-delta",
                     "text-delta", "block-end", "block-start", "tool-call-delta", "block-end",
                     "usage", "finish"]  # fmt: skip
    assert entry["chunks"][6]["block"] == {"type": "text", "text": "ab"}
    assert entry["chunks"][8] == {
        "type": "tool-call-delta", "index": 2, "id": "call_1", "name": "read",
        "argumentsDelta": '{"path":"x"}'}  # fmt: skip
    assert entry["chunks"][-1]["reason"] == {"kind": "tool-calls"}


def test_calls_are_numbered_over_the_whole_script():
    found = compile_override([{"kind": "reply", "calls": [{"name": "a"}, {"name": "b"}]},
                              {"kind": "reply", "calls": [{"name": "c"}]}])  # fmt: skip
    ids = [c["id"] for e in found for c in e["chunks"] if c["type"] == "tool-call-delta"]
    assert ids == ["call_1", "call_2", "call_3"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "an override is an array"),
        ([{"kind": "sing"}], "an entry has a kind among"),
        ([{"kind": "reply", "txet": ""}], "a reply entry has no field txet"),
        ([{"kind": "reply", "finish": "never"}], "finish is one of"),
    ],
)
def test_a_mistake_in_an_override_is_said_in_words(document: Any, words: str):
    with pytest.raises(ReplyError, match=words):
        compile_override(document)


def test_each_finish_in_a_log_ends_one_call_retries_included():
    found = implied(log(chunk(1, type="text-delta"), finish(1, "error"), finish(1), finish(2)))
    assert [len(entry["chunks"]) for entry in found] == [2, 1, 1]


def test_inherited_events_of_a_fork_are_not_its_script():
    events = [finish(1), finish(2)]
    assert len(implied(log(*events, seedLength=1))) == 1


def test_a_call_without_an_end_needs_an_override():
    lines = log(chunk(1, type="text-delta"), finish(2))
    with pytest.raises(ReplyError, match="turn 1, step 1 has no finish"):
        entries(lines, None)
    assert len(entries(lines, [{"kind": "hang"}])) == 1
    patched = entries(lines, {"patches": [{"at": 0, "entry": {"kind": "hang"}}]})
    assert [entry["kind"] for entry in patched] == ["hang", "chunks"]
    with pytest.raises(ReplyError, match="implies only 2 calls"):
        entries(lines, {"patches": [{"at": 3, "entry": {"kind": "hang"}}]})


def test_placeholders_are_filled_and_unknown_sessions_refused():
    known = {"cwd": "/w", "session:a": "s1"}
    assert fill(["{{cwd}}/x", {"k": "{{session:a}}"}, 1], known) == ["/w/x", {"k": "s1"}, 1]
    assert fill("{{system}} {cwd}", known) == "{{system}} {cwd}"
    with pytest.raises(ReplyError, match="session:b"):
        fill("{{session:b}}", known)
