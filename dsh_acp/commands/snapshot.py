"""`dsh-acp snapshot`: replay, rewrite, record and create protocol scenarios."""

import argparse
from collections.abc import Sequence
from functools import partial
import os
from pathlib import Path
import re
import shlex
import sys
import time
from typing import Final

import msgspec

from dsh_acp import jsontext
from dsh_acp.snapshot import catalogue
from dsh_acp.snapshot.runner import Options, Result, default_options, run, run_all
from dsh_acp.snapshot.scenario import Scenario, discover
from dsh_acp.snapshot.versions import VERSIONS

DEFAULT_FOLDER: Final = Path("fixtures/acp")

EPILOG: Final = """\
Levels of check:
  log         the committed logs load, keep their relations, and every request can be rebuilt
  projection  the transcript that follows from script and log alone equals the committed one
  full        the real process plays the script; its frames and logs equal the committed ones

Examples:
  dsh-acp snapshot check                        all scenarios of fixtures/acp
  dsh-acp snapshot check -k cancel              those with "cancel" in their name
  dsh-acp snapshot new my-tool --prompt "Use my tool" --call my_tool '{"x": 1}' --reply Done.
  dsh-acp snapshot refresh -k my-tool           write what the agent does now
  dsh-acp snapshot record -k my-tool --model deepseek/deepseek-v4-flash
  dsh-acp snapshot check tests/acp --agent 'my-agent --acp'
  dsh-acp snapshot proxy --out tests/acp/fix-bug -- my-agent --acp
"""


def main(argv: Sequence[str]) -> int:
    """Run one subcommand; 0 when everything is as committed, 1 when something is not."""
    arguments = list(argv)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments.insert(0, "check")
    options = _parser().parse_args(arguments)
    try:
        return options.act(options)
    except OSError as exc:
        sys.stderr.write(f"dsh-acp snapshot: {exc.filename or ''}: {exc.strerror}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dsh-acp snapshot",
        description="Replay, rewrite, record and create protocol scenarios.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, words in (
        ("check", "replay and compare (the default)"),
        ("refresh", "replay with the committed model and rewrite the expectations"),
        ("record", "play with a live model and write script and expectations"),
    ):
        sub = commands.add_parser(name, help=words, description=words)
        _common(sub)
        sub.set_defaults(act=_play, mode=name)
        if name == "record":
            sub.add_argument("--model", required=True, help="PROVIDER/MODEL, or local")
        if name == "check":
            sub.add_argument("--level", choices=("log", "projection", "full"), default="full")
            sub.add_argument("-x", dest="first_failure", action="store_true",
                             help="stop at the first failure")  # fmt: skip
            sub.add_argument("--json", action="store_true", help="one JSON object per scenario")
            sub.add_argument(
                "--script-only",
                action="store_true",
                help="compare nothing, only play and check the frames",
            )
    _add_new(commands.add_parser("new", help="create a scenario to start from"))
    _add_proxy(commands.add_parser("proxy", help="record an editor and any agent"))
    schema = commands.add_parser("schema", help="print the JSON schema of input.json")
    schema.set_defaults(act=_schema)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER,
                        help=f"a scenario or a folder of them ({DEFAULT_FOLDER})")  # fmt: skip
    parser.add_argument("-k", dest="keyword", default="", metavar="NAME",
                        help="only scenarios with this in their name")  # fmt: skip
    parser.add_argument("-j", dest="jobs", type=int, default=2 * (os.cpu_count() or 1),
                        help="how many agents at a time")  # fmt: skip
    parser.add_argument("--agent", type=shlex.split, metavar="'CMD …'",
                        help="play against another agent; logs are not compared")  # fmt: skip
    parser.add_argument("--timeout", type=float, default=60, help="seconds per scenario")
    parser.add_argument("--protocol-version", type=int, choices=VERSIONS,
                        help="only this one; both by default")  # fmt: skip


def _add_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--shows", default="", help="one line: what the scenario is for")
    parser.add_argument("--prompt", default="Say hello.")
    parser.add_argument("--call", nargs=2, action="append", default=[], metavar=("TOOL", "JSON"),
                        help="the model calls this tool first")  # fmt: skip
    parser.add_argument("--reply", default="Hello.", help="what the model says at the end")
    parser.set_defaults(act=_new)


def _add_proxy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="the scenario folder to write")
    parser.add_argument("command", nargs="+", metavar="CMD", help="the agent, after --")
    parser.set_defaults(act=_proxy)


# ---------------------------------------------------------------- check, refresh, record


def _play(arguments: argparse.Namespace) -> int:
    import anyio

    folder: Path = arguments.folder
    if not folder.is_dir():
        sys.stderr.write(f"dsh-acp snapshot: there is no folder {folder}\n")
        return 2
    scenarios = discover(folder, arguments.keyword)
    if not scenarios:
        sys.stderr.write(f"dsh-acp snapshot: no scenario matches in {folder}\n")
        return 2
    options = default_options(
        folder,
        mode=arguments.mode,
        agent=None if arguments.agent is None else tuple(arguments.agent),
        live=getattr(arguments, "model", None),
        compares=not getattr(arguments, "script_only", False),
        timeout_s=arguments.timeout,
        versions=(arguments.protocol_version,) if arguments.protocol_version else VERSIONS,
        jobs=arguments.jobs,
    )
    as_json = getattr(arguments, "json", False)
    started = time.monotonic()
    one = partial(_at_level, options=options, level=getattr(arguments, "level", "full"))
    first_failure = getattr(arguments, "first_failure", False)
    jobs = _jobs(options)
    results = anyio.run(run_all, scenarios, one, jobs, _reporter(as_json), first_failure)
    extra = _whole(folder, scenarios, options, arguments.keyword)
    if as_json:
        return 0 if all(result.ok for result in results) and not extra else 1
    return _summary(results, extra, time.monotonic() - started)


async def _at_level(scenario: Scenario, options: Options, level: str) -> Result:
    """Check one scenario, ours or of the other harness."""
    from dsh_acp.snapshot import foreign, levels

    if level == "log":
        return await levels.check_log(scenario)
    is_foreign = options.mode == "check" and foreign.is_foreign(scenario)
    if level == "projection":
        check = foreign.check_foreign_projection if is_foreign else levels.check_projection
        return await check(scenario)
    return await (foreign.run_foreign if is_foreign else run)(scenario, options)


def _jobs(options: Options) -> int:
    # A live model is asked one scenario at a time: its provider counts requests.
    return 1 if options.mode == "record" else options.jobs


def _whole(
    folder: Path, scenarios: Sequence[Scenario], options: Options, keyword: str
) -> list[str]:
    """Keep the index of the folder; its guards, when the whole folder was played."""
    from dsh_acp.snapshot.foreign import is_foreign

    is_single = scenarios[0].folder == folder
    if is_single or options.agent is not None or is_foreign(scenarios[0]):
        return []
    if options.mode != "check":
        catalogue.write_index(folder, discover(folder))
    return [] if keyword else catalogue.faults(folder, scenarios)


def _reporter(as_json: bool):
    def tell_json(result: Result) -> None:
        sys.stdout.write(jsontext.encode(msgspec.to_builtins(result)).decode() + "\n")
        sys.stdout.flush()

    told: set[str] = set()

    def tell(result: Result) -> None:
        sys.stdout.write(render(result, told))
        sys.stdout.flush()

    return tell_json if as_json else tell


def render(result: Result, told: set[str]) -> str:
    """One scenario's result in words; what is in `told` already is only mentioned."""
    if result.skipped:
        return f"skip  {result.name}: {result.skipped}\n"
    if result.ok:
        changed = f": wrote {', '.join(result.written)}" if result.written else ""
        return f"ok    {result.name} ({result.seconds:.2f} s){changed}\n"
    lines = [f"FAIL  {result.name} ({result.seconds:.2f} s)"]
    lines += [f"  {problem}" for problem in result.problems]
    for words in result.strangers:
        lines.append(f"  {words}" if words not in told else "  another request header, as above")
        told.add(words)
    lines += [f"  {difference}" for difference in result.differences]
    return "\n".join(lines) + "\n"


def _summary(results: Sequence[Result], extra: Sequence[str], seconds: float) -> int:
    failed = [result.name for result in results if not result.ok]
    for words in extra:
        sys.stdout.write(f"FAIL  {words}\n")
    skipped = sum(1 for result in results if result.skipped)
    words = [f"{len(results) - len(failed) - skipped} ok"]
    words += [f"{skipped} skipped"] if skipped else []
    words += [f"{len(failed)} failed"] if failed else []
    sys.stdout.write(f"{', '.join(words)} in {seconds:.1f} s\n")
    return 1 if failed or extra else 0


# ---------------------------------------------------------------- new, proxy, schema


def _new(arguments: argparse.Namespace) -> int:
    from dsh_acp.snapshot.template import create

    folder = arguments.folder / arguments.name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", arguments.name):
        sys.stderr.write(
            f"dsh-acp snapshot: {arguments.name!r} is no name of a scenario; "
            "use letters, digits, hyphens, dots and underscores\n"
        )
        return 2
    if folder.exists():
        sys.stderr.write(f"dsh-acp snapshot: {folder} exists already\n")
        return 1
    try:
        create(folder, arguments.shows, arguments.prompt, arguments.call, arguments.reply)
    except ValueError as exc:
        sys.stderr.write(f"dsh-acp snapshot: {exc}\n")
        return 2
    sys.stdout.write(
        f"Wrote {folder}: edit input.json (what the client does) and replay.override.json\n"
        f"(what the model says), put files into workspace/, then run\n"
        f"  dsh-acp snapshot refresh {arguments.folder} -k {arguments.name}\n"
    )
    return 0


def _proxy(arguments: argparse.Namespace) -> int:
    from dsh_acp.snapshot.proxy import proxy

    return proxy(arguments.out, arguments.command)


def _schema(_: argparse.Namespace) -> int:
    from dsh_acp.snapshot.script import schema

    sys.stdout.write(schema().decode())
    return 0
