"""The steps of a script: one struct per operation.

Strings in steps may contain `{{cwd}}`, `{{home}}`, `{{session:NAME}}` and `{{pending:N}}` (the id
of the N-th prompt that waits, as version 2 told last); they are filled in when the step is played.
A step of an error kind (`…ExpectError`, or any with `expectError`) must be answered with an error;
every other request must succeed.
"""

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Json: TypeAlias = dict[str, Any]
Optional: TypeAlias = str | UnsetType
ExpectError: TypeAlias = Annotated[
    bool | int, Meta(description="`true`, or the JSON-RPC code that must come back")
]
Name: TypeAlias = Annotated[str, Meta(pattern="^[a-z][a-z0-9-]*$")]


class Step(
    Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="op",
    tag=lambda name: name[0].lower() + name[1:],
):
    """One thing the client does."""


class SessionStep(Step, frozen=True, kw_only=True):
    """A step about a session: the named one, else the one opened last."""

    session: Name | UnsetType = UNSET


# ---------------------------------------------------------------- connection


class Initialize(Step, frozen=True, kw_only=True):
    """Shake hands. `terminalOutput` adds that `_meta` capability to `capabilities`."""

    protocol_version: int = 1
    terminal_output: bool = False
    capabilities: Json | UnsetType = UNSET
    expect_error: ExpectError = False


class Authenticate(Step, frozen=True, kw_only=True):
    """`authenticate` (version 1) or `auth/login` (version 2)."""

    method_id: str
    expect_error: ExpectError = False


class Logout(Step, frozen=True, kw_only=True):
    """`logout` (version 1) or `auth/logout` (version 2)."""

    expect_error: ExpectError = False


class Restart(Step, frozen=True, kw_only=True):
    """End the agent (by closing its stdin, or with SIGKILL) and start it again on the same home.

    The new process is not initialised; its model goes on with the first unused reply. `cutTail`
    removes that many bytes from the end of the killed process's newest log, as a crash may.
    """

    kill: bool = False
    cut_tail: int = 0


class Request(Step, frozen=True, kw_only=True):
    """Any request, as it stands."""

    method: str
    params: Any = UNSET
    expect_error: ExpectError = False


class Notify(Step, frozen=True, kw_only=True):
    """Any notification, as it stands."""

    method: str
    params: Any = UNSET


class Raw(Step, frozen=True, kw_only=True):
    """A line sent as it is; with `reply` the next frame without a method is awaited."""

    line: str
    reply: bool = True


# ---------------------------------------------------------------- sessions


class NewSession(Step, frozen=True, kw_only=True):
    """Open a session and make it the current one. `cwd` is relative to the workspace."""

    name: Name | UnsetType = msgspec.field(default=UNSET, name="as")
    cwd: Optional = UNSET
    additional_directories: tuple[str, ...] | UnsetType = UNSET
    mcp_servers: tuple[Json, ...] = ()
    meta: Json | UnsetType = msgspec.field(default=UNSET, name="_meta")
    expect_error: ExpectError = False


class NewSessionExpectError(Step, frozen=True, kw_only=True):
    """A session that must be refused."""

    cwd: Optional = UNSET
    additional_directories: tuple[str, ...] | UnsetType = UNSET


class Load(SessionStep, frozen=True, kw_only=True):
    """`session/load`: of a session of this run, or of one stored under `stored/NAME.jsonl`.

    `id` names it outright. In version 2 this is a resume with replay.
    """

    id: Optional = UNSET
    cwd: Optional = UNSET
    additional_directories: tuple[str, ...] | UnsetType = UNSET
    expect_error: ExpectError = False


class Resume(SessionStep, frozen=True, kw_only=True):
    """`session/resume`: as load, without a replay."""

    id: Optional = UNSET
    cwd: Optional = UNSET
    additional_directories: tuple[str, ...] | UnsetType = UNSET
    expect_error: ExpectError = False


class Fork(SessionStep, frozen=True, kw_only=True):
    """`session/fork`; the child becomes the current session under the name `as`."""

    name: Name | UnsetType = msgspec.field(default=UNSET, name="as")
    cwd: Optional = UNSET
    meta: Json | UnsetType = msgspec.field(default=UNSET, name="_meta")
    expect_error: ExpectError = False


class List(Step, frozen=True, kw_only=True):
    """`session/list`. `cwd` is relative to the workspace; `""` is the workspace itself."""

    cwd: Optional = UNSET
    cursor: Optional = UNSET
    expect_error: ExpectError = False


class Close(SessionStep, frozen=True, kw_only=True):
    """`session/close`."""

    expect_error: ExpectError = False


class Delete(SessionStep, frozen=True, kw_only=True):
    """`session/delete`."""

    id: Optional = UNSET
    expect_error: ExpectError = False


class SetMode(SessionStep, frozen=True, kw_only=True):
    """`session/set_mode`."""

    mode_id: str
    expect_error: ExpectError = False


class SetModeExpectError(SessionStep, frozen=True, kw_only=True):
    """A mode that must be refused."""

    mode_id: str


class SetConfigOption(SessionStep, frozen=True, kw_only=True):
    """`session/set_config_option`."""

    config_id: str
    value: str | bool
    expect_error: ExpectError = False


class SetConfigOptionExpectError(SessionStep, frozen=True, kw_only=True):
    """A value that must be refused."""

    config_id: str
    value: str | bool


# ---------------------------------------------------------------- prompts


class Prompt(SessionStep, frozen=True, kw_only=True):
    """One text block; waits for the end of the turn."""

    text: str
    expect_error: ExpectError = False


class PromptContent(SessionStep, frozen=True, kw_only=True):
    """Any content blocks: images, resources, links."""

    content: tuple[Json, ...]
    expect_error: ExpectError = False


class PromptExpectError(SessionStep, frozen=True, kw_only=True):
    """A prompt that must be answered with an error."""

    text: str


class StartPrompt(SessionStep, frozen=True, kw_only=True):
    """Send a prompt and go on; `awaitPrompt` collects its answer."""

    text: Optional = UNSET
    content: tuple[Json, ...] | UnsetType = UNSET
    name: Name | UnsetType = msgspec.field(default=UNSET, name="as")
    meta: Json | UnsetType = msgspec.field(default=UNSET, name="_meta")


class AwaitPrompt(Step, frozen=True, kw_only=True):
    """Wait for the answer of a started prompt: the named one, else the oldest open one."""

    prompt: Name | UnsetType = UNSET
    expect_error: ExpectError = False


class PromptAndWaitForAgentMessage(SessionStep, frozen=True, kw_only=True):
    """A prompt; waits for its answer and for one agent text that equals `waitForText`."""

    text: str
    wait_for_text: str


class File(Struct, frozen=True, forbid_unknown_fields=True):
    """A file, relative to the workspace."""

    path: str


class PromptAndCancel(SessionStep, frozen=True, kw_only=True):
    """A prompt that is cancelled once `afterUpdate` was seen, or the file exists; then awaited."""

    text: str
    after_update: Optional = UNSET
    wait_for_file: File | UnsetType = UNSET
    wait_for_tool_call_update: Optional = UNSET


class Cancel(SessionStep, frozen=True, kw_only=True):
    """`session/cancel`."""

    wait_for_file: File | UnsetType = UNSET


class Answer(Step, frozen=True, kw_only=True):
    """Answer the oldest question that a `hold` left open."""

    result: Json


# ---------------------------------------------------------------- waiting


class WaitForUpdate(SessionStep, frozen=True, kw_only=True):
    """Wait for an update with all these fields, received since the last request was sent."""

    fields: Json


class WaitForQuestion(Step, frozen=True, kw_only=True):
    """Wait until a question is held open."""


class WaitForFile(Step, frozen=True, kw_only=True):
    """Wait until the file exists."""

    path: str


class LogStep(SessionStep, frozen=True, kw_only=True):
    """A wait on the session's log on disk; fails after `timeoutMs`."""

    timeout_ms: int = 10_000


class WaitForTurnStart(LogStep, frozen=True, kw_only=True):
    """Wait until a turn with at least this number has started."""

    minimum_turn: int = 1


class WaitForTurnEnd(LogStep, frozen=True, kw_only=True):
    """Wait until the last boundary in the log is a `turn/end`."""


class WaitForSubagentTurnEnd(LogStep, frozen=True, kw_only=True):
    """As `waitForTurnEnd`, in the log of a child session (numbered from 1)."""

    child: int = 1
    minimum_turn: int = 1


class WaitForEventAfterTurnEnd(LogStep, frozen=True, kw_only=True):
    """Wait until an event of this type follows the last `turn/end`."""

    type: str


class WaitForEvent(LogStep, frozen=True, kw_only=True):
    """Wait until the log on disk holds so many events of this type."""

    type: str
    count: int = 1


class WaitForTitleAfterTurnEnd(LogStep, frozen=True, kw_only=True):
    """Wait until a `session/title` follows the last `turn/end`."""


class WaitForInboxMessage(LogStep, frozen=True, kw_only=True):
    """Wait until a message with this text entered the inbox."""

    text: str


class WaitForGoalPhase(LogStep, frozen=True, kw_only=True):
    """Wait until the goal is in this phase."""

    phase: str


# ---------------------------------------------------------------- the workspace


class SetBuffer(Step, frozen=True, kw_only=True):
    """Give a file an unsaved buffer in the editor."""

    path: str
    text: str


class WriteFile(Step, frozen=True, kw_only=True):
    """Change a file behind the agent's back."""

    path: str
    text: str


class DeleteFile(Step, frozen=True, kw_only=True):
    """Delete a file behind the agent's back."""

    path: str


class ExpectFile(Step, frozen=True, kw_only=True):
    """The file has exactly this text now; without `text` it must not exist."""

    path: str
    text: Optional = UNSET


class ExpectBuffer(Step, frozen=True, kw_only=True):
    """The editor's buffer has exactly this text now."""

    path: str
    text: str
