"""The folds read what the harness whose format this is has recorded."""

from pathlib import Path

import pytest

from dsh_acp.agent import inbox, options, policy, seen, titles, usage
from dsh_acp.log.load import load_fixture
from dsh_acp.messages import source_kind

SESSIONS = Path(__file__).resolve().parents[2] / "../shared/dsh-sessions"
LOGS = sorted(SESSIONS.glob("*/session*.jsonl"))


@pytest.mark.skipif(not LOGS, reason="the folder ../shared is not here")
def test_every_recorded_session_folds() -> None:
    titled = told = 0
    for path in LOGS:
        log = load_fixture(path.read_bytes())
        events = list(log.events())
        waiting = inbox.fold(events, log.header.seed_length or 0)
        assert all(message.role == "user" for message in waiting)
        assert policy.fold(events).preset in policy.PRESETS
        assert options.fold(events) == ()
        assert usage.fold(events, lambda *_: None).costs == {}
        found = titles.fold(events)
        if found.is_fallback:
            titled += 1
            first = log.event(found.message_seqs[0]).payload.message
            assert source_kind(first) == "user"
            assert found.title == titles.fallback(first.text)
        told += seen.fold(events).snapshot is not None
    assert titled > 10 and told > 10
