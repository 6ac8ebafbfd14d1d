"""What the extensions of the core say: policy, commands, compaction, titles, hooks, subagents.

Versioned unions that this program does not interpret are `Document`s. The last section holds this
program's own types; they are written `ignorable`.
"""

from typing import Any, ClassVar

from msgspec import UNSET, Raw, Struct, UnsetType

from dsh_acp.log.payloads import Document, Payload
from dsh_acp.messages import Failure, Usage

# ---------------------------------------------------------------- policy and permission


class PresetSelected(Payload, frozen=True):
    """The composition in use."""

    TYPE: ClassVar[str] = "agent-preset/selected"
    agent_preset: str


class ApprovalAsked(Payload, frozen=True):
    """A person is asked whether a call may run."""

    TYPE: ClassVar[str] = "approval/asked"
    id: str
    tool_name: str
    call_id: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ApprovalDecided(Payload, frozen=True):
    """The answer: `allowed-once`, `rejected`, `cancelled`, `unavailable`."""

    TYPE: ClassVar[str] = "approval/decided"
    id: str
    outcome: str


class ApprovalPolicy(Payload, frozen=True):
    """Whether to ask at all: `ask` or `never`; the last one counts."""

    TYPE: ClassVar[str] = "approval/policy"
    policy: str
    source: str | UnsetType = UNSET


class SandboxMode(Payload, frozen=True):
    """`read-only`, `workspace-write` or `danger-full-access`; the last one counts."""

    TYPE: ClassVar[str] = "sandbox/mode"
    mode: str
    source: str | UnsetType = UNSET


class PermissionPreset(Payload, frozen=True):
    """The permission preset; the last one counts."""

    TYPE: ClassVar[str] = "permission/preset"
    preset: str


class PlanMode(Payload, frozen=True):
    """Planning is on or off; the last one counts."""

    TYPE: ClassVar[str] = "plan/mode"
    active: bool


# ---------------------------------------------------------------- commands


class CommandRun(Payload, frozen=True):
    """A slash command starts; `args` is the verbatim rest of the line."""

    TYPE: ClassVar[str] = "command/run"
    OPEN: ClassVar[bool] = True
    command_id: str
    name: str
    args: str | UnsetType = UNSET
    source: dict[str, Any] | UnsetType = UNSET


class CommandDone(Payload, frozen=True):
    """Its outcome: `success` or `error`."""

    TYPE: ClassVar[str] = "command/done"
    command_id: str
    kind: str
    text: str | UnsetType = UNSET
    source_event_seq: int | UnsetType = UNSET


# ---------------------------------------------------------------- compaction


class CompactionStart(Payload, frozen=True, kw_only=True):
    """A compaction opens; `turn` is null between turns."""

    TYPE: ClassVar[str] = "compaction/start"
    compaction_id: str
    source_command_id: str | UnsetType = UNSET
    turn: int | None


class ShadowedRange(Struct, frozen=True):
    """The first and last surface node of a replaced span, by seq."""

    start: int
    end: int


class CompactionSummary(Payload, frozen=True, kw_only=True):
    """What the summariser wrote, and the span that it stands for."""

    TYPE: ClassVar[str] = "compaction/summary"
    OPEN: ClassVar[bool] = True
    compaction_id: str
    source_command_id: str | UnsetType = UNSET
    summary: tuple[dict[str, Any], ...]
    raw_output: tuple[dict[str, Any], ...] | UnsetType = UNSET
    llm_stream_call: bool | UnsetType = UNSET
    shadowed_range: ShadowedRange
    shadowed_seqs: tuple[int, ...]
    shadowed_token_count: int
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    max_tokens: int | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET


class CompactionEnd(Payload, frozen=True, kw_only=True):
    """A compaction closes; `error` says why nothing was replaced."""

    TYPE: ClassVar[str] = "compaction/end"
    compaction_id: str
    source_command_id: str | UnsetType = UNSET
    turn: int | None
    error: str | UnsetType = UNSET


class CompactionPrune(Payload, frozen=True):
    """One tool result is about to be trimmed."""

    TYPE: ClassVar[str] = "compaction/prune"
    shadowed_range: ShadowedRange
    shadowed_seqs: tuple[int, ...]
    shadowed_token_count: int


# ---------------------------------------------------------------- retry


class LlmRetry(Payload, frozen=True, kw_only=True):
    """A failed attempt will be repeated after `delay_ms`."""

    TYPE: ClassVar[str] = "llm/retry"
    OPEN: ClassVar[bool] = True
    retry_id: str
    turn: int
    step: int
    provider: str
    mode: str
    policy_key: str
    retry: int
    max_retries: int | UnsetType = UNSET
    delay_ms: float
    failure: Failure


class LlmRetryStarted(Payload, frozen=True):
    """The delay is over."""

    TYPE: ClassVar[str] = "llm/retry-started"
    retry_id: str
    turn: int
    step: int
    retry: int


# ---------------------------------------------------------------- titles, goals, hooks


class SessionTitle(Payload, frozen=True):
    """The session's title; `source.kind` is `fallback`, `provider` or `user`."""

    TYPE: ClassVar[str] = "session/title"
    OPEN: ClassVar[bool] = True
    title: str
    message_seqs: tuple[int, ...]
    source: dict[str, Any]


class SessionTitleLlmRequest(Payload, frozen=True):
    """The one-shot request for a title, whole."""

    TYPE: ClassVar[str] = "session/title-llm-request"
    OPEN: ClassVar[bool] = True
    title_provider: str
    message_seqs: tuple[int, ...]
    route: dict[str, Any]
    system: str
    messages: tuple[Any, ...]
    max_tokens: int | UnsetType = UNSET


class FeedbackRecord(Payload, frozen=True):
    """What a person said about the session."""

    TYPE: ClassVar[str] = "feedback/record"
    text: str


class GoalChange(Document, frozen=True):
    """A goal was created, edited, paused, resumed, completed, blocked or cleared."""

    TYPE: ClassVar[str] = "goal/change"


class ScheduleChange(Document, frozen=True):
    """A schedule was created, deleted or dispatched."""

    TYPE: ClassVar[str] = "schedule/change"


class HookInvoked(Payload, frozen=True):
    """An external hook starts."""

    TYPE: ClassVar[str] = "hook/invoked"
    turn: int
    point: str
    dialect: str
    handler_id: str
    matcher: str | UnsetType = UNSET


class HookResult(Payload, frozen=True, kw_only=True):
    """An external hook's decision."""

    TYPE: ClassVar[str] = "hook/result"
    OPEN: ClassVar[bool] = True
    turn: int
    point: str
    handler_id: str
    decision: str
    exit_code: int | UnsetType = UNSET
    stderr_summary: str | UnsetType = UNSET
    duration_ms: float


# ---------------------------------------------------------------- subagents, workflows, web


class SubagentDescriptor(Document, frozen=True):
    """What kind of subagent this session is."""

    TYPE: ClassVar[str] = "subagent/descriptor"


class TeamMember(Document, frozen=True):
    """A member of a team."""

    TYPE: ClassVar[str] = "team/member"


class TeamMessageQueued(Document, frozen=True):
    """A message between members waits."""

    TYPE: ClassVar[str] = "team/message/queued"


class TeamMessageDelivered(Document, frozen=True):
    """A message between members arrived."""

    TYPE: ClassVar[str] = "team/message/delivered"


class TeamTask(Document, frozen=True):
    """A shared task changed."""

    TYPE: ClassVar[str] = "team/task"


class CodeDispatchStart(Payload, frozen=True):
    """Code that the model wrote calls a tool."""

    TYPE: ClassVar[str] = "tool/code-dispatch-start"
    OPEN: ClassVar[bool] = True
    root_call_id: str
    parent_call_id: str
    sub_call_id: str
    name: str
    arguments: Any


class CodeDispatch(Payload, frozen=True):
    """The outcome of such a call."""

    TYPE: ClassVar[str] = "tool/code-dispatch"
    OPEN: ClassVar[bool] = True
    root_call_id: str
    parent_call_id: str
    sub_call_id: str
    name: str
    arguments: Any
    is_error: bool
    content: tuple[dict[str, Any], ...]


class WorkflowRunStart(Payload, frozen=True):
    """A workflow starts."""

    TYPE: ClassVar[str] = "tool-workflow/run-start"
    run_id: str
    name: str


class WorkflowAgentStart(Payload, frozen=True):
    """One of its agents starts."""

    TYPE: ClassVar[str] = "tool-workflow/agent-start"
    run_id: str
    seq: int
    label: str | UnsetType = UNSET
    phase: str | UnsetType = UNSET
    child_id: str | UnsetType = UNSET


class WorkflowAgentEnd(Payload, frozen=True):
    """One of its agents ended: `completed`, `failed`, `cancelled`."""

    TYPE: ClassVar[str] = "tool-workflow/agent-end"
    run_id: str
    seq: int
    outcome: str


class WorkflowRunEnd(Payload, frozen=True):
    """A workflow ended: `completed`, `cancelled`, `error`."""

    TYPE: ClassVar[str] = "tool-workflow/run-end"
    run_id: str
    stop_reason: str


class DeepseekSearchRequest(Payload, frozen=True):
    """The one-shot request behind a web search, whole."""

    TYPE: ClassVar[str] = "web/deepseek-search-llm-request"
    endpoint: str
    api_version: str
    body: Raw


# ---------------------------------------------------------------- this program's own


class PermissionGrant(Payload, frozen=True):
    """An answer to remember for this session.

    `decision` is `allow` or `reject`; it covers calls of `tool` whose scope of `scope_kind`
    matches `scope`.
    """

    TYPE: ClassVar[str] = "permission/grant"
    IGNORABLE: ClassVar[bool] = True
    scope_kind: str
    tool: str
    scope: str
    decision: str


class PermissionRevoke(Payload, frozen=True):
    """A remembered answer no longer counts; absent fields match anything."""

    TYPE: ClassVar[str] = "permission/revoke"
    IGNORABLE: ClassVar[bool] = True
    scope_kind: str | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET


class SessionOptionsEvent(Payload, frozen=True, kw_only=True):
    """Choices that belong to the session; per field, the last one that names it counts."""

    TYPE: ClassVar[str] = "session/options"
    OPEN: ClassVar[bool] = True
    IGNORABLE: ClassVar[bool] = True
    cwd: str | UnsetType = UNSET
    additional_directories: tuple[str, ...] | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    effort: str | UnsetType | None = UNSET
    preset: str | UnsetType = UNSET
    values: dict[str, Any] | UnsetType = UNSET
