"""Runs scenarios: check, refresh, record; many at a time, each in its own place.

A scenario is played once for each version of the protocol in which it has a place. The first of
them makes its logs; the other must write the same ones.

Nothing here waits for time to pass. The number of agents alive at once is bounded; results come
back in the order of the scenarios, whatever finished first.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
import time
from typing import Any, Final, Literal, TypeAlias

import anyio
import msgspec
from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.snapshot import pins, replies
from dsh_acp.snapshot.bench import Bench, bench, launch, store, used
from dsh_acp.snapshot.compare import Difference, compare
from dsh_acp.snapshot.conformity import schema_folder, violations
from dsh_acp.snapshot.harvest import Harvested, harvest
from dsh_acp.snapshot.leaks import leaks
from dsh_acp.snapshot.moves import MOVES
from dsh_acp.snapshot.normalise import Normaliser
from dsh_acp.snapshot.play import Player
from dsh_acp.snapshot.recording import replay
from dsh_acp.snapshot.rewrite import rewrite, write_transcript
from dsh_acp.snapshot.scenario import SYSTEM, TOOLS, Scenario, log_name
from dsh_acp.snapshot.script import Input
from dsh_acp.snapshot.steps import Delete
from dsh_acp.snapshot.versions import VERSIONS, transcript, versions_of

Json: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal["check", "refresh", "record"]

TIMEOUT_S: Final = 60.0


class Options(Struct, frozen=True, kw_only=True):
    """What every scenario of a run shares.

    `agent` is another agent's command; `live` the model that `record` uses; `compares` off only
    plays the scripts and checks the frames. `schemas` is the protocol's schema folder, `versions`
    those to play.
    """

    mode: Mode = "check"
    agent: tuple[str, ...] | None = None
    live: str | None = None
    compares: bool = True
    timeout_s: float = TIMEOUT_S
    jobs: int = 4
    schemas: Path | None = None
    versions: tuple[int, ...] = VERSIONS


class Result(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How one scenario went. `written` lists the files that refresh or record changed.

    `strangers` tells of request headers that are not those of the scenario's class: often the same
    for many scenarios, and one change in the one that pins them.
    """

    name: str
    problems: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    skipped: str = ""
    written: tuple[str, ...] = ()
    seconds: float = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and not self.differences and not self.strangers


Report: TypeAlias = Callable[[Result], None]


async def run_all(
    scenarios: Sequence[Scenario],
    one: Callable[[Scenario], Any],
    jobs: int = 4,
    report: Report | None = None,
    first_failure: bool = False,
) -> list[Result]:
    """Run `one` (an async function) over all scenarios, at most `jobs` at a time.

    `report` hears of each result in the order of the scenarios. With `first_failure` nothing new
    is started after a failure; what was not played is skipped.
    """
    failed = False
    results: dict[str, Result] = {}
    limiter = anyio.CapacityLimiter(jobs)
    told = 0

    def tell() -> None:
        nonlocal told
        while told < len(scenarios) and scenarios[told].name in results:
            if report is not None:
                report(results[scenarios[told].name])
            told += 1

    async def go(scenario: Scenario) -> None:
        nonlocal failed
        async with limiter:
            started = time.monotonic()
            if failed and first_failure:
                result = Result(name=scenario.name, skipped="not played after a failure")
            else:
                result = await one(scenario)
            failed = failed or not result.ok
            seconds = round(time.monotonic() - started, 3)
            results[scenario.name] = msgspec.structs.replace(result, seconds=seconds)
        tell()

    async with anyio.create_task_group() as tasks:
        for scenario in scenarios:
            tasks.start_soon(go, scenario)
    return [results[scenario.name] for scenario in scenarios]


async def run(scenario: Scenario, options: Options) -> Result:
    """One scenario at level `full`, in any mode."""
    if options.mode == "check" and (faults := scenario.faults()):
        return Result(name=scenario.name, problems=tuple(faults))
    try:
        script = scenario.input
    except (OSError, msgspec.DecodeError) as exc:
        return Result(name=scenario.name, problems=(f"input.json: {exc}",))
    if scenario.is_wire:
        return await run_wire(scenario, options)
    if options.mode == "record":
        return await _record(scenario, script, options)
    return await _all_versions(scenario, script, options)


async def _all_versions(scenario: Scenario, script: Input, options: Options) -> Result:
    results: list[Result] = []
    for version in _versions(scenario, script, options):
        results.append(await _play(Scenario(scenario.folder), script, options, version))
        if not results[-1].ok:
            break
    if not results:
        return Result(name=scenario.name, skipped="has no place in that version")
    is_told = results[-1].ok and len(results) > 1
    told = tuple(Scenario(scenario.folder).discrepancies()) if is_told else ()
    return Result(
        name=scenario.name,
        problems=(*results[-1].problems, *told),
        strangers=results[-1].strangers,
        differences=results[-1].differences,
        written=tuple(dict.fromkeys(name for result in results for name in result.written)),
    )


def _versions(scenario: Scenario, script: Input, options: Options) -> tuple[int, ...]:
    """The versions to play. Of another agent's, those that it is known to speak."""
    found = versions_of(script)
    if options.agent or (script.agent and script.agent.argv):
        found = scenario.versions or found[:1]
    return tuple(version for version in found if version in options.versions)


async def _record(scenario: Scenario, script: Input, options: Options) -> Result:
    """Play with the live model, then once more with what it said.

    The second run makes the expectations those of a replay: a live session does things of its own,
    such as asking for a title, that a recording has no place for. Real gaps between tokens stay.
    """
    if scenario.overrides:
        words = "its replies are written by hand; remove replay.override.json to record it"
        return Result(name=scenario.name, skipped=words)
    live = await _play(scenario, script, options, versions_of(script)[0])
    if not live.ok:
        return live
    replay = msgspec.structs.replace(options, mode="refresh", live=None)
    again = await _all_versions(Scenario(scenario.folder), script, replay)
    written = tuple(dict.fromkeys((*live.written, *again.written)))
    return msgspec.structs.replace(again, written=written)


async def _play(scenario: Scenario, script: Input, options: Options, version: int) -> Result:
    # The first is started as an editor starts it.
    is_second = version != versions_of(script)[0] and len(options.versions) > 1
    with bench(scenario) as found:
        try:
            player = Player(
                script,
                found.cwd,
                found.home,
                MOVES,
                lambda life: launch(
                    found, scenario, life, _command(options), options.live, forks=is_second
                ),
                store(found, scenario),
                version,
            )
            await player.run(options.timeout_s)
        except (replies.ReplyError, jsontext.DecodeError) as exc:
            return Result(name=scenario.name, problems=(f"the model's script: {exc}",))
        run = Played(scenario, options, found, player)
        if not run.owns_agent and player.answered < version:
            return Result(name=scenario.name)  # an agent of an older version is told in it already
        return run.check() if options.mode == "check" else run.write()


async def run_wire(scenario: Scenario, options: Options) -> Result:
    """A recording of the proxy: its client is replayed, the agent's frames are compared."""
    if options.mode != "check":
        return Result(name=scenario.name, skipped="a recording is renewed by the proxy")
    with bench(scenario) as found:
        start = launch(found, scenario, 0, _command(options), None)
        problems, difference = await replay(
            scenario.folder, list(start.argv), found.cwd, dict(start.env)
        )
    return Result(
        name=scenario.name,
        problems=tuple(problems),
        differences=(difference,) if difference else (),
    )


def _command(options: Options) -> list[str] | None:
    return None if options.agent is None else list(options.agent)


class Played:
    """A finished run and what it says."""

    def __init__(self, scenario: Scenario, options: Options, found: Bench, player: Player) -> None:
        self.scenario: Final = scenario
        self.options: Final = options
        self.player: Final = player
        self.problems: Final = list(player.problems)
        self.owns_agent: Final = options.agent is None and not (
            scenario.input.agent and scenario.input.agent.argv
        )
        self.has_logs: Final = self.owns_agent and scenario.input.compares_log
        self.logs: list[Harvested] = []
        self._found = found
        self._problem_of_reading()

    def _problem_of_reading(self) -> None:
        if not self.owns_agent:
            return
        try:
            self.logs = harvest(self._found.state, self.player.met)
            for log in self.logs:
                for event in log.events():
                    error = event["data"].get("error") if event["type"] == "tool/result" else None
                    if isinstance(error, dict) and error.get("code") == "UNKNOWN_TOOL":  # pyright: ignore[reportUnknownMemberType]
                        self.problems.append("the model called a tool that does not exist")
        except (ValueError, KeyError) as exc:
            self.problems.append(f"a log that cannot be read: {exc}")

    @property
    def makes_logs(self) -> bool:
        """Whether this version's logs are the expected ones of a refresh."""
        return self.has_logs and self.player.version == versions_of(self.scenario.input)[0]

    def normaliser(self) -> Normaliser:
        """A fresh table for one file."""
        return Normaliser(str(self._found.cwd), str(self._found.home), self.player.met)

    def frames(self) -> list[bytes]:
        """The transcript, normalised."""
        lines = [line for line in self.player.received if _is_json(line)]
        return self.normaliser().frames(lines)

    def log(self, number: int, keep_gaps: bool = False) -> list[bytes]:
        """One log, normalised."""
        return self.normaliser().log(self.logs[number].lines, keep_gaps=keep_gaps)

    # ------------------------------------------------------------ check

    def check(self) -> Result:
        """Compare with what is committed."""
        differences: list[Difference] = []
        if self.options.compares:
            version = self.player.version
            expected = self.scenario.transcript(version) or []
            found = compare(transcript(version), expected, self.frames())
            differences += [found] if found else []
            if self.has_logs and not found:
                differences += self._compare_logs()
        self.problems.extend(self._judgements())
        return Result(
            name=self.scenario.name,
            problems=tuple(self.problems),
            strangers=tuple(self._headers()) if self.has_logs and self.options.compares else (),
            differences=tuple(differences),
        )

    def _judgements(self) -> list[str]:
        problems = violations(self.player.lines, self.options.schemas)
        if self.owns_agent and not self.player.problems:
            problems += self._unused()
        return problems

    def _compare_logs(self) -> list[Difference]:
        expected = self.scenario.logs
        if len(expected) != len(self.logs):
            self.problems.append(f"{len(self.logs)} logs were written, expected {len(expected)}")
        found: list[Difference] = []
        for number in range(min(len(expected), len(self.logs))):
            # The fixture's own gaps are data for people; both sides are compared without.
            wanted = Normaliser("").log(expected[number])
            difference = compare(log_name(number), wanted, self.log(number))
            if difference is not None:
                found.append(difference)
                break
        return found

    def _unused(self) -> list[str]:
        setup = self.scenario.input.agent
        has_deleted = any(isinstance(step, Delete) for step in self.scenario.input.steps)
        if self.options.live or (setup and setup.model) or has_deleted:
            return []  # nobody knows how many replies there were, or how many were used
        logs, overrides = self.scenario.logs, self.scenario.overrides
        total = 0
        for number in range(max(1, len(self.logs))):
            log = logs[number] if number < len(logs) else []
            lenient = number > 0 or number in overrides
            script = overrides.get(number)
            total += len(
                replies.implied(log, lenient) if script is None else replies.entries(log, script)
            )
        spent = used(self._found)
        if spent < total:
            return [f"only {spent} of {total} scripted replies were used"]
        return []

    def _headers(self) -> list[str]:
        found = pins.parts(self.logs, self.normaliser())
        if not found:
            return []
        pin = find_pin(self.scenario)
        if pin is None:
            name = self.scenario.input.header_class
            how = 'give one of them "pinsHeader": true and refresh it'
            return [f"no scenario pins the header class {name}; {how}"]
        pinned = pins.decode(pin.path(SYSTEM).read_bytes(), pin.path(TOOLS).read_bytes())
        return pins.strangers(found, pinned, pin.name)

    # ------------------------------------------------------------ refresh and record

    def write(self) -> Result:
        """Rewrite the scenario's expectations; nothing is written when the run went wrong."""
        self.problems.extend(self._judgements())
        version = self.player.version
        texts: dict[str, list[bytes]] = {transcript(version): self.frames()}
        sidecars: dict[str, bytes] = {}
        if self.has_logs and not self.makes_logs:
            return self._write_beside()
        if self.has_logs:
            keep = self.options.mode == "record"
            for number in range(len(self.logs)):
                texts[log_name(number)] = self.log(number, keep_gaps=keep)
            found = pins.parts(self.logs, self.normaliser())
            if self.scenario.input.pins_header and found:
                sidecars[SYSTEM], sidecars[TOOLS] = pins.encode(found)
        if self.options.mode == "record":
            for name, lines in texts.items():
                text = b"\n".join(lines).decode("utf-8", "replace")
                self.problems.extend(f"{name}, {what}: not written" for what in leaks(text))
        if self.problems:
            return Result(name=self.scenario.name, problems=tuple(self.problems))
        written = rewrite(self.scenario, texts, sidecars)
        return Result(name=self.scenario.name, written=tuple(written))

    def _write_beside(self) -> Result:
        """The transcript of a version that must lead to the logs which are there."""
        differences = [] if self.problems else self._compare_logs()
        if self.problems or differences:
            return Result(
                name=self.scenario.name,
                problems=tuple(self.problems),
                differences=tuple(differences),
            )
        written = write_transcript(self.scenario, self.player.version, self.frames())
        return Result(name=self.scenario.name, written=tuple(written))


def find_pin(scenario: Scenario) -> Scenario | None:
    """The scenario beside this one that pins its header class."""
    if scenario.input.pins_header:
        return scenario if scenario.path(SYSTEM).exists() else None
    for folder in sorted(scenario.folder.parent.iterdir()):
        if (folder / SYSTEM).exists() and (folder / TOOLS).exists():
            other = Scenario(folder)
            if other.input.header_class == scenario.input.header_class:
                return other
    return None


def _is_json(line: bytes) -> bool:
    try:
        jsontext.loads(line)
    except jsontext.DecodeError:
        return False
    return True


def default_options(folder: Path, **more: Any) -> Options:
    """Options with the schema folder found near the scenarios."""
    return Options(schemas=schema_folder(folder), **more)
