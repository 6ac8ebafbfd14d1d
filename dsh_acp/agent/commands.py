"""Slash commands: what a person can do in the conversation without asking the model.

A command runs between turns, or beside one where it only looks. What it did is logged; its answer
is shown and not sent to the model. A command that stands for a prompt returns it, for the front
end to send as one.
"""

from collections.abc import Awaitable, Callable, Mapping
import logging

from msgspec import Struct

from dsh_acp.agent import command_files
from dsh_acp.errors import DshError, chain
from dsh_acp.log.plugin_payloads import CommandDone, CommandRun
from dsh_acp.log.session_log import SessionLog
from dsh_acp.messages import UNSET, Message, Text, new_id
from dsh_acp.tools.skills import Shelf

_log = logging.getLogger(__name__)


class CommandInfo(Struct, frozen=True):
    """A command as it is offered; `hint` says what may follow the name."""

    name: str
    description: str
    hint: str | None = None


class CommandResult(Struct, frozen=True):
    """What came of a command. `prompt` is to be sent as the person's own."""

    text: str = ""
    is_error: bool = False
    prompt: Message | None = None


Run = Callable[[str], Awaitable[CommandResult]]


class Command(Struct, frozen=True):
    """A command of this program; `run` gets the rest of the line, and its own id."""

    info: CommandInfo
    run: Callable[[str, str], Awaitable[CommandResult]]


def said(text: str) -> CommandResult:
    """A command that went well."""
    return CommandResult(text)


def prompt(text: str) -> Message:
    """The prompt that a command stands for."""
    return Message.user((Text(text),))


class Commands:
    """The commands of one session."""

    def __init__(
        self, log: SessionLog, cwd: str, builtin: Mapping[str, Command], shelf: Shelf
    ) -> None:
        self._log = log
        self._cwd = cwd
        self._builtin = builtin
        self._shelf = shelf
        self.more: Callable[[], Mapping[str, Command]] = dict
        """Commands that come and go, such as the prompts of MCP servers."""

    def _programs(self) -> Mapping[str, Command]:
        return {**self.more(), **self._builtin}

    def list(self) -> list[CommandInfo]:
        """Every command and skill by name; the project's files are read anew each time."""
        found = {name: command.info for name, command in self._programs().items()}
        for name, file in command_files.load(self._cwd).items():
            found.setdefault(name, CommandInfo(name, file.description, file.hint))
        for skill in self._shelf.skills().values():
            if skill.for_user:
                found.setdefault(skill.name, CommandInfo(skill.name, skill.description))
        return [found[name] for name in sorted(found)]

    def is_skill(self, name: str) -> bool:
        """Whether `/name` stands for a skill, so that the whole line is a prompt."""
        skill = self._shelf.skills().get(name)
        is_command = name in self._programs() or name in command_files.load(self._cwd)
        return skill is not None and skill.for_user and not is_command

    async def run(self, name: str, args: str = "") -> CommandResult:
        """Run a command with the rest of its line.

        An unknown name, or a failure, is a result with `is_error`. Only cancellation is raised.
        """
        if self.is_skill(name):
            return CommandResult(prompt=prompt(f"/{name} {args}".strip()))
        command = self._programs().get(name)
        file = None if command is not None else command_files.load(self._cwd).get(name)
        if command is None and file is None:
            known = ", ".join(f"/{info.name}" for info in self.list())
            return CommandResult(f"unknown command: /{name}. There are: {known}", is_error=True)
        command_id = new_id()
        try:
            self._log.append(CommandRun(command_id, name, args or UNSET, {"kind": "user"}))
            result = (
                await command.run(args, command_id)
                if command is not None
                else CommandResult(prompt=prompt(file.expand(args) if file is not None else ""))
            )
        except DshError as exc:
            result = CommandResult(str(exc), is_error=True)
        except Exception as exc:  # noqa: BLE001 - a command's bug is an answer, not a lost session
            _log.exception("the command /%s failed", name)
            result = CommandResult(f"command failed: {chain(exc)}", is_error=True)
        if self._log.writable:
            self._log.append(
                CommandDone(
                    command_id, "error" if result.is_error else "success", result.text or UNSET
                )
            )
        return result
