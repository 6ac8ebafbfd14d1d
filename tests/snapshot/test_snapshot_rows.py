"""Packed rows taken apart and put together."""

import copy
from typing import Any

from hypothesis import given, strategies as st

from dsh_acp.snapshot.rows import pack, unpack


def delta(text: str, kind: str = "text-delta", index: int = 0) -> dict[str, Any]:
    chunk = {"type": kind, "index": index, "text": text}
    return {"type": "assistant/chunk", "data": {"turn": 1, "step": 1, "chunk": chunk}}


def call(text: str, name: str | None = None) -> dict[str, Any]:
    chunk: dict[str, Any] = {"type": "tool-call-delta", "index": 0, "id": "c"}
    chunk |= {"name": name} if name else {}
    chunk["argumentsDelta"] = text
    return {"type": "assistant/chunk", "data": {"turn": 1, "step": 1, "chunk": chunk}}


OTHER = {"type": "turn/start", "data": {"turn": 1}}


def test_runs_of_three_become_a_row_and_shorter_ones_stay():
    assert pack([delta("a"), delta("b")]) == [delta("a"), delta("b")]
    (row,) = pack([delta("a"), delta(""), delta("c")])
    assert row == {
        "type": "text-chunks",
        "data": {"turn": 1, "step": 1, "index": 0, "dt": [0, 0], "texts": ["a", "", "c"]},
    }


def test_a_run_ends_where_the_block_or_the_name_changes():
    events = [call("", "bash"), call("a"), call("b"), call("c"), delta("x", index=1)]
    assert [event["type"] for event in pack(events)] == [
        "assistant/chunk", "tool-call-chunks", "assistant/chunk"]  # fmt: skip


def test_gaps_between_tokens_survive_when_asked_to():
    data = {"turn": 1, "step": 1, "index": 0, "dt": [3, 40], "texts": ["a", "b", "c"]}
    row = {"type": "text-chunks", "seq0": 0, "time0": 9, "data": data}
    (kept,) = pack(list(unpack([row])), keep_gaps=True)
    assert kept["data"]["dt"] == [3, 40]
    (zero,) = pack(list(unpack([row])))
    assert zero["data"]["dt"] == [0, 0]


@given(
    st.lists(
        st.one_of(
            st.builds(delta, st.text(), st.sampled_from(["text-delta", "reasoning-delta"])),
            st.builds(call, st.text(), st.sampled_from([None, "bash"])),
            st.just(OTHER),
        )
    )
)
def test_unpacking_what_was_packed_gives_the_events_back(events: list[dict[str, Any]]):
    found = [dict(event) for event in unpack(pack(copy.deepcopy(events)))]
    for event in found:
        event.pop("gap", None)
    assert found == events
