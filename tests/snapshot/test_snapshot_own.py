"""The kit on this project's own agent: its guards on broken copies, its levels, a recording."""

from collections.abc import Callable
from functools import partial
import json
from pathlib import Path
import shutil
from typing import Any

import anyio
import pytest

from dsh_acp.llm.fake import FakeLlm
from dsh_acp.snapshot import catalogue, foreign, levels
from dsh_acp.snapshot.runner import Options, Result, run, run_all
from dsh_acp.snapshot.scenario import Scenario, discover

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "acp"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small folder of scenarios to break."""
    for name in ("text-turn", "read-file"):
        shutil.copytree(FIXTURES / name, tmp_path / "acp" / name, symlinks=True)
    return tmp_path / "acp"


async def play(scenario: Scenario, **options: Any) -> Result:
    with anyio.fail_after(60):
        return await run(Scenario(scenario.folder), Options(**options))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    document = change(json.loads(path.read_bytes()))
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def words(result: Result) -> str:
    return "\n".join([*result.problems, *result.strangers, *map(str, result.differences)])


UNKNOWN = [{"kind": "reply", "calls": [{"name": "fly", "arguments": {}}]},
           {"kind": "reply", "text": "No."}]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (
            lambda f: edit_json(f / "replay.override.json", lambda d: [*d, d[-1]]),
            "only 2 of 3 scripted replies were used",
        ),
        (
            lambda f: edit_json(f / "replay.override.json", lambda d: UNKNOWN),
            "the model called a tool that does not exist",
        ),
        (
            lambda f: edit(f / "session.jsonl", '"kind":"completed"', '"kind":"blocked"'),
            "(turn/end) differs at data.reason.kind",
        ),
        (
            lambda f: edit(f / "stdout.expected.jsonl", "Three lines.", "Two lines."),
            "(session/update agent_message_chunk) differs at params.update.content.text",
        ),
        (
            lambda f: edit(f / "stdout.expected.jsonl", '"id":3', '"id":8'),
            "stdout.expected.jsonl: not in canonical form",
        ),
        (
            lambda f: edit(f / "session.jsonl", '{"type":"turn/start"', '{"type": "turn/start"'),
            "session.jsonl: not in canonical form",
        ),
        (lambda f: (f / "session.jsonl").unlink(), "1 logs were written, expected 0"),
        (
            lambda f: shutil.copy(f / "session.jsonl", f / "session.1.jsonl"),
            "1 logs were written, expected 2",
        ),
        (
            lambda f: edit(f.parent / "text-turn/system-prompt.expected.md", "You", "I"),
            "a system prompt that text-turn does not pin; it differs at: ",
        ),
        (
            lambda f: edit(f.parent / "text-turn/tool-schemas.expected.json", '"bash"', '"zsh"'),
            "tool schemas that text-turn does not pin; they differ at [",
        ),
        (
            lambda f: shutil.rmtree(f.parent / "text-turn"),
            'no scenario pins the header class default; give one of them "pinsHeader": true',
        ),
    ],
)
async def test_each_guard_fails_on_a_broken_copy(
    copy: Path, fault: Callable[[Path], Any], expected: str
):
    fault(copy / "read-file")
    result = await play(Scenario(copy / "read-file"))
    assert expected in words(result)


async def test_a_refresh_repairs_what_was_broken_and_then_writes_nothing(copy: Path):
    scenario = Scenario(copy / "read-file")
    before = {path.name: path.read_bytes() for path in scenario.folder.glob("*.*")}
    edit(copy / "read-file/session.jsonl", '"kind":"completed"', '"kind":"blocked"')
    shutil.copy(copy / "read-file/session.jsonl", copy / "read-file/session.1.jsonl")
    result = await play(scenario, mode="refresh")
    assert result.written == ("session.jsonl", "session.1.jsonl"), words(result)
    assert {path.name: path.read_bytes() for path in scenario.folder.glob("*.*")} == before
    assert (await play(scenario, mode="refresh")).written == ()


async def test_a_live_model_is_recorded_and_what_it_said_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "acp" / "live"
    shutil.copytree(FIXTURES / "text-turn", folder)
    (folder / "replay.override.json").unlink()
    with FakeLlm(
        [{"behavior": "success", "text": "Hello there, friend."}], repeat_last=True
    ) as llm:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{llm.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
        result = await play(Scenario(folder), mode="record", live="openai/fake-model")
    assert result.ok, words(result)
    log = (folder / "session.jsonl").read_text(encoding="utf-8")
    assert '"provider":"openai","model":"fake-model"' in log
    assert "session/title-llm-request" not in log
    assert "Hello there, friend." in (folder / "stdout.expected.jsonl").read_text(encoding="utf-8")
    assert (await play(Scenario(folder))).ok


async def test_a_recording_with_a_secret_in_it_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "acp" / "live"
    shutil.copytree(FIXTURES / "text-turn", folder)
    (folder / "replay.override.json").unlink()
    before = (folder / "session.jsonl").read_bytes()
    said = [{"behavior": "success", "text": "Your key is not-a-real-key."}]
    with FakeLlm(said, repeat_last=True) as llm:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{llm.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
        result = await play(Scenario(folder), mode="record", live="openai/fake-model")
    assert "the value of OPENAI_API_KEY: not written" in words(result)
    assert (folder / "session.jsonl").read_bytes() == before


# ---------------------------------------------------------------- levels


@pytest.mark.parametrize("check", [levels.check_log, levels.check_projection])
async def test_our_scenarios_hold_without_a_process(check: Callable[[Scenario], Any]):
    wrong = [words(r) for s in discover(FIXTURES) if not (r := await check(s)).ok]
    assert wrong == []


async def test_a_damaged_log_fails_at_level_log(copy: Path):
    path = copy / "read-file" / "session.jsonl"
    kept = [line for line in path.read_bytes().split(b"\n") if b'"tool/call"' not in line]
    path.write_bytes(b"\n".join(kept))
    assert not (await levels.check_log(Scenario(copy / "read-file"))).ok


async def test_a_transcript_that_its_log_does_not_tell_fails_at_level_projection(copy: Path):
    edit(copy / "read-file/stdout.expected.jsonl", "Three lines.", "Two lines.")
    result = await levels.check_projection(Scenario(copy / "read-file"))
    assert "differs at params.update.content.text" in words(result)


def test_the_folder_of_our_scenarios_is_in_order():
    assert catalogue.faults(FIXTURES, discover(FIXTURES)) == []


async def test_recordings_of_the_other_harness_hold_without_a_process(shared: Path):
    for check in (levels.check_log, foreign.check_foreign_projection):
        results = [await check(scenario) for scenario in discover(shared / "dsh-sessions")]
        assert [words(result) for result in results if not result.ok] == []


@pytest.mark.long
async def test_recordings_of_the_other_harness_are_played_by_ours(shared: Path):
    """Those that are not are told with what they need."""
    scenarios = discover(shared / "dsh-sessions")
    assert all(map(foreign.is_foreign, scenarios))
    with anyio.fail_after(170):
        results = await run_all(scenarios, partial(foreign.run_foreign, options=Options()))
    assert [words(result) for result in results if not result.ok] == []
    reasons = {result.name: result.skipped for result in results if result.skipped}
    lacking = list(reasons.values()).count("needs Node.js")
    assert len(results) - len(reasons) >= 32 - lacking, reasons
