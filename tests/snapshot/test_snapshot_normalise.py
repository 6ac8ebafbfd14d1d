"""Every placeholder, and that normalising twice changes nothing more."""

import json
from typing import Any

from hypothesis import given, strategies as st
import pytest

from dsh_acp.snapshot.normalise import Normaliser

A = "11111111-2222-4333-8444-555555555555"
B = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"


def frame(value: dict[str, Any], **table: Any) -> dict[str, Any]:
    return Normaliser("/tmp/work", "/tmp/home", **table).frame(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in /tmp/work.", "in {{cwd}}."),
        ("/tmp/work/a.txt", "{{cwd}}/a.txt"),
        ("/private/tmp/work/a", "{{cwd}}/a"),
        ("file:///tmp/work/a", "file://{{cwd}}/a"),
        ("/tmp/work-2 /tmp/workshop /tmp/work.d/x", "/tmp/work-2 /tmp/workshop /tmp/work.d/x"),
        ("/tmp/home/.dsh-acp", "{{home}}/.dsh-acp"),
        (f"{A} {B} {A}", "{{id.1}} {{id.2}} {{id.1}}"),
        ("at 2026-11-30T15:46:01.123Z", "at {{time}}"),
        ("on 2026-11-30", "on 2026-11-30"),
        ("retrying 1/5 in 512.25ms: busy", "retrying 1/5 in {{delay}}: busy"),
        ("/tmp/home/x/s/--tmp-work--/log", "{{home}}/x/s/{{cwdSlug}}/log"),
        ("in /tmp/home/out/s1/0123456789ab-bash.txt]", "in {{spillLocator:bash.txt}}]"),
        ("Operating system: Linux", "Operating system: {{os}}"),
        ("{{cwd}} {{id.7}}", "{{cwd}} {{id.7}}"),
    ],
)
def test_text_is_replaced_at_its_boundaries(text: str, expected: str):
    assert Normaliser("/tmp/work", "/tmp/home").text(text) == expected


def test_sessions_are_numbered_by_appearance_and_named_wherever_they_occur():
    table = Normaliser("/w", sessions=["my-session", B])
    assert table.text(f"my-session and {B}") == "{{sessionId}} and {{sessionId.2}}"
    assert table.value({"sessionId": "third"}) == {"sessionId": "third"}
    assert table.frame({"result": {"sessionId": "third"}})["result"]["sessionId"] == (
        "{{sessionId.3}}"
    )
    assert table.value({"sessionId": "third"}) == {"sessionId": "{{sessionId.3}}"}


def test_request_ids_of_both_directions_share_one_table():
    table = Normaliser("/w")
    ids = [table.frame({"id": id})["id"] for id in (0, 1, "0", 0, None)]
    assert ids == [1, 2, 3, 1, None]


def test_times_and_the_agents_version_are_replaced_where_they_are_known():
    update = {"params": {"update": {"sessionUpdate": "session_info_update", "updatedAt": "now"}}}
    assert frame(update)["params"]["update"]["updatedAt"] == "{{updatedAt}}"
    sessions = {"result": {"sessions": [{"title": "t", "updatedAt": "now"}]}}
    assert frame(sessions)["result"]["sessions"][0]["updatedAt"] == "{{updatedAt}}"
    hello = {"result": {"protocolVersion": 1, "agentInfo": {"name": "n", "version": "1.2"}}}
    assert frame(hello)["result"]["agentInfo"] == {"name": "n", "version": "{{version}}"}


def test_keys_keep_their_order_and_are_never_replaced():
    assert Normaliser("/w").frames([b'{"b":1,"a":{"/w":"/w"}}']) == [
        b'{"b":1,"a":{"/w":"{{cwd}}"}}'
    ]


def log(*events: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    head = {"type": "session", "version": 0, "id": A, "createdAt": 5, "cwd": "/w"}
    lines = [json.dumps(event).encode() for event in (head, *events)]
    return [json.loads(line) for line in Normaliser("/w").log(lines, **options)]


def event(kind: str, seq: int, **data: Any) -> dict[str, Any]:
    return {"type": kind, "seq": seq, "time": 1000 + seq, "data": data}


def test_a_log_loses_times_and_positions_and_keeps_everything_else():
    head, *rest = log(
        event("turn/start", 0, turn=1),
        event("request/digest", 1, turn=1, sha256="abc", bytes=12) | {"ignorable": True},
        event("llm/retry", 2, delayMs=1.5, retry=1),
        event("hook/result", 3, durationMs=12, deep=[{"createdAt": 3}]),
    )
    assert head == {"type": "session", "version": 0, "id": "{{sessionId}}", "createdAt": 0,
                    "cwd": "{{cwd}}"}  # fmt: skip
    digest = {"turn": 1, "sha256": "{{sha256}}", "bytes": 0}
    assert rest == [
        {"type": "turn/start", "data": {"turn": 1}},
        {"type": "request/digest", "data": digest, "ignorable": True},
        {"type": "llm/retry", "data": {"delayMs": 0, "retry": 1}},
        {"type": "hook/result", "data": {"durationMs": 0, "deep": [{"createdAt": 0}]}},
    ]


def test_a_header_shows_presence_but_not_text():
    header = {"config": {"model": "m"}, "system": "You", "tools": [1], "messagePrefix": [1, 2]}
    events = [event("request/header", 0, header=header, reason="initial")]
    assert log(*events)[1]["data"]["header"] == {
        "config": {"model": "m"},
        "system": "{{system}}",
        "tools": "{{tools}}",
        "messagePrefix": ["{{messagePrefix}}", "{{messagePrefix}}"],
    }
    assert log(*events, scrub=False)[1]["data"]["header"]["system"] == "You"


def test_a_jump_in_the_sequence_is_an_error():
    with pytest.raises(ValueError, match="jumps from seq 0 to 2"):
        log(event("turn/start", 0), event("turn/end", 2))


@given(st.recursive(st.text() | st.sampled_from([A, B, "/w/x", "2026-11-30T15:46:01Z"]),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_normalising_again_changes_nothing(value: Any):
    once = Normaliser("/w").value(value)
    assert Normaliser("/w").value(once) == once
