"""argv -> command; `serve` is the default.

Why so bare: an editor waits for the answer to `initialize`, so the way to `serve` imports nothing
that it does not need. Every other command is a module of `commands` with `main(argv) -> int`,
imported when it is asked for; its module brings its own argument parser.
"""

from collections.abc import Callable, Sequence
from io import TextIOWrapper
import os
import sys
from typing import Final, cast

from dsh_acp.config.sources import Flags
from dsh_acp.errors import ConfigError, DshError

PROGRAM: Final = "dsh-acp"

COMMANDS: Final = {
    "serve": "speak the Agent Client Protocol on stdio: what editors start, and the default",
    "demo": "see it work in this terminal: no key, no editor",
    "setup": "print or write the configuration of your editor",
    "doctor": "check key, model, endpoint, directories and editors, and say what to fix",
    "login": "store a key for a model provider",
    "logout": "forget a stored key",
    "sessions": "list the recorded sessions",
    "show": "read one session: what was said and done, with tokens and cost",
    "audit": "prove every request of a session, or of all, from the log",
    "request": "print one request of a session, or its exact body",
    "fork": "start a new session from an earlier point of another",
    "export": "write a session as one ZIP: its log, its subagents, its images and recordings",
    "lab": "write a session as a page to step through, check and attack",
    "snapshot": "replay or record protocol scenarios",
    "bench": "measure this agent beside a bare one (from a source checkout)",
    "fake-llm": "serve a scripted model endpoint on this machine",
    "version": "print the version",
}

_SERVE_OPTIONS: Final = {
    "--model": "model",
    "--effort": "effort",
    "--permission": "permission",
    "--config": "config",
    "--home": "home",
}

_HELP_SERVE: Final = """\
Options of serve:
  --model PROVIDER/MODEL   the model to use, for example deepseek/deepseek-v4-flash
  --effort LEVEL           how much the model thinks; the levels are the model's
  --permission PRESET      plan (read only), ask, workspace-write or full-access
  --config FILE            another configuration file
  --home DIRECTORY         where sessions are kept
  --login                  store a key instead of serving (any position)
"""


_WAITING: Final = (
    f"{PROGRAM}: waiting for an editor to speak on stdin (Ctrl-C ends it); "
    f"to see it work here, try: {PROGRAM} demo, or {PROGRAM} --help\n"
)


class UsageError(DshError):
    """A command line that cannot be understood."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="USAGE")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code: 0 done, 1 failed, 2 not understood, 130 interrupted.

    Whatever goes wrong ends as a sentence on stderr; only a bug shows a traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows another one in its place.
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
    try:
        return _dispatch(arguments)
    except ConfigError as exc:
        for problem in exc.problems:
            _complain(problem)
        return 2
    except UsageError as exc:
        _complain(exc.message)
        return 2
    except DshError as exc:
        _complain(exc.message)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output left (`| head`). Python would complain again while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(arguments: list[str]) -> int:
    if "--login" in arguments:
        # An editor's terminal sign-in appends this to our arguments or replaces them by it.
        return _command("login")([])
    name = arguments[0] if arguments else "serve"
    if name.startswith("-") and name not in ("-h", "--help", "-V", "--version"):
        name, rest = "serve", arguments
    else:
        rest = arguments[1:]
    match name:
        case "serve" | "acp":
            if "-h" in rest or "--help" in rest:
                return _write(f"usage: {PROGRAM} [serve] [options]\n\n{_HELP_SERVE}")
            flags = serve_flags(rest)
            if _is_typed():
                sys.stderr.write(_WAITING)
            from dsh_acp.acp.server import serve

            return serve(flags)
        case "version" | "-V" | "--version":
            from dsh_acp import __version__

            return _write(f"{PROGRAM} {__version__}\n")
        case "help" | "-h" | "--help":
            if rest and not rest[0].startswith("-"):
                if rest[0] not in COMMANDS:
                    raise UsageError(_unknown("command", rest[0], list(COMMANDS)))
                return _dispatch([*rest, "--help"])
            return _write(usage())
        case _ if name in COMMANDS:
            return _command(name)(rest)
        case _:
            raise UsageError(_unknown("command", name, list(COMMANDS)))


def serve_flags(arguments: Sequence[str]) -> Flags:
    """The flags of `serve`; the last of a repeated one wins.

    Raises:
        UsageError: an option that does not exist or lacks its value.
    """
    values: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option not in _SERVE_OPTIONS:
            raise UsageError(_unknown("option", option, list(_SERVE_OPTIONS)))
        if not equals:
            value = next(rest, "")
        if not value:
            raise UsageError(f"{option} needs a value")
        values[_SERVE_OPTIONS[option]] = value
    return Flags(**values)


def usage() -> str:
    """The help text."""
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items())
    return (
        f"usage: {PROGRAM} [command] [options]\n\n"
        "A coding agent in your editor whose every model request is proved from a durable log.\n\n"
        f"Commands:\n{lines}\n\n{_HELP_SERVE}\n"
        f"More about a command: {PROGRAM} help COMMAND\n"
        f"First steps: {PROGRAM} demo, then {PROGRAM} login, then {PROGRAM} setup EDITOR\n"
    )


def _is_typed() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return False


def _command(name: str) -> Callable[[list[str]], int]:
    import importlib

    home = "dsh_acp.llm.fake" if name == "fake-llm" else f"dsh_acp.commands.{name}"
    return cast(Callable[[list[str]], int], importlib.import_module(home).main)


def _unknown(what: str, word: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    hint = f" Did you mean {near[0]}?" if near else f" Run: {PROGRAM} --help"
    return f"There is no {what} {word}.{hint}"


def _write(text: str) -> int:
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _complain(sentence: str) -> None:
    sys.stderr.write(f"{PROGRAM}: {sentence}\n")
