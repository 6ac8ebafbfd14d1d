"""Both protocol versions of a scenario: what must be there, and that both tell the same story."""

from base64 import b64encode
from collections.abc import Callable
import json
from pathlib import Path
import shutil
from typing import Any

import anyio
import pytest

from dsh_acp.commands.snapshot import main
from dsh_acp.snapshot import levels
from dsh_acp.snapshot.calls import Line
from dsh_acp.snapshot.conformity import schema_folder, violations
from dsh_acp.snapshot.runner import Options, Result, run
from dsh_acp.snapshot.scenario import Scenario, discover
from dsh_acp.snapshot.script import Input
from dsh_acp.snapshot.story import discrepancies, tell
from dsh_acp.snapshot.versions import capabilities, faults, tells, versions_of

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "acp"
TWO = "stdout.v2.expected.jsonl"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """One scenario to break, and the one that pins its header."""
    for name in ("text-turn", "read-file"):
        shutil.copytree(FIXTURES / name, tmp_path / "acp" / name, symlinks=True)
    return tmp_path / "acp" / "read-file"


async def play(folder: Path, **options: Any) -> Result:
    with anyio.fail_after(60):
        return await run(Scenario(folder), Options(**options))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def rewrite(folder: Path, **fields: Any) -> None:
    document = json.loads((folder / "input.json").read_bytes()) | fields
    (folder / "input.json").write_bytes(Input.decode(json.dumps(document).encode()).to_json())


# ---------------------------------------------------------------- files


def test_every_scenario_of_ours_has_both_transcripts_or_says_why_not():
    for scenario in discover(FIXTURES):
        assert scenario.versions == versions_of(scenario.input), scenario.name
        assert scenario.discrepancies() == [], scenario.name
    both = [s for s in discover(FIXTURES) if len(s.versions) == 2]
    assert len(both) > 100


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda f: (f / TWO).unlink(), f"{TWO}: missing"),
        (
            lambda f: rewrite(f, only={"version": 1, "because": "so it is"}),
            "`only` names version 1, but every step has a place in both",
        ),
        (
            lambda f: rewrite(f, only={"version": 1, "because": " "}),
            "`only.because` must say in one line why there is no other transcript",
        ),
        (
            lambda f: rewrite(f, only={"version": 1, "because": "so it is"}),
            f"{TWO}: there is to be none, `only` says",
        ),
    ],
)
async def test_a_version_is_left_out_for_a_reason_alone(
    copy: Path, fault: Callable[[Path], Any], words: str
):
    fault(copy)
    assert any(words in problem for problem in Scenario(copy).faults())
    assert not (await play(copy)).ok


@pytest.mark.parametrize(
    ("step", "version"),
    [
        ({"op": "initialize", "capabilities": {"fs": {"readTextFile": True}}}, 1),
        ({"op": "fork"}, 1),
        ({"op": "setBuffer", "path": "a", "text": "b"}, 1),
        ({"op": "request", "method": "session/load"}, 1),
        ({"op": "initialize", "protocolVersion": 2}, 2),
        ({"op": "request", "method": "_session/pending"}, 2),
        ({"op": "request", "method": "terminal/cancel"}, 2),
    ],
)
def test_a_script_shows_what_only_one_version_has(step: dict[str, Any], version: int):
    for only in (1, 2):
        document = {"only": {"version": only, "because": "it shows that"}, "steps": [step]}
        assert (faults(Input.decode(json.dumps(document).encode())) == []) == (only == version)


async def test_a_refresh_writes_both_and_a_check_may_play_one(
    copy: Path, capsys: pytest.CaptureFixture[str]
):
    before = (copy / TWO).read_bytes()
    (copy / TWO).unlink()
    assert (await play(copy, mode="refresh")).written == (TWO,)
    assert (copy / TWO).read_bytes() == before
    edit(copy / TWO, "Three lines.", "Two lines.")
    assert (await play(copy, versions=(1,))).ok
    (difference,) = (await play(copy)).differences
    assert difference.file == TWO


async def test_a_version_that_leads_to_another_log_is_not_written(copy: Path):
    step = {"op": "request", "method": "session/set_mode"}
    known = json.loads((copy / "input.json").read_bytes())["steps"]
    more = {"params": {"sessionId": "{{session:a}}", "modeId": "plan"}}
    known[1]["as"] = "a"
    rewrite(copy, steps=[*known[:2], step | more, *known[2:]])
    before = (copy / TWO).read_bytes()
    result = await play(copy, mode="refresh")
    assert "Method not found: session/set_mode" in result.problems[0]
    assert (copy / TWO).read_bytes() == before


async def test_the_projection_of_each_version_follows_from_the_log(copy: Path):
    edit(copy / TWO, "Three lines.", "Two lines.")
    result = await levels.check_projection(Scenario(copy))
    assert result.differences[0].file == TWO
    assert "-agent: Three lines." in result.problems[0]
    assert "+agent: Two lines." in result.problems[0]


def test_one_version_can_be_chosen_on_the_command_line(
    copy: Path, capsys: pytest.CaptureFixture[str]
):
    edit(copy / TWO, "Three lines.", "Two lines.")
    assert main(["check", str(copy), "--protocol-version", "1"]) == 0
    assert main(["check", str(copy), "--protocol-version", "2"]) == 1
    assert f"{TWO}:" in capsys.readouterr().out


async def test_another_agent_may_speak_one_version(tmp_path: Path, fake: list[str]):
    steps = [{"op": "initialize"}, {"op": "newSession"}, {"op": "prompt", "text": "hello"}]
    document = {"agent": {"argv": fake}, "comparesLog": False, "shows": "an echo", "steps": steps}
    folder = tmp_path / "acp" / "echo"
    folder.mkdir(parents=True)
    (folder / "input.json").write_text(json.dumps(document), encoding="utf-8")
    assert (await play(folder, mode="refresh")).written == ("stdout.expected.jsonl", "input.json")
    assert (await play(folder)).ok
    shutil.copy(folder / "stdout.expected.jsonl", folder / TWO)
    assert (await play(folder)).ok


# ---------------------------------------------------------------- stories


def update(kind: str, **fields: Any) -> dict[str, Any]:
    params = {"sessionId": "s", "update": {"sessionUpdate": kind, **fields}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def content(words: str) -> dict[str, Any]:
    return {"type": "content", "content": text(words)}


def chunk(words: str, id: str = "m", kind: str = "agent_message_chunk") -> dict[str, Any]:
    return update(kind, content=text(words), messageId=id)


def whole(words: str, id: str = "m", kind: str = "agent_message") -> dict[str, Any]:
    return update(kind, content=[text(words)], messageId=id)


def call(**fields: Any) -> dict[str, Any]:
    return update("tool_call_update", toolCallId="c", **fields)


def data(words: str) -> dict[str, str]:
    return {"data": b64encode(words.encode()).decode()}


def answer(result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 3, "result": result}


def failed(code: int, message: str, **data: Any) -> dict[str, Any]:
    return {"code": code, "message": message} | ({"data": data} if data else {})


def idle(**fields: Any) -> dict[str, Any]:
    return update("state_update", state="idle", **fields)


def encoded(frames: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(frame).encode() for frame in frames]


RECEIPT = [whole("Hi.", "u", "user_message"), answer({"messageId": "u"})]
OLD = {"type": "diff", "path": "/a", "oldText": "one\ntwo\n", "newText": "one\n2\n"}
NEW = {
    "type": "diff",
    "changes": [{"operation": "modify", "path": "/a", "fileType": "text"}],
    "patch": {
        "format": "git_patch",
        "text": "diff --git /a /a\n--- /a\n+++ /a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
    },
}
MADE = {"type": "diff", "path": "/b", "oldText": None, "newText": "x\n"}
ADDED = {
    "type": "diff",
    "changes": [{"operation": "add", "path": "/b", "fileType": "text"}],
    "patch": {
        "format": "git_patch",
        "text": "diff --git /b /b\nnew file mode 100644\n"
        "--- /dev/null\n+++ /b\n@@ -0,0 +1 @@\n+x\n",
    },
}
OPTION = {"optionId": "y", "name": "Yes", "kind": "allow_once"}
ASKED = {"jsonrpc": "2.0", "id": 1, "method": "session/request_permission"}


@pytest.mark.parametrize(
    ("one", "two", "told"),
    [
        ([chunk("Hel"), chunk("lo")], [whole("Hel"), chunk("lo")], "agent: Hello"),
        ([answer({"stopReason": "end_turn"})], [*RECEIPT, idle(stopReason="end_turn")], "the turn"),
        (
            [{"jsonrpc": "2.0", "id": 3, "error": failed(-32603, "no", kind="X")}],
            [*RECEIPT, idle(stopReason="error", error=failed(-32603, "no", kind="X"))],
            "error: ",
        ),
        (
            [answer({"stopReason": "cancelled"})],
            [{"jsonrpc": "2.0", "id": 3, "error": failed(-32800, "cancelled")}],
            "the turn ends: cancelled",
        ),
        (
            [chunk("\n\n[Previous model attempt discarded; retrying 1/2 in {{delay}}: slow]\n\n")],
            [
                update(
                    "notice",
                    title="Retrying (1/2)",
                    description="The model's attempt failed and is discarded: slow",
                )
            ],
            "agent: slow",
        ),
        (
            [call(status="failed", content=[content("```console\nout\n[stderr]\nerr\n```")])],
            [
                update("terminal_update", terminalId="c", command="x", cwd="/"),
                update("terminal_output_chunk", terminalId="c", **data("out\n")),
                update("terminal_output_chunk", terminalId="c", **data("err\n")),
                call(status="cancelled"),
            ],
            "call c: failed · out\nerr",
        ),
        (
            [call(status="completed", content=[OLD, MADE])],
            [call(status="completed", content=[NEW, ADDED])],
            'call c: completed · modify /a ["+2","-two"] · add /b ["+x"]',
        ),
        (
            [ASKED | {"params": {"sessionId": "s", "toolCall": {"toolCallId": "c"},
                                 "options": [OPTION]}}],
            [ASKED | {"params": {"sessionId": "s", "title": "Run it",
                                 "subject": {"type": "command", "command": "x", "toolCallId": "c"},
                                 "options": [OPTION]}}],
            "question about call c: allow_once 'Yes'",
        ),
        (
            [update("plan", entries=[{"content": "a", "status": "pending"}])],
            [update("plan_update", plan={"planId": "p", "entries": [
                {"content": "a", "status": "pending"}]})],
            "plan: [pending] a",
        ),
        (
            [chunk("Hi."), chunk("Hi.", "u", "user_message_chunk"), chunk("Hi.")],
            [*RECEIPT, whole("Hi."), *RECEIPT[:1], whole("Hi.")],
            "user: Hi.",
        ),
    ],
)  # fmt: skip
def test_what_the_versions_say_in_different_words_is_one_story(
    one: list[dict[str, Any]], two: list[dict[str, Any]], told: str
):
    assert discrepancies(encoded(one), encoded(two)) == []
    assert any(line.startswith(told) for line in tell(encoded(one)))
    (words,) = discrepancies(encoded(one), encoded([*two, whole("And more.", "n")]))
    assert "+agent: And more." in words


@pytest.mark.parametrize(
    ("one", "two", "line"),
    [
        (chunk("yes"), whole("no"), "+agent: no"),
        (
            call(status="completed", content=[OLD]),
            call(status="completed", content=[ADDED]),
            '+call c: completed · add /b ["+x"]',
        ),
        (call(status="completed"), call(status="failed"), "+call c: failed"),
        (
            answer({"stopReason": "end_turn"}),
            {"jsonrpc": "2.0", "id": 3, "error": failed(-32603, "no")},
            '+error: {"code":-32603,"message":"no"}',
        ),
    ],
)
def test_another_story_is_told_as_a_diff(one: dict[str, Any], two: dict[str, Any], line: str):
    (words,) = discrepancies(encoded([one]), encoded([two]))
    assert words.startswith("the versions tell different stories (- version 1, + version 2)")
    assert line in words


# ---------------------------------------------------------------- frames


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (whole("hello"), ""),
        (update("_pending_update", pending=[]), ""),
        (update("agent_message", content=[text("hello")]), "messageId"),
        (update("terminal_output_chunk", terminalId="t", data=5), "data"),
        (update("tool_call", toolCallId="c", title="t"), ""),
        (answer({"messageId": 5}), "messageId"),
        (ASKED | {"params": {"sessionId": "s", "options": [OPTION]}}, "title"),
        (ASKED | {"method": "fs/read_text_file", "params": {}}, "no such method"),
    ],
)
def test_frames_of_version_2_are_judged_by_its_schema(
    shared: Path, frame: dict[str, Any], words: str
):
    asked = [{"id": 0, "method": "initialize"}, {"id": 3, "method": "session/prompt"}]
    info = {"name": "a", "version": "1"}
    hello = {"id": 0, "result": {"protocolVersion": 2, "info": info, "capabilities": {}}}
    lines = [Line(sent=True, data=json.dumps({"jsonrpc": "2.0", **f}).encode()) for f in asked]
    lines += [
        Line(sent=False, data=json.dumps({"jsonrpc": "2.0", **f}).encode()) for f in (hello, frame)
    ]
    found = violations(lines, schema_folder(shared / "dsh-sessions"))
    assert [problem for problem in found if words in problem] == found
    assert bool(found) == bool(words)


# ---------------------------------------------------------------- the client's words


def test_capabilities_are_those_of_the_version():
    given: dict[str, Any] = {
        "fs": {"readTextFile": True},
        "terminal": True,
        "auth": {"terminal": True},
        "elicitation": {"form": {}},
    }
    assert capabilities(given, 1) == given
    assert capabilities(given, 2) == {"auth": {"terminal": {}}, "elicitation": {"form": {}}}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"sessionUpdate": "agent_message_chunk"}, {"sessionUpdate": "agent_message"}),
        ({"sessionUpdate": "tool_call"}, {"sessionUpdate": "tool_call_update"}),
        ({"content": text("a")}, {"content": [text("a")]}),
        (
            {"_meta": {"terminal_output": {"terminal_id": "c", "data": "a\n"}}},
            {"sessionUpdate": "terminal_output_chunk", "terminalId": "c", **data("a\n")},
        ),
    ],
)
def test_a_wait_that_is_written_for_version_1_is_over_in_version_2(
    fields: dict[str, Any], found: dict[str, Any]
):
    assert tells(found, fields, 2) and not tells(found, fields, 1)
    assert not tells({}, fields, 2)
