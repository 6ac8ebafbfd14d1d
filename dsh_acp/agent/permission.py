"""Approval before effects: the rules decide, or the person does.

Each question is a pair of events in the log, whatever became of it. No answer is a no: a front
end that is gone, refuses or fails never lets a call through.
"""

import logging
from typing import Final, Literal, TypeAlias

import anyio
from msgspec import Struct

from dsh_acp.agent import policy
from dsh_acp.agent.services import Asker, Decision, PermissionQuestion
from dsh_acp.log.plugin_payloads import (
    ApprovalAsked,
    ApprovalDecided,
    PermissionGrant,
    PermissionRevoke,
)
from dsh_acp.log.session_log import SessionLog
from dsh_acp.messages import UNSET, new_id
from dsh_acp.tools.tool import Intent

__all__ = ["Asker", "Decision", "Gate", "PermissionQuestion", "Ruling"]

_log = logging.getLogger(__name__)

Outcome: TypeAlias = Literal["allowed-once", "rejected", "cancelled", "unavailable"]

_OUTCOMES: Final[dict[str, Outcome]] = {
    "allow_once": "allowed-once",
    "allow_always": "allowed-once",
    "reject_once": "rejected",
    "reject_always": "rejected",
    "cancelled": "cancelled",
}


class Ruling(Struct, frozen=True):
    """What became of a call's request to run; `denial` is `None` when it may."""

    denial: str | None = None
    cancelled: bool = False


ALLOWED: Final = Ruling()


class Gate:
    """Puts questions to the person and remembers what they said."""

    def __init__(self, log: SessionLog, asker: Asker) -> None:
        self._log = log
        self._asker = asker

    async def ask(self, question: PermissionQuestion) -> Ruling:
        """The person's ruling on one call.

        Cancellation ends the wait at once, records the question as cancelled and re-raises; an
        answer that comes later reaches nobody.
        """
        asked = new_id()
        self._log.append(
            ApprovalAsked(asked, question.tool, question.call_id, question.reason or UNSET)
        )
        try:
            decision = await self._answer(question)
        except anyio.get_cancelled_exc_class():
            self._log.append(ApprovalDecided(asked, "cancelled"))
            raise
        outcome = _OUTCOMES.get(decision, "unavailable")
        self._log.append(ApprovalDecided(asked, outcome))
        # A client may answer what it was not offered.
        if decision in ("allow_always", "reject_always") and decision in question.choices:
            self.remember(question, decision)
        if question.intent.escalate is not None:
            return _escalation_ruling(question.intent, outcome)
        return _ruling(question.tool, outcome)

    async def _answer(self, question: PermissionQuestion) -> Decision:
        try:
            return await self._asker.permission(question)
        except Exception as exc:  # noqa: BLE001 - a front end that fails must not let a call through
            _log.warning("no answer to a permission question: %s", exc)
            return "unavailable"

    def remember(self, question: PermissionQuestion, decision: Decision) -> None:
        """Record an answer for good; the next such call is not asked about."""
        key = policy.grant_key(question.tool, question.intent)
        self._log.append(
            PermissionGrant(
                scope_kind=key.scope_kind,
                tool=key.tool,
                scope=key.scope,
                decision="allow" if decision == "allow_always" else "reject",
            )
        )

    def revoke(self, key: policy.GrantKey) -> None:
        """Forget a remembered answer; the next such call is asked about again."""
        self._log.append(
            PermissionRevoke(scope_kind=key.scope_kind, tool=key.tool, scope=key.scope)
        )

    def revoke_all(self) -> None:
        """Forget every remembered answer."""
        self._log.append(PermissionRevoke())


def _escalation_ruling(intent: Intent, outcome: Outcome) -> Ruling:
    mode = intent.escalate
    match outcome:
        case "allowed-once":
            return ALLOWED
        case "rejected":
            return Ruling(policy.rejected_escalation(intent))
        case "cancelled":
            return Ruling(f'approval for escalating to "{mode}" was cancelled', cancelled=True)
        case "unavailable":
            return Ruling(
                f'escalating to "{mode}" requires approval, but no approval channel is available'
            )


def _ruling(tool: str, outcome: Outcome) -> Ruling:
    match outcome:
        case "allowed-once":
            return ALLOWED
        case "rejected":
            return Ruling(f'the user rejected tool "{tool}"')
        case "cancelled":
            return Ruling(f'approval for tool "{tool}" was cancelled', cancelled=True)
        case "unavailable":
            return Ruling(f'tool "{tool}" requires approval, but no approval channel is available')
