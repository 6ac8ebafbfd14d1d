"""Subagents in the background: they outlive the call that started them, and take more messages.

Each has turns of its own. When it comes to rest, its parent is told, with what it said last; a
parent that rests is woken for that, three times in a row at most without a word from a person.
Stopping the parent's turn stops theirs, and the end of the session ends them.
"""

from collections.abc import Sequence
from typing import Any, Final

import anyio

from dsh_acp.agent.delegation import Child, Closing, Delegation, ParentAsker, closing
from dsh_acp.agent.parts import Parts
from dsh_acp.agent.services import Cause, Errand
from dsh_acp.errors import DshError, ToolError
from dsh_acp.log.payloads import UserMessage
from dsh_acp.log.plugin_payloads import SubagentDescriptor
from dsh_acp.messages import Message, Text, source_kind

LIMIT: Final = 8
WAKES: Final = 3
_ENDS: Final = {
    "completed": "finished and will do no further work unless you send it more.",
    "aborted": "was stopped before it finished.",
    "interrupted": "was stopped before it finished.",
    "max-tokens": "ran out of room before it finished.",
    "blocked": "declined the task.",
}
_FAILED: Final = "failed before it finished."


class _Companion:
    def __init__(self, child: Child, asker: ParentAsker, label: str) -> None:
        self.child = child
        self.asker = asker
        self.label = label
        self.since = child.log.seq
        self.news = anyio.Event()
        self.scope = anyio.CancelScope()


class Companions:
    """Those of one live session."""

    def __init__(self, parts: Parts, delegation: Delegation) -> None:
        self._parts = parts
        self._delegation = delegation
        self._all: dict[str, _Companion] = {}
        self._wakes = 0
        self._seen = parts.log.seq

    # ------------------------------------------------------------ what tools do with them

    def start(self, label: str, prompt: str, *, inherits: bool, call_id: str) -> str:
        """Begin one; its id.

        Raises:
            ToolError: there are eight already, it would be too deep, or the session ends.
        """
        group = self._delegation.group
        if group is None:
            raise ToolError("the session is not running")
        if len(self._all) >= LIMIT:
            raise ToolError(
                f"too many background subagents (limit {LIMIT}): {', '.join(self._all)}"
            )
        options = self._parts.options
        descriptor = SubagentDescriptor(
            {
                "version": 2,
                "mode": "continuable",
                "provider": "fork" if inherits else "spawn",
                "label": label,
                "agentProvider": options.provider,
                "agentModel": options.model,
            }
        )
        errand = Errand(label, prompt, inherits)
        child, asker = self._delegation.open(errand, call_id, (), descriptor)
        companion = _Companion(child, asker, label)
        id = child.log.header.id
        self._all[id] = companion
        child.start(group)
        child.followup(Message.user((Text(prompt),)))
        group.start_soon(self._tend, id, companion)
        return id

    def send(self, id: str, text: str) -> None:
        """One more message, which becomes a turn of its own.

        Raises:
            ToolError: there is no such subagent, or it cannot go on.
        """
        companion = self._named(id)
        source = {
            "kind": "coordinator",
            "form": "relay",
            "senderSessionId": self._parts.log.header.id,
        }
        try:
            companion.child.followup(Message.user((Text(text),), source))
        except DshError as exc:
            raise _unavailable(id) from exc
        companion.news.set()

    def interrupt(self, id: str) -> None:
        """Stop what it does now; messages that wait stay.

        Raises:
            ToolError: there is no such subagent.
        """
        self._named(id).child.abort({"kind": "parent"}, keep_inbox=True)

    def list(self) -> Sequence[tuple[str, str, str]]:
        """Id, `running` or `idle`, and label of each."""
        return [(id, each.child.status, each.label) for id, each in self._all.items()]

    def _named(self, id: str) -> _Companion:
        if id not in self._all:
            raise _unavailable(id)
        return self._all[id]

    # ------------------------------------------------------------ their lives

    async def _tend(self, id: str, companion: _Companion) -> None:
        with companion.scope:
            while companion.child.failure is None:
                await self._delegation.see_through(companion.child, companion.asker, "")
                self._settle(id, companion)
                await companion.news.wait()
                companion.news = anyio.Event()

    def _settle(self, id: str, companion: _Companion) -> None:
        found = closing(companion.child, companion.since)
        companion.since = companion.child.log.seq
        message = _notice(id, found, companion.child.failure)
        live: Any = self._parts.live
        if not self._parts.log.writable:
            return
        if live.status == "running":
            live.inject(message)
            return
        wake = self._may_wake()
        live.send(message, "next-turn" if wake else "next-step", wake)

    def _may_wake(self) -> bool:
        for event in self._parts.log.events(self._seen):
            payload = event.payload if event.type == UserMessage.TYPE else None
            if isinstance(payload, UserMessage) and source_kind(payload.message) == "user":
                self._wakes = 0
        self._seen = self._parts.log.seq
        self._wakes += 1
        return self._wakes <= WAKES

    def stop(self, cause: Cause) -> None:
        """Stop what all of them do, and forget what waits."""
        for companion in self._all.values():
            companion.child.abort(cause)

    async def close(self) -> None:
        """End them all."""
        found, self._all = list(self._all.values()), {}
        for companion in found:
            companion.scope.cancel()
        async with anyio.create_task_group() as group:
            for companion in found:
                group.start_soon(self._delegation.close_child, companion.child)


def _unavailable(id: str) -> ToolError:
    return ToolError(f'subagent "{id}" is unavailable', code="SUBAGENT_UNAVAILABLE")


def _notice(id: str, found: Closing, failure: DshError | None) -> Message:
    kind = found.end.reason.kind if found.end is not None and failure is None else ""
    line = f"Background subagent {id} {_ENDS.get(kind, _FAILED)}"
    said = found.said or found.streamed
    blocks = [Text(line)]
    blocks += [Text("Its closing message:"), Text(said)] if said.strip() else []
    if not said.strip():
        blocks.append(Text("It left no closing message."))
    source = {
        "kind": "subagent-settled",
        "form": "notice",
        "summary": line,
        "senderSessionId": id,
    }
    return Message.user(tuple(blocks), source)
