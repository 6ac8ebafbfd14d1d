"""Plan mode from its choice to the approved plan, through an editor."""

from typing import Any

from acp_bench import Bench, Editor, say, use
import pytest

PLAN = "# Greet\n\nWrite `hello.txt`."
WRITE = ("w", "write", {"file_path": "hello.txt", "content": "hi\n"})
REVIEW = ("p", "exit_plan_mode", {"plan": PLAN})
FORMS = {"elicitation": {"form": {}}}


async def plan(editor: Editor, **capabilities: Any) -> dict[str, Any]:
    await editor.initialize(**capabilities)
    session = await editor.new()
    await editor.call("session/set_mode", sessionId=session, modeId="plan")
    return await editor.prompt(session, "Greet the user.")


def outcomes(editor: Editor) -> dict[str, str]:
    """The last status of each call."""
    return {
        update["toolCallId"]: update["status"]
        for update in editor.updates("tool_call_update")
        if "status" in update
    }


@pytest.mark.parametrize("forms", [True, False])
async def test_an_approved_plan_is_carried_out_under_the_earlier_permissions(
    bench: Bench, forms: bool
) -> None:
    bench.options["permission"] = "workspace-write"
    bench.script(use(WRITE, REVIEW), use(("w2", *WRITE[1:])), say("Done."))
    async with bench.editor() as editor:
        editor.answers["elicitation/create"] = lambda params: {
            "action": "accept",
            "content": {"choice": "Approve"},
        }
        editor.choose("option-0")
        assert await plan(editor, **(FORMS if forms else {})) == {"stopReason": "end_turn"}
        assert outcomes(editor) == {"w": "failed", "p": "completed", "w2": "completed"}
        assert (bench.cwd / "hello.txt").read_text(encoding="utf-8") == "hi\n"
        modes = [update["currentModeId"] for update in editor.updates("current_mode_update")]
        assert modes == ["plan", "workspace-write"]
        (asked,) = editor.asked("elicitation/create" if forms else "session/request_permission")
        if forms:
            assert asked["toolCallId"] == "p" and asked["message"].endswith(PLAN)
        else:
            assert asked["toolCall"]["toolCallId"] == "p"
            assert PLAN in asked["toolCall"]["content"][0]["content"]["text"]
            assert [(o["name"], o["kind"]) for o in asked["options"]] == [
                ("Approve", "allow_once"),
                ("Keep planning", "reject_once"),
            ]


async def test_a_call_beside_the_review_is_still_refused(bench: Bench) -> None:
    bench.script(use(REVIEW, WRITE), say("Done."))
    async with bench.editor() as editor:
        editor.choose("option-0")
        await plan(editor)
        assert outcomes(editor) == {"p": "completed", "w": "failed"}
        assert not (bench.cwd / "hello.txt").exists()


async def test_a_plan_that_is_not_approved_keeps_plan_mode(bench: Bench) -> None:
    bench.script(use(REVIEW), use(WRITE), say("I wait."))
    async with bench.editor() as editor:
        editor.choose("option-1")
        await plan(editor)
        assert outcomes(editor) == {"p": "failed", "w": "failed"}
        assert [u["currentModeId"] for u in editor.updates("current_mode_update")] == ["plan"]
        assert b"chose to keep planning" in bench.model.requests[1].messages[-1].json


async def test_cancelling_a_review_cancels_the_turn_and_stays_in_plan_mode(bench: Bench) -> None:
    bench.script(use(REVIEW))
    async with bench.editor() as editor:
        editor.choose("cancelled")
        assert await plan(editor) == {"stopReason": "cancelled"}
        assert outcomes(editor)["p"] == "failed"
