"""What a person sees change, in no protocol's words.

The projection makes updates from log entries; the codec of each protocol version turns them into
frames.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Struct

from dsh_acp.agent.commands import CommandInfo
from dsh_acp.messages import MediaRef
from dsh_acp.tools.tool import Card

Role: TypeAlias = Literal["agent", "thought", "user"]
Status: TypeAlias = Literal["pending", "in_progress", "completed", "failed", "cancelled"]


class Chunk(Struct, frozen=True):
    """More text of one message."""

    role: Role
    message_id: str
    text: str


class Block(Struct, frozen=True):
    """A piece of a message that is no text: an attachment, or a block as the client sent it."""

    role: Role
    message_id: str
    content: MediaRef | dict[str, Any]


class CallShown(Struct, frozen=True):
    """A call appears, pending."""

    call_id: str
    name: str
    card: Card


class CallChanged(Struct, frozen=True):
    """A call has come further. `card` and `name` are given when there is more to show.

    `output` is the result's text; `None` while there is no result.
    """

    call_id: str
    status: Status
    card: Card | None = None
    name: str | None = None
    output: str | None = None


class Plan(Struct, frozen=True):
    """The whole todo list: content and status of each line."""

    entries: tuple[tuple[str, str], ...]


class Title(Struct, frozen=True):
    """The session's title, and when it was given (Unix milliseconds)."""

    title: str
    time: int


class Used(Struct, frozen=True):
    """Tokens in the context, of `size` (`None`: not known); costs by currency; the last call."""

    used: int
    size: int | None
    costs: tuple[tuple[str, float], ...]
    tokens: dict[str, int]


Severity: TypeAlias = Literal["info", "warning", "error"]


class Notice(Struct, frozen=True):
    """Something to know; `text` says it in a message, for clients that show no notices."""

    severity: Severity
    title: str
    description: str | None
    message_id: str
    text: str


class Compaction(Struct, frozen=True):
    """A compaction's state: `in_progress`, `completed`, `failed`."""

    id: str
    status: str
    summary: str | None = None
    error: str | None = None


class Output(Struct, frozen=True):
    """More output of a running call. Not in the log."""

    call_id: str
    text: str


class Attached(Struct, frozen=True):
    """A terminal of the client's own shows a call's output. Not in the log."""

    call_id: str
    terminal_id: str


class JobStarted(Struct, frozen=True):
    """A command goes on in the background of the session, begun by a call. Not in the log.

    `output` is the end of what it has printed so far, for who joins later.
    """

    id: str
    call_id: str
    command: str
    cwd: str
    output: bytes = b""


class JobOutput(Struct, frozen=True):
    """More of what a background command prints."""

    id: str
    output: bytes


class JobEnded(Struct, frozen=True):
    """A background command has ended; `output` is the end of what it printed."""

    id: str
    output: bytes
    exit_code: int | None
    signal: str | None


class Commands(Struct, frozen=True):
    """The complete list of slash commands."""

    commands: tuple[CommandInfo, ...]


class Value(Struct, frozen=True):
    """One value that a choice may have."""

    id: str
    name: str
    description: str | None = None


class Choice(Struct, frozen=True):
    """A choice with its values, in one nameless group or in named ones."""

    id: str
    name: str
    description: str
    current: str
    groups: tuple[tuple[str, tuple[Value, ...]], ...]

    @property
    def values(self) -> list[str]:
        """The ids of all values."""
        return [value.id for _, values in self.groups for value in values]


class Choices(Struct, frozen=True):
    """Everything that can be chosen; `is_new_mode` when the first of them has changed."""

    choices: tuple[Choice, ...]
    is_new_mode: bool = False


Update: TypeAlias = (
    Chunk
    | Block
    | CallShown
    | CallChanged
    | Plan
    | Title
    | Used
    | Notice
    | Compaction
    | Output
    | Attached
    | JobStarted
    | JobOutput
    | JobEnded
    | Commands
    | Choices
)

# ---------------------------------------------------------------- lists of updates


def merged(updates: Iterable[Update]) -> list[Update]:
    """`updates` with neighbouring chunks of one message joined."""
    found: list[Update] = []
    texts: list[str] = []
    open_chunk: Chunk | None = None
    for update in updates:
        if not isinstance(update, Chunk):
            if len(texts) > 1:
                _close(found, texts)
            open_chunk, texts = None, []
        elif (
            open_chunk is not None
            and update.message_id == open_chunk.message_id
            and update.role == open_chunk.role
        ):
            texts.append(update.text)
            continue
        else:
            if len(texts) > 1:
                _close(found, texts)
            open_chunk, texts = update, [update.text]
        found.append(update)
    if len(texts) > 1:
        _close(found, texts)
    return found


def _close(found: list[Update], texts: list[str]) -> None:
    chunk = cast(Chunk, found[-1])
    found[-1] = Chunk(chunk.role, chunk.message_id, "".join(texts))


_STATES: Final = (Title, Used, Plan)


def settled(updates: Sequence[Update]) -> Sequence[Update]:
    """A replay without what a later update of it replaces.

    Those are titles, usage, plans, and that a call began which has ended.
    """
    replaced: set[int] = set()
    last: dict[type, int] = {}
    begun: dict[str, int] = {}
    for position, update in enumerate(updates):
        if isinstance(update, CallChanged):
            if update.status == "in_progress":
                begun[update.call_id] = position
            elif begun:
                replaced.add(begun.pop(update.call_id, -1))
        elif isinstance(update, _STATES):
            replaced.add(last.get(type(update), -1))
            last[type(update)] = position
    return [update for position, update in enumerate(updates) if position not in replaced]
