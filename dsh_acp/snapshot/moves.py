"""What each step does. `MOVES`, at the end, maps a step's type to the function that plays it."""

from collections.abc import Mapping
from contextlib import suppress
import os
from typing import Any, Final, TypeAlias

import anyio
from msgspec import UNSET

from dsh_acp.snapshot import harvest, steps as s, versions, waits
from dsh_acp.snapshot.calls import AgentEnded
from dsh_acp.snapshot.play import Move, Player, Started, StepFailed
from dsh_acp.snapshot.table import Moves

Json: TypeAlias = dict[str, Any]

move: Final = Moves()


def _given(**params: Any) -> Json:
    return {key: value for key, value in params.items() if value is not UNSET}


# ---------------------------------------------------------------- connection


@move(s.Initialize)
async def _initialize(p: Player, step: s.Initialize) -> None:
    capabilities: Json = dict(step.capabilities or {})
    if step.terminal_output:
        capabilities["_meta"] = {**capabilities.get("_meta", {}), "terminal_output": True}
    version = max(step.protocol_version, p.version)
    if step.expect_error is not False:
        params = {"protocolVersion": step.protocol_version, "clientCapabilities": capabilities}
        await p.request("initialize", params, step.expect_error)
        return
    await p.client.initialize(versions.capabilities(capabilities, version), version=version)


@move(s.Authenticate)
async def _authenticate(p: Player, step: s.Authenticate) -> None:
    method = "authenticate" if p.client.version < 2 else "auth/login"
    await p.request(method, {"methodId": step.method_id}, step.expect_error)


@move(s.Logout)
async def _logout(p: Player, step: s.Logout) -> None:
    await p.request("logout" if p.client.version < 2 else "auth/logout", {}, step.expect_error)


@move(s.Restart)
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


@move(s.Request)
async def _request(p: Player, step: s.Request) -> None:
    await p.request(step.method, step.params, step.expect_error)


@move(s.Notify)
async def _notify(p: Player, step: s.Notify) -> None:
    p.client.notify(step.method, None if step.params is UNSET else step.params)


@move(s.Raw)
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


@move(s.NewSession)
async def _new_session(p: Player, step: s.NewSession) -> None:
    servers = versions.servers(step.mcp_servers, p.client.version)
    params = _session_params(p, step) | {"mcpServers": servers}
    params |= _given(_meta=step.meta)
    result = await p.request("session/new", params, step.expect_error)
    if result is not None:
        p.enter(result["sessionId"], step.name)


@move(s.NewSessionExpectError)
async def _new_session_error(p: Player, step: s.NewSessionExpectError) -> None:
    await p.request("session/new", _session_params(p, step), True)


def _stored(p: Player, step: Any) -> str:
    return step.id if step.id is not UNSET else p.sid(step)


@move(s.Load)
async def _load(p: Player, step: s.Load) -> None:
    params = {"sessionId": _stored(p, step)} | _session_params(p, step)
    if p.client.version < 2:
        result = await p.request("session/load", params, step.expect_error)
    else:
        params["replayFrom"] = {"type": "start"}
        result = await p.request("session/resume", params, step.expect_error)
    if result is not None:
        p.enter(params["sessionId"])


@move(s.Resume)
async def _resume(p: Player, step: s.Resume) -> None:
    params = {"sessionId": _stored(p, step)} | _session_params(p, step)
    if await p.request("session/resume", params, step.expect_error) is not None:
        p.enter(params["sessionId"])


@move(s.Fork)
async def _fork(p: Player, step: s.Fork) -> None:
    params: Json = {"sessionId": p.sid(step), "cwd": _cwd(p, step.cwd), "mcpServers": []}
    result = await p.request("session/fork", params | _given(_meta=step.meta), step.expect_error)
    if result is not None:
        p.enter(result["sessionId"], step.name)


@move(s.List)
async def _list(p: Player, step: s.List) -> None:
    await p.request("session/list", _given(cwd=step.cwd, cursor=step.cursor), step.expect_error)


@move(s.Close)
async def _close(p: Player, step: s.Close) -> None:
    await p.request("session/close", {"sessionId": p.sid(step)}, step.expect_error)


@move(s.Delete)
async def _delete(p: Player, step: s.Delete) -> None:
    await p.request("session/delete", {"sessionId": _stored(p, step)}, step.expect_error)


@move(s.SetMode)
async def _set_mode(p: Player, step: s.SetMode) -> None:
    await p.request(*_mode(p, step), step.expect_error)


@move(s.SetModeExpectError)
async def _set_mode_error(p: Player, step: s.SetModeExpectError) -> None:
    await p.request(*_mode(p, step), True)


def _mode(p: Player, step: s.SetMode | s.SetModeExpectError) -> tuple[str, Json]:
    if p.client.version < 2:
        return "session/set_mode", {"sessionId": p.sid(step), "modeId": step.mode_id}
    option = {"configId": "mode", "type": "id", "value": step.mode_id}
    return "session/set_config_option", {"sessionId": p.sid(step), **option}


def _option(p: Player, step: Any) -> Json:
    params: Json = {"sessionId": p.sid(step), "configId": step.config_id}
    if isinstance(step.value, bool):
        params["type"] = "boolean"
    elif p.client.version >= 2:
        params["type"] = "id"
    return params | {"value": step.value}


@move(s.SetConfigOption)
async def _set_option(p: Player, step: s.SetConfigOption) -> None:
    await p.request("session/set_config_option", _option(p, step), step.expect_error)


@move(s.SetConfigOptionExpectError)
async def _set_option_error(p: Player, step: s.SetConfigOptionExpectError) -> None:
    await p.request("session/set_config_option", _option(p, step), True)


# ---------------------------------------------------------------- prompts


def _start(p: Player, step: Any, content: Any, name: Any = UNSET, meta: Any = UNSET) -> Started:
    sid = p.sid(step)
    p.since = len(p.client.frames)
    call = p.client.start_prompt(sid, content, **_given(_meta=meta))
    return Started("" if name is UNSET else name, sid, p.since, call)


async def _finish(p: Player, started: Started, expect: bool | int = False) -> None:
    if p.client.version < 2:
        await p.settle(started.call, expect)
        return
    # The answer is a receipt; how the turn went is told when the session is idle again.
    await p.settle(started.call, expect, p.outcome(started))


@move(s.Prompt)
async def _prompt(p: Player, step: s.Prompt) -> None:
    await _finish(p, _start(p, step, step.text), step.expect_error)


@move(s.PromptContent)
async def _prompt_content(p: Player, step: s.PromptContent) -> None:
    await _finish(p, _start(p, step, step.content), step.expect_error)


@move(s.PromptExpectError)
async def _prompt_error(p: Player, step: s.PromptExpectError) -> None:
    await _finish(p, _start(p, step, step.text), True)


@move(s.StartPrompt)
async def _start_prompt(p: Player, step: s.StartPrompt) -> None:
    content = step.text if step.content is UNSET else step.content
    if content is UNSET:
        raise StepFailed("needs text or content")
    p.started.append(_start(p, step, content, step.name, step.meta))


@move(s.AwaitPrompt)
async def _await_prompt(p: Player, step: s.AwaitPrompt) -> None:
    for started in p.started:
        if step.prompt in (UNSET, started.name):
            p.started.remove(started)
            await _finish(p, started, step.expect_error)
            return
    raise StepFailed("no such prompt is open")


@move(s.PromptAndWaitForAgentMessage)
async def _prompt_and_wait(p: Player, step: s.PromptAndWaitForAgentMessage) -> None:
    started = _start(p, step, step.text)
    content = {"type": "text", "text": step.wait_for_text}
    fields = {"sessionUpdate": "agent_message_chunk", "content": content}
    await _finish(p, started)
    await p.until_update(started.sid, started.since, fields)


@move(s.PromptAndCancel)
async def _prompt_and_cancel(p: Player, step: s.PromptAndCancel) -> None:
    started = _start(p, step, step.text)
    after = step.after_update
    if after is UNSET and step.wait_for_file is UNSET:
        after = "agent_message_chunk"
    if after is not UNSET:
        await p.until_update(started.sid, started.since, {"sessionUpdate": after})
    if step.wait_for_file is not UNSET:
        await harvest.until_exists(p.path(step.wait_for_file.path))
    p.client.cancel(started.sid)
    await _finish(p, started)
    if step.wait_for_tool_call_update is not UNSET:
        fields = {"sessionUpdate": "tool_call_update", "toolCallId": step.wait_for_tool_call_update}
        await p.until_update(started.sid, started.since, fields)


@move(s.Cancel)
async def _cancel(p: Player, step: s.Cancel) -> None:
    if step.wait_for_file is not UNSET:
        await harvest.until_exists(p.path(step.wait_for_file.path))
    p.client.cancel(p.sid(step))


@move(s.Answer)
async def _answer(p: Player, step: s.Answer) -> None:
    if not p.client.held:
        raise StepFailed("no question is held open")
    p.client.answer(next(iter(p.client.held)), step.result)


MOVES: Final[Mapping[type[s.Step], Move]] = {**move, **waits.move}
