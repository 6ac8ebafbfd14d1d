"""The tools that every session has."""

import importlib

from dsh_acp.config import Settings
from dsh_acp.tools import process
from dsh_acp.tools.builtin import Builtin
from dsh_acp.tools.confine import Confinement
from dsh_acp.tools.delegation import (
    InterruptAgent,
    ListAgents,
    SendMessage,
    Subagent,
    SubagentFork,
)
from dsh_acp.tools.files import Edit, Read, Write
from dsh_acp.tools.images import Put, ReadImage, nowhere
from dsh_acp.tools.jobs import JobKill, JobList, JobOutput
from dsh_acp.tools.language import Lsp
from dsh_acp.tools.search import Glob, Grep
from dsh_acp.tools.shell import Bash
from dsh_acp.tools.skills import LoadSkill
from dsh_acp.tools.talk import AskUserQuestion, ExitPlanMode
from dsh_acp.tools.terminals import (
    TerminalClose,
    TerminalList,
    TerminalOpen,
    TerminalRead,
    TerminalSend,
    TerminalSignal,
)
from dsh_acp.tools.todo import TodoWrite
from dsh_acp.tools.tool import Tool
from dsh_acp.tools.web import WebFetch, WebSearch


def builtin(settings: Settings, keep: Put = nowhere) -> dict[str, Tool]:
    """Every tool of this package by name, in the order in which a request lists them.

    `keep` stores the images that a model is shown.
    """
    confinement = Confinement(settings)
    secret = (str(settings.config_path), f"{settings.config_dir}/credentials.json")
    own = [f"{settings.config_dir}/{name}" for name in ("hooks.json", "codex-hooks.json", "skills")]
    protected = (str(settings.home), *secret, *own)
    process.hide(each.api_key_env for each in settings.providers.values() if each.api_key_env)
    tools: list[Builtin] = [
        AskUserQuestion(),
        Bash(settings.bash_timeout_ms, confinement),
        Edit(protected),
        ExitPlanMode(),
        Glob(),
        Grep(secret),
        InterruptAgent(),
        JobKill(),
        JobList(),
        JobOutput(),
        ListAgents(),
        Lsp(settings, confinement),
        Read(secret),
        ReadImage(keep),
        SendMessage(),
        LoadSkill(settings.config_dir),
        Subagent(),
        SubagentFork(),
        TerminalClose(),
        TerminalList(),
        TerminalOpen(),
        TerminalRead(),
        TerminalSend(),
        TerminalSignal(),
        TodoWrite(),
        WebFetch(settings.web_private_hosts),
        *([WebSearch(settings.search_url)] if settings.search_url else []),
        Write(protected),
    ]
    return {tool.name: tool for tool in tools}


def warm() -> None:
    """Import what the first call needs. Takes a tenth of a second; meant for a thread."""
    for name in ("difflib", "dsh_acp.tools.arguments"):
        importlib.import_module(name)
