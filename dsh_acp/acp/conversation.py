"""One session at the editor: its log as updates, its prompts as answers.

A single task follows the log with a cursor and writes what it says, in order, one write per
batch. That is all the ordering there is: a prompt's answer is written when the cursor passes its
turn's end, a permission question when the cursor has passed its call, and output of a running
command when its card is out.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import takewhile
import logging
import sys
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import TaskGroup

from dsh_acp.acp.client import Client
from dsh_acp.acp.codec import Asking, Codec
from dsh_acp.acp.live import LiveCalls
from dsh_acp.acp.pace import Pace
from dsh_acp.acp.projection import Projection
from dsh_acp.acp.prompts import Prompt, Prompts
from dsh_acp.acp.recollection import Recollection
from dsh_acp.acp.running import Running
from dsh_acp.acp.updates import Update, merged, settled
from dsh_acp.acp.voice import Voice
from dsh_acp.agent.services import USER, Routes
from dsh_acp.agent.session import Session
from dsh_acp.log.events import Event
from dsh_acp.log.follow import Follower
from dsh_acp.log.packed import ChunkRow, Entry
from dsh_acp.log.payloads import AssistantChunk, RequestHeader
from dsh_acp.log.plugin_payloads import ApprovalPolicy, PermissionPreset, PlanMode, SandboxMode
from dsh_acp.messages import Message
from dsh_acp.tools.tool import Outcome, Tool
from dsh_acp.wire.frames import INTERNAL_ERROR, RpcError
from dsh_acp.wire.jsonrpc import Call, Peer

if TYPE_CHECKING:
    from dsh_acp.acp.remote import RemoteTools

_log = logging.getLogger(__name__)

_CHOICES: Final = frozenset(
    {
        PermissionPreset.TYPE,
        PlanMode.TYPE,
        SandboxMode.TYPE,
        ApprovalPolicy.TYPE,
        RequestHeader.TYPE,
    }
)
_CANCEL_SECONDS: Final = 6.0
_SLICE: Final = 500
_PATIENCE_S: Final = 0.01
_SHORTCUTS: Final = 16
"""How many batches of text may go out before the following task is woken in between."""


class Conversation:
    """Follows one session for one client. `start` once everything before it is in `_cursor`.

    `echoes`: the client is told of the person's own words, too.
    """

    def __init__(
        self,
        peer: Peer,
        client: Client,
        session: Session,
        *,
        tools: dict[str, Tool],
        routes: Routes,
        codec: Codec,
        prompts: Prompts,
        projection: Projection,
        echoes: bool,
    ) -> None:
        self.id: Final = session.id
        self.client: Final = client
        self.session: Final = session
        self.tools = tools
        self.remote: RemoteTools | None = None
        """The MCP servers of this session; `None` when there are none."""
        self.running: Final = Running()
        self.remarks: tuple[str, ...] = ()
        """What is to be said about the session once it is announced."""
        self.admission: Final = anyio.Lock(fast_acquire=True)
        self._admitting: set[anyio.CancelScope] = set()
        self._peer: Final = peer
        self._codec: Final = codec
        self._echoes: Final = echoes
        self.voice: Final = Voice(codec, session, routes)
        self._projection: Final = projection
        self.prompts: Final = prompts
        self._cursor = 0
        self._moved = anyio.Event()
        self._is_watched = False
        self._ended = anyio.Event()
        self._pace: Final = Pace()
        self._shortcuts = 0
        self._is_draining = False
        self._tasks: TaskGroup | None = None
        self._calls: Final = LiveCalls(projection.calls, codec, self._write_now, self._later)
        session.live = self._calls.take
        prompts.later = lambda seconds, lines: self._later(seconds, lambda: self.write(lines()))

    # ------------------------------------------------------------ history

    async def restore(self, memory: Recollection) -> None:
        """Take in what the log already holds, the rest of `memory`; what that shows is sent."""
        entries = list(self.session.log.entries(memory.end))
        for start in range(0, len(entries), _SLICE):
            memory.take(entries[start : start + _SLICE])
            await anyio.lowlevel.checkpoint()
        memory.finish()
        self._cursor = memory.end
        for event in memory.spliced:
            self.prompts.seed(event)
        self._codec.is_replaying = True
        try:
            shown = merged(settled(memory.updates))
            for start in range(0, len(shown), _SLICE):
                self._peer.write(b"".join(self._encoded(shown[start : start + _SLICE])))
                await self._peer.drain()
        finally:
            self._codec.is_replaying = False

    def replay_again(self, projection: Projection, codec: Codec) -> None:
        """Send the history once more, as far as it has been sent, in one step.

        Through a projection of its own, so that the live one keeps its place.
        """
        codec.is_replaying = True
        updates = projection.replay(
            takewhile(lambda entry: entry.seq < self._cursor, self.session.log.entries(0))
        )
        shown = merged(settled(updates))
        lines = [codec.encode(update) for update in shown]
        self._peer.write(b"".join(lines) + self._codec.beside())

    # ------------------------------------------------------------ following

    def start(self, tasks: TaskGroup) -> None:
        """Take prompts, and follow the log, from here on."""
        self._tasks = tasks
        self.session.start(tasks)
        self._projection.is_live = True
        self.voice.know()
        tasks.start_soon(self._follow)
        if self.remote is not None:
            self.remote.start()

    def _shortcut(self, follower: Follower) -> bool:
        """Send streamed text without waking the task that follows, where nothing speaks against.

        Now and then it is woken all the same, so that it notices an editor that does not read.
        """
        self._shortcuts += 1
        if self._is_draining or self._shortcuts % _SHORTCUTS == 0 or not self._pace.allows():
            return False
        try:
            self._emit(follower.take())
        except Exception:  # noqa: BLE001 - a display fault must not reach the model's stream
            _log.exception("streamed text cannot be shown")
        return True

    async def _follow(self) -> None:
        follower = self.session.log.follow(self._cursor)
        self.session.log.on_chunks = lambda: self._shortcut(follower)
        try:
            while True:
                entries = follower.take()
                if entries:
                    self._emit(entries)
                    self._is_draining = True
                    await self._peer.drain()
                    self._is_draining = False
                    if all(_is_streamed(entry) for entry in entries):
                        await self._pace.after_chunks()
                elif follower.closed:
                    return
                else:
                    await follower.wait()
        finally:
            self.session.log.on_chunks = None
            self._ended.set()
            self._moved.set()

    def _emit(self, entries: Sequence[Entry]) -> None:
        lines = self._calls.flush(keep=True)
        updates: list[Update] = []
        for entry in entries:
            updates += self.voice.speakable(self._projection.apply(entry, replay=self._echoes))
            if isinstance(entry, Event):
                due = self.voice.changes() if entry.type in _CHOICES else b""
                due += self.prompts.apply(entry)
                if due:
                    lines += self._encoded(merged(updates))
                    lines.append(due)
                    updates = []
        lines += self._encoded(merged(updates))
        lines += self._calls.flush()
        self._cursor = entries[-1].end_seq
        self._peer.write(b"".join(lines))
        if self._is_watched:
            moved, self._moved, self._is_watched = self._moved, anyio.Event(), False
            moved.set()

    def _encoded(self, updates: Sequence[Update]) -> Iterator[bytes]:
        for update in updates:
            try:
                yield self._codec.encode(update)
            except Exception:  # noqa: BLE001 - a display fault must not starve what follows
                _log.exception("an update cannot be shown")

    def _write_now(self, lines: Sequence[bytes]) -> bool:
        """Write live lines if everything logged is out; otherwise they wait for the follower."""
        if self._cursor < self.session.log.seq:
            return False
        self._peer.write(b"".join(lines))
        return True

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        async def wait() -> None:
            await anyio.sleep(seconds)
            do()

        if self._tasks is not None:
            self._tasks.start_soon(wait)

    async def passed(self, seq: int) -> None:
        """Wait until everything before `seq` has been sent."""
        while self._cursor < seq and not self._ended.is_set():
            self._is_watched = True
            await self._moved.wait()

    async def caught_up(self) -> None:
        """Wait until everything logged so far has been sent."""
        await self.passed(self.session.log.seq)

    # ------------------------------------------------------------ words beside the log

    def encode(self, update: Update) -> bytes:
        """The lines for an update that is not in the log."""
        return self._codec.encode(update)

    def write(self, lines: bytes) -> None:
        """Write lines of this session."""
        self._peer.write(lines)

    # ------------------------------------------------------------ prompts

    def submit(self, call: Call, message: Message, *, steer: bool) -> None:
        """Put a prompt into the inbox; its call is answered at the end of its turn.

        Raises:
            DshError: it cannot be queued.
        """
        prompt = Prompt(call, message.id)
        held, changes = self.voice.speak()
        self._peer.write(b"".join(self._encoded(held)) + changes)
        self.prompts.add(prompt)
        call.cancelled = lambda: self._cancel_prompt(prompt)
        try:
            if steer and self.session.status == "running":
                self.session.steer(message)
            else:
                self.session.followup(message)
        except BaseException:
            self._peer.write(self.prompts.drop(prompt))
            raise
        assert self._tasks is not None
        self._tasks.start_soon(self._see_through, prompt)

    async def _see_through(self, prompt: Prompt) -> None:
        """Answer a prompt that no turn will end: the log failed, or it was left waiting."""
        session = self.session
        while prompt in self.prompts:
            await session.when_idle()
            await self.caught_up()
            if prompt not in self.prompts:
                return
            if session.failure is not None:
                error = RpcError(INTERNAL_ERROR, session.failure.message)
                self._peer.write(self.prompts.settle(prompt, error))
            elif session.log.closed:
                self._peer.write(self.prompts.settle(prompt, "cancelled"))
            elif any(message.id == prompt.message_id for message in session.pending()):
                session.wake()
                await anyio.sleep(_PATIENCE_S)
            else:
                error = RpcError(INTERNAL_ERROR, "The turn of this prompt ended without a result.")
                self._peer.write(self.prompts.settle(prompt, error))

    def admit(self) -> anyio.CancelScope:
        """A scope for reading one prompt; cancelling the session's work cancels it."""
        scope = anyio.CancelScope()
        self._admitting.add(scope)
        return scope

    def admitted(self, scope: anyio.CancelScope) -> None:
        """The prompt was read, or was not."""
        self._admitting.discard(scope)

    # ------------------------------------------------------------ stopping

    def cancel(self) -> None:
        """Stop what runs and drop what waits; all open prompts are answered `cancelled`.

        Each of them is answered by its turn's end, or after a few seconds if that does not come.
        """
        for scope in self._admitting:
            scope.cancel()
        waiting = self.prompts.open
        for prompt in waiting:
            prompt.is_cancelled = True
        self.voice.hush()
        self.session.abort(USER)
        if waiting and self._tasks is not None:
            self._tasks.start_soon(self._give_up_on, waiting)

    def cancel_turn(self) -> None:
        """The person cancelled a question: the turn ends, later prompts stay."""
        self.session.abort(USER, keep_inbox=True)

    def _cancel_prompt(self, prompt: Prompt) -> None:
        if prompt not in self.prompts:
            return
        prompt.is_cancelled = True
        if prompt.turn is None and self.session.parts.inbox.remove(prompt.message_id):
            self.session.log.flush()
        else:
            self.session.abort(USER, keep_inbox=True)
        if self._tasks is not None:
            self._tasks.start_soon(self._give_up_on, (prompt,))

    async def _give_up_on(self, waiting: Sequence[Prompt]) -> None:
        with anyio.move_on_after(_CANCEL_SECONDS):
            while any(prompt in self.prompts for prompt in waiting):
                await self._moved.wait()
        for prompt in waiting:
            self._peer.write(self.prompts.settle(prompt, "cancelled"))

    async def close(self) -> None:
        """Cancel, wait for the end of what ran, and release the log. Bounded in time."""
        self.cancel()
        await self.session.cancel(USER)
        await self.session.close()
        with anyio.move_on_after(1):
            await self._ended.wait()
        for prompt in self.prompts.open:
            self._peer.write(self.prompts.settle(prompt, "cancelled"))
        self._peer.write(self.prompts.closing())

    # ------------------------------------------------------------ a desk for questions

    def public_call_id(self, call_id: str) -> str:
        """The editor's id for a call."""
        return self._projection.calls.call_id(call_id)

    def permission(self, asking: Asking) -> dict[str, Any]:
        """The params of a permission request."""
        return self._codec.permission(asking)

    async def ask(self, method: str, params: Any) -> bytes:
        """A request to the client, for which the person is needed until it is answered."""
        self._peer.write(self.prompts.asking(True))
        try:
            return await self._peer.request(method, params)
        finally:
            self._peer.write(self.prompts.asking(False))

    # ------------------------------------------------------------ running calls

    async def execute(self, call_id: str, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Run the body of a call; that it runs is shown as soon as its card is out.

        Raises:
            ToolError: the person stopped this call.
        """
        self._calls.started(call_id)
        return await self.running.execute(call_id, proceed)

    def stop(self, public_id: str, *, command: bool = False) -> bool:
        """Stop one running call, or only its `command`; `False` when it does not run."""
        return self.running.stop(lambda id: self.public_call_id(id) == public_id, command=command)

    def attach_terminal(self, call_id: str, terminal_id: str) -> None:
        """Show the client's own terminal in a call's card."""
        self._calls.attach(call_id, terminal_id)


def _is_streamed(entry: Entry) -> bool:
    return isinstance(entry, ChunkRow) or entry.type == AssistantChunk.TYPE


def complain(sentence: str) -> None:
    """A diagnostic for whoever reads the process's stderr."""
    sys.stderr.write(f"dsh-acp: {sentence}\n")
