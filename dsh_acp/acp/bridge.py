"""The methods of version 1: every session of one connection.

Handlers run concurrently, one task per call. What must keep the order of the wire happens before
a handler's first await, or behind a session's admission lock.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from dsh_acp.acp import content, handshake, listing, methods, options, requests, slash
from dsh_acp.acp.conversation import Conversation, complain
from dsh_acp.acp.errors import auth_required, translate, unknown_session
from dsh_acp.acp.handshake import Client
from dsh_acp.acp.host import Host
from dsh_acp.acp.opening import Opening, Place, place
from dsh_acp.acp.world import CURRENT_CALL
from dsh_acp.agent.hooks import ToolUse
from dsh_acp.errors import LlmError, LogError
from dsh_acp.log.session_log import SessionLog
from dsh_acp.messages import Message
from dsh_acp.tools.tool import Outcome
from dsh_acp.wire.frames import INVALID_PARAMS, RpcError
from dsh_acp.wire.jsonrpc import DEFERRED, Call, Handler, Peer

_CLOSE_SECONDS: Final = 3.0


class Bridge:
    """One connection. `run` its tasks in a group; `close` ends every session."""

    def __init__(
        self,
        host: Host,
        write: Callable[[bytes], None],
        drain: Callable[[], Awaitable[None]] | None = None,
        client: Client | None = None,
    ) -> None:
        handlers: dict[str, Handler] = {
            method: getattr(self, name) for method, name in methods.V1.items()
        }
        self.peer: Final = (
            Peer(write, handlers, translate, drain)
            if drain is not None
            else Peer(write, handlers, translate)
        )
        self.client = client or Client()
        self._host: Final = host
        self._opening: Final = Opening(host, self.peer)
        self._live: Final[dict[str, Conversation]] = {}
        self._locks: Final[dict[str, anyio.Lock]] = {}
        self._tasks: TaskGroup | None = None
        self._discovered = False
        host.hooks.tool_execute.append(self._executing)

    def start(self, tasks: TaskGroup) -> None:
        """Run calls and sessions in `tasks`."""
        self._tasks = tasks
        self.peer.start(tasks)

    async def close(self) -> None:
        """The connection is over: stop everything, leave every log complete. Bounded in time."""
        self.peer.close()
        live = list(self._live.values())
        self._live.clear()
        with anyio.move_on_after(_CLOSE_SECONDS):
            async with anyio.create_task_group() as closing:
                for conversation in live:
                    closing.start_soon(conversation.session.close)
        self._host.hooks.tool_execute.remove(self._executing)
        with anyio.move_on_after(_CLOSE_SECONDS):
            await self._host.aclose()

    # ------------------------------------------------------------ the connection

    async def initialize(self, call: Call) -> Any:
        """Answered again if asked again; sessions that exist keep what they were opened with."""
        self.client = handshake.decode(call.params)
        return handshake.result(self.client)

    async def authenticate(self, call: Call) -> Any:
        """Look for a key anew; harmless when there is one already."""
        params = call.decode(requests.AUTHENTICATE)
        known = [method["id"] for method in handshake.auth_methods(self.client)]
        if params.method_id not in (*known, handshake.LOGIN_METHOD):
            raise RpcError(
                INVALID_PARAMS,
                f'There is no sign-in method "{params.method_id}"; there are: {", ".join(known)}.',
            )
        self._host.reload()
        self._resolve()
        return {}

    async def logout(self, call: Call) -> Any:
        """Forget the stored keys. Keys of the environment are not ours to forget."""
        from dsh_acp.config.credentials import Credentials

        stored = Credentials(self._host.settings.config_dir)
        for name in stored.names():
            stored.remove(name)
        self._host.reload()
        return {}

    def _resolve(self) -> tuple[str, str]:
        """The configured provider and model.

        Raises:
            RpcError: `-32000`, a key is missing; the message says how to give one.
        """
        try:
            provider, model = self._host.resolve(self._host.settings.model)
        except LlmError as exc:
            if exc.code != "MISSING_CREDENTIAL":
                raise
            sign_in = handshake.auth_methods(self.client)
            raise auth_required(exc.message, sign_in) from exc
        return provider.name, model

    # ------------------------------------------------------------ opening sessions

    async def new_session(self, call: Call) -> Any:
        """A fresh session. Nothing about it is sent before the answer that names it."""
        params = call.decode(requests.NEW_SESSION)
        where = place(params.cwd, params.additional_directories, params.mcp_servers)
        provider, model = self._resolve()
        log = self._host.store.create(where.cwd)
        conversation = self._opening.open(log, where, self.client, provider, model)
        return self._announce(call, conversation, where, {"sessionId": log.header.id})

    async def load_session(self, call: Call) -> Any:
        """An earlier session, its history first."""
        return await self._reopen(call, replay=True)

    async def resume_session(self, call: Call) -> Any:
        """An earlier session, without its history."""
        return await self._reopen(call, replay=False)

    async def fork_session(self, call: Call) -> Any:
        """A new session that begins with the history of another."""
        params = call.decode(requests.OPEN_SESSION)
        source = self._live.get(params.session_id)
        try:
            log = self._host.store.fork(params.session_id)
        except LogError as exc:
            raise _missing(exc, params.session_id) from exc
        cwd = params.cwd or log.header.cwd or (source and source.session.parts.options.cwd) or ""
        where = place(cwd, params.additional_directories, params.mcp_servers)
        conversation = await self._restored(log, where, replay=False)
        return self._announce(call, conversation, where, {"sessionId": log.header.id})

    async def _reopen(self, call: Call, *, replay: bool) -> Any:
        params = call.decode(requests.OPEN_SESSION)
        id = params.session_id
        async with self._locks.setdefault(id, anyio.Lock()):
            conversation = self._live.get(id)
            if conversation is not None:
                return self._join(call, conversation, params, replay=replay)
            try:
                log = self._host.store.open(id)
            except LogError as exc:
                raise _missing(exc, id) from exc
            try:
                cwd = params.cwd or log.header.cwd or ""
                where = place(cwd, params.additional_directories, params.mcp_servers)
                conversation = await self._restored(log, where, replay=replay)
            except BaseException:
                log.close()
                raise
            return self._announce(call, conversation, where, {}, replayed=replay)

    def _join(
        self, call: Call, conversation: Conversation, params: requests.OpenSession, *, replay: bool
    ) -> Any:
        """Open what is open already: the history again, and the session goes on as it is."""
        session = conversation.session
        cwd = session.parts.options.cwd
        if replay:
            projection = self._opening.projection(session.id, cwd, conversation.tools)
            codec = self._opening.codec(session.id, self.client)
            conversation.replay_again(projection, codec)
        where = place(params.cwd or cwd, params.additional_directories, params.mcp_servers)
        return self._announce(call, conversation, where, {}, replayed=replay)

    async def _restored(self, log: SessionLog, where: Place, *, replay: bool) -> Conversation:
        header = log.request_header()
        provider, model = ("", "")
        try:
            provider, model = self._resolve()
        except (RpcError, LlmError):
            if header is None or self._host.routes.get(header.config.provider) is None:
                raise
        conversation = self._opening.open(log, where, self.client, provider, model)
        await conversation.restore(replay=replay)
        return conversation

    def _announce(
        self,
        call: Call,
        conversation: Conversation,
        where: Place,
        result: dict[str, Any],
        *,
        replayed: bool = False,
    ) -> Any:
        """Answer, with the commands and whatever is worth saying, and follow from now on.

        A client learns of a new session by the answer, so those come behind it; behind a replay
        nothing may come, and the client knows the session already.
        """
        assert self._tasks is not None
        is_new = conversation.id not in self._live
        self._live[conversation.id] = conversation
        result["modes"] = conversation.voice.modes()
        result["configOptions"] = conversation.voice.choices()
        notes = [slash.announcement(conversation)]
        for problem in where.problems:
            complain(problem)
            notes.append(conversation.voice.note("warning", "MCP server left out", problem))
        notes += self._drifts(conversation)
        if replayed:
            conversation.write(b"".join(notes))
            conversation.voice.hush()
            notes = []
        call.reply(result, then=notes)
        if is_new:
            conversation.start(self._tasks)
        if not self._discovered:
            self._discovered = True
            self._tasks.start_soon(self._discover)
        return DEFERRED

    def _drifts(self, conversation: Conversation) -> list[bytes]:
        header = conversation.session.log.request_header()
        if header is None:
            return []
        before = f"{header.config.provider}/{header.config.model}"
        now = conversation.session.model
        if not now or before == now:
            return []
        sentence = f"The model {before} is not available any more; {now} answers from now on."
        return [conversation.voice.note("warning", "Another model", sentence)]

    async def _discover(self) -> None:
        """Learn which models there are; pickers are completed when that is known."""
        providers = {id(provider): provider for provider, _ in self._host.routes.known()}
        for provider in providers.values():
            await provider.discover()
        for conversation in self._live.values():
            if not conversation.voice.is_between_turns:  # else its next prompt says so
                conversation.write(conversation.voice.changes())

    # ------------------------------------------------------------ sessions

    def _find(self, session_id: str) -> Conversation:
        conversation = self._live.get(session_id)
        if conversation is None:
            raise unknown_session(session_id)
        return conversation

    async def list_sessions(self, call: Call) -> Any:
        """One page of the sessions that there are."""
        params = call.decode(requests.LIST_SESSIONS)
        return listing.page(self._host.store, params.cwd, params.cursor)

    async def close_session(self, call: Call) -> Any:
        """Stop a session and free what it holds; it can be loaded again."""
        conversation = self._find(call.decode(requests.OF_SESSION).session_id)
        del self._live[conversation.id]
        await conversation.close()
        return {}

    async def delete_session(self, call: Call) -> Any:
        """Remove a session for good; fine when there is none."""
        session_id = call.decode(requests.OF_SESSION).session_id
        conversation = self._live.pop(session_id, None)
        if conversation is not None:
            await conversation.close()
        self._host.store.delete(session_id)
        return {}

    async def set_mode(self, call: Call) -> Any:
        """Choose a permission preset."""
        params = call.decode(requests.SET_MODE)
        conversation = self._find(params.session_id)
        options.select_mode(conversation.session, params.mode_id)
        conversation.write(conversation.voice.changes())
        return {}

    async def set_config_option(self, call: Call) -> Any:
        """Choose a value; the answer has every option, since one may change others."""
        params = call.decode(requests.SET_CONFIG_OPTION)
        conversation = self._find(params.session_id)
        options.select(conversation.session, self._host.routes, params.config_id, params.value)
        conversation.write(conversation.voice.changes())
        return {"configOptions": conversation.voice.choices()}

    # ------------------------------------------------------------ prompts

    async def cancel(self, call: Call) -> Any:
        """Stop what a session does; nothing happens for one that is not here."""
        conversation = self._live.get(call.decode(requests.OF_SESSION).session_id)
        if conversation is not None:
            conversation.cancel()
        return None

    async def prompt(self, call: Call) -> Any:
        """A prompt, or a slash command; answered at the end of its turn."""
        params = call.decode(requests.PROMPT)
        conversation = self._find(params.session_id)
        scope = conversation.admit()
        call.cancelled = scope.cancel
        try:
            with scope:
                async with conversation.admission:
                    if scope.cancel_called:
                        await anyio.lowlevel.checkpoint()
                    return await self._admit(call, conversation, params)
            return {"stopReason": "cancelled"}
        finally:
            conversation.admitted(scope)

    async def _admit(self, call: Call, conversation: Conversation, params: requests.Prompt) -> Any:
        command = slash.recognise(content.text_of(params.prompt))
        if command is not None and not conversation.session.commands.is_skill(command[0]):
            message = await slash.run(conversation, *command)
            if message is None:
                return {"stopReason": "end_turn"}
        else:
            message = await self._read(conversation, params)
        conversation.submit(call, message, steer=self._is_steering(params))
        assert self._tasks is not None
        # Looking at folders is for later than the request, which is on its way by then.
        self._tasks.start_soon(self._tell_commands, conversation)
        return DEFERRED

    async def _tell_commands(self, conversation: Conversation) -> None:
        if slash.has_changed(conversation):
            conversation.write(slash.announcement(conversation))

    async def _read(self, conversation: Conversation, params: requests.Prompt) -> Message:
        if content.is_plain(params.prompt):
            reading = content.read_plain(params.prompt)
        else:
            chosen = conversation.session.parts.options
            info = chosen.info()
            reading = await content.read(
                params.prompt,
                cwd=chosen.cwd,
                sees_images=info is not None and info.vision,
                store_image=self._host.attachments.put,
                uploads=self._host.uploads,
            )
        for note in reading.notes:
            conversation.write(conversation.voice.note("info", "Image saved", note))
        source: dict[str, Any] = {"kind": "user"}
        if reading.shown is not None:
            source["blocks"] = reading.shown
        return Message.user(reading.content, source)

    def _is_steering(self, params: requests.Prompt) -> bool:
        wanted = handshake.part(params.meta, "dsh-acp").get("steer")
        if isinstance(wanted, bool):
            return wanted
        return self._host.settings.prompt_while_running == "steer"

    # ------------------------------------------------------------ running calls

    async def _executing(self, use: ToolUse, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
        conversation = self._live.get(use.session.id)
        if conversation is None:
            return await proceed()
        token = CURRENT_CALL.set(use.call_id)
        conversation.call_started(use.call_id)
        try:
            return await proceed()
        finally:
            with suppress(ValueError):
                CURRENT_CALL.reset(token)


def _missing(exc: LogError, session_id: str) -> Exception:
    return unknown_session(session_id) if exc.code == "NOT_FOUND" else exc
