"""What each step does. `MOVES` maps a step's type to the function that plays it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
import os
from typing import Any, Final, TypeAlias, TypeVar

import anyio
from msgspec import UNSET

from dsh_acp.snapshot import harvest, steps as s
from dsh_acp.snapshot.calls import AgentEnded
from dsh_acp.snapshot.play import Move, Player, Started, StepFailed

Json: TypeAlias = dict[str, Any]
S = TypeVar("S", bound=s.Step)

MOVES: Final[dict[type[s.Step], Move]] = {}


def _move(kind: type[S]) -> Callable[[Callable[[Player, S], Awaitable[None]]], Move]:
    def register(function: Callable[[Player, S], Awaitable[None]]) -> Move:
        MOVES[kind] = function
        return function

    return register


def _given(**params: Any) -> Json:
    return {key: value for key, value in params.items() if value is not UNSET}


# ---------------------------------------------------------------- connection


@_move(s.Initialize)
async def _initialize(p: Player, step: s.Initialize) -> None:
    capabilities: Json = dict(step.capabilities or {})
    if step.terminal_output:
        capabilities["_meta"] = {**capabilities.get("_meta", {}), "terminal_output": True}
    if step.expect_error is not False:
        params = {"protocolVersion": step.protocol_version, "clientCapabilities": capabilities}
        await p.request("initialize", params, step.expect_error)
        return
    await p.client.initialize(capabilities, version=step.protocol_version)


@_move(s.Authenticate)
async def _authenticate(p: Player, step: s.Authenticate) -> None:
    method = "authenticate" if p.client.version < 2 else "auth/login"
    await p.request(method, {"methodId": step.method_id}, step.expect_error)


@_move(s.Logout)
async def _logout(p: Player, step: s.Logout) -> None:
    await p.request("logout" if p.client.version < 2 else "auth/logout", {}, step.expect_error)


@_move(s.Restart)
async def _restart(p: Player, step: s.Restart) -> None:
    if not step.kill:
        return
    p.client.process.kill()
    await p.client.process.wait()
    for started in p.started:
        with suppress(AgentEnded):
            await started.call.result()
    p.started.clear()
    if step.cut_tail:
        log = harvest.harvest(p.home, p.met)[-1]
        size = log.path.stat().st_size
        await anyio.to_thread.run_sync(os.truncate, log.path, size - step.cut_tail)


@_move(s.Request)
async def _request(p: Player, step: s.Request) -> None:
    await p.request(step.method, step.params, step.expect_error)


@_move(s.Notify)
async def _notify(p: Player, step: s.Notify) -> None:
    p.client.notify(step.method, None if step.params is UNSET else step.params)


@_move(s.Raw)
async def _raw(p: Player, step: s.Raw) -> None:
    since = len(p.client.frames)
    p.client.send_raw(step.line.encode())
    if step.reply:
        await p.client.until(lambda frame: "method" not in frame, since)


# ---------------------------------------------------------------- sessions


def _session_params(p: Player, step: Any) -> Json:
    params: Json = {"cwd": _cwd(p, step.cwd), "mcpServers": []}
    return params | _given(additionalDirectories=step.additional_directories)


def _cwd(p: Player, cwd: Any) -> str:
    # A path that is meant to be relative must reach the agent as it is.
    return str(p.cwd) if cwd is UNSET else cwd


@_move(s.NewSession)
async def _new_session(p: Player, step: s.NewSession) -> None:
    params = _session_params(p, step) | {"mcpServers": list(step.mcp_servers)}
    params |= _given(_meta=step.meta)
    result = await p.request("session/new", params, step.expect_error)
    if result is not None:
        p.enter(result["sessionId"], step.name)


@_move(s.NewSessionExpectError)
async def _new_session_error(p: Player, step: s.NewSessionExpectError) -> None:
    await p.request("session/new", _session_params(p, step), True)


def _stored(p: Player, step: Any) -> str:
    return step.id if step.id is not UNSET else p.sid(step)


@_move(s.Load)
async def _load(p: Player, step: s.Load) -> None:
    params = {"sessionId": _stored(p, step)} | _session_params(p, step)
    if p.client.version < 2:
        result = await p.request("session/load", params, step.expect_error)
    else:
        params["replayFrom"] = {"type": "start"}
        result = await p.request("session/resume", params, step.expect_error)
    if result is not None:
        p.enter(params["sessionId"])


@_move(s.Resume)
async def _resume(p: Player, step: s.Resume) -> None:
    params = {"sessionId": _stored(p, step)} | _session_params(p, step)
    if await p.request("session/resume", params, step.expect_error) is not None:
        p.enter(params["sessionId"])


@_move(s.Fork)
async def _fork(p: Player, step: s.Fork) -> None:
    params: Json = {"sessionId": p.sid(step), "cwd": _cwd(p, step.cwd), "mcpServers": []}
    result = await p.request("session/fork", params | _given(_meta=step.meta), step.expect_error)
    if result is not None:
        p.enter(result["sessionId"], step.name)


@_move(s.List)
async def _list(p: Player, step: s.List) -> None:
    await p.request("session/list", _given(cwd=step.cwd, cursor=step.cursor), step.expect_error)


@_move(s.Close)
async def _close(p: Player, step: s.Close) -> None:
    await p.request("session/close", {"sessionId": p.sid(step)}, step.expect_error)


@_move(s.Delete)
async def _delete(p: Player, step: s.Delete) -> None:
    await p.request("session/delete", {"sessionId": _stored(p, step)}, step.expect_error)


@_move(s.SetMode)
async def _set_mode(p: Player, step: s.SetMode) -> None:
    params = {"sessionId": p.sid(step), "modeId": step.mode_id}
    await p.request("session/set_mode", params, step.expect_error)


@_move(s.SetModeExpectError)
async def _set_mode_error(p: Player, step: s.SetModeExpectError) -> None:
    params = {"sessionId": p.sid(step), "modeId": step.mode_id}
    await p.request("session/set_mode", params, True)


def _option(p: Player, step: Any) -> Json:
    params: Json = {"sessionId": p.sid(step), "configId": step.config_id}
    if isinstance(step.value, bool):
        params["type"] = "boolean"
    elif p.client.version >= 2:
        params["type"] = "id"
    return params | {"value": step.value}


@_move(s.SetConfigOption)
async def _set_option(p: Player, step: s.SetConfigOption) -> None:
    await p.request("session/set_config_option", _option(p, step), step.expect_error)


@_move(s.SetConfigOptionExpectError)
async def _set_option_error(p: Player, step: s.SetConfigOptionExpectError) -> None:
    await p.request("session/set_config_option", _option(p, step), True)


# ---------------------------------------------------------------- prompts


def _start(p: Player, step: Any, content: Any, name: Any = UNSET, meta: Any = UNSET) -> Started:
    sid = p.sid(step)
    p.since = len(p.client.frames)
    call = p.client.start_prompt(sid, content, **_given(_meta=meta))
    return Started("" if name is UNSET else name, sid, p.since, call)


async def _finish(p: Player, started: Started, expect: bool | int = False) -> None:
    answer = await p.settle(started.call, expect)
    if answer is not None and p.client.version >= 2:
        await p.client.idle(started.sid, started.since)


@_move(s.Prompt)
async def _prompt(p: Player, step: s.Prompt) -> None:
    await _finish(p, _start(p, step, step.text), step.expect_error)


@_move(s.PromptContent)
async def _prompt_content(p: Player, step: s.PromptContent) -> None:
    await _finish(p, _start(p, step, step.content), step.expect_error)


@_move(s.PromptExpectError)
async def _prompt_error(p: Player, step: s.PromptExpectError) -> None:
    await _finish(p, _start(p, step, step.text), True)


@_move(s.StartPrompt)
async def _start_prompt(p: Player, step: s.StartPrompt) -> None:
    content = step.text if step.content is UNSET else step.content
    if content is UNSET:
        raise StepFailed("needs text or content")
    p.started.append(_start(p, step, content, step.name, step.meta))


@_move(s.AwaitPrompt)
async def _await_prompt(p: Player, step: s.AwaitPrompt) -> None:
    for started in p.started:
        if step.prompt in (UNSET, started.name):
            p.started.remove(started)
            await _finish(p, started, step.expect_error)
            return
    raise StepFailed("no such prompt is open")


@_move(s.PromptAndWaitForAgentMessage)
async def _prompt_and_wait(p: Player, step: s.PromptAndWaitForAgentMessage) -> None:
    started = _start(p, step, step.text)
    content = {"type": "text", "text": step.wait_for_text}
    fields = {"sessionUpdate": "agent_message_chunk", "content": content}
    await _finish(p, started)
    await p.client.until_update(started.sid, started.since, **fields)


@_move(s.PromptAndCancel)
async def _prompt_and_cancel(p: Player, step: s.PromptAndCancel) -> None:
    started = _start(p, step, step.text)
    after = step.after_update
    if after is UNSET and step.wait_for_file is UNSET:
        after = "agent_message_chunk"
    if after is not UNSET:
        await p.client.until_update(started.sid, started.since, sessionUpdate=after)
    if step.wait_for_file is not UNSET:
        await harvest.until_exists(p.path(step.wait_for_file.path))
    p.client.cancel(started.sid)
    await _finish(p, started)
    if step.wait_for_tool_call_update is not UNSET:
        fields = {"sessionUpdate": "tool_call_update", "toolCallId": step.wait_for_tool_call_update}
        await p.client.until_update(started.sid, started.since, **fields)


@_move(s.Cancel)
async def _cancel(p: Player, step: s.Cancel) -> None:
    if step.wait_for_file is not UNSET:
        await harvest.until_exists(p.path(step.wait_for_file.path))
    p.client.cancel(p.sid(step))


@_move(s.Answer)
async def _answer(p: Player, step: s.Answer) -> None:
    if not p.client.held:
        raise StepFailed("no question is held open")
    p.client.answer(next(iter(p.client.held)), step.result)


# ---------------------------------------------------------------- waiting


@_move(s.WaitForUpdate)
async def _wait_for_update(p: Player, step: s.WaitForUpdate) -> None:
    await p.client.until_update(p.sid(step), p.since, **step.fields)


@_move(s.WaitForQuestion)
async def _wait_for_question(p: Player, step: s.WaitForQuestion) -> None:
    await p.client.until_held()


@_move(s.WaitForFile)
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


@_move(s.WaitForTurnStart)
async def _wait_for_turn_start(p: Player, step: s.WaitForTurnStart) -> None:
    def holds(events: list[Json]) -> bool:
        return any(
            event["type"] == "turn/start" and event["data"]["turn"] >= step.minimum_turn
            for event in events
        )

    await p.log_until(f"turn {step.minimum_turn}", p.sid(step), holds, step.timeout_ms)


@_move(s.WaitForTurnEnd)
async def _wait_for_turn_end(p: Player, step: s.WaitForTurnEnd) -> None:
    await p.log_until("the end of the turn", p.sid(step), _turn_ended(1), step.timeout_ms)


@_move(s.WaitForSubagentTurnEnd)
async def _wait_for_child(p: Player, step: s.WaitForSubagentTurnEnd) -> None:
    sid = p.sid(step)
    what = f"the end of turn {step.minimum_turn} of child {step.child}"
    holds = _turn_ended(step.minimum_turn)
    look = lambda: harvest.child(p.home, sid, step.child)  # noqa: E731
    await harvest.until(what, look, holds, step.timeout_ms)


@_move(s.WaitForEventAfterTurnEnd)
async def _wait_for_event(p: Player, step: s.WaitForEventAfterTurnEnd) -> None:
    await p.log_until(step.type, p.sid(step), _after_turn_end(step.type), step.timeout_ms)


@_move(s.WaitForTitleAfterTurnEnd)
async def _wait_for_title(p: Player, step: s.WaitForTitleAfterTurnEnd) -> None:
    holds = _after_turn_end("session/title")
    await p.log_until("a title", p.sid(step), holds, step.timeout_ms)


@_move(s.WaitForInboxMessage)
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


@_move(s.WaitForGoalPhase)
async def _wait_for_goal(p: Player, step: s.WaitForGoalPhase) -> None:
    def holds(events: list[Json]) -> bool:
        goals = [event["data"] for event in events if event["type"] == "goal/change"]
        return bool(goals) and goals[-1].get("goal", {}).get("phase") == step.phase

    await p.log_until(f"goal phase {step.phase}", p.sid(step), holds, step.timeout_ms)


# ---------------------------------------------------------------- the workspace


@_move(s.SetBuffer)
async def _set_buffer(p: Player, step: s.SetBuffer) -> None:
    p.client.buffers.unsaved[str(p.path(step.path))] = step.text


@_move(s.WriteFile)
async def _write_file(p: Player, step: s.WriteFile) -> None:
    await anyio.Path(p.path(step.path)).write_text(step.text, "utf-8")


@_move(s.DeleteFile)
async def _delete_file(p: Player, step: s.DeleteFile) -> None:
    await anyio.Path(p.path(step.path)).unlink()


@_move(s.ExpectFile)
async def _expect_file(p: Player, step: s.ExpectFile) -> None:
    path = anyio.Path(p.path(step.path))
    found = (await path.read_bytes()).decode("utf-8", "replace") if await path.exists() else UNSET
    _expect(step.path, step.text, found)


@_move(s.ExpectBuffer)
async def _expect_buffer(p: Player, step: s.ExpectBuffer) -> None:
    _expect(step.path, step.text, p.client.buffers.unsaved.get(str(p.path(step.path)), UNSET))


def _expect(path: str, wanted: Any, found: Any) -> None:
    if wanted != found:
        words = ["nothing" if text is UNSET else repr(text) for text in (wanted, found)]
        raise StepFailed(f"{path} should have {words[0]} but has {words[1]}")
