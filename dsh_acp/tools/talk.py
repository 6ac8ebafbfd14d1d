"""Turning to the person in the middle of a turn: `ask_user_question`, `exit_plan_mode`.

Questions go through `ToolContext.ask`, one form or choice after the other. Whoever asks waits; an
answer that does not come is an error that the model reads.
"""

import re
from typing import TYPE_CHECKING, Any, Final

from dsh_acp import jsontext
from dsh_acp.errors import ToolError
from dsh_acp.tools.builtin import Builtin, text_outcome
from dsh_acp.tools.tool import Outcome, ToolContext

if TYPE_CHECKING:
    from dsh_acp.tools import talk_arguments as arguments

ERROR: Final = "UserQuestionError"
APPROVE: Final = "Approve"
KEEP_PLANNING: Final = "Keep planning"
_HEADING: Final = re.compile(r"#{1,6}\s+\S")


class AskUserQuestion(Builtin):
    """Puts questions; the result is the answers as JSON, in the order of the questions."""

    name = "ask_user_question"

    async def run(self, args: "arguments.AskUserQuestion", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        if not args.questions:
            raise ToolError(
                "ask_user_question needs at least one question", code="EMPTY_QUESTIONS", name=ERROR
            )
        answers = await ctx.ask([_question(question, ctx) for question in args.questions])
        return text_outcome(jsontext.encode({"answers": answers}).decode())


def _question(question: "arguments.Question", ctx: ToolContext) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": question.id,
        "question": question.question,
        "callId": ctx.call_id,
        "multiSelect": question.multi_select is True,
    }
    if question.header:
        made["header"] = question.header
    if question.options:
        made["options"] = [
            {"label": option.label, "description": option.description}
            if option.description
            else {"label": option.label}
            for option in question.options
        ]
    return made


class ExitPlanMode(Builtin):
    """Has the plan reviewed. Approval ends plan mode with the next step, not within this one."""

    name = "exit_plan_mode"

    async def run(self, args: "arguments.ExitPlanMode", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        if not ctx.in_plan_mode:
            raise ToolError("exit_plan_mode is only available in plan mode")
        plan = args.plan.strip()
        if not _HEADING.match(plan):
            raise ToolError(
                "exit_plan_mode requires a non-empty markdown plan starting with a # heading"
            )
        review = {
            "id": "plan-review",
            "question": "Carry out this plan?",
            "header": "Plan",
            "detail": plan,
            "callId": ctx.call_id,
            "options": [
                {"label": APPROVE, "description": "leave plan mode and begin"},
                {"label": KEEP_PLANNING, "description": "stay in plan mode"},
            ],
            "intent": {"kind": "plan-review", "approve": APPROVE},
        }
        try:
            (answer,) = await ctx.ask([review])
        except ToolError as exc:
            raise ToolError(_unreviewed(exc)) from exc
        custom = str(answer.get("custom") or "").strip()
        if answer.get("selected") == [APPROVE] and not custom:
            ctx.leave_plan_mode()
            return text_outcome(
                "Plan approved — plan mode exited; carry out the plan starting with your next step."
            )
        wish = f" Their feedback:\n{custom}" if custom else " They gave no feedback."
        raise ToolError(
            "The user chose to keep planning; plan mode stays on and nothing may be changed yet."
            f"{wish}"
        )


def _unreviewed(exc: ToolError) -> str:
    if exc.code in ("ASK_CANCELLED", "NO_ANSWER"):
        return (
            "The user dismissed the review without an answer; plan mode stays on. "
            "Say briefly what is planned and wait for the user."
        )
    return (
        "no user-questions channel is available to review the plan; plan mode stays on. Give the "
        "plan in your answer and end the turn: the user leaves plan mode by choosing another mode."
    )
