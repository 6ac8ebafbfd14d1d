"""What a session may do unasked, as a fold of its events, and the rules over it.

The log keeps three knobs: the sandbox mode, the approval policy and plan mode. A preset is a name
for a setting of all three. Logs written elsewhere may set the knobs alone; then the preset that
comes nearest is shown, and the rules follow the knobs.
"""

from collections.abc import Iterable, Mapping, Sequence
import os
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from dsh_acp.agent import folds
from dsh_acp.config import Preset
from dsh_acp.log.events import Event
from dsh_acp.log.plugin_payloads import (
    ApprovalPolicy,
    PermissionGrant,
    PermissionPreset,
    PermissionRevoke,
    PlanMode,
    SandboxMode,
)
from dsh_acp.tools.tool import Intent

PRESETS: Final[tuple[Preset, ...]] = ("plan", "ask", "workspace-write", "full-access")


class Knobs(NamedTuple):
    """The three facts that a preset stands for."""

    sandbox: str
    approval: str
    plan: bool


KNOBS: Final[Mapping[Preset, Knobs]] = {
    "plan": Knobs("read-only", "ask", True),
    "ask": Knobs("read-only", "ask", False),
    "workspace-write": Knobs("workspace-write", "ask", False),
    "full-access": Knobs("danger-full-access", "never", False),
}

DESCRIPTIONS: Final[Mapping[Preset, str]] = {
    "plan": "Read and search only; nothing is changed until you leave plan mode.",
    "ask": "Ask before every change and every command.",
    "workspace-write": (
        "Change files in the workspace, and run commands that the system confines to it, without "
        "asking; ask for the rest."
    ),
    "full-access": "Everything runs without asking.",
}


class GrantKey(NamedTuple):
    """What a remembered answer covers: one tool, and within it one scope (`""` is the tool)."""

    tool: str
    scope_kind: str
    scope: str


def grant_key(tool: str, intent: Intent) -> GrantKey:
    """What "always" would cover for this call."""
    kind = "path"
    if not intent.scope:
        kind = "tool"
    elif intent.effect == "fetch":
        kind = "host"
    elif intent.command is not None:
        kind = "command"
    return GrantKey(tool, kind, intent.scope)


class PolicyFold:
    """The knobs, the preset last chosen, and the remembered answers."""

    types: ClassVar[tuple[str, ...]] = (
        PermissionPreset.TYPE,
        SandboxMode.TYPE,
        ApprovalPolicy.TYPE,
        PlanMode.TYPE,
        PermissionGrant.TYPE,
        PermissionRevoke.TYPE,
    )

    def __init__(self) -> None:
        self.chosen: str | None = None
        self.before_plan: Preset | None = None
        self.sandbox: str | None = None
        self.approval: str | None = None
        self.plan = False
        self.grants: dict[GrantKey, Literal["allow", "reject"]] = {}

    def apply(self, event: Event) -> None:
        """Take in a policy event; the last of a kind counts."""
        match event.payload:
            case PermissionPreset(preset=preset):
                self.chosen = preset
                if preset != "plan":
                    self.before_plan = self._nearest(preset)
            case SandboxMode(mode=mode):
                self.sandbox = mode
                if self.chosen != "plan" and not self.plan:
                    self.before_plan = self._nearest(mode)
            case ApprovalPolicy(policy=policy):
                self.approval = policy
            case PlanMode(active=active):
                self.plan = active
            case PermissionGrant() as grant:
                key = GrantKey(grant.tool, grant.scope_kind, grant.scope)
                self.grants[key] = "reject" if grant.decision == "reject" else "allow"
            case PermissionRevoke() as revoke:
                wanted = (revoke.tool, revoke.scope_kind, revoke.scope)
                for key in [key for key in self.grants if _matches(key, wanted)]:
                    del self.grants[key]
            case _:
                pass

    @staticmethod
    def _nearest(name: str) -> Preset:
        if name in ("full-access", "danger-full-access"):
            return "full-access"
        return "workspace-write" if name == "workspace-write" else "ask"

    @property
    def is_set(self) -> bool:
        """Whether the log says anything about permissions."""
        return self.sandbox is not None or self.approval is not None or self.chosen is not None

    @property
    def knobs(self) -> Knobs:
        """The facts in force; what the log does not say is the careful choice."""
        return Knobs(self.sandbox or "read-only", self.approval or "ask", self.plan)

    @property
    def preset(self) -> Preset:
        """The name for what is in force, or the nearest to it."""
        return "plan" if self.plan else self._nearest(self.sandbox or "")


def _matches(key: GrantKey, wanted: tuple[str | UnsetType, ...]) -> bool:
    return all(want is UNSET or want == have for have, want in zip(key, wanted, strict=True))


def fold(events: Iterable[Event]) -> PolicyFold:
    """The permissions after `events`."""
    return folds.run(PolicyFold(), events)


def changes(
    current: PolicyFold, preset: Preset
) -> list[PermissionPreset | SandboxMode | ApprovalPolicy | PlanMode]:
    """The events that bring `current` to `preset`: the preset, then each knob that differs.

    Empty when nothing would change.
    """
    wanted = KNOBS[preset]
    owed: list[PermissionPreset | SandboxMode | ApprovalPolicy | PlanMode] = []
    if current.chosen != preset:
        owed.append(PermissionPreset(preset))
    if current.sandbox != wanted.sandbox:
        owed.append(SandboxMode(wanted.sandbox))
    if current.approval != wanted.approval:
        owed.append(ApprovalPolicy(wanted.approval))
    if current.plan != wanted.plan:
        owed.append(PlanMode(wanted.plan))
    return owed


# ---------------------------------------------------------------- rules


class Rule(Struct, frozen=True):
    """What the rules say of a call: `text` is the denial, or why the question is put."""

    kind: Literal["allow", "ask", "deny"]
    text: str | None = None


_ALLOW: Final = Rule("allow")

Confined: TypeAlias = bool

_WIDTHS: Final = {"read-only": 0, "workspace-write": 1, "danger-full-access": 2}


def is_inside(path: str, roots: Sequence[str]) -> bool:
    """Whether `path`, absolute and with symlinks resolved, is one of `roots` or below one."""
    for root in roots:
        if path == root or path.startswith(root if root.endswith(os.sep) else root + os.sep):
            return True
    return False


def rejected_escalation(intent: Intent) -> str:
    """The denial of a call that asked for a wider sandbox mode."""
    what = "command" if intent.effect == "execute" else "operation"
    return f'the user rejected escalating this {what} to "{intent.escalate}"'


def _escalation(intent: Intent, sandbox: str, approval: str) -> Rule:
    """An escalation is asked about each time, and only where it widens something."""
    mode = intent.escalate or ""
    if _WIDTHS[mode] <= _WIDTHS.get(sandbox, 0):
        return Rule(
            "deny",
            f'sandbox escalation to "{mode}" is not strictly wider than this call\'s current '
            f'"{sandbox}" mode',
        )
    if approval == "never":
        return Rule("deny", rejected_escalation(intent))
    return Rule("ask", intent.reason)


def rule(
    tool: str, intent: Intent, policy: PolicyFold, roots: Sequence[str], confined: Confined
) -> Rule:
    """Whether a call runs, is asked about, or is refused.

    A remembered no holds under every preset; a remembered yes never opens plan mode.
    """
    grant = policy.grants.get(grant_key(tool, intent))
    if grant == "reject":
        return Rule("deny", f'the user rejected tool "{tool}" for the rest of this session')
    sandbox, approval, plan = policy.knobs
    changes_something = intent.effect in ("write", "execute", "other")
    if plan and changes_something:
        return Rule(
            "deny",
            f'tool "{tool}" is not available in plan mode, which only reads; present the plan and '
            "wait until the user leaves plan mode",
        )
    if intent.escalate is not None:
        return _escalation(intent, sandbox, approval)
    if intent.effect == "none" or sandbox == "danger-full-access" or grant == "allow":
        return _ALLOW
    outside = next((path for path in intent.paths if not is_inside(path, roots)), None)
    if intent.effect == "read" and outside is None and intent.reason is None:
        return _ALLOW
    # What is more than it seems (hooks of version control, a file with other names, a command that
    # deletes) is asked about even where the workspace may be written.
    if sandbox == "workspace-write" and intent.reason is None:
        if intent.effect == "write" and intent.paths and outside is None:
            return _ALLOW
        if intent.effect == "execute" and confined:
            return _ALLOW
    if approval == "never":
        return Rule("deny", f'the user rejected tool "{tool}"')
    reason = intent.reason
    if reason is None and outside is not None:
        reason = f"{outside} is outside the workspace"
    return Rule("ask", reason)
