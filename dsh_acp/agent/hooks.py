"""The places where other code may take part in a turn.

Each is a list of middleware on one `Hooks` object, called in list order from the outside in: a
middleware gets a payload and `proceed`, and may act before it, after it, or instead of it.
Packages install theirs through the entry-point group `dsh_acp.plugins`; each entry point is a
function that takes the `Hooks`.

The audit of requests is not among them. Whatever a hook does, the request that leaves is the one
that the log explains.

What each way of telling the model something costs: a message of a `PreStep` decision or of
`Session.inject` is history, paid once and cached from then on; `Framing.before` belongs to content
that stays the same for the whole session, because a change there invalidates the cached history
behind it; `Framing.after` is for small state that is often refreshed, and is paid again with each
request.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
import logging
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field

from dsh_acp.llm.provider import RetryPolicy
from dsh_acp.messages import Block, CallConfig, Failure, Message, Opaque
from dsh_acp.tools.tool import Outcome

P = TypeVar("P")
R = TypeVar("R")

Proceed: TypeAlias = Callable[[], Awaitable[R]]
Middleware: TypeAlias = Callable[[P, Callable[[], Awaitable[R]]], Awaitable[R]]

ENTRY_POINTS = "dsh_acp.plugins"
_log = logging.getLogger(__name__)


class Live(Protocol):
    """A live session, as hooks see it."""

    @property
    def id(self) -> str: ...

    @property
    def log(self) -> Any:
        """The session log; read it, and append only events of your own."""
        ...

    @property
    def preset(self) -> str:
        """The permission preset."""
        ...

    def inject(self, message: Message) -> None:
        """Deliver `message` with the next step; does not start one."""
        ...

    def steer(self, message: Message) -> None:
        """Deliver `message` with the next step and keep going for it."""
        ...

    def abort(self, cause: Mapping[str, Any], *, keep_inbox: bool = False) -> None:
        """End the turn; `cause` is recorded."""
        ...


class PreStep(Struct, frozen=True):
    """A step is proposed with the claimed `messages`."""

    session: Live
    turn: int
    step: int
    messages: tuple[Message, ...]


class Enter(Struct, frozen=True):
    """Go on, with these messages entering the history."""

    messages: tuple[Message, ...]


class Reject(Struct, frozen=True):
    """Do not run the step. The claimed messages are gone and the turn ends `blocked`."""

    reason: str = ""


class Proposal(Struct, frozen=True):
    """A request is being built from the frozen `seed`; return it or a replacement."""

    session: Live
    turn: int
    step: int
    seed: CallConfig


class FramingProposal(Struct, frozen=True):
    """A request over `messages` is being built; contribute messages for it alone."""

    session: Live
    turn: int
    step: int
    system: str
    messages: tuple[Message, ...]


class Framing(Struct, frozen=True):
    """Messages around the history of one request. They do not become history."""

    before: tuple[Message, ...] = ()
    after: tuple[Message, ...] = ()


class RequestFailed(Struct, frozen=True):
    """An attempt ended with `failure`. Return `"retry"` to build and send the request again."""

    session: Live
    turn: int
    step: int
    provider: str
    failure: Failure
    policy: RetryPolicy | None


Recovery: TypeAlias = Literal["retry"] | None


class TurnStopping(Struct, frozen=True):
    """The turn is about to end. Steer to keep it going."""

    session: Live
    turn: int


class ToolUse(Struct, frozen=True):
    """One call. `arguments` is the model's raw text."""

    session: Live
    turn: int
    step: int
    call_id: str
    name: str
    arguments: str


class Allow(Struct, frozen=True):
    """No objection; the permission rules decide."""


class Deny(Struct, frozen=True):
    """The call does not run; the model reads `reason`."""

    reason: str


class Approve(Struct, frozen=True):
    """The call runs without a question, unless the permission rules refuse it."""


class Ask(Struct, frozen=True):
    """The person decides, whatever the rules say."""

    reason: str | None = None


Verdict: TypeAlias = Allow | Approve | Deny | Ask


class Finished(Struct, frozen=True):
    """A call and what came of it, before it is recorded."""

    use: ToolUse
    content: tuple[Block | Opaque, ...]
    is_error: bool


class Accept(Struct, frozen=True):
    """Record the result, with `content` instead when given, and deliver `contexts` after it."""

    content: tuple[Block | Opaque, ...] | None = None
    contexts: tuple[Message, ...] = ()


class Refuse(Struct, frozen=True):
    """Record `feedback` as a failed result instead."""

    feedback: tuple[Block | Opaque, ...]
    contexts: tuple[Message, ...] = ()


class Hooks(Struct, eq=False):
    """The lists. Order is call order; the first is outermost."""

    pre_step: list[Middleware[PreStep, Enter | Reject]] = field(default_factory=list[Any])
    request_config: list[Middleware[Proposal, CallConfig]] = field(default_factory=list[Any])
    request_framing: list[Middleware[FramingProposal, Framing]] = field(default_factory=list[Any])
    request_error: list[Middleware[RequestFailed, Recovery]] = field(default_factory=list[Any])
    turn_stopping: list[Callable[[TurnStopping], Awaitable[None]]] = field(
        default_factory=list[Any]
    )
    tool_pre: list[Middleware[ToolUse, Verdict]] = field(default_factory=list[Any])
    tool_execute: list[Middleware[ToolUse, Outcome]] = field(default_factory=list[Any])
    tool_post: list[Middleware[Finished, Accept | Refuse]] = field(default_factory=list[Any])
    plugins: bool = False
    """Whether `load_plugins` still has to look for installed packages."""

    def load_plugins(self) -> None:
        """Let installed packages add theirs; once, and nothing when `plugins` is off.

        A plugin that fails to load is reported on stderr and left out.
        """
        if not self.plugins:
            return
        self.plugins = False
        from importlib.metadata import entry_points

        for point in entry_points(group=ENTRY_POINTS):
            try:
                point.load()(self)
            except Exception:  # noqa: BLE001 - a stranger's code must not take the session with it
                _log.exception("the plugin %s could not be loaded; it is left out", point.name)


async def through(
    chain: Sequence[Middleware[P, R]], payload: P, default: Callable[[], Awaitable[R]]
) -> R:
    """Run `payload` through `chain`, ending in `default`."""

    async def call(position: int) -> R:
        if position == len(chain):
            return await default()
        return await chain[position](payload, lambda: call(position + 1))

    return await call(0)
