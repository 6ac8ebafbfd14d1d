"""Turning to the person: questions, and the review of a plan."""

from typing import Any

import pytest
from workbench import Workbench

from dsh_acp.errors import ToolError

PLAN = "# Rename the door\n\n1. `door.py`: rename."
APPROVED = "Plan approved — plan mode exited; carry out the plan starting with your next step."


async def test_answers_come_back_as_json_in_the_order_of_the_questions(bench: Workbench) -> None:
    bench.answers = [{"id": "a", "selected": ["Red"]}, {"id": "b", "selected": [], "custom": "x"}]
    questions = [
        {
            "id": "a",
            "question": "Which?",
            "header": "Colour",
            "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
            "multi_select": True,
        },
        {"id": "b", "question": "Why?"},
    ]
    assert await bench.text("ask_user_question", questions=questions) == (
        '{"answers":[{"id":"a","selected":["Red"]},{"id":"b","selected":[],"custom":"x"}]}'
    )
    assert bench.asked == [
        {
            "id": "a",
            "question": "Which?",
            "callId": "call_1",
            "multiSelect": True,
            "header": "Colour",
            "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
        },
        {"id": "b", "question": "Why?", "callId": "call_1", "multiSelect": False},
    ]


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ([], "ask_user_question needs at least one question"),
        ([{"id": "a", "question": "x"}] * 2, "each question needs an id of its own"),
        ([{"id": "a", "question": " "}], "question must be a non-empty string"),
    ],
)
async def test_odd_questions_are_refused_unasked(
    bench: Workbench, questions: Any, message: str
) -> None:
    refusal = await _refused(bench, "ask_user_question", questions=questions)
    assert refusal.message == message and not bench.asked


async def test_questions_written_as_text_are_understood(bench: Workbench) -> None:
    bench.answers = [{"id": "a", "selected": ["x"]}]
    await bench.text("ask_user_question", questions='[{"id": "a", "question": "Which?"}]')
    assert bench.asked[0]["question"] == "Which?"


async def test_an_approved_plan_ends_plan_mode(bench: Workbench) -> None:
    bench.in_plan_mode = True
    bench.answers = [{"id": "plan-review", "selected": ["Approve"]}]
    assert await bench.text("exit_plan_mode", plan=PLAN) == APPROVED
    assert not bench.in_plan_mode
    (review,) = bench.asked
    assert review["detail"] == PLAN and review["callId"] == "call_1"
    assert review["intent"] == {"kind": "plan-review", "approve": "Approve"}
    assert [option["label"] for option in review["options"]] == ["Approve", "Keep planning"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"selected": ["Keep planning"]}, "They gave no feedback."),
        ({"selected": [], "custom": "also the window"}, "Their feedback:\nalso the window"),
        ({"selected": ["Approve"], "custom": "but wait"}, "Their feedback:\nbut wait"),
        ({"selected": ["Approve", "Keep planning"]}, "They gave no feedback."),
    ],
)
async def test_anything_but_plain_approval_keeps_planning(
    bench: Workbench, answer: dict[str, Any], words: str
) -> None:
    bench.in_plan_mode = True
    bench.answers = [answer]
    refusal = await bench.refusal("exit_plan_mode", plan=PLAN)
    assert refusal.message.startswith("The user chose to keep planning; ")
    assert refusal.message.endswith(words) and bench.in_plan_mode


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("ASK_CANCELLED", "The user dismissed the review"),
        ("NO_CHANNEL", "no user-questions channel is available to review the plan; "),
    ],
)
async def test_a_review_without_an_answer_leaves_plan_mode_on(
    bench: Workbench, code: str, words: str
) -> None:
    bench.in_plan_mode = True
    bench.answers = ToolError("no", code=code)
    refusal = await bench.refusal("exit_plan_mode", plan=PLAN)
    assert refusal.message.startswith(words) and bench.in_plan_mode


@pytest.mark.parametrize("plan", ["", "no heading", "#", "#hash", "text\n# late"])
async def test_a_plan_begins_with_a_heading(bench: Workbench, plan: str) -> None:
    bench.in_plan_mode = True
    assert (await bench.refusal("exit_plan_mode", plan=plan)).message == (
        "exit_plan_mode requires a non-empty markdown plan starting with a # heading"
    )


async def test_there_is_nothing_to_leave_outside_plan_mode(bench: Workbench) -> None:
    refusal = await bench.refusal("exit_plan_mode", plan=PLAN)
    assert refusal.message == "exit_plan_mode is only available in plan mode"


def test_cards_show_the_question_and_the_plan(bench: Workbench) -> None:
    card = bench.call_card("ask_user_question", questions=[{"id": "a", "question": "Which?"}])
    assert card.title == "Which?"
    assert bench.call_card("ask_user_question", questions=[]).title == "ask_user_question"
    plan = bench.call_card("exit_plan_mode", plan=PLAN)
    assert (plan.title, plan.kind) == ("Rename the door", "switch_mode")
    assert plan.content is not None and plan.content[0].text == PLAN  # type: ignore[union-attr]


async def _refused(bench: Workbench, name: str, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await bench.call(name, **arguments)
    return caught.value
