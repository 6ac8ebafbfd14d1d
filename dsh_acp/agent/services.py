"""What a session is given: models, tools, a world to act in, a person to ask.

One `Services` is shared by all sessions of a process, except `world`, `tools` and `asker`, which
may differ per session. Nothing here is state of a conversation: that is a fold of its log.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

import anyio
from msgspec import Struct, field

from dsh_acp.agent.hooks import Hooks
from dsh_acp.config import Preset, Settings
from dsh_acp.llm.provider import ModelInfo, Provider
from dsh_acp.tools.confine import Confinement
from dsh_acp.tools.sandbox import Sandbox
from dsh_acp.tools.tool import Card, FileDiff, Intent, ToolSet, World

Cause: TypeAlias = Mapping[str, Any]
"""Why an activity was cancelled: `{"kind": "user"}`, `parent`, `hook` with `reason`, `disposed`."""

USER: Cause = {"kind": "user"}
DISPOSED: Cause = {"kind": "disposed"}

Decision: TypeAlias = Literal[
    "allow_once", "allow_always", "reject_once", "reject_always", "cancelled", "unavailable"
]


CHOICES: Final[tuple[Decision, ...]] = (
    "allow_once",
    "allow_always",
    "reject_once",
    "reject_always",
)


class PermissionQuestion(Struct, frozen=True, kw_only=True):
    """A question to the person, with everything needed to judge it.

    `card` shows the whole command or the locations, `diffs` what an edit would change. `choices`
    are the answers that make sense; `always` covers `scope` for the rest of the session.
    """

    call_id: str
    tool: str
    intent: Intent
    card: Card
    diffs: tuple[FileDiff, ...] = ()
    reason: str | None = None
    scope: str = ""
    choices: tuple[Decision, ...] = CHOICES


class Asker(Protocol):
    """The person, through whatever front end."""

    async def permission(self, question: PermissionQuestion) -> Decision:
        """The answer. Any exception counts as `unavailable`, which is a no."""
        ...

    async def questions(
        self, questions: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        """Answers to a tool's questions, in order.

        Raises:
            ToolError: nobody can answer, or the person declined.
        """
        ...


class Routes(Protocol):
    """Where models are served (`dsh_acp.llm.registry`)."""

    def get(self, provider_name: str) -> Provider | None:
        """The configured provider of that name."""
        ...

    def resolve(self, model_spec: str | None) -> tuple[Provider, str]:
        """The provider and model that a spec such as `deepseek/deepseek-v4-flash` names.

        Raises:
            LlmError: `MISSING_CREDENTIAL`, `NO_ADAPTER`.
        """
        ...

    def known(self) -> Sequence[tuple[Provider, ModelInfo]]:
        """Every model known so far."""
        ...

    async def discover(self) -> None:
        """Ask for more models; `known` has them afterwards. Never fails."""
        ...


class Clock(Protocol):
    """Waiting and chance, so that tests need neither."""

    async def sleep(self, seconds: float) -> None: ...

    def rand(self) -> float:
        """A number in [0, 1)."""
        ...


class SystemClock:
    """The real ones."""

    async def sleep(self, seconds: float) -> None:
        """Wait; cancellable."""
        await anyio.sleep(seconds)

    def rand(self) -> float:
        """A random number in [0, 1)."""
        import random

        return random.random()


class Services(Struct, frozen=True, kw_only=True, eq=False):
    """Everything around a session.

    Under the preset `workspace-write` commands run unasked inside `confinement`; where there is
    none, or it does not hold here, each is asked about. `store` and `attachments` are those of the
    log.
    """

    settings: Settings
    store: Any
    providers: Routes
    tools: ToolSet
    world: World
    asker: Asker
    attachments: Any = None
    hooks: Hooks = field(default_factory=Hooks)
    clock: Clock = field(default_factory=SystemClock)
    confinement: Confinement | None = None

    def sandbox(self, roots: Sequence[str]) -> Sandbox | None:
        """What can hold commands to `roots`; `None` when nothing does."""
        return None if self.confinement is None else self.confinement.sandbox(roots)


class SessionOptions(Struct, frozen=True, kw_only=True):
    """What a front end chose for one session.

    For a resumed log, `provider`, `model`, `effort` and `preset` are only used where the log
    does not say; `additional_directories` replace the recorded ones unless `None`.
    `llm_titles` asks the model for a better title after the first turn.
    """

    cwd: str
    provider: str = ""
    model: str = ""
    effort: str | None = None
    preset: Preset | None = None
    additional_directories: tuple[str, ...] | None = None
    max_tokens: int | None = None
    llm_titles: bool = False


class Errand(Struct, frozen=True):
    """A task for a subagent. `inherits`: it knows the conversation up to its last turn's end."""

    label: str
    prompt: str
    inherits: bool = False


class LiveCall(Struct, frozen=True):
    """A call of a subagent that the person is asked about. Not logged in the parent.

    `call_id` begins with the parent's call and a slash. Shown once as `pending`, with its tool's
    name and card, and always brought to an end.
    """

    call_id: str
    status: Literal["pending", "in_progress", "completed", "failed"]
    name: str = ""
    card: Card | None = None


class LiveOutput(Struct, frozen=True):
    """Output of a running call, as it appears. Not logged."""

    call_id: str
    text: str
