"""The parts of one live session that its loop, calls and commands work with."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, field

from dsh_acp.agent.folds import Folds
from dsh_acp.agent.hooks import Live
from dsh_acp.agent.inbox import Inbox
from dsh_acp.agent.options import Options
from dsh_acp.agent.permission import Gate
from dsh_acp.agent.policy import PolicyFold
from dsh_acp.agent.request import Requests
from dsh_acp.agent.seen import SeenFold
from dsh_acp.agent.services import Errand, LiveCall, LiveOutput, Services
from dsh_acp.agent.titles import TitleFold
from dsh_acp.agent.usage import UsageFold
from dsh_acp.log.session_log import SessionLog
from dsh_acp.tools.skills import Shelf
from dsh_acp.tools.tool import Agents


class Parts(Struct, frozen=True, kw_only=True, eq=False):
    """One of each, sharing one log. `tool_state` belongs to the tools."""

    live: Live
    log: SessionLog
    services: Services
    folds: Folds
    inbox: Inbox
    options: Options
    policy: PolicyFold
    gate: Gate
    requests: Requests
    seen: SeenFold
    titles: TitleFold
    usage: UsageFold
    shelf: Shelf
    spill_dir: str
    show: Callable[[LiveOutput | LiveCall], None]
    delegate: Callable[[Errand, str], Awaitable[str]]
    """Have a subagent do an errand for the call of that id."""
    agents: Callable[[], Agents]
    """The subagents in the background."""
    tool_state: dict[str, Any] = field(default_factory=dict[str, Any])
