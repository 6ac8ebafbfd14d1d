"""Endpoints that are strict about the history, and models that are not there."""

from collections.abc import Callable
from typing import Any

from e2e_agent import Agent, bash, bodies
import pytest

from dsh_acp.llm.fake import FakeLlm, Recorded

Start = Callable[..., Agent]

STRICT = {
    "status": 400,
    "error": {
        "message": "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "type": "invalid_request_error",
        "code": "invalid_request_error",
    },
}


def option(agent: Agent, session: str, id: str, value: str) -> None:
    frame = agent.call("session/set_config_option", sessionId=session, configId=id, value=value)
    assert "result" in frame, frame


def strict(record: Recorded) -> Any:
    """DeepSeek while it thinks: every earlier answer has to come with its thoughts."""
    body = record.json
    if not body.get("tools"):
        return {"text": "A title"}
    answers = [m for m in body["messages"] if m["role"] == "assistant"]
    thinks = body.get("thinking", {}).get("type") != "disabled"
    if thinks and any("reasoning_content" not in answer for answer in answers):
        return STRICT
    thought = f"thought {len(answers)}" if thinks else ""
    if body["messages"][-1]["role"] == "tool":
        return {"reasoning": thought, "text": "done"}
    number = len(answers)
    return {"reasoning": thought, "tool_calls": [bash(f"c{number}", f"echo {number}")]}


@pytest.fixture
def deepseek(start: Start, fake: FakeLlm) -> Agent:
    env = {"DEEPSEEK_BASE_URL": fake.url, "DEEPSEEK_API_KEY": "sk-e2e-secret"}
    return start(
        DSH_ACP_MODEL="deepseek/deepseek-v4-flash", DSH_ACP_PERMISSION="full-access", **env
    )


@pytest.mark.parametrize("efforts", [("high", "high", "high"), ("off", "high", "off", "high")])
def test_a_provider_that_wants_its_thoughts_back_gets_them(
    deepseek: Agent, fake: FakeLlm, efforts: tuple[str, ...]
) -> None:
    fake.use(strict)
    session = deepseek.open()
    for effort in efforts:
        option(deepseek, session, "thought_level", effort)
        frame = deepseek.prompt(session, f"think {effort}")
        assert frame.get("result") == {"stopReason": "end_turn"}, frame
    sent = bodies(fake)
    assert len(sent) == 2 * len(efforts)
    kept = [m["reasoning_content"] for m in sent[-1]["messages"] if m["role"] == "assistant"]
    assert kept == [
        f"thought {number}" if efforts[number // 2] == "high" else ""
        for number in range(2 * len(efforts) - 1)
    ]


def test_a_model_that_is_not_there_is_named_with_those_that_are(start: Start) -> None:
    def choose(record: Recorded) -> Any:
        return "success" if record.json["model"] == "newer" else "model_not_found"

    with FakeLlm(choose, models=("newer", "newest")) as fake:
        agent = start(fake=fake, DSH_ACP_MODEL="openai/retired")
        session = agent.open()
        agent.until(lambda frame: "openai/newer" in str(frame))
        error = agent.prompt(session)["error"]
        assert "retired" in error["message"]
        assert "known are newer, newest, " in error["message"]
        option(agent, session, "model", "openai/newer")
        assert agent.prompt(session)["result"] == {"stopReason": "end_turn"}
