"""An editor joined to a bridge in memory, with a scripted model and real tools on real files.

Every frame that the bridge sends is validated against the official SDK's models, and against the
published schema where `../shared` is present.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import anyio
import jsonschema
from msgspec import Raw

from dsh_acp import jsontext
from dsh_acp.acp.bridge import Bridge
from dsh_acp.acp.host import Host
from dsh_acp.agent.hooks import Hooks
from dsh_acp.config import Settings
from dsh_acp.errors import LlmError
from dsh_acp.llm.provider import Body, ModelInfo, PreparedCall, Price, RetryPolicy
from dsh_acp.messages import (
    BlockEnd,
    BlockStart,
    CallConfig,
    Chunk,
    Failure,
    Finish,
    FinishReason,
    ReasoningDelta,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from dsh_acp.wire.frames import RpcError

Step = Sequence[Chunk] | Callable[[], Awaitable[None]]
Reply = list[Step]

USAGE = Usage(1000, 50, cache_read_tokens=500)


def say(*pieces: str, thought: str = "", usage: Usage = USAGE, finish: str = "stop") -> Reply:
    """A text answer, one batch per piece."""
    steps: Reply = []
    index = 0
    if thought:
        steps.append([BlockStart(0, "reasoning"), ReasoningDelta(0, thought)])
        index = 1
    steps.append([BlockStart(index, "text")])
    steps += [[TextDelta(index, piece)] for piece in pieces]
    steps.append([BlockEnd(index, Text("".join(pieces))), UsageChunk(usage)])
    steps.append([Finish(FinishReason(finish))])  # type: ignore[arg-type]
    return steps


def use(*calls: tuple[str, str, dict[str, Any]], before: str = "") -> Reply:
    """An answer that asks for tools: `(id, name, arguments)`."""
    steps: Reply = []
    if before:
        steps.append([BlockStart(0, "text"), TextDelta(0, before), BlockEnd(0, Text(before))])
    for index, (id, name, arguments) in enumerate(calls, start=1):
        text = json.dumps(arguments)
        steps.append(
            [
                BlockStart(index, "tool-call"),
                ToolCallDelta(index=index, id=id, name=name, arguments_delta=text),
                BlockEnd(index, ToolCall(id, name, text)),
            ]
        )
    steps.append([UsageChunk(USAGE), Finish(FinishReason("tool-calls"))])
    return steps


def fail(code: str, message: str, *before: str) -> Reply:
    """An attempt that fails, after some text."""
    steps: Reply = [[BlockStart(0, "text")]] if before else []
    steps += [[TextDelta(0, piece)] for piece in before]
    steps.append([Finish(FinishReason("error", Failure(message, code)))])
    return steps


async def forever() -> None:
    """A step of a reply that never ends."""
    await anyio.sleep_forever()


class Model:
    """A provider with a script."""

    name = "fake"

    def __init__(self) -> None:
        self.retry = RetryPolicy(initial_delay_ms=1, max_delay_ms=2, jitter=0)
        self.replies: list[Reply] = []
        self.requests: list[Request] = []
        self.window: int | None = 100_000
        self.vision = False
        self.audio = False
        self.ids = ["one", "two"]
        self.has_key = True
        self.news: Callable[[], None] = lambda: None

    def model(self, model: str) -> ModelInfo:
        return ModelInfo(
            id=model,
            name=model.capitalize(),
            context_window=self.window,
            vision=self.vision,
            audio=self.audio,
            efforts=("low", "high"),
            default_effort="low",
            price=Price(1.0, 2.0, 0.5),
        )

    def models(self) -> Sequence[ModelInfo]:
        return [self.model(id) for id in self.ids]

    async def discover(self) -> Sequence[ModelInfo]:
        return self.models()

    def prepare(self, config: CallConfig) -> PreparedCall:
        return PreparedCall(config, {}, self.window)

    def body(self, request: Request) -> Body:
        data = jsontext.encode([Raw(message.json) for message in request.messages])
        return Body(data, hashlib.sha256(data).hexdigest())

    async def stream(self, request: Request, body: Body) -> AsyncIterator[Sequence[Chunk]]:
        self.requests.append(request)
        self.news()
        if request.purpose != "conversation":
            for step in say("A summary"):
                assert not callable(step)
                yield step
            return
        for step in self.replies.pop(0):
            if callable(step):
                await step()
            else:
                yield step

    async def warm(self) -> None: ...

    async def aclose(self) -> None: ...

    @property
    def seen(self) -> list[str]:
        """The person's latest words in each conversation request."""
        return [
            [m.text for m in request.messages if m.source.get("kind") == "user"][-1]
            for request in self.requests
            if request.purpose == "conversation"
        ]


class Models:
    """The routes to the scripted model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def get(self, provider_name: str) -> Model | None:
        return self._model if provider_name == self._model.name else None

    def resolve(self, model_spec: str | None) -> tuple[Model, str]:
        if not self._model.has_key:
            raise LlmError(
                "There is no API key. Run `dsh-acp login`, or set FAKE_API_KEY.",
                code="MISSING_CREDENTIAL",
            )
        provider, _, model = (model_spec or "fake/one").partition("/")
        if provider != self._model.name:
            raise LlmError(f'There is no provider named "{provider}".', code="NO_ADAPTER")
        return self._model, model or "one"

    def known(self) -> list[tuple[Model, ModelInfo]]:
        return [(self._model, info) for info in self._model.models()]

    async def discover(self) -> None:
        await self._model.discover()

    async def aclose(self) -> None: ...


Answer = Callable[[dict[str, Any]], Any]


class Editor:
    """The client's side: sends calls, keeps every frame, answers requests as told."""

    def __init__(self, bench: "Bench", host: Host) -> None:
        self.bench = bench
        self.frames: list[dict[str, Any]] = []
        self.writes: list[bytes] = []
        self.answers: dict[str, Answer] = {}
        self._news = anyio.Event()
        self._next_id = 0
        self._methods: dict[int, str] = {}
        self.bridge = Bridge(host, self._receive)
        bench.model.news = self._tell

    # ------------------------------------------------------------ frames

    def _receive(self, data: bytes) -> None:
        if not data:
            return
        assert data.endswith(b"\n")
        self.writes.append(data)
        for line in data.splitlines():
            frame = json.loads(line)
            check(frame, self._methods)
            self.frames.append(frame)
            if "method" in frame and "id" in frame:
                self._answer(frame)
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    def _answer(self, frame: dict[str, Any]) -> None:
        make = self.answers.get(frame["method"])
        if make is None:
            return
        try:
            result = make(frame["params"])
        except RpcError as exc:
            error = {"code": exc.code, "message": exc.message}
            self.send({"jsonrpc": "2.0", "id": frame["id"], "error": error})
        else:
            if result is not None:
                self.send({"jsonrpc": "2.0", "id": frame["id"], "result": result})

    def send(self, *messages: dict[str, Any]) -> None:
        self.bridge.peer.feed([json.dumps(message).encode() for message in messages])

    def notify(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def start(self, method: str, **params: Any) -> int:
        """Send a call; its id."""
        id, self._next_id = self._next_id, self._next_id + 1
        self._methods[id] = method
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    async def response(self, id: int) -> dict[str, Any]:
        """The response to a call, once it is there."""
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            found[:] = [f for f in self.frames if "method" not in f and f.get("id") == id]
            return bool(found)

        await self.until(is_there)
        assert len(found) == 1
        return found[0]

    async def until(self, condition: Callable[[], Any]) -> None:
        with anyio.fail_after(30):
            while not condition():
                await self._news.wait()

    async def call(self, method: str, **params: Any) -> Any:
        """A call's result."""
        frame = await self.response(self.start(method, **params))
        if "error" in frame:
            error = frame["error"]
            raise RpcError(error["code"], error["message"], error.get("data"))
        return frame["result"]

    # ------------------------------------------------------------ the usual calls

    async def initialize(self, **capabilities: Any) -> dict[str, Any]:
        return await self.call(
            "initialize", protocolVersion=1, clientCapabilities=capabilities, clientInfo=None
        )

    async def new(self, **params: Any) -> str:
        result = await self.call(
            "session/new", **{"cwd": str(self.bench.cwd), "mcpServers": [], **params}
        )
        return result["sessionId"]

    async def prompt(self, session: str, text: str | list[Any]) -> dict[str, Any]:
        return await self.call("session/prompt", sessionId=session, prompt=blocks(text))

    def updates(self, kind: str | None = None, session: str | None = None) -> list[dict[str, Any]]:
        """All updates so far."""
        return [
            frame["params"]["update"]
            for frame in self.frames
            if frame.get("method") == "session/update"
            and (session is None or frame["params"]["sessionId"] == session)
            and (kind is None or frame["params"]["update"]["sessionUpdate"] == kind)
        ]

    def said(self, kind: str = "agent_message_chunk") -> str:
        """The text of all chunks of a kind."""
        return "".join(update["content"].get("text", "") for update in self.updates(kind))

    def asked(self, method: str) -> list[dict[str, Any]]:
        """The params of the requests that were put to the client."""
        return [f["params"] for f in self.frames if f.get("method") == method and "id" in f]

    def kinds(self) -> list[str]:
        """What each frame is, in order: an update's kind, a method, or `response`."""
        found: list[str] = []
        for frame in self.frames:
            if frame.get("method") == "session/update":
                found.append(frame["params"]["update"]["sessionUpdate"])
            else:
                found.append(frame.get("method", "response"))
        return found

    def choose(self, option: str) -> None:
        """Answer permission requests with an option, from now on."""
        outcome = (
            {"outcome": "cancelled"}
            if option == "cancelled"
            else {"outcome": "selected", "optionId": option}
        )
        self.answers["session/request_permission"] = lambda params: {"outcome": outcome}


def blocks(text: str | list[Any]) -> list[Any]:
    return [{"type": "text", "text": text}] if isinstance(text, str) else text


class Bench:
    """One state directory and project; editors that come and go."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "state"
        self.cwd = root / "project"
        self.cwd.mkdir()
        self.model = Model()
        self.options: dict[str, Any] = {"model": "fake/one"}

    def settings(self) -> Settings:
        return Settings(
            home=self.home,
            config_path=self.root / "config.toml",
            config_dir=self.root,
            **self.options,
        )

    @asynccontextmanager
    async def editor(self, *, hooks: Hooks | None = None) -> AsyncIterator[Editor]:
        """A connection; closed in order at the end, as at end of input."""
        host = Host(
            self.settings, lambda settings, attachments: Models(self.model), hooks or Hooks()
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

    def script(self, *replies: Reply) -> None:
        """What the model says next."""
        self.model.replies += replies

    def file(self, name: str, text: str) -> Path:
        path = self.cwd / name
        path.write_text(text, encoding="utf-8")
        return path


# ---------------------------------------------------------------- validation

_CLIENT_REQUESTS = {
    "session/request_permission": "RequestPermissionRequest",
    "fs/read_text_file": "ReadTextFileRequest",
    "fs/write_text_file": "WriteTextFileRequest",
    "terminal/create": "CreateTerminalRequest",
    "terminal/output": "TerminalOutputRequest",
    "terminal/wait_for_exit": "WaitForTerminalExitRequest",
    "terminal/kill": "KillTerminalRequest",
    "terminal/release": "ReleaseTerminalRequest",
    "session/update": "SessionNotification",
}
_RESPONSES = {
    "initialize": "InitializeResponse",
    "authenticate": "AuthenticateResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/fork": "ForkSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/close": "CloseSessionResponse",
    "session/set_mode": "SetSessionModeResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
    "session/prompt": "PromptResponse",
}
_NEWER_THAN_SDK = {"notice", "compaction_update"}


@functools.cache
def _schema() -> dict[str, Any] | None:
    folder = Path(__file__).resolve().parents[3] / "shared/acp-schema/v1"
    path = folder / "schema.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


@functools.cache
def _validator(name: str) -> Any:
    schema = _schema()
    if schema is None or name not in schema["$defs"]:
        return None
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})


@functools.cache
def _sdk(name: str) -> Any:
    import acp.schema

    return getattr(acp.schema, name, None)


def check(frame: dict[str, Any], methods: dict[int, str]) -> None:
    """Fail when `frame` is no frame of the protocol."""
    assert frame["jsonrpc"] == "2.0"
    if "method" in frame:
        assert set(frame) <= {"jsonrpc", "id", "method", "params"}
        name, value = _CLIENT_REQUESTS.get(frame["method"]), frame["params"]
    else:
        assert ("result" in frame) != ("error" in frame), frame
        if "error" in frame:
            assert isinstance(frame["error"]["code"], int)
            assert frame["error"]["message"] and "\n" not in frame["error"]["message"]
            return
        name, value = _RESPONSES.get(methods.get(frame["id"], "")), frame["result"]
    if name is None:
        return
    validator = _validator(name)
    if validator is not None:
        errors = list(validator.iter_errors(value))
        assert not errors, (frame, errors[0].message)
    model = _sdk(name)
    kind = value.get("update", {}).get("sessionUpdate") if isinstance(value, dict) else None
    if model is not None and kind not in _NEWER_THAN_SDK:
        model.model_validate(value)
    assert _no_nulls(value), frame


def _no_nulls(value: Any) -> bool:
    """No optional field is written as null; free JSON of tools is the tools' own."""
    if isinstance(value, dict):
        return all(
            item is not None and (key in ("rawInput", "_meta") or _no_nulls(item))
            for key, item in value.items()
        )
    return all(map(_no_nulls, value)) if isinstance(value, list) else True
