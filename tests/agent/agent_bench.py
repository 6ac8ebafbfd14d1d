"""A scripted model, tools that do what a test says, and sessions over real files."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
import hashlib
from pathlib import Path
from typing import Any

import anyio
from msgspec import Raw

from dsh_acp import jsontext
from dsh_acp.agent.hooks import Hooks
from dsh_acp.agent.services import PermissionQuestion, Services, SessionOptions
from dsh_acp.agent.session import Session
from dsh_acp.config import Settings
from dsh_acp.errors import LlmError, ToolError
from dsh_acp.llm.provider import Body, ModelInfo, PreparedCall, Price, RetryPolicy
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.store import Store
from dsh_acp.messages import (
    UNSET,
    BlockEnd,
    BlockStart,
    CallConfig,
    Chunk,
    Failure,
    Finish,
    FinishReason,
    Message,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolSchema,
    Usage,
    UsageChunk,
)
from dsh_acp.tools.tool import Card, FileDiff, Intent, Outcome

# ---------------------------------------------------------------- what the model says

Reply = list[Chunk | Callable[[], Awaitable[None]]]


def text(words: str, kind: str = "stop", usage: Usage | None = None) -> Reply:
    """An answer in one block, streamed word by word."""
    pieces = [TextDelta(0, piece) for piece in words.split("|")]
    whole = words.replace("|", "")
    return [
        BlockStart(0, "text"),
        *pieces,
        BlockEnd(0, Text(whole)),
        UsageChunk(usage or Usage(10, 5)),
        Finish(FinishReason(kind)),  # type: ignore[arg-type]
    ]


def calls(*wanted: tuple[str, str] | tuple[str, str, str], before: str = "") -> Reply:
    """An answer that asks for tools: `(id, name)` or `(id, name, arguments)`."""
    chunks: Reply = []
    if before:
        chunks += [BlockStart(0, "text"), TextDelta(0, before), BlockEnd(0, Text(before))]
    for index, want in enumerate(wanted, start=1):
        id, name, arguments = (*want, "{}")[:3]
        chunks += [
            BlockStart(index, "tool-call"),
            ToolCallDelta(index=index, id=id, name=name, arguments_delta=arguments),
            BlockEnd(index, ToolCall(id, name, arguments)),
        ]
    return [*chunks, UsageChunk(Usage(10, 5)), Finish(FinishReason("tool-calls"))]


def failure(code: str, message: str = "it failed", retry_after_ms: int | None = None) -> Reply:
    """An attempt that fails."""
    fact = Failure(
        message,
        code,
        provider_retry_after_ms=UNSET if retry_after_ms is None else retry_after_ms,
    )
    return [Finish(FinishReason("error", fact))]


class Model:
    """A provider that gives the scripted replies in turn and keeps what it was sent."""

    def __init__(self, *replies: Reply, name: str = "fake", window: int | None = 100_000) -> None:
        self.name = name
        self.retry = RetryPolicy(initial_delay_ms=1, max_delay_ms=2, jitter=0)
        self.replies = list(replies)
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []
        self.window = window
        self.max_output: int | None = None
        self.seeing: set[str] = set()
        self.closed = 0
        self.refuse_over: int | None = None

    def model(self, model: str) -> ModelInfo:
        return ModelInfo(
            id=model,
            name=model,
            context_window=self.window,
            max_output=self.max_output,
            vision=model in self.seeing,
            efforts=("low", "high"),
            price=Price(1.0, 2.0, 0.5),
        )

    def models(self) -> Sequence[ModelInfo]:
        return [self.model("one"), self.model("two")]

    async def discover(self) -> Sequence[ModelInfo]:
        return self.models()

    def prepare(self, config: CallConfig) -> PreparedCall:
        if config.reasoning_effort not in (UNSET, "low", "high"):
            raise LlmError("no such effort", code="UNSUPPORTED_REASONING_EFFORT")
        return PreparedCall(config, {}, self.window)

    def body(self, request: Request) -> Body:
        data = jsontext.encode(
            {
                "config": request.config,
                "system": request.header.system or "",
                "tools": request.header.tools or (),
                "messages": [Raw(message.json) for message in request.messages],
            }
        )
        return Body(data, hashlib.sha256(data).hexdigest())

    async def stream(self, request: Request, body: Body) -> AsyncIterator[Sequence[Chunk]]:
        self.requests.append(request)
        self.bodies.append(body.data)
        if self.refuse_over is not None and len(body.data) > self.refuse_over:
            yield [*failure("CONTEXT_WINDOW_EXCEEDED", "too long")]  # type: ignore[misc]
            return
        if not self.replies:
            raise AssertionError("the script has no reply left")
        try:
            for piece in self.replies.pop(0):
                if callable(piece):
                    await piece()
                else:
                    yield [piece]
        finally:
            self.closed += 1

    async def warm(self) -> None: ...

    async def aclose(self) -> None: ...


class Models:
    """The routes to scripted models."""

    def __init__(self, *models: Model) -> None:
        self._models = {model.name: model for model in models}

    def get(self, provider_name: str) -> Model | None:
        return self._models.get(provider_name)

    def resolve(self, model_spec: str | None) -> tuple[Model, str]:
        provider, _, model = (model_spec or "fake/one").partition("/")
        if provider not in self._models:
            raise LlmError(f'no provider named "{provider}"', code="NO_ADAPTER")
        return self._models[provider], model

    def known(self) -> list[tuple[Model, ModelInfo]]:
        return [(model, info) for model in self._models.values() for info in model.models()]


# ---------------------------------------------------------------- tools


class FakeTool:
    """A tool whose body is a function of the arguments; `effect` and `safe` as given."""

    def __init__(
        self,
        name: str,
        body: Callable[[dict[str, Any], Any], Awaitable[Outcome]] | None = None,
        *,
        effect: str = "none",
        safe: bool = False,
        scope: str = "",
        command: str | None = None,
        diffs: tuple[FileDiff, ...] = (),
    ) -> None:
        self.schema = ToolSchema(name, f"Does {name}.", Raw(b'{"type":"object"}'))
        self._body = body
        self._effect = effect
        self._safe = safe
        self._scope = scope
        self._command = command
        self._diffs = diffs
        self.runs: list[dict[str, Any]] = []

    def parse(self, arguments: str) -> Any:
        try:
            value = jsontext.loads(arguments.encode()) if arguments else {}
        except jsontext.DecodeError:
            value = arguments
        if not isinstance(value, dict):
            raise ToolError(
                'invalid arguments: "arguments" must be an object',
                code="INVALID_ARGS",
                name="ToolArgsError",
            )
        return value

    def intent(self, args: Any, cwd: str) -> Intent:
        paths = (str(Path(cwd, args["path"])),) if "path" in args else ()
        return Intent(
            effect=args.get("effect", self._effect),
            paths=paths,
            command=args.get("command", self._command),
            cwd=cwd,
            scope=args.get("scope", self._scope),
        )

    def is_concurrency_safe(self, args: Any) -> bool:
        return self._safe

    async def run(self, args: Any, ctx: Any) -> Outcome:
        self.runs.append(args)
        if self._body is not None:
            return await self._body(args, ctx)
        return Outcome(content=(Text("done"),))

    async def preview(self, args: Any, ctx: Any) -> tuple[FileDiff, ...]:
        return self._diffs

    def call_card(self, arguments: str, cwd: str) -> Card:
        return Card(title=f"{self.schema.name} {arguments}")

    def result_card(self, *_: Any) -> Card:
        return Card()


class World:
    """No place to act."""


class Person:
    """Answers as told; with nothing to say it never answers."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[PermissionQuestion] = []
        self.waiting = anyio.Event()

    async def permission(self, question: PermissionQuestion) -> Any:
        self.asked.append(question)
        self.waiting.set()
        if not self.answers:
            await anyio.sleep_forever()
        answer = self.answers.pop(0)
        if answer == "raise":
            raise RuntimeError("the front end has no such method")
        return answer

    async def questions(self, questions: Sequence[Mapping[str, Any]]) -> Any:
        raise ToolError("nobody can answer", code="NO_PROVIDER")


class Patience:
    """A clock that does not wait, unless told to wait for ever."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.stuck = False
        self.sleeping = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.sleeping.set()
        await (anyio.sleep_forever() if self.stuck else anyio.lowlevel.checkpoint())

    def rand(self) -> float:
        return 0.5


class Gate:
    """A place where the test is told, and where nothing goes on."""

    def __init__(self) -> None:
        self.reached = anyio.Event()

    async def __call__(self, *_: Any) -> Any:
        self.reached.set()
        await anyio.sleep_forever()


# ---------------------------------------------------------------- sessions


class Bench:
    """Everything a test needs to run sessions in one store."""

    def __init__(self, home: Path, cwd: Path) -> None:
        self.home = home
        self.cwd = cwd
        self.model = Model()
        self.models = Models(self.model)
        self.person = Person()
        self.clock = Patience()
        self.hooks = Hooks()
        self.tools: dict[str, FakeTool] = {}
        self.settings: dict[str, Any] = {"permission": "full-access"}
        self.options: dict[str, Any] = {}
        self.store = Store(home)

    def say(self, *replies: Reply) -> None:
        """Script the model's next replies."""
        self.model.replies.extend(replies)

    def tool(self, name: str, *args: Any, **kwargs: Any) -> FakeTool:
        """Add a tool."""
        self.tools[name] = FakeTool(name, *args, **kwargs)
        return self.tools[name]

    def session(self, log: SessionLog | None = None) -> Session:
        """A session over `log`, or over a new one."""
        services = Services(
            settings=Settings(
                home=self.home,
                config_path=self.home / "c.toml",
                config_dir=self.home,
                model="fake/one",
                **self.settings,
            ),
            store=self.store,
            providers=self.models,  # type: ignore[arg-type]
            tools=self.tools,  # type: ignore[arg-type]
            world=World(),  # type: ignore[arg-type]
            asker=self.person,
            hooks=self.hooks,
            clock=self.clock,
        )
        options = SessionOptions(
            cwd=str(self.cwd), **{"provider": "fake", "model": "one", **self.options}
        )
        found = self.store.create(str(self.cwd)) if log is None else log
        return Session(found, services=services, options=options)

    @asynccontextmanager
    async def running(self, log: SessionLog | None = None) -> AsyncGenerator[Session]:
        """A session that runs, within five seconds."""
        with anyio.fail_after(30):
            async with self.session(log).running() as session:
                yield session

    async def prompt(self, session: Session, words: str = "hello") -> Message:
        """Send a prompt and wait until nothing runs."""
        message = Message.user((Text(words),))
        session.followup(message)
        await session.when_idle()
        return message


def types(session: Session, start: int = 0) -> list[str]:
    """The event types of a session, without the permissions at its beginning."""
    skipped = ("permission/preset", "sandbox/mode", "approval/policy")
    return [event.type for event in session.log.events(start) if event.type not in skipped]


def results(session: Session) -> dict[str, str]:
    """The result text of each call."""
    found: dict[str, str] = {}
    for event in session.log.events():
        if event.type == "tool/result":
            block = event.payload.message.content[0]
            assert block.tool_call_id not in found, "a call has two results"
            found[block.tool_call_id] = "".join(item.text for item in block.content)
    return found


def ends(session: Session) -> list[str]:
    """How each turn ended."""
    return [event.payload.reason.kind for event in session.log.events() if event.type == "turn/end"]
