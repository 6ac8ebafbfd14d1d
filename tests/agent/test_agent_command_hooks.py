"""Hooks that are commands: real files, real processes, and what the log says of them."""

import json
from pathlib import Path
from typing import Any

from agent_bench import Bench, Person, calls, ends, results, text, types
import anyio
from hypothesis import given, settings, strategies as st
import pytest

from dsh_acp.agent import hook_answers, hook_files
from dsh_acp.agent.command_hooks import CommandHooks
from dsh_acp.agent.hook_answers import Answer
from dsh_acp.agent.hook_files import Handler
from dsh_acp.agent.hooks import Hooks
from dsh_acp.messages import Message


def handler(point: str, command: str, matcher: str | None = None, **more: Any) -> Handler:
    return Handler("claude-code", point, command, matcher, **more)


def install(bench: Bench, *handlers: Handler) -> None:
    bench.hooks = CommandHooks(handlers, str(bench.cwd)).joined(bench.hooks)


def saying(output: dict[str, Any]) -> str:
    return f"cat >/dev/null; echo '{json.dumps(output)}'"


def decided(session: Any) -> list[tuple[str, str]]:
    found = [event.payload for event in session.log.events() if event.type == "hook/result"]
    return [(result.handler_id, result.decision) for result in found]


# ---------------------------------------------------------------- tools


async def test_a_hook_refuses_a_call_and_the_model_reads_why(bench: Bench) -> None:
    tool = bench.tool("bash")
    install(bench, handler("PreToolUse", "echo 'not today' >&2; exit 2", "bash"))
    bench.say(calls(("1", "bash")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {"1": "Error: not today"} and not tool.runs
        start = types(session).index("tool/call")
        assert types(session)[start : start + 4] == [
            "tool/call",
            "hook/invoked",
            "hook/result",
            "tool/result",
        ]
        invoked, result = (e.payload for e in session.log.events() if e.type.startswith("hook/"))
        assert (invoked.turn, invoked.point, invoked.dialect) == (1, "PreToolUse", "claude-code")
        assert (invoked.handler_id, invoked.matcher) == ("claude-code:PreToolUse:1", "bash")
        assert (result.decision, result.exit_code) == ("block", 2)
        assert result.stderr_summary == "not today" and result.duration_ms > 0


@pytest.mark.parametrize(
    ("matcher", "runs"),
    [
        (None, True),
        ("", True),
        ("*", True),
        ("Bash", True),
        ("Edit|Bash", True),
        ("bas", False),
        ("Edit|Write", False),
        ("mcp__.*", False),
        ("[", False),
    ],
)
def test_a_matcher_is_an_expression_over_either_name(matcher: str | None, runs: bool) -> None:
    assert handler("PreToolUse", "x", matcher).matches("bash", "Bash") is runs


def test_a_matcher_means_nothing_where_there_is_no_tool() -> None:
    assert handler("UserPromptSubmit", "x", "[").matches("")


@pytest.mark.parametrize(
    ("decision", "asked", "result"),
    [("allow", 0, "done"), ("ask", 1, 'Error: the user rejected tool "bash"'), ("deny", 0, None)],
)
async def test_a_hook_decides_about_a_call(
    bench: Bench, decision: str, asked: int, result: str | None
) -> None:
    bench.settings["permission"] = "ask" if decision == "allow" else "full-access"
    bench.person = Person("reject_once")
    bench.tool("bash", effect="execute")
    output = {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": "because",
        }
    }
    install(bench, handler("PreToolUse", saying(output)))
    bench.say(calls(("1", "bash")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {"1": result or "Error: because"}
        assert len(bench.person.asked) == asked
        if asked:
            assert bench.person.asked[0].reason == "because"


async def test_a_hook_cannot_open_plan_mode(bench: Bench) -> None:
    bench.settings["permission"] = "plan"
    tool = bench.tool("bash", effect="execute")
    allow = {"hookSpecificOutput": {"permissionDecision": "allow"}}
    install(bench, handler("PreToolUse", saying(allow)))
    bench.say(calls(("1", "bash")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert not tool.runs and "plan mode" in results(session)["1"]


async def test_the_strictest_of_several_hooks_counts(bench: Bench) -> None:
    bench.person = Person("allow_once")
    bench.tool("bash")
    outputs = [{"hookSpecificOutput": {"permissionDecision": d}} for d in ("ask", "allow")]
    install(bench, *[handler("PreToolUse", saying(output)) for output in outputs])
    bench.say(calls(("1", "bash")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert len(bench.person.asked) == 1
        assert [d for _, d in decided(session)] == ["ask", "allow"]


async def test_a_hook_rejects_a_result_and_passes_the_next(bench: Bench) -> None:
    bench.tool("bash")
    command = "test -e seen && exit 0; : > seen; echo 'retry once' >&2; exit 2"
    install(bench, handler("PostToolUse", command, "bash"))
    bench.say(calls(("1", "bash")), calls(("2", "bash")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {"1": "retry once", "2": "done"}
        assert decided(session) == [
            ("claude-code:PostToolUse:1", "block"),
            ("claude-code:PostToolUse:2", "pass"),
        ]


async def test_context_follows_a_result_with_the_next_step(bench: Bench) -> None:
    bench.tool("bash")
    output = {"hookSpecificOutput": {"additionalContext": "It was checked."}}
    install(bench, Handler("codex", "PostToolUse", saying(output), "bash"))
    bench.say(calls(("1", "bash")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        last = bench.model.requests[1].messages[-1]
        assert last.text == "It was checked."
        assert last.source == {"kind": "plugin", "plugin": "hooks-codex"}
        assert decided(session) == [("codex:PostToolUse:1", "pass")]


async def test_a_failed_call_is_not_shown_to_result_hooks(bench: Bench) -> None:
    install(bench, handler("PostToolUse", "exit 2"))
    bench.say(calls(("1", "nothing")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert not decided(session)


async def test_a_hook_reads_what_happens(bench: Bench) -> None:
    bench.tool("bash")
    install(
        bench,
        *[handler(point, f"cat > {point}.json") for point in ("PreToolUse", "PostToolUse", "Stop")],
        handler("UserPromptSubmit", "cat > UserPromptSubmit.json; env > env"),
    )
    bench.say(calls(("1", "bash", '{"command": "ls"}')), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session, "List it")
        given = {path.stem: json.loads(path.read_bytes()) for path in bench.cwd.glob("*.json")}
        assert given["UserPromptSubmit"]["prompt"] == "List it"
        assert given["PreToolUse"]["tool_name"] == "Bash"
        assert given["PreToolUse"]["tool_input"] == {"command": "ls"}
        assert given["PostToolUse"]["tool_response"]["content"] == "done"
        assert given["Stop"]["stop_hook_active"] is False
        for point, value in given.items():
            assert value["hook_event_name"] == point and value["session_id"] == session.id
            assert value["cwd"] == str(bench.cwd)
            assert value["transcript_path"] == str(session.log.path)
        assert f"CLAUDE_PROJECT_DIR={bench.cwd}" in (bench.cwd / "env").read_text("utf-8")


# ---------------------------------------------------------------- prompts and stopping


async def test_a_refused_prompt_blocks_the_turn_before_any_request(bench: Bench) -> None:
    install(bench, handler("UserPromptSubmit", "echo 'no such thing' >&2; exit 2", "["))
    async with bench.running() as session:
        await bench.prompt(session, "Delete everything")
        assert ends(session) == ["blocked"] and not bench.model.requests
        assert "step/start" not in types(session)


@pytest.mark.parametrize(
    "command",
    [
        "echo 'It is Monday.'",
        saying({"hookSpecificOutput": {"additionalContext": "It is Monday."}}),
    ],
)
async def test_a_hook_adds_context_to_a_prompt(bench: Bench, command: str) -> None:
    install(bench, handler("UserPromptSubmit", command))
    bench.say(text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        last = bench.model.requests[0].messages[-1]
        assert last.text == "It is Monday."
        assert last.source == {"kind": "plugin", "plugin": "hooks-claude-code"}


async def test_a_hook_speaks_when_a_session_starts_and_when_it_is_resumed(bench: Bench) -> None:
    command = "cat >> starts; echo >> starts; echo welcome"
    bench.say(text("ok"), text("ok"), text("ok"))
    install(bench, handler("SessionStart", command))
    async with bench.running() as session:
        await bench.prompt(session)
        await bench.prompt(session)
        assert bench.model.requests[0].messages[-1].text == "welcome"
    bench.hooks = Hooks()
    install(bench, handler("SessionStart", command))
    async with bench.running(bench.store.open(session.id)) as again:
        await bench.prompt(again)
    lines = (bench.cwd / "starts").read_text("utf-8").splitlines()
    assert [json.loads(line)["source"] for line in lines] == ["startup", "resume"]


async def test_a_stopping_turn_is_kept_going_once(bench: Bench) -> None:
    command = "test -e fired && exit 0; touch fired; echo 'Say SECOND.' >&2; exit 2"
    install(bench, Handler("codex", "Stop", command))
    bench.say(text("FIRST"), text("SECOND"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert ends(session) == ["completed"]
        last = bench.model.requests[1].messages[-1]
        assert last.text == "Say SECOND."
        assert last.source == {"kind": "plugin", "plugin": "hooks-codex"}
        assert decided(session) == [("codex:Stop:1", "block"), ("codex:Stop:2", "pass")]
        end = types(session).index("turn/end")
        assert types(session)[end - 2 : end] == ["hook/invoked", "hook/result"]


async def test_a_turn_is_not_kept_going_for_ever(bench: Bench) -> None:
    install(bench, handler("Stop", "exit 2"))
    bench.say(*[text("again")] * 20)
    async with bench.running() as session:
        await bench.prompt(session)
        assert ends(session) == ["completed"] and len(bench.model.requests) == 9


async def test_a_hook_ends_the_turn(bench: Bench) -> None:
    bench.tool("bash")
    install(bench, handler("PreToolUse", saying({"continue": False, "stopReason": "enough"})))
    bench.say(calls(("1", "bash")))
    async with bench.running() as session:
        await bench.prompt(session)
        (end,) = [e.payload.reason for e in session.log.events() if e.type == "turn/end"]
        assert (end.kind, end.reason) == ("aborted", {"kind": "hook", "reason": "enough"})


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("command", "code", "summary"),
    [
        ("echo broken >&2; exit 1", 1, "broken"),
        ("sleep 60", None, "stopped after 0.2 s"),
        ("kill -9 $$", None, None),
        ("echo '{not json'", 0, None),
    ],
)
async def test_a_hook_that_fails_decides_nothing(
    bench: Bench, command: str, code: int | None, summary: str | None
) -> None:
    bench.tool("bash")
    install(bench, handler("PreToolUse", command, timeout_s=0.2 if "sleep" in command else 30))
    bench.say(calls(("1", "bash")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {"1": "done"}
        (result,) = [e.payload for e in session.log.events() if e.type == "hook/result"]
        assert result.decision == "pass"
        assert (result.exit_code or None) == (code or None)
        assert (result.stderr_summary or None) == summary


async def test_cancelling_stops_a_hook_and_records_it(bench: Bench) -> None:
    bench.tool("bash")
    install(bench, handler("PreToolUse", "sleep 60"))
    bench.say(calls(("1", "bash")))
    async with bench.running() as session:
        session.followup(Message.user((), {"kind": "user"}))
        follower = session.log.follow(0)
        while "hook/invoked" not in types(session):
            await follower.wait()
            follower.take()
        await session.cancel()
        assert decided(session) == [("claude-code:PreToolUse:1", "cancelled")]
        assert ends(session) == ["aborted"]
        assert results(session)["1"].startswith("Error: ")


# ---------------------------------------------------------------- answers and files


@settings(max_examples=100)
@given(
    st.sampled_from(hook_files.POINTS),
    st.sampled_from([0, 1, 2, 127, None]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["decision", "continue", "reason", "hookSpecificOutput", "stopReason"]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    ),
)
def test_any_output_is_an_answer(point: str, code: int | None, output: Any) -> None:
    answer = hook_answers.of(point, code, json.dumps(output), "")
    assert answer.decision in ("pass", "allow", "ask", "block")
    if answer.decision == "block":
        assert answer.reason
    if code not in (0, 2):
        assert answer == Answer()


def write(path: Path, **points: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hooks = {point: [{"hooks": [{"type": "command", "command": c}]}] for point, c in points.items()}
    path.write_text(json.dumps({"hooks": hooks}), encoding="utf-8")


def test_a_projects_hooks_run_only_when_the_settings_say_so(tmp_path: Path) -> None:
    config, project = tmp_path / "config", tmp_path / "project"
    write(config / "hooks.json", Stop="mine")
    write(project / "hooks.json", Stop="theirs")
    write(project / ".codex/hooks.json", Stop="theirs too")
    found = hook_files.load(config, str(project), trust_project=False)
    assert [each.command for each in found.handlers] == ["mine"]
    (said,) = found.problems
    assert "hooks.json, .codex/hooks.json" in said and "project_hooks = true" in said
    found = hook_files.load(config, str(project), trust_project=True)
    assert [(each.command, each.dialect) for each in found.handlers] == [
        ("mine", "claude-code"),
        ("theirs", "claude-code"),
        ("theirs too", "codex"),
    ]
    assert not found.problems


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", None),
        ('{"hooks": []}', None),
        ('{"hooks": {"PreCompact": []}}', "PreCompact"),
        ('{"hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}]}]}}', "no command"),
    ],
)
def test_a_file_that_cannot_be_used_says_so(
    tmp_path: Path, content: str, problem: str | None
) -> None:
    (tmp_path / "hooks.json").write_text(content, encoding="utf-8")
    found = hook_files.load(tmp_path, str(tmp_path / "none"), trust_project=True)
    assert not found.handlers
    assert [problem in each for each in found.problems] == [True] * (problem is not None)  # type: ignore[operator]


def test_limits_of_time_are_kept_within_reason(tmp_path: Path) -> None:
    entries = [{"type": "command", "command": "x", "timeout": t} for t in (5, 1e9, -1, "soon")]
    table = {"hooks": {"Stop": [{"hooks": entries}]}}
    (tmp_path / "hooks.json").write_text(json.dumps(table), encoding="utf-8")
    found = hook_files.load(tmp_path, str(tmp_path / "none"), trust_project=False)
    assert [each.timeout_s for each in found.handlers] == [5, 600, 60, 60]


@pytest.mark.parametrize(
    "name",
    [
        "hook-cc-pretool-deny",
        "hook-cc-posttool-block",
        "hook-codex-posttool-context",
        "hook-codex-stop-continue",
        "hook-cc-promptsubmit-block",
    ],
)
async def test_recorded_hook_files_behave_as_recorded(
    bench: Bench, shared: Path, name: str
) -> None:
    recorded = shared / "dsh-sessions" / name
    for file in (recorded / "workspace").iterdir():
        (bench.cwd / file.name).write_bytes(file.read_bytes())
    found = hook_files.load(bench.home, str(bench.cwd), trust_project=True)
    bench.hooks = CommandHooks(found.handlers, str(bench.cwd)).joined(bench.hooks)
    bench.tool("bash")
    bench.say(calls(("1", "bash")), calls(("2", "bash")), text("ok"), text("ok"))
    if "stop" in name:
        bench.model.replies[:2] = []
    async with bench.running() as session:
        await bench.prompt(session, "Run it")
    events = [json.loads(line) for line in (recorded / "session.jsonl").read_bytes().splitlines()]
    wanted = [event["data"] for event in events if event["type"].startswith("hook/")]
    ours = [json.loads(e.data) for e in session.log.events() if e.type.startswith("hook/")]
    if not wanted:
        assert ends(session) == ["blocked"]
        return
    for value in (*wanted, *ours):
        value.pop("durationMs", None)
    assert ours[: len(wanted)] == wanted
    with anyio.fail_after(30):
        await session.when_idle()
