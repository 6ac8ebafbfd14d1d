"""Hook files as an editor's user meets them."""

import json
from pathlib import Path

from acp_bench import Bench, say


def write(folder: Path, point: str, command: str) -> None:
    table = {"hooks": {point: [{"hooks": [{"type": "command", "command": command}]}]}}
    (folder / "hooks.json").write_text(json.dumps(table), encoding="utf-8")


async def test_a_refused_prompt_says_why(bench: Bench) -> None:
    write(bench.root, "UserPromptSubmit", "echo 'not on Sundays' >&2; exit 2")
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        assert await editor.prompt(session, "Work.") == {"stopReason": "refusal"}
        assert "A hook refused the prompt: not on Sundays" in editor.said()
        assert not bench.model.requests


async def test_hooks_of_a_project_are_named_once_and_not_run(bench: Bench) -> None:
    write(bench.cwd, "UserPromptSubmit", "exit 2")
    bench.script(say("Done."))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        assert await editor.prompt(session, "Work.") == {"stopReason": "end_turn"}
        assert "Done." in editor.said() and editor.said().count("This project brings hooks") == 1
        await editor.new()
        assert editor.said().count("This project brings hooks") == 1


async def test_hooks_of_a_trusted_project_run(bench: Bench) -> None:
    bench.options["project_hooks"] = True
    write(bench.cwd, "UserPromptSubmit", "exit 2")
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.prompt(await editor.new(), "Work.")
        assert "blocked by a UserPromptSubmit hook" in editor.said()
