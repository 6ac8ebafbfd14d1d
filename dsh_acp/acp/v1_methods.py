"""The methods of version 1."""

from collections.abc import Mapping
from typing import Any, Final

from dsh_acp.acp import listing, options, requests, v1
from dsh_acp.acp.conversation import Conversation
from dsh_acp.acp.sessions import Announce, Sessions
from dsh_acp.acp.updates import Commands
from dsh_acp.acp.v1_handshake import METHODS
from dsh_acp.wire.jsonrpc import DEFERRED, Call, Handler


def handlers(sessions: Sessions) -> Mapping[str, Handler]:
    """The methods over `sessions`."""
    methods = Methods(sessions)
    return {method: getattr(methods, name) for method, name in METHODS.items()}


class Methods:
    """Handlers run concurrently, one task per call."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions: Final = sessions

    # ------------------------------------------------------------ signing in

    async def authenticate(self, call: Call) -> Any:
        """Look for a key anew."""
        self._sessions.sign_in(call.decode(requests.AUTHENTICATE).method_id)
        return {}

    async def logout(self, call: Call) -> Any:
        """Forget the stored keys."""
        self._sessions.sign_out()
        return {}

    # ------------------------------------------------------------ opening sessions

    async def new_session(self, call: Call) -> Any:
        """A fresh session. Nothing about it is sent before the answer that names it."""
        params = call.decode(requests.NEW_SESSION)
        self._sessions.create(
            params.cwd, params.additional_directories, params.mcp_servers, _opened(call, named=True)
        )
        return DEFERRED

    async def load_session(self, call: Call) -> Any:
        """An earlier session, its history first. Nothing comes behind the answer."""
        return await self._reopen(call, replay=True)

    async def resume_session(self, call: Call) -> Any:
        """An earlier session, without its history."""
        return await self._reopen(call, replay=False)

    async def _reopen(self, call: Call, *, replay: bool) -> Any:
        params = call.decode(requests.OPEN_SESSION)
        await self._sessions.reopen(
            params.session_id,
            params.cwd,
            params.additional_directories,
            params.mcp_servers,
            _opened(call, replayed=replay),
            replay=replay,
        )
        return DEFERRED

    async def fork_session(self, call: Call) -> Any:
        """A new session that begins with the history of another."""
        params = call.decode(requests.OPEN_SESSION)
        await self._sessions.fork(
            params.session_id,
            params.cwd,
            params.additional_directories,
            params.mcp_servers,
            _opened(call, named=True),
        )
        return DEFERRED

    # ------------------------------------------------------------ sessions

    async def list_sessions(self, call: Call) -> Any:
        """One page of the sessions that there are."""
        params = call.decode(requests.LIST_SESSIONS)
        return listing.page(self._sessions.host.store, params.cwd, params.cursor)

    async def close_session(self, call: Call) -> Any:
        """Stop a session and free what it holds; it can be loaded again."""
        conversation = self._sessions.find(call.decode(requests.OF_SESSION).session_id)
        await self._sessions.end(conversation.id)
        return {}

    async def delete_session(self, call: Call) -> Any:
        """Remove a session for good; fine when there is none."""
        await self._sessions.delete(call.decode(requests.OF_SESSION).session_id)
        return {}

    async def set_mode(self, call: Call) -> Any:
        """Choose a permission preset."""
        params = call.decode(requests.SET_MODE)
        conversation = self._sessions.find(params.session_id)
        options.select_mode(conversation.session, params.mode_id)
        conversation.write(conversation.voice.changes())
        return {}

    async def set_config_option(self, call: Call) -> Any:
        """Choose a value; the answer has every option, since one may change others."""
        params = call.decode(requests.SET_CONFIG_OPTION)
        conversation = self._sessions.find(params.session_id)
        self._sessions.select(conversation, params.config_id, params.value)
        return {"configOptions": v1.choices(conversation.voice.choices())}

    # ------------------------------------------------------------ prompts

    async def prompt(self, call: Call) -> Any:
        """A prompt, or a slash command; answered at the end of its turn."""
        params = call.decode(requests.PROMPT)
        return await self._sessions.prompt(call, params.session_id, params.prompt, params.meta)

    async def cancel(self, call: Call) -> Any:
        """Stop what a session does; nothing happens for one that is not here."""
        conversation = self._sessions.live.get(call.decode(requests.OF_SESSION).session_id)
        if conversation is not None:
            conversation.cancel()
        return None


def _opened(call: Call, *, named: bool = False, replayed: bool = False) -> Announce:
    """Answer a call that opens a session, and tell of its commands.

    A client learns of a new session by the answer, so they come behind it; behind a replay
    nothing may come, and the client knows the session already.
    """

    def announce(conversation: Conversation, notes: bytes) -> None:
        voice = conversation.voice
        result: dict[str, Any] = {"sessionId": conversation.id} if named else {}
        result["modes"] = v1.modes(conversation.session.preset, options.presets())
        result["configOptions"] = v1.choices(voice.choices())
        notes = conversation.encode(Commands(voice.commands())) + notes
        if replayed:
            conversation.write(notes)
            voice.hush()
            notes = b""
        call.reply(result, then=[notes])

    return announce
