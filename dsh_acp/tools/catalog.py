"""The tools that every session has."""

import importlib

from dsh_acp.config import Settings
from dsh_acp.tools.builtin import Builtin
from dsh_acp.tools.confine import Confinement
from dsh_acp.tools.delegation import Subagent, SubagentFork
from dsh_acp.tools.files import Edit, Read, Write
from dsh_acp.tools.jobs import JobKill, JobList, JobOutput
from dsh_acp.tools.language import Lsp
from dsh_acp.tools.search import Glob, Grep
from dsh_acp.tools.shell import Bash
from dsh_acp.tools.skills import LoadSkill
from dsh_acp.tools.talk import AskUserQuestion, ExitPlanMode
from dsh_acp.tools.todo import TodoWrite
from dsh_acp.tools.tool import Tool
from dsh_acp.tools.web import WebFetch, WebSearch


def builtin(settings: Settings) -> dict[str, Tool]:
    """Every tool of this package by name, in the order in which a request lists them."""
    confinement = Confinement(settings)
    tools: list[Builtin] = [
        AskUserQuestion(),
        Bash(settings.bash_timeout_ms, confinement),
        Edit(),
        ExitPlanMode(),
        Glob(),
        Grep(),
        JobKill(),
        JobList(),
        JobOutput(),
        Lsp(settings, confinement),
        Read(),
        LoadSkill(settings.config_dir),
        Subagent(),
        SubagentFork(),
        TodoWrite(),
        WebFetch(settings.web_private_hosts),
        *([WebSearch(settings.search_url)] if settings.search_url else []),
        Write(),
    ]
    return {tool.name: tool for tool in tools}


def warm() -> None:
    """Import what the first call needs. Takes a tenth of a second; meant for a thread."""
    for name in ("difflib", "dsh_acp.tools.arguments"):
        importlib.import_module(name)
