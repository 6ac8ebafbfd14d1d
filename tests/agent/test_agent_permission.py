"""Approval before effects: rules, questions, remembered answers."""

from pathlib import Path
from typing import Any

from agent_bench import Bench, Person, calls, ends, results, text, types
import pytest

from dsh_acp.agent import policy
from dsh_acp.agent.policy import KNOBS, PolicyFold, Rule
from dsh_acp.config import Preset
from dsh_acp.errors import ToolError
from dsh_acp.log.events import PermissionGrant, PermissionRevoke, PlanMode, SandboxMode
from dsh_acp.messages import Message, Text
from dsh_acp.tools.tool import FileDiff, Intent

INSIDE, OUTSIDE = ("/home/p/a.py",), ("/etc/passwd",)


def policy_of(preset: Preset) -> PolicyFold:
    fold = PolicyFold()
    fold.sandbox, fold.approval, fold.plan = KNOBS[preset]
    return fold


def ruled(preset: Preset, intent: Intent, *, confined: bool = False) -> str:
    return policy.rule("t", intent, policy_of(preset), ("/home/p",), confined).kind


@pytest.mark.parametrize(
    ("intent", "plan", "ask", "write", "full"),
    [
        (Intent(effect="none"), "allow", "allow", "allow", "allow"),
        (Intent(effect="read", paths=INSIDE), "allow", "allow", "allow", "allow"),
        (Intent(effect="read"), "allow", "allow", "allow", "allow"),
        (Intent(effect="read", paths=OUTSIDE), "ask", "ask", "ask", "allow"),
        (Intent(effect="read", paths=("/home/project2/x",)), "ask", "ask", "ask", "allow"),
        (Intent(effect="write", paths=INSIDE), "deny", "ask", "allow", "allow"),
        (Intent(effect="write", paths=(*INSIDE, *OUTSIDE)), "deny", "ask", "ask", "allow"),
        (Intent(effect="write"), "deny", "ask", "ask", "allow"),
        (Intent(effect="execute", command="make"), "deny", "ask", "ask", "allow"),
        (Intent(effect="fetch"), "ask", "ask", "ask", "allow"),
        (Intent(effect="other"), "deny", "ask", "ask", "allow"),
    ],
)
def test_the_rules_say_of_each_effect_under_each_preset(
    intent: Intent, plan: str, ask: str, write: str, full: str
) -> None:
    assert [ruled(preset, intent) for preset in policy.PRESETS] == [plan, ask, write, full]


def test_a_confined_command_runs_unasked_where_files_may_be_written() -> None:
    command = Intent(effect="execute", command="make")
    assert ruled("workspace-write", command, confined=True) == "allow"
    assert ruled("ask", command, confined=True) == "ask"


def test_a_question_about_a_place_outside_says_so() -> None:
    found = policy.rule(
        "t", Intent(effect="read", paths=OUTSIDE), policy_of("ask"), ("/home/p",), False
    )
    assert found == Rule("ask", "/etc/passwd is outside the workspace")


def test_the_root_directory_contains_everything() -> None:
    assert policy.is_inside("/etc/passwd", ("/",))
    assert not policy.is_inside("/etc", ("/et",))


def test_where_nobody_is_to_be_asked_a_question_is_a_no() -> None:
    fold = policy_of("ask")
    fold.approval = "never"
    found = policy.rule("t", Intent(effect="execute"), fold, (), False)
    assert found == Rule("deny", 'the user rejected tool "t"')


def note(words: str) -> Message:
    return Message.user((Text(words),))


def asking(bench: Bench, *answers: str) -> None:
    bench.settings["permission"] = "ask"
    bench.person = Person(*answers)


async def test_a_question_shows_the_call_and_is_recorded_with_its_answer(bench: Bench) -> None:
    asking(bench, "allow_once")
    diff = FileDiff("/home/p/a.py", "old", "new")
    bench.tool("edit", effect="write", diffs=(diff,), scope="a.py")
    bench.say(calls(("c1", "edit", '{"x":1}')), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        question = bench.person.asked[0]
        assert (question.call_id, question.tool, question.scope) == ("c1", "edit", "a.py")
        assert question.card.title == 'edit {"x":1}'
        assert question.diffs == (diff,)
        found = types(session)
        start = found.index("tool/call")
        assert found[start : start + 4] == [
            "tool/call",
            "approval/asked",
            "approval/decided",
            "tool/result",
        ]
        asked, decided = (
            e.payload
            for e in session.log.events()
            if e.type.startswith("appr") and e.type != "approval/policy"
        )
        assert (asked.tool_name, asked.call_id) == ("edit", "c1")
        assert (decided.id, decided.outcome) == (asked.id, "allowed-once")
        assert results(session) == {"c1": "done"}


@pytest.mark.parametrize(
    ("answer", "outcome", "told"),
    [
        ("reject_once", "rejected", 'Error: the user rejected tool "t"'),
        ("reject_always", "rejected", 'Error: the user rejected tool "t"'),
        (
            "unavailable",
            "unavailable",
            'Error: tool "t" requires approval, but no approval channel is available',
        ),
        (
            "raise",
            "unavailable",
            'Error: tool "t" requires approval, but no approval channel is available',
        ),
        (
            "something new",
            "unavailable",
            'Error: tool "t" requires approval, but no approval channel is available',
        ),
    ],
)
async def test_anything_but_a_yes_is_a_no_and_the_turn_goes_on(
    bench: Bench, answer: str, outcome: str, told: str
) -> None:
    asking(bench, answer)
    tool = bench.tool("t", effect="execute")
    bench.say(calls(("c1", "t")), text("I see"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert tool.runs == []
        decided = [e.payload.outcome for e in session.log.events() if e.type == "approval/decided"]
        assert decided == [outcome]
        assert results(session) == {"c1": told}
        result = next(e for e in session.log.events() if e.type == "tool/result")
        assert not result.payload.error
        assert ends(session) == ["completed"]


async def test_an_answer_of_cancelled_cancels_the_turn(bench: Bench) -> None:
    asking(bench, "cancelled")
    tool = bench.tool("t", effect="execute")
    bench.say(calls(("c1", "t"), ("c2", "t")))
    async with bench.running() as session:
        await bench.prompt(session)
        assert tool.runs == []
        assert ends(session) == ["aborted"]
        assert results(session) == {
            "c1": 'Error: approval for tool "t" was cancelled',
            "c2": "Error: tool call aborted before dispatch",
        }


async def test_a_late_answer_after_a_cancel_reaches_nobody(bench: Bench) -> None:
    asking(bench)
    tool = bench.tool("t", effect="execute")
    bench.say(calls(("c1", "t")), text("ok"))
    async with bench.running() as session:
        session.followup(note("go"))
        await bench.person.waiting.wait()
        await session.cancel()
        decided = [e.payload.outcome for e in session.log.events() if e.type == "approval/decided"]
        assert decided == ["cancelled"]
        bench.person.answers.append("allow_once")
        await bench.prompt(session)
        assert tool.runs == []


async def test_always_covers_the_scope_in_this_session_and_survives_a_restart(
    bench: Bench,
) -> None:
    asking(bench, "allow_always", "reject_once")
    bench.tool("bash", effect="execute")
    status = '{"command":"git status","scope":"git status"}'
    remove = '{"command":"rm x","scope":"rm"}'
    bench.say(
        calls(("c1", "bash", status), ("c2", "bash", status), ("c3", "bash", remove)), text("ok")
    )
    async with bench.running() as session:
        await bench.prompt(session)
        assert len(bench.person.asked) == 2
        assert results(session)["c2"] == "done"
        id = session.id
    bench.say(calls(("c4", "bash", status)), text("ok"))
    async with bench.running(bench.store.open(id)) as session:
        await bench.prompt(session)
        assert len(bench.person.asked) == 2
        assert results(session)["c4"] == "done"
    bench.person.answers.append("reject_once")
    bench.say(calls(("c5", "bash", status)), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert len(bench.person.asked) == 3


async def test_never_covers_the_scope_too(bench: Bench) -> None:
    asking(bench, "reject_always")
    tool = bench.tool("bash", effect="execute")
    bench.say(calls(("c1", "bash"), ("c2", "bash")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert len(bench.person.asked) == 1
        assert tool.runs == []
        assert "for the rest of this session" in results(session)["c2"]
        session.parts.gate.revoke_all()
        bench.person.answers.append("allow_once")
        bench.say(calls(("c3", "bash")), text("ok"))
        await bench.prompt(session)
        assert results(session)["c3"] == "done"


async def test_a_change_that_cannot_be_made_is_not_asked_about(bench: Bench) -> None:
    asking(bench)
    tool = bench.tool("edit", effect="write")

    async def fail(args: Any, ctx: Any) -> Any:
        raise ToolError("the old text does not occur", code="EDIT_NO_MATCH")

    tool.preview = fail  # type: ignore[method-assign]
    bench.say(calls(("c1", "edit")), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert bench.person.asked == []
        assert results(session) == {"c1": "Error: the old text does not occur"}


async def test_plan_mode_refuses_effects_in_words_whatever_was_remembered(bench: Bench) -> None:
    bench.settings["permission"] = "plan"
    tool = bench.tool("bash", effect="execute")
    bench.say(calls(("c1", "bash")), text("ok"))
    async with bench.running() as session:
        session.log.append(PermissionGrant("tool", "bash", "", "allow"))
        await bench.prompt(session)
        assert "plan mode" in results(session)["c1"]
        assert tool.runs == []
        assert "Plan mode is on" in bench.model.requests[0].messages[1].text


async def test_a_symlink_out_of_the_workspace_is_outside(bench: Bench, tmp_path: Path) -> None:
    asking(bench, "reject_once")
    (bench.cwd / "link").symlink_to(tmp_path)
    bench.tool("read", effect="read")
    path = str((bench.cwd / "link").resolve() / "secret")
    bench.say(calls(("c1", "read", f'{{"path":"{path}"}}')), text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert "outside the workspace" in (bench.person.asked[0].reason or "")


def events_of(*payloads: Any) -> list[Any]:
    from dsh_acp.log.session_log import SessionLog
    from dsh_acp.log.validation import SessionHeader

    log = SessionLog(SessionHeader(id="s", created_at=1))
    return [log.append(payload) for payload in payloads]


def test_permissions_are_a_fold_in_which_the_last_one_counts() -> None:
    grant = PermissionGrant("command", "bash", "git status", "allow")
    found = policy.fold(
        events_of(
            SandboxMode("workspace-write"),
            grant,
            PermissionGrant("tool", "edit", "", "reject"),
            PermissionRevoke("tool", "edit", ""),
            PlanMode(True),
        )
    )
    assert found.preset == "plan"
    assert found.before_plan == "workspace-write"
    assert found.grants == {("bash", "command", "git status"): "allow"}
    assert policy.fold(events_of(grant, PermissionRevoke())).grants == {}


@pytest.mark.parametrize(
    ("mode", "preset"),
    [
        ("read-only", "ask"),
        ("workspace-write", "workspace-write"),
        ("danger-full-access", "full-access"),
        ("of another kind", "ask"),
    ],
)
def test_a_log_from_elsewhere_shows_the_nearest_preset(mode: str, preset: str) -> None:
    assert policy.fold(events_of(SandboxMode(mode))).preset == preset
