"""What a person sees of a call: pure functions of the logged arguments, content and `meta`.

Arguments are those that the model wrote, unchecked: an odd shape gives the plain card with the
tool's name, never an exception. Paths in locations and diffs are absolute; in titles a path inside
the session's directory is shown relative to it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
import os
import re
from typing import Any, Final, TypeAlias, cast

from msgspec.structs import replace

from dsh_acp import jsontext
from dsh_acp.messages import Block, Text, text_of
from dsh_acp.tools.legible import legible, one_line
from dsh_acp.tools.tool import Card, FileDiff, Kind, Location, TerminalView

Arguments: TypeAlias = Mapping[str, Any]


class Odd(Exception):
    """Arguments that no card can be made of."""


@lru_cache(maxsize=16)  # a call's arguments are looked at again for its result
def parsed(arguments: str) -> Any:
    """The raw arguments as a value: `{}` for none, the text itself when it is not JSON.

    The value is shared, and not to be changed.
    """
    if not arguments.strip():
        return {}
    try:
        return jsontext.loads(arguments.encode("utf-8", "replace"))
    except jsontext.DecodeError:
        return arguments


def fallback(name: str, arguments: str) -> Card:
    """The card of a tool that has none of its own."""
    return Card(title=one_line(name), kind="other", raw_input=parsed(arguments))


def call_card(name: str, arguments: str, cwd: str) -> Card:
    """The card at the call of tool `name`."""
    make = CALLS.get(name)
    value = parsed(arguments)
    if make is None or not isinstance(value, dict):
        return fallback(name, arguments)
    try:
        return _shown(name, make(cast(Arguments, value), cwd))
    except Odd:
        return fallback(name, arguments)


def result_card(
    name: str, arguments: str, content: Sequence[Block], is_error: bool, meta: Any, cwd: str
) -> Card:
    """The card at the result of tool `name`."""
    plain = Card(content=tuple(content))
    make = RESULTS.get(name)
    value = parsed(arguments)
    if make is None or not isinstance(value, dict):
        return plain
    try:
        return _shown(name, make(cast(Arguments, value), tuple(content), is_error, meta, cwd))
    except Odd:
        return plain


def _shown(name: str, card: Card) -> Card:
    """`card` with a title that hides nothing; only a command and a question keep their lines."""
    title = card.title
    if title is None or title.isprintable():
        return card
    safe = legible(title) if name in _OF_SEVERAL_LINES else one_line(title)
    return replace(card, title=safe)


# ---------------------------------------------------------------- soft access


def text(args: Arguments, key: str) -> str:
    """A string argument.

    Raises:
        Odd: it is missing or something else.
    """
    value = args.get(key)
    if not isinstance(value, str):
        raise Odd
    return value


def text_or(args: Arguments, key: str, default: str) -> str:
    """A string argument, or `default` when it is absent."""
    return default if args.get(key) is None else text(args, key)


def count(args: Arguments, key: str) -> int | None:
    """A positive integer argument, written as models write them; `None` when absent or odd."""
    value = args.get(key)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _is_plain(path: str) -> bool:
    """Whether `path` is absolute and in its shortest form, as nearly all are."""
    return path[:1] == os.sep == "/" and not ("//" in path or "/." in path or path[-1] == "/")


def full_path(path: str, cwd: str) -> str:
    """`path` absolute, as the world sees it."""
    if _is_plain(path):
        return path
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser(path)  # noqa: PTH111 - a string in, a string out
    return _joined(path, cwd)


@lru_cache(maxsize=256)
def _joined(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, path))  # noqa: PTH118 - must not follow symlinks


def short(path: str, cwd: str) -> str:
    """`path` for a title: relative when it is absolute and strictly inside `cwd`."""
    if _is_plain(path) and _is_plain(cwd):
        # Histories have thousands of paths, and the general way is a hundred times slower.
        return path[len(cwd) + 1 :] if path.startswith(cwd + "/") else path
    if not os.path.isabs(path):  # noqa: PTH117 - a string in, a string out
        return path
    inside = os.path.relpath(path, cwd)
    return path if inside.split(os.sep, 1)[0] in (os.curdir, os.pardir) else inside


# ---------------------------------------------------------------- files


def _read(args: Arguments, cwd: str) -> Card:
    path = text(args, "file_path")
    offset, limit = count(args, "offset"), count(args, "limit")
    first = offset or 1
    title = f"Read {short(path, cwd)}"
    if limit is not None:
        title += f" ({first} - {first + limit - 1})"
    elif offset is not None:
        title += f" (from line {offset})"
    return Card(title=title, kind="read", locations=(Location(full_path(path, cwd), first),))


def _read_image(args: Arguments, cwd: str) -> Card:
    path = text(args, "file_path")
    title = f"Read {short(path, cwd)}"
    return Card(title=title, kind="read", locations=(Location(full_path(path, cwd)),))


def _changing(verb: str, args: Arguments, cwd: str, old: str | None, new: str) -> Card:
    path = text(args, "file_path")
    full = full_path(path, cwd)
    return Card(
        title=f"{verb} {short(path, cwd)}",
        kind="edit",
        locations=(Location(full),),
        diffs=(FileDiff(full, old, new),),
    )


def _write(args: Arguments, cwd: str) -> Card:
    return _changing("Write", args, cwd, None, text(args, "content"))


def _edit(args: Arguments, cwd: str) -> Card:
    old = text(args, "old_string") or None
    return _changing("Edit", args, cwd, old, text(args, "new_string"))


def diffs_of(meta: Any, cwd: str) -> tuple[FileDiff, ...]:
    """The diffs that a result recorded; odd ones are left out."""
    found: list[FileDiff] = []
    recorded: Any = cast(Arguments, meta).get("diffs") if isinstance(meta, dict) else None
    for item in cast(list[Any], recorded) if isinstance(recorded, list) else []:
        if isinstance(item, dict):
            entry = cast(Arguments, item)
            old, new = entry.get("oldText"), entry.get("newText")
            path = entry.get("path")
            if isinstance(path, str) and isinstance(new, str) and isinstance(old, str | None):
                found.append(FileDiff(full_path(path, cwd), old, new, line=count(entry, "line")))
    return tuple(found)


def _written(
    args: Arguments, content: tuple[Block, ...], is_error: bool, meta: Any, cwd: str
) -> Card:
    if is_error:
        return Card(content=content)
    call = _write(args, cwd)
    return Card(title=call.title, diffs=diffs_of(meta, cwd) or call.diffs)


def _edited(
    args: Arguments, content: tuple[Block, ...], is_error: bool, meta: Any, cwd: str
) -> Card:
    diffs = () if is_error else diffs_of(meta, cwd)
    if not diffs:
        return Card(content=content)
    if not isinstance(args.get("old_string"), str) or not isinstance(args.get("new_string"), str):
        raise Odd
    return Card(title=f"Edit {short(text(args, 'file_path'), cwd)}", diffs=diffs)


# ---------------------------------------------------------------- commands

_ENDING: Final = re.compile(r"(?:\A|\n)\[(?:exit code: (\d+)|killed by signal: (\w+))\]\Z")


def _in_background(args: Arguments) -> bool:
    return args.get("run_in_background") in (True, "true")


def _bash(args: Arguments, cwd: str) -> Card:
    command = text(args, "command")
    note = args.get("description")
    # A note of several lines could pass for what the question itself says.
    content = (Text(one_line(" ".join(note.split()))),) if isinstance(note, str) and note else None
    if _in_background(args):
        return Card(title=command, kind="execute", content=content)
    folder = full_path(text_or(args, "workdir", cwd), cwd)
    view = TerminalView(command, folder)
    return Card(title=command, kind="execute", terminal=view, content=content, raw_input=args)


def _ran(args: Arguments, content: tuple[Block, ...], is_error: bool, meta: Any, cwd: str) -> Card:
    output = text_of(content)
    if is_error or _in_background(args):
        return Card(content=(Text(console(output)),))
    ending = _ENDING.search(output) if output.endswith("]") else None
    code = signal = None
    if ending is None:
        code = 0
    else:
        output = output[: ending.start() + 1] if ending.start() else output[: ending.start()]
        code = int(ending[1]) if ending[1] is not None else None
        signal = ending[2]
    folder = full_path(text_or(args, "workdir", cwd), cwd)
    return Card(terminal=TerminalView(text(args, "command"), folder, output, code, signal))


def console(output: str) -> str:
    """Output as a fenced block; the fence is longer than any inside."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", output)), default=0))
    return f"{fence}console\n{output.rstrip(chr(10))}\n{fence}"


# ---------------------------------------------------------------- the rest


def _grep(args: Arguments, cwd: str) -> Card:
    title = f"Grep {text(args, 'pattern')}"
    if path := text_or(args, "path", ""):
        title += f" in {short(path, cwd)}"
    if include := text_or(args, "include", ""):
        title += f" ({include})"
    return Card(title=title, kind="search", raw_input=args)


def _glob(args: Arguments, cwd: str) -> Card:
    title = f"Glob {text(args, 'pattern')}"
    if path := text_or(args, "path", ""):
        title += f" in {short(path, cwd)}"
    return Card(title=title, kind="search", raw_input=args)


_ASKED: Final[Mapping[str, str]] = {
    "goToDefinition": "Find the definition at",
    "findReferences": "Find the references of",
    "goToImplementation": "Find the implementations of",
    "hover": "Look up",
    "documentSymbol": "List the symbols of",
    "workspaceSymbol": "Find symbols like",
    "diagnostics": "Check",
}


def _lsp(args: Arguments, cwd: str) -> Card:
    operation, path = text(args, "operation"), text(args, "file_path")
    line, character = count(args, "line"), count(args, "character")
    asked = _ASKED.get(operation)
    if asked is None:
        raise Odd
    subject = short(path, cwd)
    if operation == "workspaceSymbol":
        subject = text_or(args, "query", "")
    elif line is not None and operation not in ("documentSymbol", "diagnostics"):
        subject += f":{line}" + (f":{character}" if character is not None else "")
    where = Location(full_path(path, cwd), line)
    return Card(title=f"{asked} {subject}", kind="search", locations=(where,))


def _todo(args: Arguments, cwd: str) -> Card:
    if not isinstance(args.get("todos"), list):
        raise Odd
    return Card(title="Update todo list", kind="other", raw_input=args)


def _ask(args: Arguments, cwd: str) -> Card:
    asked = args.get("questions")
    first: Any = cast(list[Any], asked)[0] if isinstance(asked, list) and asked else None
    if not isinstance(first, dict):
        raise Odd
    return Card(title=text(cast(Arguments, first), "question"), kind="other", raw_input=args)


def _plan(args: Arguments, cwd: str) -> Card:
    plan = text(args, "plan")
    heading = re.search(r"^#{1,6}\s+(.+)$", plan, re.MULTILINE)
    title = heading[1].strip() if heading else "Plan"
    return Card(title=title, kind="switch_mode", content=(Text(plan),))


def _planned(
    args: Arguments, content: tuple[Block, ...], is_error: bool, meta: Any, cwd: str
) -> Card:
    return Card(title="Plan review", content=(Text(text(args, "plan")), *content))


def _skill(args: Arguments, cwd: str) -> Card:
    name = text(args, "name")
    return Card(title=f"Load skill {name}", kind="read", raw_input=args)


def _subagent(args: Arguments, cwd: str) -> Card:
    prompt = Text(text(args, "prompt"))
    return Card(title=text(args, "description"), kind="think", content=(prompt,))


def _relay(args: Arguments, cwd: str) -> Card:
    message = Text(text(args, "message"))
    return Card(title="Send a message to a subagent", kind="think", content=(message,))


def _titled(title: str, kind: Kind) -> "CallCard":
    def make(args: Arguments, cwd: str) -> Card:
        return Card(title=title, kind=kind)

    return make


def _fetch(args: Arguments, cwd: str) -> Card:
    return Card(title=text(args, "url"), kind="fetch")


def _search(args: Arguments, cwd: str) -> Card:
    queries = args.get("queries")
    if not isinstance(queries, list):
        raise Odd
    return Card(title=", ".join(map(str, cast(list[Any], queries))) or "Search", kind="search")


def _typed(args: Arguments, cwd: str) -> Card:
    typed = text(args, "text")
    where = f"In terminal {one_line(text(args, 'sessionId'))}"
    return Card(title=typed or "Enter", kind="execute", content=(Text(where),), raw_input=args)


def _terminal(title: str, kind: Kind) -> "CallCard":
    def make(args: Arguments, cwd: str) -> Card:
        return Card(title=title.replace("{}", text_or(args, "sessionId", "")), kind=kind)

    return make


def _job(title: str, kind: Kind) -> "CallCard":
    def make(args: Arguments, cwd: str) -> Card:
        job = text(args, "job_id") if "{}" in title else ""
        return Card(title=title.replace("{}", job), kind=kind)

    return make


CallCard: TypeAlias = Callable[[Arguments, str], Card]
_OF_SEVERAL_LINES: Final = frozenset({"bash", "ask_user_question", "terminal_send"})
OF_META: Final = frozenset({"edit", "write"})
"""The tools whose results show what was recorded beside them."""

ResultCard: TypeAlias = Callable[[Arguments, tuple[Block, ...], bool, Any, str], Card]

CALLS: Final[Mapping[str, CallCard]] = {
    "ask_user_question": _ask,
    "bash": _bash,
    "edit": _edit,
    "exit_plan_mode": _plan,
    "glob": _glob,
    "grep": _grep,
    "interrupt_agent": _titled("Interrupt subagent", "execute"),
    "job_kill": _job("Kill background task {}", "execute"),
    "job_list": _job("List background tasks", "read"),
    "job_output": _job("Read output from background task {}", "read"),
    "list_agents": _titled("List subagents", "read"),
    "lsp": _lsp,
    "read": _read,
    "read_image": _read_image,
    "send_message": _relay,
    "skill": _skill,
    "subagent": _subagent,
    "subagent_fork": _subagent,
    "terminal_close": _terminal("Close terminal {}", "execute"),
    "terminal_list": _terminal("List terminals", "read"),
    "terminal_open": _terminal("Open a terminal", "execute"),
    "terminal_read": _terminal("Read terminal {}", "read"),
    "terminal_send": _typed,
    "terminal_signal": _terminal("Signal terminal {}", "execute"),
    "todo_write": _todo,
    "web_fetch": _fetch,
    "web_search": _search,
    "write": _write,
}
RESULTS: Final[Mapping[str, ResultCard]] = {
    "bash": _ran,
    "edit": _edited,
    "exit_plan_mode": _planned,
    "write": _written,
}
