"""Subagents as the editor's user sees them."""

from typing import Any

from acp_bench import Bench, Editor, forever, say, use
import anyio
import pytest

ERRAND = {"description": "Greet", "prompt": "Write hello.txt."}
WRITE = {"file_path": "hello.txt", "content": "hi\n"}


def statuses(editor: Editor, id: str) -> list[str]:
    updates = [*editor.updates("tool_call"), *editor.updates("tool_call_update")]
    return [u["status"] for u in updates if u["toolCallId"] == id and "status" in u]


@pytest.mark.parametrize(
    ("option", "last"), [("allow-once", "completed"), ("reject-once", "failed")]
)
async def test_a_subagents_call_is_asked_about_in_the_parents_session(
    bench: Bench, option: str, last: str
) -> None:
    bench.script(
        use(("s", "subagent", ERRAND)), use(("w", "write", WRITE)), say("Did it."), say("Done.")
    )
    async with bench.editor() as editor:
        editor.choose(option)
        await editor.initialize()
        session = await editor.new()
        assert await editor.prompt(session, "Go.") == {"stopReason": "end_turn"}
        (asked,) = editor.asked("session/request_permission")
        assert asked["sessionId"] == session and asked["toolCall"]["toolCallId"] == "s/w"
        kinds = [update.get("toolCallId") for update in editor.updates("tool_call", session)]
        assert kinds == ["s", "s/w"]
        request = next(f for f in editor.frames if f.get("method") == "session/request_permission")
        shown = next(
            f
            for f in editor.frames
            if f.get("params", {}).get("update", {}).get("toolCallId") == "s/w"
        )
        assert editor.frames.index(shown) < editor.frames.index(request)
        assert statuses(editor, "s/w")[0] == "pending" and statuses(editor, "s/w")[-1] == last
        assert statuses(editor, "s")[-1] == "completed"
        assert (bench.cwd / "hello.txt").exists() is (last == "completed")


async def test_progress_is_shown_in_the_parents_card_and_the_result_replaces_it(
    bench: Bench,
) -> None:
    bench.file("a.txt", "x")
    read = ("r", "read", {"file_path": "a.txt"})
    reached, go = anyio.Event(), anyio.Event()

    async def wait() -> None:
        reached.set()
        await go.wait()

    bench.script(use(("s", "subagent", ERRAND)), use(read), [wait, *say("An x.")], say("Done."))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        prompt = editor.start("session/prompt", sessionId=session, prompt=_text("Go."))
        await reached.wait()

        def contents() -> list[Any]:
            return [
                update["content"][0]["content"]["text"]
                for update in editor.updates("tool_call_update")
                if update["toolCallId"] == "s" and update.get("content")
            ]

        await editor.until(lambda: "- Read a.txt\n" in contents())
        go.set()
        await editor.response(prompt)
        assert contents()[-1] == "An x."


async def test_cancelling_the_prompt_ends_the_subagent_and_its_question(bench: Bench) -> None:
    bench.script(use(("s", "subagent", ERRAND)), use(("w", "write", WRITE)))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        prompt = editor.start("session/prompt", sessionId=session, prompt=_text("Go."))
        await editor.until(lambda: editor.asked("session/request_permission"))
        editor.notify("session/cancel", sessionId=session)
        assert (await editor.response(prompt))["result"] == {"stopReason": "cancelled"}
        assert statuses(editor, "s")[-1] == "failed" and statuses(editor, "s/w")[-1] == "failed"


async def test_closing_a_session_ends_its_subagents(bench: Bench) -> None:
    bench.script(use(("s", "subagent", ERRAND)), [forever])
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        prompt = editor.start("session/prompt", sessionId=session, prompt=_text("Go."))
        await editor.until(lambda: len(bench.model.requests) == 2)
        await editor.call("session/close", sessionId=session)
        assert (await editor.response(prompt))["result"] == {"stopReason": "cancelled"}


def _text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


async def test_deleting_a_session_deletes_its_subagents(bench: Bench) -> None:
    bench.script(use(("s", "subagent", ERRAND)), say("Did it."), say("Done."))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "Go.")
        logs = bench.home / "sessions"
        assert len(list(logs.rglob("session.jsonl"))) == 2
        await editor.call("session/delete", sessionId=session)
        assert not list(logs.rglob("session.jsonl"))
