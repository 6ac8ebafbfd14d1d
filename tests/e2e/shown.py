"""What an editor shows of each turn, live or from a load, and what a model may be sent."""

from collections.abc import Sequence
import hashlib
from pathlib import Path
from typing import Any

from e2e_agent import Agent, Frame, events_of, is_update

from dsh_acp.llm.fake import FakeLlm


class Shown:
    """What an editor shows of one turn."""

    def __init__(self) -> None:
        self.texts = {"agent_message_chunk": "", "agent_thought_chunk": ""}
        self.calls: dict[str, Frame] = {}

    def add(self, update: Frame) -> None:
        kind = update["sessionUpdate"]
        if kind in self.texts:
            self.texts[kind] += update["content"].get("text", "")
        elif kind in ("tool_call", "tool_call_update"):
            self.calls.setdefault(update["toolCallId"], {}).update(update)


def replayed(agent: Agent) -> dict[str, Shown]:
    """The turns that a load showed, by the words of their prompts."""
    turns: dict[str, Shown] = {}
    words = ""
    for update in agent.updates():
        if update["sessionUpdate"] == "user_message_chunk":
            words = update["content"]["text"]
            assert words not in turns
            turns[words] = Shown()
        elif words:
            turns[words].add(update)
    return turns


def live(agent: Agent, since: int, until: int) -> Shown:
    """What the frames of a running turn showed."""
    shown = Shown()
    for frame in filter(is_update, agent.frames[since:until]):
        shown.add(frame["params"]["update"])
    return shown


def words_of(message: Frame) -> str:
    """The text of a message of a body, whatever its content's form."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(p.get("text", "") for p in content)


def assert_history_is_valid(body: Frame) -> None:
    """Every call has exactly one result right behind it, and no result lacks its call."""
    owed: list[str] = []
    for message in body["messages"]:
        blocks: Sequence[Any] = message.get("content") or ()
        parts = [] if isinstance(blocks, str) else blocks
        results = [p["tool_use_id"] for p in parts if p.get("type") == "tool_result"]
        if message["role"] == "tool":
            results.append(message["tool_call_id"])
        for id in results:
            assert id in owed
            owed.remove(id)
        if results:
            continue
        assert owed == []
        owed = [call["id"] for call in message.get("tool_calls") or ()]
        owed += [part["id"] for part in parts if part.get("type") == "tool_use"]
    assert owed == []


def assert_facts_are_logged(path: Path, fake: FakeLlm, effects: Path) -> None:
    """Every request that left has its digest, every effect its call, in the log."""
    rows = events_of(path.read_bytes())
    digests = {row["data"]["sha256"] for row in rows if row["type"] == "request/digest"}
    for request in list(fake.requests):
        if request.json.get("tools"):
            assert hashlib.sha256(request.body).hexdigest() in digests
    calls = {row["data"]["callId"] for row in rows if row["type"] == "tool/call"}
    done = effects.read_text("utf-8").split() if effects.exists() else []
    assert set(done) <= calls
    assert len(done) == len(set(done)), "a call ran twice"
