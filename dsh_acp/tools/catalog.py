"""The tools that every session has."""

import importlib

from dsh_acp.config import Settings
from dsh_acp.tools.files import Edit, Read, Write
from dsh_acp.tools.jobs import JobKill, JobList, JobOutput
from dsh_acp.tools.search import Glob, Grep
from dsh_acp.tools.shell import Bash
from dsh_acp.tools.skills import LoadSkill
from dsh_acp.tools.talk import AskUserQuestion, ExitPlanMode
from dsh_acp.tools.todo import TodoWrite
from dsh_acp.tools.tool import Tool


def builtin(settings: Settings) -> dict[str, Tool]:
    """Every tool of this package by name, in the order in which a request lists them."""
    tools: list[Tool] = [
        AskUserQuestion(),
        Bash(settings.bash_timeout_ms),
        Edit(),
        ExitPlanMode(),
        Glob(),
        Grep(),
        JobKill(),
        JobList(),
        JobOutput(),
        Read(),
        LoadSkill(settings.config_dir),
        TodoWrite(),
        Write(),
    ]
    return {tool.schema.name: tool for tool in tools}


def warm() -> None:
    """Import what the first call needs. Takes a tenth of a second; meant for a thread."""
    for name in ("difflib", "dsh_acp.tools.arguments"):
        importlib.import_module(name)
