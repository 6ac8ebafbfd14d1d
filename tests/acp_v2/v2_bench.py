"""The editor of `acp_bench`, speaking version 2.

Every frame that the agent sends is validated against the published schema, where `../shared` is
present, and against the rules that a schema cannot hold: upserts before chunks, a title with a
call's first report, a folder that a terminal keeps, states that follow each other.
"""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
import functools
import json
from pathlib import Path
from typing import Any

import acp_bench
from acp_bench import blocks
import anyio
import jsonschema

from dsh_acp.acp.host import Host
from dsh_acp.agent.hooks import Hooks

INFO = {"name": "bench", "version": "1"}


class Editor(acp_bench.Editor):
    """A client of version 2."""

    def __init__(self, bench: "Bench", host: Host) -> None:
        super().__init__(bench, host)
        self.view = View()

    def _receive(self, data: bytes) -> None:
        if not data:
            return
        assert data.endswith(b"\n")
        self.writes.append(data)
        for line in data.splitlines():
            frame = json.loads(line)
            if self.bridge.client.version == 1:
                acp_bench.check(frame, self._methods)
            else:
                check(frame, self._methods)
                self.view.see(frame)
            self.frames.append(frame)
            if "method" in frame and "id" in frame:
                self._answer(frame)
        self._tell()

    async def initialize(self, **capabilities: Any) -> dict[str, Any]:
        return await self.call(
            "initialize", protocolVersion=2, info=INFO, capabilities=capabilities
        )

    async def new(self, **params: Any) -> str:
        result = await self.call("session/new", **{"cwd": str(self.bench.cwd), **params})
        return result["sessionId"]

    async def resume(self, session: str, **params: Any) -> Any:
        params = {"cwd": str(self.bench.cwd), **params}
        return await self.call("session/resume", sessionId=session, **params)

    async def replay(self, session: str) -> Any:
        return await self.resume(session, replayFrom={"type": "start"})

    def begin(self, session: str, text: str | list[Any], **more: Any) -> int:
        return self.start("session/prompt", sessionId=session, prompt=blocks(text), **more)

    async def prompt(self, session: str, text: str | list[Any], **more: Any) -> dict[str, Any]:
        """Prompt, and wait for the idle state that ends it; that update."""
        before = len(self.states())
        id = self.begin(session, text, **more)
        frame = await self.response(id)
        assert "result" in frame, frame
        self.message_id = frame["result"]["messageId"]
        await self.until(lambda: [s for s in self.states()[before:] if s["state"] == "idle"])
        return self.states()[-1]

    async def idle(self) -> dict[str, Any]:
        """The next idle state, unless the session is idle now."""
        await self.until(lambda: self.states() and self.states()[-1]["state"] == "idle")
        return self.states()[-1]

    def states(self) -> list[dict[str, Any]]:
        return self.updates("state_update")

    def state_names(self) -> list[str]:
        return [update["state"] for update in self.states()]

    def status(self, call_id: str) -> str | None:
        """The status of a call."""
        return self.view.calls.get(call_id, {}).get("status")

    def pending(self) -> list[list[str]]:
        """The texts in each `_pending_update`."""
        return [
            [item["content"][0]["text"] for item in update["pending"]]
            for update in self.updates("_pending_update")
        ]


class Bench(acp_bench.Bench):
    """See `acp_bench.Bench`."""

    def told(self) -> str:
        """All that the model was last told in the conversation, as JSON text."""
        asked = [each for each in self.model.requests if each.purpose == "conversation"]
        return "\n".join(message.json.decode() for message in asked[-1].messages)

    @asynccontextmanager
    async def editor(self, *, hooks: Hooks | None = None) -> AsyncIterator[Editor]:
        host = Host(
            self.settings,
            lambda settings, attachments: acp_bench.Models(self.model),
            hooks or Hooks(),
        )
        made = Editor(self, host)
        async with anyio.create_task_group() as tasks:
            made.bridge.start(tasks)
            try:
                yield made
            finally:
                with anyio.CancelScope(shield=True), anyio.fail_after(30):
                    await made.bridge.close()
                tasks.cancel_scope.cancel()


# ---------------------------------------------------------------- what a client makes of it


class View:
    """What a client would show, by the rules of upserts and chunks."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], list[Any]] = {}
        self.calls: dict[str, dict[str, Any]] = {}
        self.terminals: dict[str, dict[str, Any]] = {}
        self.plans: dict[str, list[Any]] = {}

    def see(self, frame: dict[str, Any]) -> None:
        if frame.get("method") != "session/update":
            return
        update = frame["params"]["update"]
        kind = update["sessionUpdate"]
        if kind.endswith("_chunk") and "messageId" in update:
            key = (kind.removesuffix("_chunk"), update["messageId"])
            assert key in self.messages, f"a chunk before its message: {update}"
            self.messages[key].append(update["content"])
        elif kind in ("user_message", "agent_message", "agent_thought"):
            self.messages[kind, update["messageId"]] = list(update["content"])
        elif kind == "tool_call_update":
            self._call(update)
        elif kind == "tool_call_content_chunk":
            self.calls[update["toolCallId"]].setdefault("content", []).append(update["content"])
        elif kind == "terminal_update":
            self._terminal(update)
        elif kind == "terminal_output_chunk":
            self.terminals[update["terminalId"]]["shown"] += _bytes(update["data"])
        elif kind == "plan_update":
            self.plans[update["plan"]["planId"]] = update["plan"]["entries"]

    def _call(self, update: dict[str, Any]) -> None:
        id = update["toolCallId"]
        if id not in self.calls:
            assert update["title"], update
        known = self.calls.setdefault(id, {})
        assert known.get("name") in (None, update.get("name", known.get("name")))
        known.update(update)
        for item in update.get("content", ()):
            if item["type"] == "terminal":
                assert item["terminalId"] in self.terminals, "a terminal before its state"

    def _terminal(self, update: dict[str, Any]) -> None:
        known = self.terminals.setdefault(update["terminalId"], {"shown": b""})
        assert known.get("cwd") in (None, update.get("cwd", known.get("cwd")))
        known.update(update)
        if "output" in update:
            known["shown"] = _bytes(update["output"]["data"])

    def shown(self) -> dict[tuple[str, str], list[Any]]:
        """The messages, neighbouring texts joined."""
        found: dict[tuple[str, str], list[Any]] = {}
        for key, content in self.messages.items():
            joined = found.setdefault(key, [])
            for item in content:
                if item["type"] == "text" and joined and joined[-1]["type"] == "text":
                    joined[-1] = {"type": "text", "text": joined[-1]["text"] + item["text"]}
                else:
                    joined.append(item)
        return found

    def text(self, kind: str) -> list[str]:
        """The text of each message of a kind."""
        return [
            "".join(item.get("text", "") for item in content)
            for (of, _), content in self.messages.items()
            if of == kind
        ]


def _bytes(data: str) -> bytes:
    return base64.b64decode(data, validate=True)


# ---------------------------------------------------------------- validation

SCHEMA = Path(__file__).resolve().parents[3] / "shared/acp-schema/v2/schema.json"

_REQUESTS = {
    "session/request_permission": "RequestPermissionRequest",
    "elicitation/create": "CreateElicitationRequest",
    "session/update": "UpdateSessionNotification",
    "$/cancel_request": "CancelRequestNotification",
}
_RESPONSES = {
    "initialize": "InitializeResponse",
    "auth/login": "LoginAuthResponse",
    "auth/logout": "LogoutAuthResponse",
    "session/new": "NewSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/close": "CloseSessionResponse",
    "session/delete": "DeleteSessionResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
    "session/prompt": "PromptResponse",
    "tool_call/cancel": "CancelToolCallResponse",
    "terminal/cancel": "CancelTerminalResponse",
}


@functools.cache
def _schema() -> dict[str, Any] | None:
    return json.loads(SCHEMA.read_text(encoding="utf-8")) if SCHEMA.is_file() else None


@functools.cache
def _validator(name: str) -> Any:
    schema = _schema()
    if schema is None:
        return None
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})


def _validate(name: str, value: Any) -> None:
    validator = _validator(name)
    if validator is not None:
        errors = list(validator.iter_errors(value))
        assert not errors, (value, errors[0].message)


def check(frame: dict[str, Any], methods: dict[int, str]) -> None:
    """Fail when `frame` is no frame of version 2."""
    assert frame["jsonrpc"] == "2.0"
    if "method" in frame:
        assert set(frame) <= {"jsonrpc", "id", "method", "params"}
        assert frame["method"] in _REQUESTS, frame
        _validate(_REQUESTS[frame["method"]], frame["params"])
        return
    assert ("result" in frame) != ("error" in frame), frame
    if "error" in frame:
        _validate("Error", frame["error"])
        assert frame["error"]["message"] and "\n" not in frame["error"]["message"]
        return
    name = _RESPONSES.get(methods.get(frame["id"], ""))
    if name is not None:
        _validate(name, frame["result"])
