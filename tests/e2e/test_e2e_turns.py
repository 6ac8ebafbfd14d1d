"""Streaming, ordering and cancelling, over real pipes and a real connection to the model."""

from collections.abc import Callable
import json
from typing import Any

from e2e_agent import Agent, Frame, bash, bodies, is_update, log_of, script, tool
import pytest

from dsh_acp.llm.fake import FakeLlm

Start = Callable[..., Agent]
CANCELLED = {"stopReason": "cancelled"}
DONE = {"stopReason": "end_turn"}


def sse(*values: Any) -> str:
    return "".join(f"data: {json.dumps(value)}\n\n" for value in values) + "data: [DONE]\n\n"


def position(agent: Agent, matches: Callable[[Frame], Any]) -> int:
    return next(at for at, frame in enumerate(agent.frames) if matches(frame))


# ---------------------------------------------------------------- streaming


def test_a_slow_reader_gets_all_of_a_long_stream_before_the_answer(
    start: Start, fake: FakeLlm
) -> None:
    fake.use(script({"text": "tiny ", "deltas": 5000}))
    agent = start()
    session = agent.open()
    agent.reading.clear()
    id = agent.start_prompt(session)
    assert fake.wait_for_requests(1, 20)
    assert fake.wait_for_outcomes(20)
    agent.reading.set()
    assert agent.response(id)["result"] == DONE
    answered = position(agent, lambda f: f.get("id") == id and "result" in f)
    text = [f["params"]["update"] for f in agent.frames[:answered] if is_update(f)]
    said = [u for u in text if u["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(u["content"]["text"] for u in said) == "tiny " * 5000
    assert agent.close() == 0
    late = [f for f in agent.frames[answered:] if is_update(f)]
    assert {f["params"]["update"]["sessionUpdate"] for f in late} <= {"session_info_update"}


def test_a_session_is_named_before_anything_is_said_about_it(agent: Agent, fake: FakeLlm) -> None:
    fake.use(script())
    session = agent.open()
    named = position(agent, lambda f: session in json.dumps(f.get("result", "")))
    first = agent.until_update(sessionUpdate="available_commands_update")
    assert agent.frames.index(first) == named + 1
    assert all(session not in json.dumps(f) for f in agent.frames[:named])
    agent.prompt(session, "first")
    # At a load everything comes before the answer, and nothing behind it.
    seen = len(agent.frames)
    agent.load(session)
    agent.call("session/list")
    kinds = [
        f["params"]["update"]["sessionUpdate"] if is_update(f) else "answer"
        for f in agent.frames[seen:]
    ]
    assert kinds.index("user_message_chunk") < kinds.index("agent_message_chunk")
    assert kinds.index("agent_message_chunk") < kinds.index("available_commands_update")
    assert kinds[kinds.index("answer") :] == ["answer", "answer"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            [
                {"choices": [{"index": 0, "delta": {"content": "Hel"}}]},
                {"choices": [{"index": 0, "delta": {"content": "lo"}}]},
                {
                    "choices": [
                        {
                            "index": 0,
                            "delta": {},
                            "message": {"role": "assistant", "content": "Hello"},
                            "finish_reason": "stop",
                        }
                    ]
                },
            ],
            "Hello",
        ),
        (
            [
                {
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", "content": "Whole"},
                            "finish_reason": "stop",
                        }
                    ]
                }
            ],
            "Whole",
        ),
    ],
)
def test_a_finished_message_is_never_said_twice(
    agent: Agent, fake: FakeLlm, values: list[Any], text: str
) -> None:
    fake.use(script({"sse": sse(*values)}))
    session = agent.open()
    assert agent.prompt(session)["result"] == DONE
    assert agent.said() == text


def test_messages_are_told_apart_by_their_ids(agent: Agent, fake: FakeLlm) -> None:
    fake.use(
        script(
            {"reasoning": "T", "text": "A1A2A3A4A5A6", "tool_calls": [bash("c1", "echo hi")]},
            {"text": "B"},
            {"text": "C"},
        )
    )
    session = agent.open()
    agent.prompt(session, "one")
    agent.prompt(session, "two")
    found: dict[str, str] = {}
    for update in agent.updates():
        if update["sessionUpdate"] in ("agent_message_chunk", "agent_thought_chunk"):
            found.setdefault(update["messageId"], "")
            found[update["messageId"]] += update["content"]["text"]
    assert sorted(found.values()) == ["A1A2A3A4A5A6", "B", "C", "T"]


def test_a_piece_is_shown_before_the_next_one_exists(agent: Agent, fake: FakeLlm) -> None:
    held = {"reasoning": "thinking", "text": "one two three", "chunk_size": 8, "hold_after": 1}
    fake.use(script(held))
    session = agent.open()
    id = agent.start_prompt(session)
    agent.until_update(sessionUpdate="agent_thought_chunk")
    assert agent.said() == ""
    fake.release()
    assert agent.response(id)["result"] == DONE
    assert agent.said() == "one two three"


def test_output_of_a_command_is_shown_while_it_runs(agent: Agent, fake: FakeLlm) -> None:
    gate = agent.cwd / "gate"
    command = f"echo early; while [ ! -e {gate} ]; do sleep 0.02; done; echo late"
    fake.use(script({"tool_calls": [bash("c1", command)]}))
    session = agent.open()
    id = agent.start_prompt(session)
    agent.until(
        lambda f: (
            is_update(f)
            and "early" in json.dumps(f)
            and "gate" not in json.dumps(f["params"]["update"].get("content", ""))
        )
    )
    gate.touch()
    assert agent.response(id)["result"] == DONE
    assert "late" in json.dumps(agent.updates("tool_call_update"))


def test_plans_are_complete_and_come_back_at_a_load(start: Start, fake: FakeLlm) -> None:
    states = [
        ("in_progress", "pending", "pending"),
        ("completed", "in_progress", "pending"),
        ("completed", "completed", "completed"),
    ]
    names = ("look", "change", "test")
    calls = [
        tool(
            f"c{n}",
            "todo_write",
            todos=[{"content": c, "status": s} for c, s in zip(names, state, strict=True)],
        )
        for n, state in enumerate(states)
    ]
    fake.use(script(*({"tool_calls": [call]} for call in calls)))
    agent = start()
    session = agent.open()
    assert agent.prompt(session)["result"] == DONE
    plans = agent.updates("plan")
    assert [tuple(e["status"] for e in p["entries"]) for p in plans] == states
    assert all([e["content"] for e in p["entries"]] == list(names) for p in plans)
    agent.close()
    again = start()
    again.initialize()
    again.load(session)
    assert again.updates("plan")[-1] == plans[-1]


@pytest.mark.parametrize("end", ["partial_cut", "partial_eof", "partial_disconnect", "html"])
def test_an_answer_that_breaks_off_still_ends_the_prompt(
    agent: Agent, fake: FakeLlm, end: str
) -> None:
    fake.use(script(end, {"text": "whole"}))
    session = agent.open()
    frame = agent.prompt(session, "first")
    assert "result" in frame or frame["error"]["message"]
    assert agent.prompt(session, "second")["result"] == DONE


def test_a_helper_that_never_ends_holds_up_nothing(agent: Agent, fake: FakeLlm) -> None:
    # The title is asked for behind the first turn; its endpoint never answers.
    fake.use(lambda record: "success" if record.json.get("tools") else "stall")
    session = agent.open()
    assert agent.prompt(session, "one")["result"] == DONE
    assert agent.prompt(session, "two")["result"] == DONE
    assert agent.close() == 0


# ---------------------------------------------------------------- cancelling


def test_a_question_that_nobody_answers_does_not_hold_a_cancel(agent: Agent, fake: FakeLlm) -> None:
    fake.use(script({"tool_calls": [bash("c1", "touch ran")]}, "success"))
    agent.permission = None
    session = agent.open()
    id = agent.start_prompt(session)
    asked = agent.until(lambda f: f.get("method") == "session/request_permission")
    agent.notify("session/cancel", sessionId=session)
    assert agent.response(id)["result"] == CANCELLED
    option = asked["params"]["options"][0]["optionId"]
    seen = len(agent.frames)
    agent.reply(asked, {"outcome": {"outcome": "selected", "optionId": option}})
    agent.call("session/list")
    assert [f for f in agent.frames[seen:] if is_update(f)] == []
    assert agent.prompt(session, "next")["result"] == DONE
    assert not (agent.cwd / "ran").exists()


def test_a_question_answered_cancelled_after_a_cancel_is_a_cancelled_turn(
    agent: Agent, fake: FakeLlm
) -> None:
    fake.use(script({"tool_calls": [bash("c1", "touch ran")]}, "success"))
    agent.permission = None
    session = agent.open()
    id = agent.start_prompt(session)
    asked = agent.until(lambda f: f.get("method") == "session/request_permission")
    agent.notify("session/cancel", sessionId=session)
    agent.reply(asked, {"outcome": {"outcome": "cancelled"}})
    assert agent.response(id)["result"] == CANCELLED
    assert not (agent.cwd / "ran").exists()
    assert len(bodies(fake)) == 1
    assert agent.prompt(session, "next")["result"] == DONE


MID_ARGUMENTS = {
    "sse": "data: "
    + json.dumps(
        {
            "choices": [
                {
                    "index": 0,
                    "delta": {
                        "tool_calls": [
                            {
                                "index": 0,
                                "id": "c1",
                                "function": {"name": "bash", "arguments": '{"command":"touch '},
                            }
                        ]
                    },
                }
            ]
        }
    )
    + "\n\n",
    "end": "stall",
}


@pytest.mark.parametrize(
    "phase",
    ["before a byte", "mid-text", "mid-arguments", "tool", "question", "back-off", "no server"],
)
def test_a_cancel_in_any_phase_leaves_a_session_that_works(
    start: Start, fake: FakeLlm, phase: str
) -> None:
    replies: dict[str, Any] = {
        "before a byte": "stall",
        "mid-text": "partial_stall",
        "mid-arguments": MID_ARGUMENTS,
        "tool": {"tool_calls": [bash("c1", "echo up; sleep 1000")]},
        "question": {"tool_calls": [bash("c1", "touch ran")]},
        "back-off": {
            "status": 429,
            "headers": {"retry-after": "120"},
            "error": {"message": "slow down", "type": "rate_limit", "code": "rate_limit"},
        },
        "no server": "connection_reset",
    }
    choose = script(replies[phase], *([replies[phase]] * 20 if phase == "no server" else []))
    fake.use(choose)
    agent = start()
    agent.permission = None if phase == "question" else "allow_once"
    session = agent.open()
    id = agent.start_prompt(session, "first")
    match phase:
        case "mid-text":
            agent.until_update(sessionUpdate="agent_message_chunk")
        case "tool":
            agent.until(
                lambda f: (
                    is_update(f)
                    and "up" in json.dumps(f)
                    and f["params"]["update"]["sessionUpdate"] == "tool_call_update"
                )
            )
        case "question":
            agent.until(lambda f: f.get("method") == "session/request_permission")
        case "back-off":
            agent.until(lambda f: is_update(f) and "slow down" in json.dumps(f))
        case _:
            assert fake.wait_for_requests(1, 20)
    agent.notify("session/cancel", sessionId=session)
    assert agent.response(id)["result"] == CANCELLED
    sent = len(bodies(fake))
    statuses = {u["toolCallId"]: u["status"] for u in agent.updates() if "status" in u}
    assert set(statuses.values()) <= {"failed"}
    fake.use(script({"text": "fresh"}))
    assert agent.prompt(session, "second")["result"] == DONE
    assert agent.said().endswith("fresh")
    assert len(bodies(fake)) == sent + 1
    assert not (agent.cwd / "ran").exists()


def test_open_calls_end_before_the_cancelled_answer_and_the_history_stays_valid(
    start: Start, fake: FakeLlm
) -> None:
    calls = [bash("call_a", "echo up; sleep 1000"), bash("call_b", "touch ran")]
    fake.use(script({"text": "Two.", "tool_calls": calls}))
    agent = start(DSH_ACP_PERMISSION="full-access")
    session = agent.open()
    id = agent.start_prompt(session, "first")
    agent.until(lambda f: is_update(f) and f["params"]["update"].get("status") == "in_progress")
    agent.notify("session/cancel", sessionId=session)
    assert agent.response(id)["result"] == CANCELLED
    answered = position(agent, lambda f: f.get("id") == id and "result" in f)
    last: dict[str, str] = {}
    for frame in filter(is_update, agent.frames[:answered]):
        update = frame["params"]["update"]
        if "toolCallId" in update:
            last[update["toolCallId"]] = update.get("status", last.get(update["toolCallId"], ""))
    assert list(last.values()) == ["failed", "failed"]
    assert agent.prompt(session, "second")["result"] == DONE
    assert not [
        f for f in agent.frames[answered:] if is_update(f) and "toolCallId" in f["params"]["update"]
    ]
    messages = bodies(fake)[-1]["messages"]
    made = [c["id"] for m in messages for c in m.get("tool_calls") or ()]
    results = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    assert made == results == ["call_a", "call_b"]
    at = next(k for k, m in enumerate(messages) if m.get("tool_calls"))
    assert [m["role"] for m in messages[at + 1 : at + 3]] == ["tool", "tool"]
    assert not (agent.cwd / "ran").exists()
    log_of(agent.home, session)


def test_a_second_prompt_waits_for_the_first(agent: Agent, fake: FakeLlm) -> None:
    fake.use(script({"text": "one", "hold_after": 1, "chunk_size": 1}, {"text": "two"}))
    session = agent.open()
    first = agent.start_prompt(session, "3")
    agent.until_update(sessionUpdate="agent_message_chunk")
    second = agent.start_prompt(session, "4")
    agent.call("session/list")
    assert len(bodies(fake)) == 1
    fake.release()
    assert agent.response(first)["result"] == DONE
    assert agent.response(second)["result"] == DONE
    assert agent.said() == "onetwo"
    answers = [f["id"] for f in agent.frames if f.get("result") == DONE]
    assert answers == [first, second]


def test_waiting_prompts_run_one_by_one_and_a_cancel_ends_them_all(
    agent: Agent, fake: FakeLlm
) -> None:
    fake.use(script({"text": "x", "hold_after": 0}, "partial_stall", {"text": "after"}))
    session = agent.open()
    running = agent.start_prompt(session, "3")
    assert fake.wait_for_requests(1, 20)
    ids = [100, 101, 102]
    agent.send(
        *(
            {
                "jsonrpc": "2.0",
                "id": id,
                "method": "session/prompt",
                "params": {"sessionId": session, "prompt": [{"type": "text", "text": str(id)}]},
            }
            for id in ids
        )
    )
    agent.call("session/list")
    fake.release()
    assert agent.response(running)["result"] == DONE
    agent.until(lambda f: is_update(f) and "discarded" in json.dumps(f))
    assert len(bodies(fake)) == 2
    agent.notify("session/cancel", sessionId=session)
    assert [agent.response(id)["result"] for id in ids] == [CANCELLED] * 3
    assert agent.prompt(session, "7")["result"] == DONE
    words = [m["content"] for m in bodies(fake)[-1]["messages"] if m["role"] == "user"]
    assert not any("101" in str(w) or "102" in str(w) for w in words)
    assert len(bodies(fake)) == 3


def test_one_request_is_cancelled_by_its_id(agent: Agent, fake: FakeLlm) -> None:
    fake.use(script("partial_stall", "success"))
    session = agent.open()
    id = agent.start_prompt(session, "go")
    agent.until_update(sessionUpdate="agent_message_chunk")
    agent.notify("$/cancel_request", requestId="unknown")
    agent.notify("$/cancel_request", requestId=id)
    frame = agent.response(id)
    assert frame.get("result") == CANCELLED or frame["error"]["code"] == -32800
    assert agent.prompt(session, "next")["result"] == DONE
