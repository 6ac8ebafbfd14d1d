"""Moves that wait, and moves in the workspace."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import anyio
from msgspec import UNSET

from dsh_acp.snapshot import harvest, steps as s
from dsh_acp.snapshot.play import Player, StepFailed
from dsh_acp.snapshot.table import Moves

Json: TypeAlias = dict[str, Any]

move: Final = Moves()

# ---------------------------------------------------------------- waiting


@move(s.WaitForUpdate)
async def _wait_for_update(p: Player, step: s.WaitForUpdate) -> None:
    await p.until_update(p.sid(step), p.since, step.fields)


@move(s.WaitForQuestion)
async def _wait_for_question(p: Player, step: s.WaitForQuestion) -> None:
    await p.client.until_held()


@move(s.WaitForFile)
async def _wait_for_file(p: Player, step: s.WaitForFile) -> None:
    await harvest.until_exists(p.path(step.path))


def _after_turn_end(kind: str) -> Callable[[list[Json]], bool]:
    def holds(events: list[Json]) -> bool:
        kinds = [event["type"] for event in events]
        return "turn/end" in kinds and kind in kinds[::-1][: kinds[::-1].index("turn/end")]

    return holds


def _turn_ended(minimum: int) -> Callable[[list[Json]], bool]:
    def holds(events: list[Json]) -> bool:
        ends = [event for event in events if event["type"] in ("turn/start", "turn/end")]
        return bool(ends and ends[-1]["type"] == "turn/end" and ends[-1]["data"]["turn"] >= minimum)

    return holds


@move(s.WaitForTurnStart)
async def _wait_for_turn_start(p: Player, step: s.WaitForTurnStart) -> None:
    def holds(events: list[Json]) -> bool:
        return any(
            event["type"] == "turn/start" and event["data"]["turn"] >= step.minimum_turn
            for event in events
        )

    await p.log_until(f"turn {step.minimum_turn}", p.sid(step), holds, step.timeout_ms)


@move(s.WaitForTurnEnd)
async def _wait_for_turn_end(p: Player, step: s.WaitForTurnEnd) -> None:
    await p.log_until("the end of the turn", p.sid(step), _turn_ended(1), step.timeout_ms)


@move(s.WaitForSubagentTurnEnd)
async def _wait_for_child(p: Player, step: s.WaitForSubagentTurnEnd) -> None:
    sid = p.sid(step)
    what = f"the end of turn {step.minimum_turn} of child {step.child}"
    holds = _turn_ended(step.minimum_turn)
    look = lambda: harvest.child(p.home, sid, step.child)  # noqa: E731
    await harvest.until(what, look, holds, step.timeout_ms)


@move(s.WaitForEventAfterTurnEnd)
async def _wait_for_event(p: Player, step: s.WaitForEventAfterTurnEnd) -> None:
    await p.log_until(step.type, p.sid(step), _after_turn_end(step.type), step.timeout_ms)


@move(s.WaitForEvent)
async def _wait_for_events(p: Player, step: s.WaitForEvent) -> None:
    def holds(events: list[Json]) -> bool:
        return sum(event["type"] == step.type for event in events) >= step.count

    await p.log_until(step.type, p.sid(step), holds, step.timeout_ms)


@move(s.WaitForTitleAfterTurnEnd)
async def _wait_for_title(p: Player, step: s.WaitForTitleAfterTurnEnd) -> None:
    holds = _after_turn_end("session/title")
    await p.log_until("a title", p.sid(step), holds, step.timeout_ms)


@move(s.WaitForInboxMessage)
async def _wait_for_inbox(p: Player, step: s.WaitForInboxMessage) -> None:
    def holds(events: list[Json]) -> bool:
        return any(
            block.get("text") == step.text
            for event in events
            if event["type"] == "agent/inbox/spliced"
            for message in event["data"]["inserted"]
            for block in message["content"]
        )

    await p.log_until(f"the message {step.text!r}", p.sid(step), holds, step.timeout_ms)


@move(s.WaitForGoalPhase)
async def _wait_for_goal(p: Player, step: s.WaitForGoalPhase) -> None:
    def holds(events: list[Json]) -> bool:
        goals = [event["data"] for event in events if event["type"] == "goal/change"]
        return bool(goals) and goals[-1].get("goal", {}).get("phase") == step.phase

    await p.log_until(f"goal phase {step.phase}", p.sid(step), holds, step.timeout_ms)


# ---------------------------------------------------------------- the workspace


@move(s.SetBuffer)
async def _set_buffer(p: Player, step: s.SetBuffer) -> None:
    p.client.buffers.unsaved[str(p.path(step.path))] = step.text


@move(s.WriteFile)
async def _write_file(p: Player, step: s.WriteFile) -> None:
    await anyio.Path(p.path(step.path)).write_text(step.text, "utf-8")


@move(s.DeleteFile)
async def _delete_file(p: Player, step: s.DeleteFile) -> None:
    await anyio.Path(p.path(step.path)).unlink()


@move(s.ExpectFile)
async def _expect_file(p: Player, step: s.ExpectFile) -> None:
    path = anyio.Path(p.path(step.path))
    found = (await path.read_bytes()).decode("utf-8", "replace") if await path.exists() else UNSET
    _expect(step.path, step.text, found)


@move(s.ExpectBuffer)
async def _expect_buffer(p: Player, step: s.ExpectBuffer) -> None:
    _expect(step.path, step.text, p.client.buffers.unsaved.get(str(p.path(step.path)), UNSET))


def _expect(path: str, wanted: Any, found: Any) -> None:
    if wanted != found:
        words = ["nothing" if text is UNSET else repr(text) for text in (wanted, found)]
        raise StepFailed(f"{path} should have {words[0]} but has {words[1]}")
