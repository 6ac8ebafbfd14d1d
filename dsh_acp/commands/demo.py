"""`dsh-acp demo`: the whole thing in a terminal, without a key and without an editor.

A real server process is driven over stdio in a temporary workspace that holds a real small bug.
The model is scripted by a recorded session, or any real one (`--model`). Afterwards everything
that was shown is checked against the world: the file on disk, the tests, the log.
"""

import argparse
from collections.abc import Sequence
from importlib import resources
import os
from pathlib import Path
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import Final

import anyio
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from dsh_acp import config, jsontext
from dsh_acp.commands.demo_view import Json, View, diffs
from dsh_acp.commands.editor_files import EDITORS, NAME
from dsh_acp.commands.setup import own_command
from dsh_acp.errors import DshError
from dsh_acp.llm.registry import Providers
from dsh_acp.log.attachments import Attachments
from dsh_acp.log.audit import audit_log
from dsh_acp.log.store import Store
from dsh_acp.messages import Request
from dsh_acp.snapshot.calls import AgentEnded
from dsh_acp.snapshot.client import Client, agent_argv, agent_env
from dsh_acp.snapshot.desk import RpcError

PROMPT: Final = (
    "One test in this folder fails. Find out why, fix the code, and show that the tests pass."
)
_PACE_S: Final = 0.02
_TURN_S: Final = 600


class Check(Struct, frozen=True):
    """Something that was shown, and whether it happened.

    `needed` is false for what only the recorded session promises: a real model may go its own way.
    """

    what: str
    happened: bool
    detail: str = ""
    needed: bool = True


class Told(Struct, frozen=True):
    """What the agent answered: the session and why the turn ended."""

    session: str
    stop: str


def main(argv: list[str]) -> int:
    """Run the demo; 0 when everything that it showed happened."""
    parser = argparse.ArgumentParser(
        prog="dsh-acp demo",
        description="Show an agent fixing a bug in a temporary folder. Needs no key and no editor.",
    )
    parser.add_argument(
        "--model",
        metavar="PROVIDER/MODEL",
        help="let a real model do it instead of the recorded session (or: local)",
    )
    parser.add_argument("--yes", action="store_true", help="allow every change without asking")
    parser.add_argument("--keep", action="store_true", help="keep the folder afterwards")
    parser.add_argument("--json", action="store_true", help="print only the checks, as JSON")
    options = parser.parse_args(argv)
    interactive = sys.stdin.isatty() and sys.stdout.isatty() and not (options.yes or options.json)
    console = Console(quiet=options.json, highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="dsh-acp-demo-"))
    try:
        checks, session = anyio.run(_demo, folder, options.model, console, interactive)
        _next_steps(console, session, folder / "home" / "state" if options.keep else None)
    finally:
        if options.keep:
            console.print(Text(f"\nKept: {folder}"), soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        sys.stdout.write(jsontext.encode(checks).decode() + "\n")
    return 0 if all(check.happened or not check.needed for check in checks) else 1


def _next_steps(console: Console, session: str, kept: Path | None) -> None:
    """What to type now; commands for this very session when its directory `kept` stays."""
    console.print()
    console.rule(Text("What now", style="bold"), align="left", style="dim")
    program = _typed()
    steps = [
        (f"{program} login", "store a key (or set DEEPSEEK_API_KEY)"),
        (f"{program} setup zed", f"or {', '.join(name for name in EDITORS if name != 'zed')}"),
    ]
    if kept is None:
        steps.append((f"{program} demo --keep", "keep the session: read it, prove it, attack it"))
    width = max(len(command) for command, _ in steps)
    for command, words in steps:
        console.print(Text(f"  {command:{width}}  {words}"), soft_wrap=True)
    if kept is not None:
        console.print("This session, read, proved, and as a page to step through and attack:")
        for command in ("show", "audit", "lab"):
            line = f"  DSH_ACP_HOME={shlex.quote(str(kept))} {program} {command} {session}"
            console.print(Text(line), soft_wrap=True)


def _typed() -> str:
    """This program as it can be typed here: after `make demo` it is not on the PATH."""
    if shutil.which(NAME):
        return NAME
    path, here = Path(own_command()), Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


async def _demo(
    folder: Path, model: str | None, console: Console, ask: bool
) -> tuple[list[Check], str]:
    workspace, home = folder / "workspace", folder / "home"
    home.mkdir()
    script = _unpack(workspace, folder)
    before = (workspace / "middle.py").read_text(encoding="utf-8")
    failed_at_first = not _tests_pass(workspace)
    scripted = model is None
    # Only the recorded answers come faster than anyone reads.
    pace = _PACE_S if scripted and console.is_terminal else 0
    view = View(console, interactive=ask, pace_s=pace)
    view.heading("A folder with a failing test")
    view.line("·", "dim", f"workspace {workspace}")
    view.line("·", "dim", f"model     {model or 'a recorded session: no key, no network'}")
    view.heading("You")
    console.print(PROMPT)
    view.heading("The agent")
    told = await _converse(view, workspace, home, model or f"replay:{script}", scripted)
    view.heading("What really happened")
    if scripted and any(card["status"] == "failed" for card in view.cards.values()):
        view.line("·", "dim", "the model is a recording: it goes on as if nothing was refused")
    after = (workspace / "middle.py").read_text(encoding="utf-8")
    shown_is_true = _disk_holds(_last_diffs(view))
    checks = [
        Check("the test failed before", failed_at_first),
        *_checks(view, told, scripted),
        Check("the file has changed on disk", after != before),
        Check("each diff that was shown is what the disk holds", shown_is_true),
        Check("the tests pass now, run once more from here", _tests_pass(workspace)),
    ]
    for check in checks:
        _tell(view, check)
    view.heading("The audit: every request, rebuilt from the log and compared")
    audits = _audit(told.session, home / "state", model or f"replay:{script}")
    for check in audits:
        _tell(view, check)
    return [*checks, *audits], told.session


async def _converse(view: View, workspace: Path, home: Path, model: str, scripted: bool) -> Told:
    env = agent_env(home) if scripted else dict(os.environ)
    # The recorded session runs `python`; that must be one that exists, wherever this was started.
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    argv = agent_argv("--model", model, "--permission", "ask", "--home", str(home / "state"))
    async with Client.spawn(argv, cwd=workspace, env=env, own_group=True) as client:
        try:
            return await _turn(client, view, workspace)
        except (RpcError, AgentEnded) as exc:
            said = bytes(client.stderr).decode("utf-8", "replace").strip()
            raise DshError(f"{exc}\n{said}".strip(), code="DEMO") from exc
        except TimeoutError as exc:
            raise DshError(f"the model did not finish within {_TURN_S} s", code="DEMO") from exc


async def _turn(client: Client, view: View, workspace: Path) -> Told:
    shown = Shown(client, view)
    client.on("session/request_permission", shown.permission)
    await client.initialize(clientInfo={"name": "dsh-acp demo", "version": "1"})
    session = await client.new_session(workspace)
    stop, problem = "", None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shown.follow)
        try:
            stop = await _answer(client, session)
            await shown.caught_up()
        except (RpcError, AgentEnded, TimeoutError) as exc:
            problem = exc  # raised in here it would come out as a group of one
        tasks.cancel_scope.cancel()
    if problem is not None:
        raise problem
    return Told(session, stop)


async def _answer(client: Client, session: str) -> str:
    with anyio.fail_after(_TURN_S):
        return str((await client.prompt(session, PROMPT)).get("stopReason"))


class Shown:
    """Keeps what is shown in the order of the wire, however long showing takes."""

    def __init__(self, client: Client, view: View) -> None:
        self._client = client
        self._view = view
        self._done = 0
        self._moved = anyio.Event()

    async def follow(self) -> None:
        """Show every update as it comes; runs until cancelled."""
        while True:
            try:
                frame = await self._client.until(lambda _: True, self._done)
            except AgentEnded:
                return
            if frame.get("method") == "session/update":
                await self._view.update(frame["params"]["update"])
            self._done += 1
            self._moved.set()
            self._moved = anyio.Event()

    async def caught_up(self) -> None:
        """Wait until everything received so far is shown."""
        owed = len(self._client.frames)
        while self._done < owed:
            await self._moved.wait()

    async def permission(self, params: Json) -> Json:
        """Ask only when what came before the question is shown."""
        await self.caught_up()
        return await self._view.permission(params)


def _unpack(workspace: Path, folder: Path) -> Path:
    data = resources.files("dsh_acp.commands") / "demo_data"
    workspace.mkdir()
    for name in ("middle.py", "test_middle.py"):
        text = (data / "workspace" / name).read_text(encoding="utf-8")
        (workspace / name).write_text(text, encoding="utf-8", newline="\n")
    script = folder / "session.jsonl"
    script.write_bytes((data / "session.jsonl").read_bytes())
    return script


def _tests_pass(workspace: Path) -> bool:
    return (
        subprocess.run(
            [sys.executable, "-B", "-m", "unittest"],
            cwd=workspace,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        ).returncode
        == 0
    )


def _checks(view: View, told: Told, scripted: bool) -> list[Check]:
    done = [card for card in view.cards.values() if card["status"] == "completed"]
    kinds = {str(card.get("kind")) for card in done}
    words, thoughts = view.pieces["agent_message_chunk"], view.pieces["agent_thought_chunk"]
    asked = [id for id in view.granted if view.cards[id]["status"] == "completed"]
    return [
        Check(f"the turn ended ({told.stop})", told.stop == "end_turn"),
        Check("text was streamed", len(words) > 1, f"{len(words)} pieces"),
        Check("thoughts were streamed", len(thoughts) > 1, f"{len(thoughts)} pieces", scripted),
        Check("files were read", "read" in kinds, "", scripted),
        Check("an edit was shown with its diff", bool(_last_diffs(view)), "", scripted),
        Check("a change waited for approval", bool(asked), f"{len(asked)} granted", scripted),
        Check("a command ran", "execute" in kinds, "", scripted),
    ]


def _audit(session: str, home: Path, model: str) -> list[Check]:
    """Prove every request of the log: rebuilt, and equal to what was sent by its digest."""
    settings = config.load(config.Flags(model=model, home=str(home)), is_lenient=True)
    providers = Providers(settings, Attachments(home))
    providers.resolve(model)  # makes a replay known under the name that it was recorded with

    def body_of(request: Request) -> bytes:
        provider = providers.get(request.config.provider)
        if provider is None:
            raise DshError(f"nobody serves {request.config.provider}", code="NO_ADAPTER")
        return provider.body(request).data

    path = Store(home).find(session)
    if path is None:
        return [Check("the session is on disk", False)]
    report = audit_log(path, body_of)
    checks = [
        Check(
            f"request {request.turn}.{request.step}, {request.messages} messages",
            request.proved is True,
            request.difference or f"sha256 {request.digest}",
        )
        for request in report.requests
    ]
    wrong = "; ".join(problem.text for problem in report.problems)
    checks.append(Check(f"the log of {report.events} events holds together", report.ok, wrong))
    checks.append(Check("there was at least one request", bool(report.requests)))
    return checks


def _disk_holds(shown: Sequence[tuple[str, str]]) -> bool:
    # A diff may show only the lines around a change.
    return all(new.strip("\n") in Path(path).read_text(encoding="utf-8") for path, new in shown)


def _last_diffs(view: View) -> Sequence[tuple[str, str]]:
    """The last completed diff of each file: earlier ones were overwritten on purpose."""
    latest: dict[str, str] = {}
    for card in view.cards.values():
        if card["status"] == "completed":
            latest.update(diffs(card))
    return list(latest.items())


def _tell(view: View, check: Check) -> None:
    mark, style = ("✓", "green") if check.happened else ("✗", "red" if check.needed else "yellow")
    detail = re.sub(r"(sha256 \w{12})\w+", r"\1…", check.detail)
    detail = f" ({detail})" if detail else ""
    view.line(mark, style, check.what + detail)
