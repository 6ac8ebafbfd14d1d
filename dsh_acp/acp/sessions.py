"""Every session of one connection: opened, found, prompted and ended, in no version's words.

The methods of each protocol version decode their params, call this, and put the outcome into
their own words. What must keep the order of the wire happens before a first await, or behind a
session's admission lock.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from dsh_acp.acp import content, handshake, options, slash
from dsh_acp.acp.client import AGENT_METHOD, LOGIN_METHOD, Client, part
from dsh_acp.acp.conversation import Conversation, complain
from dsh_acp.acp.dialect import Dialect
from dsh_acp.acp.errors import auth_required, unknown_session
from dsh_acp.acp.host import Host
from dsh_acp.acp.opening import Opening, Place, place
from dsh_acp.acp.recollection import Recollection
from dsh_acp.acp.world import CURRENT_CALL
from dsh_acp.agent.hooks import ToolUse
from dsh_acp.errors import ConfigError, LlmError, LogError
from dsh_acp.llm.dialects import AUTO
from dsh_acp.log.collector import collect_after, collector_paused
from dsh_acp.log.session_log import SessionLog
from dsh_acp.messages import Message
from dsh_acp.tools.tool import Outcome
from dsh_acp.wire.frames import INVALID_PARAMS, RpcError
from dsh_acp.wire.jsonrpc import DEFERRED, Call, Peer

_CLOSE_SECONDS: Final = 3.0
_PARTS: Final = 8
"""How many parts of a log are read before others have their turn."""

Announce = Callable[[Conversation, bytes], None]
"""Answers the call that opened a session; gets the lines that are worth sending with it."""


class Sessions:
    """The sessions. `client` and its `dialect` are set before the first of them is opened."""

    def __init__(self, host: Host, peer: Peer) -> None:
        self.host: Final = host
        self.client = Client()
        self.live: Final[dict[str, Conversation]] = {}
        self._opening: Final = Opening(host, peer)
        self._locks: Final[dict[str, anyio.Lock]] = {}
        self._tasks: TaskGroup | None = None
        self._discovered = False
        host.hooks.tool_execute.append(self._executing)

    def speak(self, client: Client, dialect: Dialect) -> None:
        """The connection's version is known."""
        self.client = client
        self._opening.dialect = dialect

    def start(self, tasks: TaskGroup) -> None:
        """Run sessions in `tasks`."""
        self._tasks = tasks

    async def close(self) -> None:
        """Stop everything, leave every log complete. Bounded in time."""
        live = list(self.live.values())
        self.live.clear()
        with anyio.move_on_after(_CLOSE_SECONDS):
            async with anyio.create_task_group() as closing:
                for conversation in live:
                    closing.start_soon(conversation.session.close)
        self.host.hooks.tool_execute.remove(self._executing)
        with anyio.move_on_after(_CLOSE_SECONDS):
            await self.host.aclose()

    # ------------------------------------------------------------ signing in

    def sign_in(self, method_id: str) -> None:
        """Look for a key anew; harmless when there is one already.

        Raises:
            RpcError: `-32602`, there is no such method; `-32000`, there is no key.
        """
        if method_id not in (AGENT_METHOD, LOGIN_METHOD):
            known = [AGENT_METHOD, *([LOGIN_METHOD] if self.client.auth_terminal else [])]
            raise RpcError(
                INVALID_PARAMS,
                f'There is no sign-in method "{method_id}"; there are: {", ".join(known)}.',
            )
        self.host.reload()
        self._resolve()

    def sign_out(self) -> None:
        """Forget the stored keys. Keys of the environment are not ours to forget."""
        from dsh_acp.config.credentials import Credentials

        stored = Credentials(self.host.settings.config_dir)
        for name in stored.names():
            stored.remove(name)
        self.host.reload()

    def _resolve(self) -> tuple[str, str]:
        """The configured provider and model.

        Raises:
            RpcError: `-32000`, a key is missing; the message says how to give one.
            ConfigError: the configured effort is not one that the model is known to have.
        """
        try:
            provider, model = self.host.resolve(self.host.settings.model)
        except LlmError as exc:
            if exc.code != "MISSING_CREDENTIAL":
                raise
            sign_in = handshake.auth_methods(self.client)
            raise auth_required(exc.message, sign_in) from exc
        known, effort = provider.model(model).efforts, self.host.settings.effort
        if effort and known and effort not in known and effort not in AUTO:
            text = f"effort: {provider.name}/{model} has {', '.join(known)}, not {effort!r}"
            raise ConfigError([text])
        return provider.name, model

    # ------------------------------------------------------------ opening

    def create(
        self, cwd: str, directories: Sequence[str] | None, servers: Any, announce: Announce
    ) -> None:
        """A fresh session."""
        where = place(cwd, directories, servers)
        provider, model = self._resolve()
        log = self.host.store.create(where.cwd)
        memory = self._opening.recollection(log.header.id, where.cwd, is_shown=True)
        conversation = self._opening.open(log, where, self.client, (provider, model), memory)
        self._announce(conversation, where, announce)

    async def fork(
        self,
        id: str,
        cwd: str | None,
        directories: Sequence[str] | None,
        servers: Any,
        announce: Announce,
    ) -> None:
        """A new session that begins with the history of another."""
        source = self.live.get(id)
        try:
            log = self.host.store.fork(id)
        except LogError as exc:
            raise _missing(exc, id) from exc
        cwd = cwd or log.header.cwd or (source and source.session.parts.options.cwd) or ""
        where = place(cwd, directories, servers)
        with collector_paused():
            memory = self._opening.recollection(log.header.id, where.cwd, is_shown=False)
            conversation = await self._restored(log, where, memory)
        self._announce(conversation, where, announce)

    async def reopen(
        self,
        id: str,
        cwd: str | None,
        directories: Sequence[str] | None,
        servers: Any,
        announce: Announce,
        *,
        replay: bool,
    ) -> None:
        """An earlier session; with `replay` its history is sent before `announce` is called."""
        async with self._locks.setdefault(id, anyio.Lock()):
            conversation = self.live.get(id)
            if conversation is not None:
                known = conversation.session.parts.options.cwd
                if replay:
                    self._replay(conversation)
                where = place(cwd or known, directories, servers)
                if servers is not None:
                    self._opening.connect(conversation, where.servers)
                self._announce(conversation, where, announce)
                return
            with collector_paused():
                log, memory = await self._read(id, cwd, is_shown=replay)
                try:
                    where = place(cwd or log.header.cwd or "", directories, servers)
                    if memory is None:
                        memory = self._opening.recollection(id, where.cwd, is_shown=replay)
                    conversation = await self._restored(log, where, memory)
                except BaseException:
                    log.close()
                    raise
            self._announce(conversation, where, announce)

    async def _read(
        self, id: str, cwd: str | None, *, is_shown: bool
    ) -> tuple[SessionLog, Recollection | None]:
        """The log, and with a `cwd` what it shows, taken in part by part as it is read."""
        memory = self._opening.recollection(id, cwd, is_shown=is_shown) if cwd else None
        steps = self.host.store.opening(id)
        number = 0
        try:
            while True:
                part = next(steps)
                if memory is not None:
                    memory.take(part)
                number += 1
                if not number % _PARTS:
                    await anyio.lowlevel.checkpoint()
        except StopIteration as end:
            return end.value, memory
        except LogError as exc:
            raise _missing(exc, id) from exc
        finally:
            steps.close()

    def _replay(self, conversation: Conversation) -> None:
        """The history of what is open already; the session goes on as it is."""
        session = conversation.session
        cwd = session.parts.options.cwd
        projection = self._opening.projection(session.id, cwd, conversation.tools)
        conversation.replay_again(projection, self._opening.codec(session.id, self.client))

    async def _restored(self, log: SessionLog, where: Place, memory: Recollection) -> Conversation:
        header = log.request_header()
        provider, model = ("", "")
        try:
            provider, model = self._resolve()
        except (RpcError, LlmError):
            if header is None or self.host.routes.get(header.config.provider) is None:
                raise
        conversation = self._opening.open(log, where, self.client, (provider, model), memory)
        await conversation.restore(memory)
        return conversation

    def _announce(self, conversation: Conversation, where: Place, announce: Announce) -> None:
        """Have the call answered, and follow the session from now on."""
        assert self._tasks is not None
        is_new = conversation.id not in self.live
        self.live[conversation.id] = conversation
        notes: list[bytes] = []
        for problem in where.problems:
            complain(problem)
            notes.append(conversation.voice.note("warning", "MCP server left out", problem))
        for remark in conversation.remarks:
            complain(remark)
            notes.append(conversation.voice.note("warning", "Hooks", remark))
        conversation.remarks = ()
        why = conversation.session.log.degraded or self.host.store.memory_only
        if is_new and why:
            text = f"This session is kept in memory only, and is lost at the end: {why}"
            notes.append(conversation.voice.note("warning", "The session is not saved", text))
        notes += _drifts(conversation)
        announce(conversation, b"".join(notes))
        if is_new:
            conversation.start(self._tasks)
        if not self._discovered:
            self._discovered = True
            self._tasks.start_soon(self._discover)

    async def _discover(self) -> None:
        """Learn which models there are; pickers are completed when that is known."""
        await self.host.routes.discover()
        for conversation in self.live.values():
            if not conversation.voice.is_between_turns:  # else its next prompt says so
                conversation.write(conversation.voice.changes())

    # ------------------------------------------------------------ what is open

    def find(self, session_id: str) -> Conversation:
        """An open session.

        Raises:
            RpcError: `-32002`, there is none.
        """
        conversation = self.live.get(session_id)
        if conversation is None:
            raise unknown_session(session_id)
        return conversation

    async def end(self, session_id: str) -> bool:
        """Stop a session and free what it holds; whether it was open."""
        conversation = self.live.pop(session_id, None)
        if conversation is None:
            return False
        await conversation.close()
        if self._tasks is not None:
            self._tasks.start_soon(_forget, conversation.session.log.seq)
        return True

    async def delete(self, session_id: str) -> None:
        """Remove a session and its subagents for good; fine when there is none."""
        await self.end(session_id)
        for id in (*reversed(self.host.store.descendants(session_id)), session_id):
            self.host.store.delete(id)

    def select(self, conversation: Conversation, choice: str, value: Any) -> None:
        """Choose a value, and tell of it.

        Raises:
            RpcError: `-32602`, naming what there is.
        """
        options.select(conversation.session, self.host.routes, choice, value)
        conversation.write(conversation.voice.changes())

    # ------------------------------------------------------------ prompts

    async def prompt(self, call: Call, session_id: str, blocks: Sequence[Any], meta: Any) -> Any:
        """A prompt, or a slash command; the call is answered as its version has it."""
        conversation = self.find(session_id)
        scope = conversation.admit()
        call.cancelled = scope.cancel
        try:
            with scope:
                async with conversation.admission:
                    if scope.cancel_called:
                        await anyio.lowlevel.checkpoint()
                    await self._admit(call, conversation, blocks, meta)
                    return DEFERRED
            conversation.write(conversation.prompts.commanded(call, "cancelled"))
            return DEFERRED
        finally:
            conversation.admitted(scope)

    async def _admit(
        self, call: Call, conversation: Conversation, blocks: Sequence[Any], meta: Any
    ) -> None:
        command = slash.recognise(content.text_of(blocks))
        if conversation.remote is not None:
            await conversation.remote.ready(command and command[0])
        if command is not None and not conversation.session.commands.is_skill(command[0]):
            message = await slash.run(conversation, call, *command)
            if message is None:
                return
        else:
            message = await self.read(conversation, blocks)
        conversation.submit(call, message, steer=self._is_steering(meta))
        assert self._tasks is not None
        # Looking at folders is for later than the request, which is on its way by then.
        self._tasks.start_soon(self._tell_commands, conversation)

    async def _tell_commands(self, conversation: Conversation) -> None:
        conversation.write(conversation.voice.new_commands())

    async def read(
        self, conversation: Conversation, blocks: Sequence[Any], id: str | None = None
    ) -> Message:
        """A prompt's blocks as a message.

        Raises:
            PromptError: they cannot be read.
        """
        if content.is_plain(blocks):
            reading = content.read_plain(blocks)
        else:
            chosen = conversation.session.parts.options
            info = chosen.info()
            reading = await content.read(
                blocks,
                cwd=chosen.cwd,
                sees_images=info is not None and info.vision,
                hears=info is not None and info.audio,
                attachments=self.host.attachments,
                uploads=self.host.uploads,
                hearing=self._hearing,
            )
        for note in reading.notes:
            conversation.write(conversation.voice.note("info", note.title, note.text))
        source: dict[str, Any] = {"kind": "user"}
        if reading.shown is not None:
            source["blocks"] = reading.shown
        return Message.user(reading.content, source, id)

    def _hearing(self) -> list[str]:
        known = self.host.routes.known()
        return [f"{provider.name}/{info.id}" for provider, info in known if info.audio]

    def _is_steering(self, meta: Any) -> bool:
        wanted = part(meta, "dsh-acp").get("steer")
        if isinstance(wanted, bool):
            return wanted
        return self.host.settings.prompt_while_running == "steer"

    # ------------------------------------------------------------ running calls

    async def _executing(self, use: ToolUse, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
        conversation = self.live.get(use.session.id)
        if conversation is None:
            return await proceed()
        token = CURRENT_CALL.set(use.call_id)
        try:
            return await conversation.execute(use.call_id, proceed)
        finally:
            with suppress(ValueError):
                CURRENT_CALL.reset(token)


async def _forget(events: int) -> None:
    await anyio.lowlevel.checkpoint()  # whoever ended the session holds it until then
    collect_after(events)


def _drifts(conversation: Conversation) -> list[bytes]:
    header = conversation.session.log.request_header()
    if header is None:
        return []
    before = f"{header.config.provider}/{header.config.model}"
    now = conversation.session.model
    if not now or before == now:
        return []
    sentence = f"The model {before} is not available any more; {now} answers from now on."
    return [conversation.voice.note("warning", "Another model", sentence)]


def _missing(exc: LogError, session_id: str) -> Exception:
    return unknown_session(session_id) if exc.code == "NOT_FOUND" else exc
