"""Whole runs against the fake agent: check, refresh, guards, in parallel."""

from collections.abc import Callable
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh_acp.snapshot import catalogue
from dsh_acp.snapshot.compare import Difference
from dsh_acp.snapshot.runner import Options, Result, run, run_all
from dsh_acp.snapshot.scenario import Scenario, discover

STEPS: list[dict[str, Any]] = [
    {"op": "initialize"},
    {"op": "newSession"},
    {"op": "prompt", "text": "hello"},
    {"op": "prompt", "text": "ask"},
    {"op": "setModeExpectError", "modeId": "x"},
    {"op": "promptAndCancel", "text": "hang"},
    {"op": "setBuffer", "path": "a.txt", "text": "unsaved"},
    {"op": "prompt", "text": "read {{cwd}}/a.txt"},
    {"op": "prompt", "text": "write {{cwd}}/b.txt new"},
    {"op": "expectFile", "path": "b.txt", "text": "new"},
    {"op": "expectFile", "path": "c.txt"},
    {"op": "startPrompt", "text": "ask", "as": "asked"},
    {"op": "waitForQuestion"},
    {"op": "answer", "result": {"outcome": {"outcome": "selected", "optionId": "late"}}},
    {"op": "awaitPrompt", "prompt": "asked"},
    {"op": "request", "method": "nothing/here", "expectError": -32601},
    {"op": "restart"},
    {"op": "initialize"},
]

Make = Callable[..., Scenario]


@pytest.fixture
def make(tmp_path: Path, fake: list[str]) -> Make:
    """A scenario of the fake agent, its expectations not yet written."""

    def build(name: str = "one", steps: list[dict[str, Any]] = STEPS, **more: Any) -> Scenario:
        folder = tmp_path / "acp" / name
        folder.mkdir(parents=True)
        document = {
            "shows": f"what {name} shows",
            "agent": {"argv": fake},
            "comparesLog": False,
            "steps": steps,
            "permissionAnswers": [{"kind": "allow_once"}, {"hold": True}],
        }
        (folder / "input.json").write_text(json.dumps(document | more), encoding="utf-8")
        return Scenario(folder)

    return build


async def play(scenario: Scenario, **options: Any) -> Result:
    with anyio.fail_after(30):
        # The fake agent's capabilities are not the protocol's business here.
        return await run(Scenario(scenario.folder), Options(**{"timeout_s": 10, **options}))


async def test_a_refreshed_scenario_is_green_and_a_second_refresh_writes_nothing(make: Make):
    scenario = make()
    first = await play(scenario, mode="refresh")
    assert first.ok, first.problems
    assert first.written == ("stdout.expected.jsonl", "input.json")
    assert (await play(scenario)).ok
    again = await play(scenario, mode="refresh")
    assert (again.ok, again.written) == (True, ())


async def test_another_answer_of_the_agent_is_named_by_frame_and_field(
    make: Make, monkeypatch: pytest.MonkeyPatch
):
    scenario = make()
    await play(scenario, mode="refresh")
    monkeypatch.setenv("FAKE_STYLE", "Other")
    result = await play(scenario)
    (difference,) = result.differences
    assert (difference.line, difference.path) == (3, "params.update.content.text")
    assert isinstance(difference, Difference) and difference.got == '"Other: hello"'


async def test_playing_only_the_script_compares_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
):
    scenario = make()
    await play(scenario, mode="refresh")
    monkeypatch.setenv("FAKE_STYLE", "Other")
    assert (await play(scenario, compares=False)).ok


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([{"op": "prompt", "text": "x"}], "step 3 (prompt): there is no session yet"),
        ([{"op": "newSession"}, {"op": "prompt", "text": "die"}], "the agent ended before"),
        ([{"op": "newSession"}, {"op": "prompt", "text": "garbage"}], "not JSON on stdout"),
        ([{"op": "newSession"}, {"op": "prompt", "text": "hang"}], "nothing more happened after"),
        ([{"op": "request", "method": "no"}], 'error -32601: "Method not found": no'),
        ([{"op": "request", "method": "no", "expectError": 1}], "expected error 1, got -32601"),
        ([{"op": "newSessionExpectError"}], "session/new succeeded, but an error was expected"),
        ([{"op": "answer", "result": {}}], "no question is held open"),
        ([{"op": "awaitPrompt"}], "no such prompt is open"),
        ([{"op": "expectFile", "path": "a", "text": "b"}], "a should have 'b' but has nothing"),
        ([{"op": "notify", "method": "x", "params": "{{session:b}}"}], "{{session:b}} is not"),
    ],
)
async def test_a_run_that_goes_wrong_says_at_which_step_and_why(
    make: Make, steps: list[dict[str, Any]], words: str
):
    scenario = make(steps=[{"op": "initialize"}, {"op": "notify", "method": "n"}, *steps])
    result = await play(scenario, mode="refresh", timeout_s=3)
    assert words in result.problems[0]
    assert not scenario.path("stdout.expected.jsonl").exists()


async def test_a_permission_kind_that_was_not_offered_fails_the_run(make: Make):
    steps = [{"op": "initialize"}, {"op": "newSession"}, {"op": "prompt", "text": "ask"}]
    result = await play(make(steps=steps, permissionAnswers=[{"kind": "reject_once"}]),
                        mode="refresh")  # fmt: skip
    assert "step 3 (prompt): permission answer 'reject_once' is not among" in result.problems[0]


def _break(scenario: Scenario, name: str, text: str) -> None:
    scenario.path(name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda s: _break(s, "notes.txt", ""), "notes.txt: not a file of a scenario"),
        (lambda s: s.path("stdout.expected.jsonl").unlink(), "stdout.expected.jsonl: missing"),
        (lambda s: _break(s, "session.2.jsonl", ""), "the numbers of child logs have a gap"),
        (lambda s: _break(s, "tool-schemas.expected.json", "{}"), "only for a scenario that pins"),
        (lambda s: _break(s, "input.json", "{"), "input.json: Input data was truncated"),
        (lambda s: _break(s, "input.json", '{"shows":"x"}'), "input.json: not in canonical form"),
        (lambda s: _break(s, "input.json", "{}\n"), "`shows` must say in one line"),
        (lambda s: _break(s, "replay.override.json", '[{"kind":"hang"}]'), "not in canonical form"),
        (
            lambda s: _break(s, "replay.override.json", '[{"kind":"x"}]'),
            "an entry has a kind among",
        ),
        (lambda s: _break(s, "stdout.expected.jsonl", '{"id": 7}\n'), "not in canonical form"),
    ],
)
async def test_each_guard_of_a_folder_fails_on_a_broken_copy(
    make: Make, fault: Callable[[Scenario], None], words: str
):
    scenario = make()
    await play(scenario, mode="refresh")
    assert Scenario(scenario.folder).faults() == []
    fault(scenario)
    assert any(words in problem for problem in Scenario(scenario.folder).faults())
    assert not (await play(scenario)).ok


async def test_guards_of_the_whole_folder(make: Make):
    one, two = make("one"), make("two")
    folder = one.folder.parent
    for scenario in (one, two):
        await play(scenario, mode="refresh")
    assert catalogue.write_index(folder, discover(folder))
    assert not catalogue.write_index(folder, discover(folder))
    assert catalogue.faults(folder, discover(folder)) == []
    assert "| [two](two/input.json) | what two shows |" in (folder / "README.md").read_text(
        encoding="utf-8"
    )
    (folder / "orphan").mkdir()
    (folder / "stray.txt").touch()
    (folder / "README.md").write_text("old", encoding="utf-8")
    for scenario in (one, two):
        document = json.loads(scenario.path("input.json").read_bytes()) | {"pinsHeader": True}
        scenario.path("input.json").write_text(json.dumps(document), encoding="utf-8")
        scenario.path("system-prompt.expected.md").write_text("You\n", encoding="utf-8")
        scenario.path("tool-schemas.expected.json").write_text("{}\n", encoding="utf-8")
    assert catalogue.faults(folder, discover(folder)) == [
        "orphan/: a folder without input.json",
        "stray.txt: not a scenario",
        "one and two pin the same header class default",
        "two: its sidecars are those of one",
        "README.md: not up to date (refresh rewrites it)",
    ]


async def test_scenarios_run_at_once_and_are_reported_in_order(make: Make):
    # Each says its piece when all have started: one after another they would never end.
    gate = anyio.Event()
    started: list[str] = []
    reported: list[str] = []

    async def one(scenario: Scenario) -> Result:
        started.append(scenario.name)
        if len(started) == 3:
            gate.set()
        await gate.wait()
        return Result(name=scenario.name)

    scenarios = [make(name) for name in ("a", "b", "c")]
    with anyio.fail_after(30):
        results = await run_all(scenarios, one, 3, lambda result: reported.append(result.name))
    assert reported == ["a", "b", "c"] == [result.name for result in results]
