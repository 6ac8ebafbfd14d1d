"""One fold for live streaming and replay, over real logs."""

from collections.abc import Iterator
from itertools import pairwise
import json
from pathlib import Path

from acp_bench import check
from hypothesis import given, strategies as st
import pytest

from dsh_acp.acp.client import Client
from dsh_acp.acp.projection import Projection
from dsh_acp.acp.updates import Chunk, Plan, Title, Update, Used, merged, settled
from dsh_acp.acp.v1 import Codec, iso
from dsh_acp.config import Settings
from dsh_acp.log.events import Event
from dsh_acp.log.load import load_fixture
from dsh_acp.log.packed import ChunkRow, Entry
from dsh_acp.tools import catalog

SESSIONS = Path(__file__).resolve().parents[3] / "shared/dsh-sessions"
LOGS = sorted(SESSIONS.glob("*/session*.jsonl"))
TOOLS = catalog.builtin(Settings(home=Path("/h"), config_path=Path("/h/c"), config_dir=Path("/h")))


def projection() -> Projection:
    return Projection("S", "/w", TOOLS, lambda provider, model: None)


def entries(path: Path) -> list[Entry]:
    return list(load_fixture(path.read_bytes()).entries())


def unpacked(found: list[Entry]) -> Iterator[Event]:
    for entry in found:
        if isinstance(entry, ChunkRow):
            yield from entry.events()
        else:
            yield entry


def project(found: list[Entry] | Iterator[Event], *, replay: bool) -> list[Update]:
    fold = projection()
    return merged(update for entry in found for update in fold.apply(entry, replay=replay))


@pytest.mark.skipif(not LOGS, reason="the folder ../shared/dsh-sessions is not here")
@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_recorded_sessions_are_shown_the_same_packed_or_not(path: Path) -> None:
    found = entries(path)
    assert project(unpacked(found), replay=True) == project(found, replay=True)
    live = project(found, replay=False)
    replayed = [
        update for update in project(found, replay=True) if getattr(update, "role", None) != "user"
    ]
    assert merged(live) == merged(replayed)


@pytest.mark.skipif(not LOGS, reason="the folder ../shared/dsh-sessions is not here")
@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
@pytest.mark.parametrize(
    "client",
    [Client(), Client(terminal_output=True, notices=True, compaction=True)],
    ids=["plain", "rich"],
)
def test_recorded_sessions_become_valid_frames(path: Path, client: Client) -> None:
    codec = Codec("S", client, lambda image: b"data")
    calls: dict[str, str] = {}
    for update in settled(project(entries(path), replay=True)):
        line = codec.encode(update)
        if not line:
            continue
        frame = json.loads(line)
        check(frame, {})
        update = frame["params"]["update"]
        match update["sessionUpdate"]:
            case "tool_call":
                assert update["toolCallId"] not in calls
                calls[update["toolCallId"]] = "pending"
            case "tool_call_update":
                assert calls[update["toolCallId"]] not in ("completed", "failed")
                calls[update["toolCallId"]] = update["status"]
            case _:
                pass
    assert set(calls.values()) <= {"completed", "failed"}


CHUNKS = st.builds(
    Chunk, st.sampled_from(["agent", "thought"]), st.sampled_from("ab"), st.text(max_size=3)
)
OTHERS = st.one_of(
    st.builds(Title, st.text(max_size=2), st.just(0)),
    st.just(Plan(())),
    st.builds(Used, st.integers(0, 5), st.none(), st.just(()), st.just({})),
)


@given(st.lists(CHUNKS | OTHERS, max_size=12))
def test_merging_keeps_every_text_and_the_order(updates: list[Update]) -> None:
    after = merged(updates)
    assert _flat(after) == _flat(updates)
    assert all(
        not (isinstance(a, Chunk) and isinstance(b, Chunk) and _key(a) == _key(b))
        for a, b in pairwise(after)
    )
    assert merged(after) == after


@given(st.lists(CHUNKS | OTHERS, max_size=12))
def test_settling_keeps_the_last_of_what_is_replaced(updates: list[Update]) -> None:
    after = settled(updates)
    for kind in (Title, Plan, Used):
        before = [update for update in updates if isinstance(update, kind)]
        assert [update for update in after if isinstance(update, kind)] == before[-1:]
    assert [u for u in after if isinstance(u, Chunk)] == [
        u for u in updates if isinstance(u, Chunk)
    ]


def _key(chunk: Chunk) -> tuple[str, str]:
    return (chunk.role, chunk.message_id)


def _flat(updates: list[Update]) -> list[object]:
    found: list[object] = []
    for update in updates:
        if isinstance(update, Chunk):
            found += [(*_key(update), letter) for letter in update.text]
        else:
            found.append(update)
    return found


@given(st.text(), st.text(min_size=1))
def test_a_chunk_frame_carries_exactly_its_text(text: str, id: str) -> None:
    codec = Codec("S\ud800", Client(), lambda image: b"")
    line = codec.encode(Chunk("agent", id, text))
    frame = json.loads(line)
    assert line.count(b"\n") == 1
    assert frame["params"]["update"]["content"] == {"type": "text", "text": text}
    assert frame["params"]["update"]["messageId"] == id


def test_times_are_iso_with_milliseconds() -> None:
    assert iso(1784955180000) == "2026-07-25T04:53:00.000Z"
    assert iso(1784955180007) == "2026-07-25T04:53:00.007Z"
