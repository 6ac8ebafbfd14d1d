"""The calls of one step: started, run and recorded.

Calls are announced, judged and answered in the model's order. Bodies of neighbours that allow it
overlap, at most `max_parallel_tool_calls` at a time; any other call is alone. Every call gets
exactly one result, also when the turn is cancelled: those that ran have theirs recorded, those
that did not are recorded as aborted before dispatch.
"""

from collections.abc import Sequence

import anyio
from msgspec.structs import replace

from dsh_acp.agent import results
from dsh_acp.agent.activity import Activity
from dsh_acp.agent.execution import BEFORE_DISPATCH, Execution, Result, Slot
from dsh_acp.agent.parts import Parts
from dsh_acp.agent.reminders import Repetition
from dsh_acp.log.payloads import ToolCallEvent, ToolResultEvent
from dsh_acp.messages import UNSET, Message, ToolCall


class Calls:
    """Runs the calls of steps, one step at a time."""

    def __init__(self, parts: Parts, repetition: Repetition) -> None:
        self._parts = parts
        self._execution = Execution(parts)
        self._repetition = repetition

    async def run(
        self, turn: int, step: int, calls: Sequence[ToolCall], activity: Activity
    ) -> bool:
        """Run `calls`; `True` when a result concludes the turn.

        Cancellation is re-raised after every call has its result. A failing log is raised as it
        is, and leaves calls without one.
        """
        batch = _Batch(self._parts, self._execution, self._repetition, turn, step, calls, activity)
        try:
            while batch.has_more:
                await activity.check()
                await batch.run_next()
            await activity.check()
        except anyio.get_cancelled_exc_class():
            activity.cancelled()
            batch.close()
            raise
        return batch.is_concluded


class _Batch:
    """The calls of one step, and how far they have come."""

    def __init__(
        self,
        parts: Parts,
        execution: Execution,
        repetition: Repetition,
        turn: int,
        step: int,
        calls: Sequence[ToolCall],
        activity: Activity,
    ) -> None:
        self._parts = parts
        self._execution = execution
        self._repetition = repetition
        self._turn = turn
        self._step = step
        self._calls = calls
        self._activity = activity
        self._slots: list[Slot] = []
        self._next: Slot | None = None
        self.is_concluded = False

    @property
    def has_more(self) -> bool:
        """Whether a call has not been started yet."""
        return len(self._slots) < len(self._calls)

    def _peek(self, ahead: int = 0) -> Slot | None:
        """The call after those that were started, resolved once; `None` past the end."""
        position = len(self._slots) + ahead
        if position >= len(self._calls):
            return None
        call = self._calls[position]
        if ahead:
            return self._execution.resolve(self._turn, self._step, call)
        if self._next is None:
            self._next = self._execution.resolve(self._turn, self._step, call)
        return self._next

    def _start(self, slot: Slot) -> None:
        use = slot.use
        event = self._parts.log.append(
            ToolCallEvent(self._turn, self._step, use.call_id, use.name, use.arguments)
        )
        slot.seq = event.seq
        self._slots.append(slot)
        self._next = None

    async def run_next(self) -> None:
        """Run the next call, with its neighbours when they may overlap."""
        slot = self._peek()
        assert slot is not None
        if slot.is_parallel and (neighbour := self._peek(1)) and neighbour.is_parallel:
            await self._pool()
            return
        self._start(slot)
        denied = await self._execution.admit(slot, self._activity)
        if denied is not None:
            slot.settle(denied)
        else:
            await self._execution.body(slot, self._activity)
        await self._finish(slot)

    async def _pool(self) -> None:
        """Start neighbours while they may overlap; a finished call waits for those before it."""
        send, receive = anyio.create_memory_object_stream[Slot](len(self._calls))
        room = anyio.Semaphore(max(1, self._parts.services.settings.max_parallel_tool_calls))

        async def run(slot: Slot) -> None:
            try:
                await self._execution.body(slot, self._activity)
            finally:
                room.release()

        async def finish_in_order() -> None:
            async for slot in receive:
                await slot.done.wait()
                await self._finish(slot)

        try:
            with receive:
                async with anyio.create_task_group() as group:
                    group.start_soon(finish_in_order)
                    with send:
                        while (slot := self._peek()) is not None and slot.is_parallel:
                            await room.acquire()
                            self._start(slot)
                            denied = await self._execution.admit(slot, self._activity)
                            if denied is None:
                                group.start_soon(run, slot)
                            else:
                                slot.settle(denied)
                                room.release()
                            send.send_nowait(slot)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _finish(self, slot: Slot) -> None:
        result, contexts = await self._execution.finish(slot)
        limit = self._parts.services.settings.max_result_bytes
        if limit is not None:
            spill_dir, name = self._parts.spill_dir, slot.use.name
            content = await results.bounded(result.content, limit, name, spill_dir)
            result = replace(result, content=content)
        notice = self._repetition.note(slot.use.name, slot.use.arguments)
        if notice is not None:
            contexts.append(notice)
        self._record(slot, result, contexts)

    def _record(self, slot: Slot, result: Result, contexts: Sequence[Message]) -> None:
        call_id = slot.use.call_id
        self._parts.log.append(
            ToolResultEvent(
                self._turn,
                self._step,
                Message.tool_result(call_id, result.content, result.is_error),
                result.error or UNSET,
                UNSET if result.meta is None else result.meta,
            ),
            sources=(slot.seq,),
        )
        slot.is_committed = True
        self.is_concluded = self.is_concluded or result.concludes_turn
        for context in contexts:
            self._parts.inbox.insert("next-step", context)

    def close(self) -> None:
        """Record what is missing after a cancellation. No task of this batch runs any more."""
        for slot in self._slots:
            if not slot.is_committed:
                self._record(slot, slot.result or BEFORE_DISPATCH, slot.contexts)
        while (slot := self._peek()) is not None:
            self._start(slot)
            self._record(slot, BEFORE_DISPATCH, ())
