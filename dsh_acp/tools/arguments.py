"""What each tool accepts.

These models are the source of `schemas.json` (descriptions included) and validate what a model
sent. They forgive what models get wrong without changing what was meant: numbers as strings,
`null` for absent, a list as its JSON text. Every remaining mistake is named in one answer.

Imported at the first call, because pydantic is slow to import.
"""

from collections.abc import Mapping
import re
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails

from dsh_acp import jsontext
from dsh_acp.errors import ToolError
from dsh_acp.tools import talk_arguments as talk, terminal_arguments as terminals
from dsh_acp.tools.argument_rules import Arguments, filled, list_as_text, positive, rule, said
from dsh_acp.tools.language_arguments import Lsp
from dsh_acp.tools.talk_arguments import (
    AskUserQuestion,
    ExitPlanMode,
    LoadSkill,
    Subagent,
    SubagentFork,
    WebFetch,
    WebSearch,
)

MAX_LINES: Final = 2000
MAX_WAIT_MS: Final = 600_000


class Escalating(Arguments):
    """A request for wider permissions for one call; not advertised unless something confines."""

    sandbox_permissions: SkipJsonSchema[Literal["workspace-write", "danger-full-access"] | None] = (
        None
    )
    justification: SkipJsonSchema[str | None] = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> "Escalating":
        if self.justification is not None and not self.justification.strip():
            raise rule("invalid justification: expected a non-empty sentence")
        if self.sandbox_permissions is not None and self.justification is None:
            raise rule("invalid escalation: sandbox_permissions requires a justification")
        if self.justification is not None and self.sandbox_permissions is None:
            raise rule(
                "invalid escalation: justification is only valid together with sandbox_permissions"
            )
        return self


class Escalation(Arguments):
    """Commands may run in a sandbox.

    Then they write only to the workspace and temporary folders and have no network, and what it
    refuses is marked in the result with `[sandbox: … access denied …]`. That is a rule, not a fault
    of the command: do not look for a way around it. When the command needs the access to do what
    the user wants, run exactly the same command once more with `sandbox_permissions` and
    `justification`; the user is asked. Never ask for more before the sandbox has refused something.
    """

    sandbox_permissions: Annotated[
        Literal["workspace-write", "danger-full-access"] | None,
        Field(description="The narrowest wider mode that suffices, after a refusal."),
    ] = None
    justification: Annotated[
        str | None,
        Field(
            description="Required with sandbox_permissions: one sentence for the user that says "
            "why this command needs it."
        ),
    ] = None


FilePath = Annotated[
    str,
    filled("file_path"),
    Field(description="Path of the file, absolute or relative to the session's directory."),
]


class Read(Arguments):
    """Read a text file. Lines come numbered from 1, as `N: text`.

    At most 2000 lines and 50 KiB are returned at once; the result says how to go on with `offset`.
    Lines longer than 2000 characters are cut. Read a file before you edit or overwrite it. The
    line numbers are not part of the file: leave them out of `old_string`.
    """

    file_path: FilePath
    offset: Annotated[
        int | None, positive("offset"), Field(description="First line to read, from 1.")
    ] = None
    limit: Annotated[
        int | None, positive("limit"), Field(description="How many lines to read, at most 2000.")
    ] = None

    @model_validator(mode="after")
    def _bounded(self) -> "Read":
        if self.limit is not None and self.limit > MAX_LINES:
            raise rule(f"limit must be less than or equal to {MAX_LINES}")
        return self


class ReadImage(Arguments):
    """Look at an image file: PNG, JPEG, WebP or GIF."""

    file_path: FilePath


class Write(Escalating):
    """Write a whole file: create it, or replace all of its content.

    Missing folders are created. A file that exists must have been read before. The file's encoding
    and line endings are kept. Prefer `edit` for changes to a part of a file.
    """

    file_path: FilePath
    content: Annotated[str, Field(description="The complete new content.")]


class Edit(Escalating):
    """Replace text in a file that was read before.

    `old_string` must occur exactly once, so give enough lines around the change, with their exact
    indentation; or set `replace_all` to change every occurrence. Line endings need no care: write
    a newline for any of them.
    """

    file_path: FilePath
    old_string: Annotated[str, Field(description="The text to replace, literally.")]
    new_string: Annotated[str, Field(description="The text to put in its place.")]
    replace_all: Annotated[
        bool | None, Field(description="Replace every occurrence. Default false.")
    ] = None

    @model_validator(mode="after")
    def _changes_something(self) -> "Edit":
        if not self.old_string:
            raise rule("old_string must be a non-empty string")
        if self.old_string.replace("\r\n", "\n") == self.new_string.replace("\r\n", "\n"):
            raise rule("old_string and new_string must differ")
        return self


class Bash(Escalating):
    """Run a command with `bash -c` in a fresh shell and return what it printed.

    There is no terminal and no input. Each call starts in the session's directory or in `workdir`;
    nothing but files survives from one call to the next. Long output is cut to its last 64,000
    bytes and kept whole in a file that the result names. Processes still running when the command
    ends are stopped: for a server or a watcher use `run_in_background`. Prefer `read`, `edit`,
    `grep` and `glob` to cat, sed, grep and find.
    """

    command: Annotated[str, said("command"), Field(description="The command line.")]
    description: Annotated[
        str,
        said("description"),
        Field(description="What the command does, in five to ten words, for the person watching."),
    ]
    timeoutMs: Annotated[
        float | None,
        Field(description="Time limit in milliseconds. Default 120000, at most 600000."),
    ] = None
    workdir: Annotated[
        str | None, Field(description="Directory to run in. Default: the session's directory.")
    ] = None
    run_in_background: Annotated[
        bool | None,
        Field(description="Return at once; read the output later with job_output. Default false."),
    ] = None

    @model_validator(mode="after")
    def _takes_time(self) -> "Bash":
        if self.timeoutMs is not None and not 0 < self.timeoutMs < float("inf"):
            shown = f"{self.timeoutMs:g}"
            raise rule(f"invalid timeoutMs: expected a positive number, got {shown}")
        return self


class Grep(Arguments):
    """Search file contents with a regular expression (ripgrep syntax).

    Ignored and hidden files are left out. The result lists matching lines under their file, at most
    250. Narrow a search with `path` or `include` rather than reading everything.
    """

    pattern: Annotated[
        str, filled("pattern"), Field(description="The regular expression to search for.")
    ]
    path: Annotated[
        str | None,
        Field(description="File or directory to search. Default: the session's directory."),
    ] = None
    include: Annotated[
        str | None, Field(description='One glob that file names must match, such as "*.{ts,tsx}".')
    ] = None

    @model_validator(mode="after")
    def _one_glob(self) -> "Grep":
        include = self.include
        if include is None:
            return self
        if include.startswith("!"):
            raise rule(
                'include must be a positive glob filter; negated patterns ("!…") are not supported'
            )
        if "," in re.sub(r"\{[^{}]*\}", "", include):
            raise rule(
                "include must be one glob, not a comma-separated list "
                "(use {a,b} alternation instead)"
            )
        return self


class Glob(Arguments):
    """Find files by name, such as `**/*.py`. Oldest first by modification time; at most 100 paths.

    Hidden and ignored files are included; version-control folders are not.
    """

    pattern: Annotated[str, filled("pattern"), Field(description="The glob that paths must match.")]
    path: Annotated[
        str | None, Field(description="Directory to search. Default: the session's directory.")
    ] = None


class TodoItem(BaseModel):
    """One task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    content: Annotated[str, Field(description="The task, in a few words.")]
    status: Annotated[
        Literal["pending", "in_progress", "completed"], Field(description="Where it stands.")
    ]


class TodoWrite(Arguments):
    """Record the plan for the current work as a list of tasks, and show it to the user.

    Each call replaces the whole list. Use it for work of three or more steps; mark a task
    in_progress when you start it and completed as soon as it is done.
    """

    todos: Annotated[
        list[TodoItem],
        BeforeValidator(list_as_text),
        Field(description="All tasks, in order."),
    ]

    @model_validator(mode="after")
    def _distinct(self) -> "TodoWrite":
        seen: set[str] = set()
        for item in self.todos:
            content = item.content.strip()
            if not content:
                raise rule("invalid todo: `content` must be a non-empty string")
            if content in seen:
                raise rule(f"invalid todos: duplicate content {jsontext.encode(content).decode()}")
            seen.add(content)
        return self


JobId = Annotated[str, filled("job_id"), Field(description="The id that the start returned.")]


class JobOutput(Arguments):
    """Read what a background job printed since the last time, and its status."""

    job_id: JobId
    wait: Annotated[
        bool | None, Field(description="Wait until the job has ended. Default false.")
    ] = None
    timeout_ms: Annotated[
        int | None,
        positive("timeout_ms"),
        Field(description="How long to wait, in milliseconds. Default 30000, at most 600000."),
    ] = None


class JobList(Arguments):
    """List the background jobs of this session."""


class JobKill(Arguments):
    """Stop a background job and everything it started."""

    job_id: JobId
    reason: Annotated[str | None, Field(description="Why, for the record.")] = None


MODELS: Final[Mapping[str, type[Arguments]]] = MappingProxyType(
    {
        "ask_user_question": AskUserQuestion,
        "bash": Bash,
        "edit": Edit,
        "exit_plan_mode": ExitPlanMode,
        "glob": Glob,
        "grep": Grep,
        "interrupt_agent": talk.InterruptAgent,
        "job_kill": JobKill,
        "job_list": JobList,
        "job_output": JobOutput,
        "list_agents": talk.ListAgents,
        "lsp": Lsp,
        "read": Read,
        "read_image": ReadImage,
        "send_message": talk.SendMessage,
        "skill": LoadSkill,
        "subagent": Subagent,
        "subagent_fork": SubagentFork,
        "terminal_close": terminals.TerminalClose,
        "terminal_list": terminals.TerminalList,
        "terminal_open": terminals.TerminalOpen,
        "terminal_read": terminals.TerminalRead,
        "terminal_send": terminals.TerminalSend,
        "terminal_signal": terminals.TerminalSignal,
        "todo_write": TodoWrite,
        "web_fetch": WebFetch,
        "web_search": WebSearch,
        "write": Write,
    }
)

_TYPES: Final = (
    ("string", "a string"),
    ("int", "an integer"),
    ("float", "a number"),
    ("finite_number", "a finite JSON number"),
    ("bool", "a boolean"),
    ("list", "an array"),
    ("model", "an object"),
    ("dict", "an object"),
)


def parse(name: str, text: str) -> Any:
    """The arguments of tool `name` from the model's raw text.

    Raises:
        ToolError: `INVALID_ARGS`, with every mistake.
    """
    if not text.strip():
        value: Any = {}
    else:
        try:
            value = jsontext.loads(text.encode("utf-8", "replace"))
        except jsontext.DecodeError as exc:
            problem = f'"arguments" must be an object (the text is {exc})'
            raise _invalid([problem]) from exc
    if not isinstance(value, dict):
        raise _invalid(['"arguments" must be an object'])
    try:
        return MODELS[name].model_validate(value)
    except ValidationError as exc:
        details = exc.errors(include_url=False, include_context=True, include_input=False)
        rules = [str(detail["msg"]) for detail in details if detail["type"] == "rule"]
        if len(rules) == len(details):
            raise ToolError("; ".join(rules), code="INVALID_ARGS", name="ToolArgsError") from exc
        details.sort(key=lambda detail: detail["type"] != "missing" or len(detail["loc"]) > 1)
        raise _invalid([_sentence(detail) for detail in details]) from exc


def _invalid(problems: list[str]) -> ToolError:
    text = f"invalid arguments: {'; '.join(problems)}"
    return ToolError(text, code="INVALID_ARGS", name="ToolArgsError")


def _sentence(detail: ErrorDetails) -> str:
    path = ""
    for step in detail["loc"]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    kind = detail["type"]
    if kind == "rule":
        return str(detail["msg"])
    if kind == "missing":
        return f'missing required property "{path}"'
    if kind == "extra_forbidden":
        return f'"{path}" is not a declared property (additionalProperties: false)'
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))
        return f'"{path}" must be one of {jsontext.encode(allowed).decode()}'
    for prefix, noun in _TYPES:
        if kind.startswith(prefix):
            return f'"{path}" must be {noun}'
    return f'"{path}" is not valid: {detail["msg"]}'
