"""Hooks that are commands of the user: run at points of a turn, heard, and recorded.

Each run is a pair of events. Commands get JSON on their standard input, a scrubbed environment
and a time limit, and nothing of them outlives the run. A hook that fails decides nothing.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
import logging
import time
from typing import Any, Final

import anyio
from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.agent import hook_answers
from dsh_acp.agent.hook_answers import Answer
from dsh_acp.agent.hook_files import Dialect, Handler
from dsh_acp.agent.hooks import (
    Accept,
    Approve,
    Ask,
    Deny,
    Enter,
    Finished,
    Hooks,
    Live,
    PreStep,
    Refuse,
    Reject,
    ToolUse,
    TurnStopping,
    Verdict,
)
from dsh_acp.errors import ToolError
from dsh_acp.log.plugin_payloads import HookInvoked, HookResult
from dsh_acp.messages import UNSET, Message, Text, source_kind, text_of
from dsh_acp.tools import process
from dsh_acp.tools.output import Tail

_log = logging.getLogger(__name__)

_PLUGINS: Final[Mapping[Dialect, str]] = {
    "claude-code": "hooks-claude-code",
    "codex": "hooks-codex",
}
_MODES: Final = {
    "plan": "plan",
    "workspace-write": "acceptEdits",
    "full-access": "bypassPermissions",
}
_KNOWN_AS: Final[Mapping[str, str]] = {
    "bash": "Bash",
    "edit": "Edit",
    "glob": "Glob",
    "grep": "Grep",
    "read": "Read",
    "skill": "Skill",
    "subagent": "Task",
    "todo_write": "TodoWrite",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
    "write": "Write",
}
"""The names that hook files of both dialects know our tools by."""

_MAX_STOPS: Final = 8
_SUMMARY: Final = 500


class _Ran(Struct, frozen=True):
    answer: Answer
    exit_code: int | None
    summary: str


class CommandHooks:
    """The hooks of one session and its subagents."""

    def __init__(self, handlers: Sequence[Handler], cwd: str) -> None:
        self._handlers = tuple(handlers)
        self._cwd = cwd
        self._counts: dict[tuple[str, str, str], int] = {}
        self._started: set[str] = set()
        self._stops: dict[tuple[str, int], int] = {}

    def joined(self, others: Hooks) -> Hooks:
        """`others` with these behind them."""
        return Hooks(
            pre_step=[*others.pre_step, self._pre_step],
            request_config=list(others.request_config),
            request_framing=list(others.request_framing),
            request_error=list(others.request_error),
            turn_stopping=[*others.turn_stopping, self._stopping],
            tool_pre=[*others.tool_pre, self._before_tool],
            tool_execute=list(others.tool_execute),
            tool_post=[*others.tool_post, self._after_tool],
            plugins=others.plugins,
        )

    def _at(self, point: str, tool: str = "") -> list[Handler]:
        names = (tool, _KNOWN_AS.get(tool, tool))
        return [each for each in self._handlers if each.point == point and each.matches(*names)]

    # ------------------------------------------------------------ points

    async def _pre_step(
        self, payload: PreStep, proceed: Callable[[], Awaitable[Enter | Reject]]
    ) -> Enter | Reject:
        session, contexts = payload.session, list[Message]()
        if _is_subagent(session):
            return await proceed()
        if session.id not in self._started:
            self._started.add(session.id)
            source = "startup" if payload.turn == 1 else "resume"
            for handler in self._at("SessionStart"):
                answer = await self._run(handler, session, payload.turn, {"source": source})
                contexts += _contexts(handler, answer)
        for message in payload.messages:
            if source_kind(message) != "user":
                continue
            for handler in self._at("UserPromptSubmit"):
                given = {"prompt": message.text}
                answer = await self._run(handler, session, payload.turn, given)
                if answer.decision == "block" or answer.stop is not None:
                    return Reject(answer.reason or answer.stop or "")
                contexts += _contexts(handler, answer)
        decision = await proceed()
        if isinstance(decision, Reject) or not contexts:
            return decision
        return Enter((*decision.messages, *contexts))

    async def _before_tool(
        self, use: ToolUse, proceed: Callable[[], Awaitable[Verdict]]
    ) -> Verdict:
        own: Verdict | None = None
        for handler in self._at("PreToolUse", use.name):
            answer = await self._run(handler, use.session, use.turn, _tool(use))
            for message in _contexts(handler, answer):
                use.session.inject(message)
            if answer.stop is not None:
                _end_turn(use.session, answer.stop)
            if answer.decision == "block" or answer.stop is not None:
                return Deny(answer.reason or answer.stop or "stopped by a PreToolUse hook")
            if answer.decision == "ask":
                own = Ask(answer.reason or None)
            elif answer.decision == "allow" and own is None:
                own = Approve()
        others = await proceed()
        if own is None or isinstance(others, Deny | Ask):
            return others
        return own

    async def _after_tool(
        self, finished: Finished, proceed: Callable[[], Awaitable[Accept | Refuse]]
    ) -> Accept | Refuse:
        others = await proceed()
        if finished.is_error or isinstance(others, Refuse):
            return others
        use, contexts = finished.use, list(others.contexts)
        text = text_of(others.content or finished.content)
        given = {**_tool(use), "tool_response": {"content": text, "is_error": False}}
        for handler in self._at("PostToolUse", use.name):
            answer = await self._run(handler, use.session, use.turn, given)
            contexts += _contexts(handler, answer)
            if answer.stop is not None:
                _end_turn(use.session, answer.stop)
            if answer.decision == "block":
                return Refuse((Text(answer.reason),), tuple(contexts))
        return Accept(others.content, tuple(contexts))

    async def _stopping(self, payload: TurnStopping) -> None:
        session, key = payload.session, (payload.session.id, payload.turn)
        stops = self._stops.get(key, 0)
        if _is_subagent(session) or stops >= _MAX_STOPS:
            return
        for handler in self._at("Stop"):
            given = {"stop_hook_active": stops > 0}
            answer = await self._run(handler, session, payload.turn, given)
            if answer.stop is not None:
                return
            if answer.decision == "block":
                self._stops = {key: stops + 1}
                session.steer(_message(handler, answer.reason))
                return

    # ------------------------------------------------------------ running

    async def _run(
        self, handler: Handler, session: Live, turn: int, given: Mapping[str, Any]
    ) -> Answer:
        """Run one command and record it; on cancellation the record says so."""
        key = (session.id, handler.dialect, handler.point)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        id = f"{handler.dialect}:{handler.point}:{count}"
        matcher = handler.matcher if handler.matcher is not None else UNSET
        session.log.append(HookInvoked(turn, handler.point, handler.dialect, id, matcher))
        since = time.perf_counter()

        def record(decision: str, ran: _Ran | None = None) -> None:
            session.log.append(
                HookResult(
                    turn=turn,
                    point=handler.point,
                    handler_id=id,
                    decision=decision,
                    exit_code=UNSET if ran is None or ran.exit_code is None else ran.exit_code,
                    stderr_summary=UNSET if ran is None or not ran.summary else ran.summary,
                    duration_ms=round((time.perf_counter() - since) * 1000, 3),
                )
            )

        try:
            ran = await self._command(handler, self._input(handler, session, given))
        except anyio.get_cancelled_exc_class():
            record("cancelled")
            raise
        record(ran.answer.decision, ran)
        return ran.answer

    def _input(self, handler: Handler, session: Live, given: Mapping[str, Any]) -> bytes:
        return jsontext.encode(
            {
                "session_id": session.id,
                "transcript_path": str(session.log.path or ""),
                "cwd": self._cwd,
                "permission_mode": _MODES.get(session.preset, "default"),
                "hook_event_name": handler.point,
                **given,
            }
        )

    async def _command(self, handler: Handler, data: bytes) -> _Ran:
        stdout, stderr = Tail(None), Tail(None)
        try:
            ended = await process.run(
                ("bash", "-c", handler.command),
                cwd=self._cwd,
                env=process.environment({"CLAUDE_PROJECT_DIR": self._cwd}),
                timeout_s=handler.timeout_s,
                stdout=stdout.feed,
                stderr=stderr.feed,
                stdin=data,
            )
        except ToolError as exc:
            _log.warning("a hook could not be started: %s", exc)
            return _Ran(Answer(), None, str(exc)[:_SUMMARY])
        errors = stderr.kept.decode("utf-8", "replace").strip()
        if ended.timed_out:
            said = f"stopped after {handler.timeout_s:g} s"
            return _Ran(Answer(), None, said)
        text = stdout.kept.decode("utf-8", "replace")
        answer = hook_answers.of(handler.point, ended.exit_code, text, errors)
        return _Ran(answer, ended.exit_code, (errors or answer.reason)[:_SUMMARY])


def _is_subagent(session: Live) -> bool:
    return session.log.header.origin == "subagent"


def _end_turn(session: Live, reason: str) -> None:
    session.abort({"kind": "hook", "reason": reason}, keep_inbox=True)


def _tool(use: ToolUse) -> dict[str, Any]:
    try:
        arguments: Any = jsontext.loads((use.arguments or "{}").encode("utf-8", "replace"))
    except jsontext.DecodeError:
        arguments = use.arguments
    return {
        "tool_name": _KNOWN_AS.get(use.name, use.name),
        "tool_input": arguments,
        "tool_use_id": use.call_id,
    }


def _contexts(handler: Handler, answer: Answer) -> list[Message]:
    return [_message(handler, answer.context)] if answer.context else []


def _message(handler: Handler, text: str) -> Message:
    source = {"kind": "plugin", "plugin": _PLUGINS[handler.dialect]}
    return Message.user((Text(text),), source)
