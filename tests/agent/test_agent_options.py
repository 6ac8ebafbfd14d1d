"""Choices: model, effort, permissions, directories."""

from agent_bench import Bench, calls, text, types
import pytest

from dsh_acp.agent import options
from dsh_acp.agent.session import Session
from dsh_acp.errors import DshError, LlmError
from dsh_acp.log.events import PlanMode
from dsh_acp.messages import Message, Text
from dsh_acp.tools.tool import Outcome


def note(words: str) -> Message:
    return Message.user((Text(words),))


def policy_events(session: Session, start: int = 0) -> list[tuple[str, bytes]]:
    wanted = ("permission/preset", "sandbox/mode", "approval/policy", "plan/mode")
    return [(e.type, e.data) for e in session.log.events(start) if e.type in wanted]


async def test_a_preset_chosen_between_turns_waits_for_the_next_prompt(bench: Bench) -> None:
    bench.settings["permission"] = "ask"
    bench.say(text("one"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session)
        start = session.log.seq
        session.select("preset", "full-access")
        session.select("preset", "workspace-write")
        assert session.preset == "workspace-write"
        assert {e.type for e in session.log.events(start)} == {"session/options"}
        start = session.log.seq
        await bench.prompt(session)
        found = [e.type for e in session.log.events(start)]
        assert found[:6] == [
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "permission/preset",
            "sandbox/mode",
            "step/start",
        ]
        assert session.preset == "workspace-write"


async def test_a_choice_that_nets_out_to_the_present_writes_nothing(bench: Bench) -> None:
    bench.settings["permission"] = "ask"
    bench.say(text("one"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session)
        start = session.log.seq
        session.select("preset", "full-access")
        session.select("preset", "ask")
        await bench.prompt(session)
        assert policy_events(session, start) == []


async def test_a_preset_chosen_inside_a_turn_holds_at_once(bench: Bench) -> None:
    bench.settings["permission"] = "ask"
    tool = bench.tool("bash", effect="execute")

    async def choose() -> None:
        session.select("preset", "full-access")

    reply = calls(("c1", "bash"))
    reply.insert(0, choose)
    bench.say(reply, text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert len(tool.runs) == 1
        assert bench.person.asked == []


async def test_a_fresh_session_records_the_preset_that_was_chosen_before_the_first_prompt(
    bench: Bench,
) -> None:
    bench.settings["permission"] = "ask"
    bench.say(text("one"))
    async with bench.running() as session:
        session.select("preset", "plan")
        await bench.prompt(session)
        assert policy_events(session) == [
            ("permission/preset", b'{"preset":"plan"}'),
            ("sandbox/mode", b'{"mode":"read-only"}'),
            ("approval/policy", b'{"policy":"ask"}'),
            ("plan/mode", b'{"active":true}'),
        ]


async def test_leaving_plan_mode_restores_what_was_before(bench: Bench) -> None:
    bench.settings["permission"] = "workspace-write"
    bench.say(text("one"), text("two"), text("three"))
    async with bench.running() as session:
        await bench.prompt(session)
        session.select("preset", "plan")
        await bench.prompt(session)
        assert session.preset == "plan"
        assert session.parts.options.before_plan == "workspace-write"
        session.select("preset", session.parts.options.before_plan)
        await bench.prompt(session)
        assert session.preset == "workspace-write"
        contexts = [m.text for m in session.log.messages() if "runtime context" in m.text]
        assert ["Plan mode is on" in words for words in contexts] == [False, True, False]


async def test_a_tool_that_ends_plan_mode_restores_the_other_knobs_too(bench: Bench) -> None:
    async def leave(args: object, ctx: object) -> Outcome:
        ctx.append(PlanMode(False))  # type: ignore[attr-defined]
        return Outcome(content=(Text("approved"),))

    bench.settings["permission"] = "workspace-write"
    bench.tool("exit_plan_mode", leave)
    bench.say(text("one"), calls(("c1", "exit_plan_mode")), text("carrying it out"))
    async with bench.running() as session:
        await bench.prompt(session)
        session.select("preset", "plan")
        await bench.prompt(session)
        assert session.preset == "workspace-write"
        assert policy_events(session)[-3:] == [
            ("plan/mode", b'{"active":false}'),
            ("permission/preset", b'{"preset":"workspace-write"}'),
            ("sandbox/mode", b'{"mode":"workspace-write"}'),
        ]


async def test_permissions_survive_a_restart_whatever_is_configured_then(bench: Bench) -> None:
    bench.settings["permission"] = "workspace-write"
    bench.say(text("one"))
    async with bench.running() as session:
        await bench.prompt(session)
        id = session.id
    bench.settings["permission"] = "full-access"
    async with bench.running(bench.store.open(id)) as session:
        assert session.preset == "workspace-write"


async def test_choices_that_wait_survive_a_restart(bench: Bench) -> None:
    bench.settings["permission"] = "ask"
    bench.say(text("one"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session)
        session.select("preset", "plan")
        session.select("model", "fake/two")
        session.select("effort", "high")
        id = session.id
    for _ in range(2):
        async with bench.running(bench.store.open(id)) as session:
            assert (session.preset, session.model, session.effort) == ("plan", "fake/two", "high")
    async with bench.running(bench.store.open(id)) as session:
        await bench.prompt(session)
        last = bench.model.requests[-1].config
        assert (last.model, last.reasoning_effort) == ("two", "high")
        assert session.parts.policy.plan
        session.select("preset", "full-access")
        session.select("preset", "plan")
        session.select("effort", "")
    async with bench.running(bench.store.open(id)) as session:
        assert (session.preset, session.model, session.effort) == ("plan", "fake/two", None)


async def test_a_choice_before_the_first_prompt_keeps_the_session(bench: Bench) -> None:
    async with bench.running() as session:
        session.select("preset", "plan")
        id = session.id
    async with bench.running(bench.store.open(id)) as session:
        assert session.preset == "plan"
    assert bench.store.list() == [] or not bench.store.list()[0].has_input


async def test_a_model_chosen_in_a_turn_answers_the_next_step_and_is_logged_as_a_change(
    bench: Bench,
) -> None:
    async def choose() -> None:
        session.select("model", "fake/two")

    bench.tool("look")
    reply = calls(("c1", "look"))
    reply.insert(0, choose)
    bench.say(reply, text("ok"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert [r.config.model for r in bench.model.requests] == ["one", "two"]
        reasons = [e.payload.reason for e in session.log.events() if e.type == "request/header"]
        assert reasons == ["initial", "change"]
        assert types(session).count("request/context") == 2
        id = session.id
    async with bench.running(bench.store.open(id)) as session:
        assert session.model == "fake/two"


async def test_an_effort_is_checked_sent_kept_and_cleared(bench: Bench) -> None:
    bench.say(text("one"), text("two"), text("three"))
    async with bench.running() as session:
        with pytest.raises(DshError, match='"extreme" is not an effort of fake/one'):
            session.select("effort", "extreme")
        session.select("effort", "high")
        await bench.prompt(session)
        id = session.id
    async with bench.running(bench.store.open(id)) as session:
        assert session.effort == "high"
        await bench.prompt(session)
        session.select("effort", "")
        await bench.prompt(session)
    efforts = [r.config.reasoning_effort or None for r in bench.model.requests]
    assert efforts == ["high", "high", None]


async def test_a_choice_that_does_not_exist_is_refused_in_words(bench: Bench) -> None:
    async with bench.running() as session:
        with pytest.raises(DshError, match='there is no option "colour"'):
            session.select("colour", "red")
        with pytest.raises(DshError, match='"yolo" is not a permission preset; there are: plan'):
            session.select("preset", "yolo")
        with pytest.raises(LlmError, match="no provider named"):
            session.select("model", "nobody/x")


async def test_a_session_without_a_model_says_what_to_do(bench: Bench) -> None:
    bench.options |= {"provider": "gone", "model": "x"}
    async with bench.running() as session:
        await bench.prompt(session)
        reason = list(session.log.events())[-1].payload.reason
        assert (reason.kind, reason.error.code) == ("error", "NO_ADAPTER")


async def test_additional_directories_are_recorded_and_restored(bench: Bench) -> None:
    other = bench.cwd.parent / "other"
    other.mkdir()
    bench.options["additional_directories"] = (str(other),)
    bench.say(text("one"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert session.parts.options.roots == (str(bench.cwd), str(other))
        assert str(other) in bench.model.requests[0].messages[1].text
        id = session.id
    assert options.fold(bench.store.read(id).events()) == (str(other),)
    bench.options["additional_directories"] = None
    async with bench.running(bench.store.open(id)) as session:
        assert session.parts.options.roots == (str(bench.cwd), str(other))


async def test_the_output_ceiling_of_the_front_end_is_sent(bench: Bench) -> None:
    bench.options["max_tokens"] = 77
    bench.say(text("one"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session)
        await bench.prompt(session)
    assert [r.config.max_tokens for r in bench.model.requests] == [77, 77]


async def test_the_snapshot_is_sent_again_only_when_it_changed(bench: Bench) -> None:
    bench.say(text("one"), text("two"), text("three"))
    async with bench.running() as session:
        await bench.prompt(session)
        await bench.prompt(session)
        session.select("preset", "ask")
        await bench.prompt(session)
        snapshots = [
            e.payload.message
            for e in session.log.events()
            if e.type == "user/message" and e.payload.message.source.get("form") == "snapshot"
        ]
        assert len(snapshots) == 2
        names = [section["name"] for section in snapshots[0].source["sections"]]
        assert names == ["workspace", "permissions:policy"]


async def test_only_a_model_that_sees_is_offered_to_look_at_images(bench: Bench) -> None:
    bench.tool("read_image")
    bench.tool("look")
    bench.model.seeing = {"two"}
    bench.say(text("one"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session)
        session.select("model", "fake/two")
        await bench.prompt(session)
    offered = [
        [tool.name for tool in request.header.tools or ()] for request in bench.model.requests
    ]
    assert offered == [["look"], ["look", "read_image"]]
