"""Sandboxes and approvals together: what runs unasked, what asks for more, what moved meanwhile."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
import json
import os
from pathlib import Path
from typing import Any

from agent_bench import Bench, Person, calls, results, text
import anyio
import pytest

from dsh_acp.agent import policy
from dsh_acp.agent.policy import KNOBS, PolicyFold, Rule
from dsh_acp.agent.services import PermissionQuestion, Services, SessionOptions
from dsh_acp.agent.session import Session
from dsh_acp.config import Preset, Settings
from dsh_acp.tools import confine
from dsh_acp.tools.catalog import builtin
from dsh_acp.tools.confine import Confinement
from dsh_acp.tools.tool import Intent
from dsh_acp.tools.world import LocalWorld

WIDER = Intent(effect="execute", command="make", reason="because", escalate="danger-full-access")


def ruled(preset: Preset, intent: Intent, *, confined: bool = True, granted: bool = False) -> Rule:
    fold = PolicyFold()
    fold.sandbox, fold.approval, fold.plan = KNOBS[preset]
    if granted:
        fold.grants[policy.grant_key("t", intent)] = "allow"
    return policy.rule("t", intent, fold, ("/home/p",), confined)


def test_what_is_more_than_it_seems_is_asked_about_inside_the_workspace_too() -> None:
    plain = Intent(effect="write", paths=("/home/p/a",), scope="/home/p/a")
    hooks = Intent(effect="write", paths=("/home/p/a",), reason="it has other names")
    assert ruled("workspace-write", plain) == Rule("allow")
    assert ruled("workspace-write", hooks) == Rule("ask", "it has other names")
    sweeping = Intent(effect="execute", command="rm -r x", reason="this command deletes")
    assert ruled("workspace-write", sweeping) == Rule("ask", "this command deletes")


def test_an_escalation_is_asked_about_even_where_always_was_said() -> None:
    for preset in ("ask", "workspace-write"):
        assert ruled(preset, WIDER, granted=True) == Rule("ask", "because")
    assert ruled("plan", WIDER).kind == "deny"


def test_an_escalation_must_widen_something() -> None:
    assert ruled("full-access", WIDER) == Rule(
        "deny",
        'sandbox escalation to "danger-full-access" is not strictly wider than this call\'s '
        'current "danger-full-access" mode',
    )
    same = Intent(effect="write", paths=("/etc/x",), escalate="workspace-write")
    assert ruled("workspace-write", same).kind == "deny"
    assert ruled("ask", same).kind == "ask"


def test_nobody_is_asked_for_an_escalation_where_nobody_may_be_asked() -> None:
    fold = PolicyFold()
    fold.sandbox, fold.approval = "read-only", "never"
    found = policy.rule("bash", WIDER, fold, ("/home/p",), True)
    text = 'the user rejected escalating this command to "danger-full-access"'
    assert found == Rule("deny", text)


# ---------------------------------------------------------------- sessions


class Site:
    """A session over real tools, with a folder outside its workspace."""

    def __init__(self, bench: Bench, root: Path, sandbox: str = "auto") -> None:
        self.bench = bench
        self.outside = root / "outside"
        self.outside.mkdir()
        (root / "temp").mkdir()
        self.settings = Settings(
            home=bench.home,
            config_path=root / "c.toml",
            config_dir=root / "config",
            model="fake/one",
            permission="workspace-write",
            sandbox=sandbox,  # type: ignore[arg-type]
        )
        self.confinement = Confinement(self.settings, (str(root / "temp"),))
        if sandbox != "off" and confine.find("auto") is None:
            pytest.skip("nothing confines commands on this machine")

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Session]:
        bench = self.bench
        services = Services(
            settings=self.settings,
            store=bench.store,
            providers=bench.models,  # type: ignore[arg-type]
            tools=builtin(self.settings),
            world=LocalWorld(),
            asker=bench.person,
            clock=bench.clock,
            confinement=self.confinement,
        )
        options = SessionOptions(cwd=str(bench.cwd), provider="fake", model="one")
        log = bench.store.create(str(bench.cwd))
        with anyio.fail_after(30):
            async with Session(log, services=services, options=options).running() as session:
                yield session

    async def result(self, name: str, **arguments: Any) -> str:
        """What the model is told of one call."""
        self.bench.say(calls(("c", name, json.dumps(arguments))), text("done"))
        async with self.running() as session:
            await self.bench.prompt(session)
            return results(session)["c"]

    async def bash(self, command: str, **more: Any) -> str:
        return await self.result("bash", command=command, description="d", **more)


@pytest.fixture
def site(bench: Bench, tmp_path: Path) -> Site:
    return Site(bench, tmp_path)


async def test_a_command_runs_unasked_and_cannot_write_outside(site: Site) -> None:
    found = await site.bash(f"echo a >here; cat here; echo b >{site.outside}/there")
    assert site.bench.person.asked == []
    assert found.startswith("a\n[stderr]\n")
    assert "[sandbox: file access denied under workspace-write mode]" in found
    assert list(site.outside.iterdir()) == []


async def test_the_model_is_told_of_the_sandbox(site: Site) -> None:
    await site.bash("true")
    sent = site.bench.model.bodies[0].decode()
    assert "Commands run without asking in a sandbox" in sent
    assert "sandbox_permissions" in sent


async def test_without_confinement_each_command_is_asked_about(
    bench: Bench, tmp_path: Path
) -> None:
    site = Site(bench, tmp_path, sandbox="off")
    bench.person = Person("allow_once")
    assert await site.bash(f"echo b >{site.outside}/there; echo done") == "done\n"
    assert len(bench.person.asked) == 1
    sent = bench.model.bodies[0].decode()
    assert "The user is asked before commands run" in sent
    assert "sandbox_permissions" not in sent


WIDE = {"sandbox_permissions": "danger-full-access", "justification": "the report goes there"}


async def test_an_escalation_shows_the_justification_and_covers_one_call(site: Site) -> None:
    site.bench.person = Person("allow_once")
    command = f"echo b >{site.outside}/there"
    assert await site.bash(command, **WIDE) == "(no output)"
    (asked,) = site.bench.person.asked
    assert asked.reason == "escalate sandbox to danger-full-access: the report goes there"
    assert asked.choices == ("allow_once", "reject_once")
    assert (site.outside / "there").read_text(encoding="utf-8") == "b\n"
    (site.outside / "there").unlink()
    assert "[sandbox: file access denied" in await site.bash(command)
    assert not (site.outside / "there").exists()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("reject_once", 'the user rejected escalating this command to "danger-full-access"'),
        ("cancelled", 'approval for escalating to "danger-full-access" was cancelled'),
        (
            "raise",
            'escalating to "danger-full-access" requires approval, but no approval channel is '
            "available",
        ),
    ],
)
async def test_an_escalation_that_nobody_grants_does_not_run(
    site: Site, answer: str, told: str
) -> None:
    site.bench.person = Person(answer)
    assert await site.bash(f"echo b >{site.outside}/there", **WIDE) == f"Error: {told}"
    assert list(site.outside.iterdir()) == []


async def test_always_is_not_heard_for_an_escalation(site: Site) -> None:
    site.bench.person = Person("allow_always", "reject_once")
    wide = json.dumps({"command": "true", "description": "d", **WIDE})
    site.bench.say(calls(("c", "bash", wide)), calls(("d", "bash", wide)), text("done"))
    async with site.running() as session:
        await site.bench.prompt(session)
        found = results(session)
    assert found["c"] == "(no output)"
    assert "rejected" in found["d"]


async def test_a_narrower_escalation_from_asking_keeps_the_sandbox(site: Site) -> None:
    from msgspec.structs import replace

    site.settings = replace(site.settings, permission="ask")
    site.bench.person = Person("allow_once")
    found = await site.bash(
        f"echo a >here; echo b >{site.outside}/there",
        sandbox_permissions="workspace-write",
        justification="it builds",
    )
    assert "[sandbox: file access denied" in found
    assert (site.bench.cwd / "here").exists()


# ---------------------------------------------------------------- what moves


class Mover(Person):
    """Says yes, after something was changed behind the question."""

    def __init__(self, move: Any) -> None:
        super().__init__("allow_once")
        self._move = move

    async def permission(self, question: PermissionQuestion) -> Any:
        self._move()
        return await super().permission(question)


async def test_a_symlink_swapped_after_the_answer_leads_nowhere(site: Site) -> None:
    door = site.bench.cwd / "door"
    (site.bench.cwd / "real").mkdir()
    (site.bench.cwd / "real" / ".git").mkdir()
    door.symlink_to("real")

    def swap() -> None:
        door.unlink()
        door.symlink_to(site.outside)
        (site.outside / ".git").mkdir()

    site.bench.person = Mover(swap)
    found = await site.result("write", file_path="door/.git/config", content="bad")
    assert site.bench.person.asked
    assert found == (
        f"Error: {site.outside}/.git/config is not what was allowed: the path led to "
        f"{site.bench.cwd}/real/.git/config then; nothing was done"
    )
    assert os.listdir(site.outside / ".git") == []


async def test_a_file_read_through_a_swapped_symlink_is_not_shown(site: Site) -> None:
    from msgspec.structs import replace

    site.settings = replace(site.settings, permission="ask")
    secret = site.outside / "secret"
    secret.write_text("hunter2", encoding="utf-8")
    shown = site.outside / "shown"
    shown.write_text("fine", encoding="utf-8")
    door = site.bench.cwd / "door"
    door.symlink_to(shown)

    def swap() -> None:
        door.unlink()
        door.symlink_to(secret)

    site.bench.person = Mover(swap)
    assert "hunter2" not in await site.result("read", file_path="door")
