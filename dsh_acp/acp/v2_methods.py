"""The methods of version 2, and our own for what waits in a session's inbox."""

from collections.abc import Mapping
from typing import Any, Final

from dsh_acp.acp import listing, requests, v2_parts, v2_requests
from dsh_acp.acp.conversation import Conversation
from dsh_acp.acp.sessions import Announce, Sessions
from dsh_acp.acp.v2_handshake import METHODS
from dsh_acp.acp.v2_prompts import Receipts, waiting
from dsh_acp.messages import Message
from dsh_acp.wire.frames import INVALID_PARAMS, RpcError
from dsh_acp.wire.jsonrpc import DEFERRED, Call, Handler


def handlers(sessions: Sessions) -> Mapping[str, Handler]:
    """The methods over `sessions`."""
    methods = Methods(sessions)
    return {method: getattr(methods, name) for method, name in METHODS.items()}


class Methods:
    """Handlers run concurrently, one task per call. What waits is told before it is answered."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions: Final = sessions

    # ------------------------------------------------------------ signing in

    async def login(self, call: Call) -> Any:
        """Look for a key anew."""
        self._sessions.sign_in(call.decode(requests.AUTHENTICATE).method_id)
        return {}

    async def logout(self, call: Call) -> Any:
        """Forget the stored keys."""
        self._sessions.sign_out()
        return {}

    # ------------------------------------------------------------ opening sessions

    async def new_session(self, call: Call) -> Any:
        """A fresh session, which is idle."""
        params = call.decode(v2_requests.NEW_SESSION)
        servers = v2_requests.servers(params.mcp_servers)
        directories = params.additional_directories or ()
        self._sessions.create(params.cwd, directories, servers, _created(call))
        return DEFERRED

    async def resume_session(self, call: Call) -> Any:
        """An earlier session; its history if wanted, then its state, then the answer."""
        params = call.decode(v2_requests.RESUME_SESSION)
        replays = v2_requests.is_replay(params.replay_from)
        await self._sessions.reopen(
            params.session_id,
            params.cwd,
            params.additional_directories or (),
            v2_requests.servers(params.mcp_servers),
            _resumed(call, replays=replays),
            replay=replays,
        )
        return DEFERRED

    # ------------------------------------------------------------ sessions

    async def list_sessions(self, call: Call) -> Any:
        """One page of the sessions that there are."""
        params = call.decode(requests.LIST_SESSIONS)
        return listing.page(self._sessions.host.store, params.cwd, params.cursor)

    async def close_session(self, call: Call) -> Any:
        """Stop a session, everything about which is out before the answer. Fine for any other."""
        await self._sessions.end(call.decode(requests.OF_SESSION).session_id)
        return {}

    async def delete_session(self, call: Call) -> Any:
        """Remove a session for good; fine when there is none."""
        await self._sessions.delete(call.decode(requests.OF_SESSION).session_id)
        return {}

    async def set_config_option(self, call: Call) -> Any:
        """Choose a value; the answer has every option, since one may change others."""
        params = call.decode(v2_requests.SET_CONFIG_OPTION)
        conversation = self._sessions.find(params.session_id)
        if params.type != "id":
            sentence = f'The option "{params.config_id}" takes a value of type "id".'
            raise RpcError(INVALID_PARAMS, sentence)
        self._sessions.select(conversation, params.config_id, params.value)
        return {"configOptions": v2_parts.choices(conversation.voice.choices())}

    # ------------------------------------------------------------ prompts

    async def prompt(self, call: Call) -> Any:
        """A prompt, or a slash command; answered when it is in the conversation."""
        params = call.decode(requests.PROMPT)
        return await self._sessions.prompt(call, params.session_id, params.prompt, params.meta)

    async def cancel(self, call: Call) -> Any:
        """Stop what a session does; nothing happens for one that is not here."""
        conversation = self._sessions.live.get(call.decode(requests.OF_SESSION).session_id)
        if conversation is not None:
            conversation.cancel()
        return None

    async def cancel_call(self, call: Call) -> Any:
        """Stop one running call; the turn goes on."""
        params = call.decode(v2_requests.OF_CALL)
        conversation = self._sessions.find(params.session_id)
        if not conversation.stop(params.tool_call_id):
            raise RpcError(INVALID_PARAMS, f'No call "{params.tool_call_id}" is running.')
        return {}

    async def cancel_terminal(self, call: Call) -> Any:
        """Stop a running command; its call ends as it does when a command is killed."""
        params = call.decode(v2_requests.OF_TERMINAL)
        conversation = self._sessions.find(params.session_id)
        id = params.terminal_id
        background = _receipts(conversation).background
        if not (conversation.stop(id, command=True) or background.stop(id)):
            raise RpcError(INVALID_PARAMS, f'No terminal "{params.terminal_id}" is running.')
        return {}

    # ------------------------------------------------------------ what waits

    async def pending(self, call: Call) -> Any:
        """The input that waits."""
        conversation = self._sessions.find(call.decode(requests.OF_SESSION).session_id)
        await conversation.caught_up()
        return {"pending": _receipts(conversation).pending()}

    async def edit(self, call: Call) -> Any:
        """Other words for waiting input, which keeps its id and its place."""
        params = call.decode(v2_requests.EDIT)
        conversation = self._sessions.find(params.session_id)
        await conversation.caught_up()
        message = await self._sessions.read(conversation, params.prompt, params.message_id)
        if not conversation.session.parts.inbox.replace(params.message_id, message):
            raise _gone(params.message_id)
        conversation.session.log.flush()
        await conversation.caught_up()
        return {}

    async def withdraw(self, call: Call) -> Any:
        """Take back waiting input; its prompt is answered as cancelled."""
        params = call.decode(v2_requests.OF_MESSAGE)
        conversation, message = await self._waiting(params)
        if not conversation.session.parts.inbox.remove(message.id):
            raise _gone(message.id)
        conversation.session.log.flush()
        await conversation.caught_up()
        return {}

    async def steer(self, call: Call) -> Any:
        """Give waiting input to the running turn's next step instead of a turn of its own."""
        params = call.decode(v2_requests.OF_MESSAGE)
        conversation, message = await self._waiting(params)
        inbox = conversation.session.parts.inbox
        waits = [each.id for each in inbox.pending("next-turn")]
        if message.id in waits:
            inbox.splice("next-turn", waits.index(message.id), 1)
            conversation.session.steer(message)
        await conversation.caught_up()
        return {}

    async def _waiting(self, params: v2_requests.OfMessage) -> tuple[Conversation, Message]:
        conversation = self._sessions.find(params.session_id)
        await conversation.caught_up()
        message = waiting(conversation.prompts, params.message_id)
        if message is None:
            raise _gone(params.message_id)
        return conversation, message


def _receipts(conversation: Conversation) -> Receipts:
    prompts = conversation.prompts
    assert isinstance(prompts, Receipts)
    return prompts


def _gone(message_id: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f'No message "{message_id}" is waiting.')


def _opened(conversation: Conversation) -> dict[str, Any]:
    return {
        "configOptions": v2_parts.choices(conversation.voice.choices()),
        "availableCommands": v2_parts.commands(conversation.voice.commands()),
    }


def _created(call: Call) -> Announce:
    """A client learns of a new session by the answer; what else there is to say comes behind it."""

    def announce(conversation: Conversation, notes: bytes) -> None:
        result = {"sessionId": conversation.id, **_opened(conversation)}
        call.reply(result, then=[notes])

    return announce


def _resumed(call: Call, *, replays: bool) -> Announce:
    """The client knows the session: its state comes before the answer, and nothing behind."""

    def announce(conversation: Conversation, notes: bytes) -> None:
        jobs = _receipts(conversation).jobs() if replays else b""
        conversation.write(jobs + notes + conversation.prompts.standing())
        conversation.voice.hush()
        call.reply(_opened(conversation))

    return announce
