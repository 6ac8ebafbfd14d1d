"""Pending input is a fold of the inbox events."""

from pathlib import Path

from agent_bench import Bench
from hypothesis import given, settings, strategies as st
import pytest

from dsh_acp.agent import inbox as inboxes
from dsh_acp.agent.folds import Folds
from dsh_acp.agent.inbox import Inbox
from dsh_acp.errors import DshError, LogError
from dsh_acp.log.payloads import InboxSpliced
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.validation import SessionHeader
from dsh_acp.messages import Message, Text


def note(words: str) -> Message:
    return Message.user((Text(words),))


def log_in_memory() -> SessionLog:
    return SessionLog(SessionHeader(id="s", created_at=1, cwd="/p"))


def words(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


def test_a_claim_takes_all_input_for_the_step_before_one_prompt() -> None:
    inbox = Inbox(log_in_memory(), Folds(log := log_in_memory()))
    inbox = Inbox(log, Folds(log))
    inbox.insert("next-turn", note("first"))
    inbox.insert("next-turn", note("second"))
    inbox.insert("next-step", note("aside"))
    inbox.insert("next-step", note("more"))
    assert words(inbox.claim("next-turn")) == ["aside", "more", "first"]
    assert words(inbox.pending()) == ["second"]
    assert words(inbox.claim("next-step")) == []


def test_a_splice_is_written_with_the_keys_of_the_format() -> None:
    log = log_in_memory()
    inbox = Inbox(log, Folds(log))
    message = note("hi")
    inbox.insert("next-turn", message)
    inbox.claim("next-turn")
    inbox.insert("next-step", note("x"))
    inbox.clear()
    assert [event.data for event in log.events()] == [
        b'{"target":"next-turn","start":0,"inserted":[' + message.json + b"]}",
        b'{"target":"next-turn","start":0,"removedCount":1,"inserted":[]}',
        b'{"target":"next-step","start":0,"inserted":[' + note_json(log, 2) + b"]}",
        b'{"target":"next-step","start":0,"removedCount":1,"inserted":[],"outcome":"canceled"}',
    ]


def note_json(log: SessionLog, seq: int) -> bytes:
    payload: InboxSpliced = log.event(seq).payload
    return payload.inserted[0].json


def test_a_splice_that_changes_nothing_is_not_logged() -> None:
    log = log_in_memory()
    inbox = Inbox(log, Folds(log))
    inbox.clear()
    assert inbox.claim("next-turn") == ()
    assert log.seq == 0


def test_a_message_can_wait_only_once_across_both_lists() -> None:
    log = log_in_memory()
    inbox = Inbox(log, Folds(log))
    message = note("once")
    inbox.insert("next-turn", message)
    with pytest.raises(DshError, match=f'message "{message.id}" is already pending'):
        inbox.insert("next-step", message)
    assert log.seq == 1


def test_a_waiting_message_can_be_replaced_and_taken_back() -> None:
    log = log_in_memory()
    inbox = Inbox(log, Folds(log))
    old, new = note("old"), note("new")
    inbox.insert("next-turn", old)
    assert inbox.replace(old.id, new)
    assert words(inbox.pending()) == ["new"]
    assert log.event(1).payload.outcome == "canceled"
    assert inbox.remove(new.id)
    assert not inbox.remove(new.id)


def test_a_persisted_splice_that_does_not_fit_is_refused_with_its_place() -> None:
    log = log_in_memory()
    log.append(InboxSpliced("next-turn", 3, inserted=(note("x"),)))
    following = Folds(log)
    Inbox(log, following)
    with pytest.raises(LogError, match="invalid persisted inbox splice at session seq 0"):
        following.catch_up()


def test_a_fork_does_not_inherit_what_its_parent_had_pending(tmp_path: Path) -> None:
    log = log_in_memory()
    inbox = Inbox(log, Folds(log))
    inbox.insert("next-turn", note("parent's"))
    events = list(log.events())
    assert words(inboxes.fold(events)) == ["parent's"]
    assert inboxes.fold(events, seed_length=1) == ()


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["next-turn", "next-step"]),
            st.integers(-5, 8),
            st.integers(-2, 5),
            st.integers(0, 2),
        ),
        max_size=20,
    )
)
def test_the_live_lists_are_always_the_fold_of_the_log(
    splices: list[tuple[inboxes.Target, int, int, int]],
) -> None:
    log = log_in_memory()
    inbox = Inbox(log, Folds(log))
    model: dict[str, list[str]] = {"next-turn": [], "next-step": []}
    for target, start, count, new in splices:
        inserted = [note("m") for _ in range(new)]
        removed = inbox.splice(target, start, count, inserted)
        items = model[target]
        at = max(0, len(items) + start) if start < 0 else min(start, len(items))
        count = max(0, min(count, len(items) - at))
        assert [m.id for m in removed] == items[at : at + count]
        items[at : at + count] = [m.id for m in inserted]
    expected = model["next-step"] + model["next-turn"]
    assert [m.id for m in inbox.pending()] == expected
    assert [m.id for m in inboxes.fold(log.events())] == expected


async def test_input_that_waited_is_still_there_after_a_restart(bench: Bench) -> None:
    async with bench.running() as session:
        session.inject(note("remember"))
        id = session.id
    async with bench.running(bench.store.open(id)) as session:
        assert words(session.pending()) == ["remember"]
