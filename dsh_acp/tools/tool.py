"""What the model may do: one seam for every tool.

A tool has three faces. To the model: name, description, JSON Schema. To the policy: an `Intent`,
known before anything happens. To the person: a `Card`, a pure function of logged facts, so that a
reloaded session shows what the live one did.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from dsh_acp.messages import Block, Message, ToolSchema
from dsh_acp.tools.sandbox import Sandbox

Effect: TypeAlias = Literal["none", "read", "write", "execute", "fetch", "other"]
Kind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]


class Intent(Struct, frozen=True, kw_only=True):
    """What a call is about to do.

    `paths` are absolute with symlinks resolved. `scope` is what "always" would cover: for a
    command its words up to the first that varies (`git status`), for a file its path, else empty
    for the whole tool. `reason` says why the question is put, when that is not obvious.
    """

    effect: Effect
    paths: tuple[str, ...] = ()
    command: str | None = None
    cwd: str | None = None
    scope: str = ""
    reason: str | None = None
    escalate: Literal["workspace-write", "danger-full-access"] | None = None
    """The wider sandbox mode that the call asks for; a yes covers this one call."""


class Location(Struct, frozen=True):
    """A place that a call touches; `path` absolute, `line` from 1."""

    path: str
    line: int | None = None


class FileDiff(Struct, frozen=True):
    """A change to one file, or one place of it; `old` is `None` for a file that did not exist.

    `line` is where the place starts in the new text, `None` for its first line. A deleted file
    has no `new`, and a binary one neither; `moved_from` is the path that a file had before.
    """

    path: str
    old: str | None
    new: str
    line: int | None = None
    moved_from: str | None = None
    is_deleted: bool = False
    is_binary: bool = False


class TerminalView(Struct, frozen=True):
    """A command and, once it ended, its output (ANSI kept) and how it ended."""

    command: str
    cwd: str
    output: str | None = None
    exit_code: int | None = None
    signal: str | None = None


class Card(Struct, frozen=True, kw_only=True):
    """What a person sees of a call. `None` in a result card means "as the call said"."""

    title: str | None = None
    kind: Kind | None = None
    locations: tuple[Location, ...] = ()
    diffs: tuple[FileDiff, ...] = ()
    content: tuple[Block, ...] | None = None
    terminal: TerminalView | None = None
    raw_input: Any = None
    """The arguments as the model gave them. Toad takes a call only if they are an object."""


class Version(Struct, frozen=True):
    """Which state of a file was seen: its identity on disk and the digest of its bytes.

    Text that came from an unsaved editor buffer has only the digest.
    """

    digest: str
    stat: tuple[int, int, int, int, int] | None = None


class FileRead(Struct, frozen=True):
    """Bytes of a file and the version they belong to; `buffer` when an editor supplied them."""

    data: bytes
    version: Version
    buffer: bool = False


class CommandEnd(Struct, frozen=True):
    """How a command ended. Streams are the kept tail; `full_*` name the files with everything.

    `left_behind`: it had started processes that outlived it, and they were stopped. `denied`: what
    its sandbox refused it, and `undone` what it wrote that was put back.
    """

    stdout: bytes
    stderr: bytes
    exit_code: int | None
    signal: str | None
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    full_stdout: str | None = None
    full_stderr: str | None = None
    left_behind: bool = False
    denied: tuple[Literal["file", "network"], ...] = ()
    undone: tuple[str, ...] = ()


class World(Protocol):
    """Where tools act.

    Files through the editor where it offers them, else the local disk; processes always local.
    Paths are absolute.
    """

    async def read(self, path: str, max_bytes: int | None = None) -> FileRead:
        """The current content, an unsaved buffer included.

        Raises:
            ToolError: `FS_NOT_FOUND`, `FS_NOT_REGULAR_FILE`, `FS_PERMISSION_DENIED`,
                `FS_TOO_LARGE`, `FS_IO_ERROR`.
        """
        ...

    async def write(
        self, path: str, data: bytes, expected: Version | None, *, real: str | None = None
    ) -> Version:
        """Replace the content atomically, keeping mode and symlink; `expected` `None` creates.

        `real` is where `path` must lead with symlinks resolved, as it did when it was allowed.

        Raises:
            ToolError: `FS_STALE_VERSION` when the file is not the expected one or not at `real`,
                and as `read`.
        """
        ...

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        timeout_ms: int,
        env: Mapping[str, str] | None = None,
        output: Callable[[bytes], None] | None = None,
        spill_dir: str | None = None,
        sandbox: Sandbox | None = None,
    ) -> CommandEnd:
        """Run a shell command in its own process group, inside `sandbox` if there is one.

        Null stdin and a scrubbed environment. Cancellation kills the group and re-raises. `output`
        gets pieces live. Output past the kept tail goes whole to files in `spill_dir`.
        """
        ...


class Agents(Protocol):
    """Subagents that go on in the background."""

    def start(self, label: str, prompt: str, *, inherits: bool, call_id: str) -> str:
        """Begin one; its id. Raises `ToolError` when there can be no more."""
        ...

    def send(self, id: str, text: str) -> None:
        """One more message, as a turn of its own. Raises `ToolError` when it cannot take it."""
        ...

    def interrupt(self, id: str) -> None:
        """Stop what it does now. Raises `ToolError` when there is no such subagent."""
        ...

    def list(self) -> Sequence[tuple[str, str, str]]:
        """Id, `running` or `idle`, and label of each."""
        ...


class ToolContext(Protocol):
    """What a running call may use."""

    @property
    def call_id(self) -> str: ...
    @property
    def cwd(self) -> str: ...
    @property
    def roots(self) -> tuple[str, ...]:
        """`cwd` and the additional directories, symlinks resolved."""
        ...

    @property
    def world(self) -> World: ...
    @property
    def sandbox(self) -> Sandbox | None:
        """What holds the commands of this call; `None` for one that may do anything."""
        ...

    @property
    def allowed(self) -> tuple[str, ...]:
        """The `paths` of the intent that was allowed; a path that now leads elsewhere was not."""
        ...

    @property
    def state(self) -> dict[str, Any]:
        """Per-session state of tools (what was read, background jobs), keyed by tool module."""
        ...

    @property
    def spill_dir(self) -> str:
        """A private folder for output too long to show."""
        ...

    def append(self, event: Any) -> None:
        """Append a log-only event, such as `todo/write`."""
        ...

    def progress(self, text: str) -> None:
        """Show live output to the person. Not logged, not seen by the model."""
        ...

    def add_context(self, message: Message) -> None:
        """Deliver a message to the model with the next step."""
        ...

    async def ask(self, questions: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Put questions to the person.

        Raises:
            ToolError: nobody can answer, or the person declined.
        """
        ...

    async def delegate(self, label: str, prompt: str, *, inherits: bool) -> str:
        """Have another agent do a task; its last message. Cancellation stops it.

        `inherits`: it knows the conversation up to the end of the last turn.

        Raises:
            ToolError: it did not finish; with what it said before.
        """
        ...

    @property
    def agents(self) -> Agents:
        """The subagents in the background."""
        ...

    @property
    def is_approved(self) -> bool:
        """Whether the person allowed this call, or calls like it for good; not the rules alone."""
        ...

    @property
    def in_plan_mode(self) -> bool:
        """Whether calls that change something are refused until a plan is approved."""
        ...

    def leave_plan_mode(self) -> None:
        """The plan is approved: plan mode ends with the next step."""
        ...


class Outcome(Struct, frozen=True, kw_only=True):
    """A finished call: what the model sees, and private presentation data for the card."""

    content: tuple[Block, ...]
    meta: dict[str, Any] | None = None
    is_error: bool = False
    concludes_turn: bool = False


class Tool(Protocol):
    """One tool.

    Methods other than `run` and `preview` are pure, except that `intent` may resolve symlinks.
    """

    @property
    def schema(self) -> ToolSchema: ...

    def parse(self, arguments: str) -> Any:
        """Validated arguments from the model's raw text (`""` is `{}`).

        Raises:
            ToolError: `INVALID_ARGS`, naming every mistake at once.
        """
        ...

    def intent(self, args: Any, cwd: str) -> Intent:
        """What the call would do, for the policy."""
        ...

    def is_concurrency_safe(self, args: Any) -> bool:
        """Whether it may overlap with neighbours."""
        ...

    async def run(self, args: Any, ctx: ToolContext) -> Outcome:
        """Do it. Cancellation must leave nothing running.

        Raises:
            ToolError: it failed; the sentence goes to the model.
        """
        ...

    async def preview(self, args: Any, ctx: ToolContext) -> tuple[FileDiff, ...]:
        """The diffs that `run` would make, for the approval; `()` when there are none to show."""
        ...

    def call_card(self, arguments: str, cwd: str) -> Card:
        """The card at the call, from the raw arguments; never raises."""
        ...

    def result_card(
        self, arguments: str, content: Sequence[Block], is_error: bool, meta: Any, cwd: str
    ) -> Card:
        """The card at the result; never raises."""
        ...


ToolSet: TypeAlias = Mapping[str, Tool]
Approve: TypeAlias = Callable[[Intent, str], Awaitable[bool]]
