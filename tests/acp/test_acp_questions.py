import json
from typing import Any

import pytest

from dsh_acp.acp.client import Client
from dsh_acp.acp.codec import Asking
from dsh_acp.acp.permission import EditorAsker
from dsh_acp.errors import ToolError
from dsh_acp.wire.frames import RpcError

COLOUR = {
    "id": "q1",
    "question": "Which colour?",
    "header": "Colour",
    "detail": "It is for the door.",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
}
FREE = {"id": "q2", "question": "What name?"}
MANY = {**COLOUR, "multiSelect": True}


class Desk:
    """A desk whose client answers as told."""

    id = "S"

    def __init__(self, answer: Any, *, forms: bool = True) -> None:
        self.client = Client(forms=forms)
        self.answer = answer
        self.asked: list[tuple[str, Any]] = []
        self.cancelled = 0

    async def caught_up(self) -> None: ...

    def permission(self, asking: Asking) -> dict[str, Any]:
        subject = {"toolCallId": asking.call_id, "title": asking.card.title}
        return {"toolCall": subject, "options": asking.options}

    def public_call_id(self, call_id: str) -> str:
        return call_id

    def cancel_turn(self) -> None:
        self.cancelled += 1

    async def ask(self, method: str, params: Any) -> bytes:
        self.asked.append((method, params))
        if isinstance(self.answer, RpcError):
            raise self.answer
        return json.dumps(self.answer).encode()


def asker(desk: Desk) -> EditorAsker:
    made = EditorAsker()
    made.desk = desk
    return made


@pytest.mark.parametrize(
    ("question", "content", "answer"),
    [
        (COLOUR, {"choice": "Red"}, {"id": "q1", "selected": ["Red"]}),
        (COLOUR, {"choice": "Red", "custom": " "}, {"id": "q1", "selected": ["Red"]}),
        (COLOUR, {"choice": "Red", "custom": "G"}, {"id": "q1", "selected": [], "custom": "G"}),
        (MANY, {"choice": ["Red", "Blue"]}, {"id": "q1", "selected": ["Red", "Blue"]}),
        (FREE, {"custom": "Bo"}, {"id": "q2", "selected": [], "custom": "Bo"}),
    ],
)
async def test_a_form_is_answered(question: Any, content: Any, answer: Any) -> None:
    desk = Desk({"action": "accept", "content": content})
    assert await asker(desk).questions([question]) == [answer]
    ((method, params),) = desk.asked
    assert method == "elicitation/create" and params["mode"] == "form"
    assert params["sessionId"] == "S" and params["message"].startswith(question["question"])
    schema = params["requestedSchema"]
    assert schema["type"] == "object" and set(schema["required"]) <= set(schema["properties"])


async def test_a_form_shows_the_detail_and_the_descriptions() -> None:
    desk = Desk({"action": "accept", "content": {"choice": "Red"}})
    await asker(desk).questions([COLOUR])
    params = desk.asked[0][1]
    assert params["message"] == "Which colour?\n\nIt is for the door."
    choice = params["requestedSchema"]["properties"]["choice"]
    assert choice["oneOf"][0] == {"const": "Red", "title": "Red: warm"}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"action": "decline"}, "ASK_CANCELLED"),
        ({"action": "cancel"}, "ASK_CANCELLED"),
        ({}, "ASK_CANCELLED"),
        ({"action": "accept"}, "NO_ANSWER"),
        ({"action": "accept", "content": {"choice": "", "custom": " "}}, "NO_ANSWER"),
        (RpcError(-32602, "no"), "ASK_FAILED"),
    ],
)
async def test_no_answer_is_told_apart(answer: Any, code: str) -> None:
    with pytest.raises(ToolError) as caught:
        await asker(Desk(answer)).questions([COLOUR])
    assert caught.value.code == code


async def test_without_forms_the_options_are_buttons() -> None:
    desk = Desk({"outcome": {"outcome": "selected", "optionId": "option-1"}}, forms=False)
    assert await asker(desk).questions([COLOUR]) == [{"id": "q1", "selected": ["Blue"]}]
    method, params = desk.asked[0]
    assert method == "session/request_permission"
    assert [option["name"] for option in params["options"]] == ["Red", "Blue", "None of these"]


@pytest.mark.parametrize(
    ("outcome", "cancels"),
    [({"outcome": "cancelled"}, 1), ({"outcome": "selected", "optionId": "none"}, 0)],
)
async def test_buttons_can_be_declined(outcome: Any, cancels: int) -> None:
    desk = Desk({"outcome": outcome}, forms=False)
    with pytest.raises(ToolError) as caught:
        await asker(desk).questions([COLOUR])
    assert caught.value.code == "ASK_CANCELLED" and desk.cancelled == cancels


async def test_free_answers_need_forms() -> None:
    with pytest.raises(ToolError) as caught:
        await asker(Desk({}, forms=False)).questions([FREE])
    assert caught.value.code == "NO_CHANNEL"
