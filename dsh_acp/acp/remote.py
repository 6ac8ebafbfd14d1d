"""The MCP servers of one session, as the editor's user meets them.

Their tools join the session's own and leave them while it lives; the next step of a turn sees the
change, and its request header records it. What happens to a server is said once: on stderr, and to
the person as a notice, with the next prompt where an unasked word would be taken for a mistake.
"""

from collections.abc import Callable, Mapping, Sequence
import shlex
import sys
from typing import Any, Final, Literal, Protocol

from anyio import to_thread

from dsh_acp.agent.commands import Command, CommandInfo, CommandResult, said
from dsh_acp.agent.session import Session
from dsh_acp.config import McpServerSettings, Settings
from dsh_acp.errors import DshError, McpError
from dsh_acp.log.attachments import Attachments
from dsh_acp.mcp import naming
from dsh_acp.mcp.place import Limits, Place
from dsh_acp.mcp.servers import OfferedPrompt, Servers, merged
from dsh_acp.mcp.values import PromptArgument, RemoteTool, Status, Words
from dsh_acp.messages import ImageRef, Message, Text
from dsh_acp.tools import process, reaper
from dsh_acp.tools.remote import Remote
from dsh_acp.tools.tool import Tool


class Voice(Protocol):
    """How a session says things beside its log."""

    @property
    def is_between_turns(self) -> bool:
        """Whether nothing may be said unasked."""
        ...

    def note(
        self, severity: Literal["info", "warning", "error"], title: str, description: str
    ) -> bytes:
        """A notice, as lines to write."""
        ...

    def new_commands(self) -> bytes:
        """The list of commands, if the client does not know it yet."""
        ...


class RemoteTools:
    """`start` connects; the servers end with the session."""

    def __init__(
        self,
        session: Session,
        tools: dict[str, Tool],
        voice: Voice,
        write: Callable[[bytes], None],
        *,
        has_notices: bool,
        settings: Settings,
        attachments: Attachments,
        passed: Sequence[McpServerSettings],
    ) -> None:
        options = session.parts.options
        self._session: Final = session
        self._tools: Final = tools
        self._voice: Final = voice
        self._write: Final = write
        self._has_notices: Final = has_notices
        self._settings: Final = settings
        self._attachments: Final = attachments
        self._shown: dict[str, RemoteTool] = {}
        self._failed: set[str] = set()
        self._owed: list[bytes] = []
        self._has_waited = False
        self._servers: Final = Servers(
            merged(settings.mcp_servers, passed),
            Place(
                cwd=options.cwd,
                roots=options.roots,
                environment=process.environment(),
                guard=reaper,
            ),
            Limits(connect_s=settings.mcp_connect_timeout_s, call_s=settings.mcp_call_timeout_s),
            self._changed,
        )
        session.commands.more = self._commands

    def start(self) -> None:
        """Connect in the background of the session, once that runs."""
        self._session.background(self._servers.run)

    def use(self, passed: Sequence[McpServerSettings]) -> None:
        """The client names its servers anew; those that are the same stay connected."""
        self._servers.use(merged(self._settings.mcp_servers, passed))
        self._equip()

    async def ready(self, command: str | None) -> None:
        """Before a prompt: wait a little for servers that still connect, and say what is owed.

        Only the first prompt waits, at most so long after the session's start as is configured.
        A `command` waits when it may be one of a server's prompts, and says nothing.
        """
        if command is not None and not command.startswith(naming.PREFIX):
            return
        if not self._has_waited and not await self._servers.settled(self._settings.mcp_wait_s):
            names = [s.server for s in self._servers.statuses() if s.state == "connecting"]
            text = f"{_listed(names)} still connecting; the tools come when they are."
            self._owed.append(self._voice.note("info", "MCP servers", text))
        self._has_waited = True
        owed, self._owed = self._owed, []
        self._write(b"".join(owed))

    # ------------------------------------------------------------ what changes

    def _changed(self, status: Status) -> None:
        self._equip()
        self._report(status)
        if not self._voice.is_between_turns:
            self._write(self._voice.new_commands())

    def _equip(self) -> None:
        offered = {item.name: item for item in self._servers.tools()}
        for name in [name for name in self._tools if name.startswith(naming.PREFIX)]:
            if name not in offered:
                del self._tools[name]
        for name, item in offered.items():
            # The same object as long as the tool is the same: what is made of it is kept.
            if name not in self._tools or self._shown.get(name) != item.tool:
                if name in self._shown and self._shown[name] != item.tool:
                    self._forget(name)
                self._tools[name] = Remote(name, item.tool, item.connection, self._keep)
        self._shown = {name: item.tool for name, item in offered.items()}

    def _forget(self, name: str) -> None:
        """A server has changed what a tool is; "always" was said of another one."""
        parts = self._session.parts
        parts.folds.catch_up()
        for key in [key for key in parts.policy.grants if key.tool == name]:
            if parts.policy.grants[key] == "allow":
                parts.gate.revoke(key)

    async def _keep(self, data: bytes, media_type: str, name: str) -> ImageRef:
        return await to_thread.run_sync(self._attachments.put, data, media_type, name)

    def _report(self, status: Status) -> None:
        name = status.server
        match status.state:
            case "failed" if name not in self._failed:
                self._failed.add(name)
                text = f'The MCP server "{name}" cannot be used: {status.reason}.'
                self._say("warning", "MCP server failed", text)
            case "ready" if name in self._failed:
                self._failed.discard(name)
                text = f'The MCP server "{name}" is connected now.'
                self._say("info", "MCP server connected", text)
            case "lost":
                _complain(f'The MCP server "{name}" ended: {status.reason}.')
            case _:
                pass

    def _say(self, severity: Literal["info", "warning"], title: str, text: str) -> None:
        _complain(text)
        note = self._voice.note(severity, title, text)
        is_quiet = self._voice.is_between_turns
        if self._session.status == "running" or (self._has_notices and not is_quiet):
            self._write(note)
        else:
            # A message out of the blue would look like an answer.
            self._owed.append(note)

    # ------------------------------------------------------------ commands

    def _commands(self) -> Mapping[str, Command]:
        found = {
            "mcp": Command(CommandInfo("mcp", "Show the MCP servers of this session"), self._show)
        }
        for item in self._servers.prompts():
            found[item.name] = Command(_info(item), self._runner(item))
        return found

    async def _show(self, args: str, command_id: str) -> CommandResult:
        return said("\n".join(_line(status) for status in self._servers.statuses()))

    def _runner(self, item: OfferedPrompt) -> Callable[[str, str], Any]:
        async def run(args: str, command_id: str) -> CommandResult:
            values = _values(item.prompt.arguments, args)
            try:
                answer = await item.connection.prompt(item.prompt.name, values)
            except McpError as exc:
                text = f'the MCP server "{item.connection.name}" failed: {exc}'
                raise DshError(text, code=exc.code) from exc
            texts = [piece.text for piece in answer.pieces if isinstance(piece, Words)]
            if not any(texts):
                return CommandResult("the prompt is empty", is_error=True)
            return CommandResult(prompt=Message.user(tuple(Text(text) for text in texts if text)))

        return run


def _info(item: OfferedPrompt) -> CommandInfo:
    prompt = item.prompt
    hint = " ".join(f"<{a.name}>" if a.required else f"[{a.name}]" for a in prompt.arguments)
    about = prompt.description or prompt.name
    return CommandInfo(item.name, f"{about} ({item.connection.name})", hint or None)


def _values(arguments: Sequence[PromptArgument], line: str) -> dict[str, str]:
    """The words of the line for the arguments in order, the rest of it for the last.

    Raises:
        DshError: one that is required is missing.
    """
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    if len(words) > len(arguments):
        kept = max(0, len(arguments) - 1)
        words = [*words[:kept], " ".join(words[kept:])] if arguments else []
    missing = [argument.name for argument in arguments[len(words) :] if argument.required]
    if missing:
        raise DshError(f"missing: {', '.join(missing)}", code="INVALID_ARGS")
    return {argument.name: word for argument, word in zip(arguments, words, strict=False)}


def _line(status: Status) -> str:
    match status.state:
        case "ready":
            count = f"{status.tools} tool{'' if status.tools == 1 else 's'}"
            return f"- `{status.server}` — connected, {count}"
        case "lost":
            return f"- `{status.server}` — ended ({status.reason}); the next call starts it again"
        case "failed":
            return f"- `{status.server}` — failed: {status.reason}"
        case "connecting":
            return f"- `{status.server}` — connecting"


def _listed(names: Sequence[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"The MCP server {quoted} is" if len(names) == 1 else f"The MCP servers {quoted} are"


def _complain(sentence: str) -> None:
    sys.stderr.write(f"dsh-acp: {sentence}\n")
