"""Commands that go on while the conversation does: `job_output`, `job_list`, `job_kill`.

A job has a thread with a loop of its own, so it outlives the call that started it without a task
in the session's loop. Whoever forgets a session must call `stop_all` first.
"""

from collections.abc import Mapping, Sequence
import math
import os
from pathlib import Path
import threading
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
from anyio import CancelScope, from_thread, lowlevel, to_thread

from dsh_acp.errors import ToolError
from dsh_acp.messages import Message, Text
from dsh_acp.tools import confine_git, process
from dsh_acp.tools.builtin import Builtin, text_outcome
from dsh_acp.tools.output import KEPT_BYTES, Tail, decode, from_boundary, readable, to_boundary
from dsh_acp.tools.sandbox import told
from dsh_acp.tools.tool import Outcome, ToolContext
from dsh_acp.tools.world import BASH

if TYPE_CHECKING:
    from dsh_acp.tools import arguments

LIMIT: Final = 8
WAIT_MS: Final = 30_000
MAX_WAIT_MS: Final = 600_000
_KIND: Final = "bash"
_LABEL_CHARS: Final = 80
_SUMMARY_UNITS: Final = 120

Status = Literal["running", "stopping", "completed", "killed", "failed"]


class Job:
    """One command; its attributes may be read from any thread."""

    def __init__(self, id: str, command: str, cwd: str, ctx: ToolContext) -> None:
        self.id = id
        first, _, rest = command.strip().partition("\n")
        self.label = (
            first if len(first) <= _LABEL_CHARS and not rest else first[:_LABEL_CHARS] + "…"
        )
        self.status: Status = "running"
        self.detail = ""
        self.exit_code: int | None = None
        self.signal: str | None = None
        self.ended = anyio.Event()
        self.waiters = 0
        self.command = command
        self.cwd = cwd
        self.call_id = ctx.call_id
        self._ctx = ctx
        self._sandbox = ctx.sandbox
        self._env = process.environment()
        self._session_loop = lowlevel.current_token()
        self._spill = Path(ctx.spill_dir) / f"{os.urandom(6).hex()}-{id}.txt"
        self._tail = Tail(self._spill)
        self._unread = bytearray()
        self._lost = False
        self._guard = threading.Lock()
        self._scope = CancelScope()
        self._loop: lowlevel.EventLoopToken | None = None
        self._ready = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=anyio.run, args=(self._main,), name=f"job {id}", daemon=True
        )

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.status in ("running", "stopping")

    @property
    def printed(self) -> bytes:
        """The end of what it printed, whoever has read it."""
        with self._guard:
            return self._tail.kept

    @property
    def is_whole(self) -> bool:
        """Whether `printed` is all that it has printed."""
        with self._guard:
            return not self._tail.truncated

    @property
    def state(self) -> str:
        """`[status: …]`, with what there is to say about it."""
        return f"[status: {self.status}{', ' if self.detail else ''}{self.detail}]"

    def start(self) -> None:
        """Begin; blocks until it can be stopped."""
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Ask it to end; does not wait."""
        if self.status == "running" and self._loop is not None:
            self.status = "stopping"
            try:
                from_thread.run_sync(self._scope.cancel, token=self._loop)
            except (anyio.RunFinishedError, RuntimeError):
                # It ended by itself in this very moment.
                return

    def wait(self, seconds: float) -> bool:
        """Block until its thread has nothing left to do."""
        return self._over.wait(seconds)

    def read(self) -> str:
        """What it printed since the last read, made readable."""
        with self._guard:
            data = bytes(self._unread)
            whole = to_boundary(data) if self.is_running else data
            self._unread = bytearray(data[len(whole) :])
            lost, self._lost = self._lost, False
        text = readable(decode(whole))
        if lost:
            full = self._tail.full or "(unavailable)"
            text += f"\n[output truncated; full output: {full}]"
        return text

    def _feed(self, data: bytes) -> None:
        with self._guard:
            self._tail.feed(data)
            self._unread += data
            if len(self._unread) > KEPT_BYTES:
                self._unread = bytearray(from_boundary(bytes(self._unread[-KEPT_BYTES:])))
                self._lost = True

    async def _main(self) -> None:
        self._loop = lowlevel.current_token()
        self._ready.set()
        status: Status = "killed"
        watch = None
        if self._sandbox is not None:
            watch = await to_thread.run_sync(confine_git.Watch, self._sandbox.writable)
        try:
            with self._scope:
                ended = await process.run(
                    (*BASH, self.command),
                    cwd=self.cwd,
                    env=self._env,
                    sandbox=self._sandbox,
                    timeout_s=math.inf,
                    stdout=self._feed,
                    stderr=self._feed,
                )
                status = "completed" if ended.exit_code == 0 else "failed"
                self.exit_code, self.signal = ended.exit_code, ended.signal
                if ended.signal is not None:
                    self.detail = f"killed by signal: {ended.signal}"
                elif ended.exit_code:
                    self.detail = f"exit code: {ended.exit_code}"
        except ToolError as exc:
            status, self.detail = "failed", str(exc)
        self._tail.close()
        self._tell_denials(() if watch is None else await to_thread.run_sync(watch.restore))
        self.status = status
        try:
            await to_thread.run_sync(self._report)
        finally:
            self._over.set()

    def _tell_denials(self, undone: Sequence[str]) -> None:
        if self._sandbox is not None:
            denied = self._sandbox.denied((self._tail.kept,), self.cwd)
            if lines := told(denied, confine_git.told(undone)):
                with self._guard:
                    self._unread += "\n".join(("", *lines)).encode()

    def _report(self) -> None:
        try:
            from_thread.run_sync(self._announce, token=self._session_loop)
        except (anyio.RunFinishedError, RuntimeError):
            # The session's loop is gone, and with it everybody who could read the notice.
            return

    def _announce(self) -> None:
        self.ended.set()
        # Whoever waits for the end hears of it in the answer.
        if not self.waiters:
            self._ctx.add_context(_notice(self))


def _notice(job: Job) -> Message:
    text = (
        f"background job {job.id} ({_KIND}: {job.label}) finished {job.state}. "
        "Read its output with job_output."
    )
    units = text.encode("utf-16-le", "surrogatepass")
    summary = text
    if len(units) > 2 * _SUMMARY_UNITS:
        summary = units[: 2 * (_SUMMARY_UNITS - 1)].decode("utf-16-le", "ignore") + "…"
    source = {"kind": "plugin", "plugin": "tool-jobs", "form": "notice", "summary": summary}
    return Message.user((Text(text),), source)


def _jobs(state: Mapping[str, Any]) -> dict[str, Job]:
    return state.get("jobs", {})


async def start(command: str, cwd: str, ctx: ToolContext) -> Job:
    """Start a command in the background of the session.

    Raises:
        ToolError: the folder is missing, or the session has eight jobs running.
    """
    jobs: dict[str, Job] = ctx.state.setdefault("jobs", {})
    running = [job.id for job in jobs.values() if job.is_running]
    if len(running) >= LIMIT:
        text = f"too many background jobs (limit {LIMIT}): {', '.join(running)}; stop one first"
        raise ToolError(text, code="JOB_LIMIT", name="JobError")
    if not await to_thread.run_sync(Path(cwd).is_dir):
        raise ToolError(f'cannot run in "{cwd}": not a directory', code="EXEC_FAILED")
    job = Job(f"job-{len(jobs) + 1}", command, cwd, ctx)
    jobs[job.id] = job
    await to_thread.run_sync(job.start)
    return job


async def stop_all(state: Mapping[str, Any]) -> None:
    """End every job of a session and wait until nothing of them runs; bounded by 5 s."""
    running = [job for job in _jobs(state).values() if job.is_running]
    for job in running:
        job.waiters += 1
        job.stop()
    with CancelScope(shield=True):
        with anyio.move_on_after(process.GRACE_S + 2):
            for job in running:
                await job.ended.wait()


def _named(job_id: str, ctx: ToolContext) -> Job:
    jobs = _jobs(ctx.state)
    job = jobs.get(job_id)
    if job is None:
        known = ", ".join(jobs) or "there are none"
        text = f'unknown background job "{job_id}" (known: {known})'
        raise ToolError(text, code="JOB_NOT_FOUND", name="JobError")
    return job


class JobOutput(Builtin):
    """What a job printed since the last time."""

    name = "job_output"
    is_concurrent = True

    async def run(self, args: "arguments.JobOutput", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        job = _named(args.job_id, ctx)
        if args.wait:
            job.waiters += 1
            try:
                with anyio.move_on_after(min(args.timeout_ms or WAIT_MS, MAX_WAIT_MS) / 1000):
                    await job.ended.wait()
            finally:
                job.waiters -= 1
        text = job.read() or "(no new output)"
        return text_outcome(f"{text}{'' if text.endswith(chr(10)) else chr(10)}{job.state}")


class JobList(Builtin):
    """The session's jobs."""

    name = "job_list"
    is_concurrent = True

    async def run(self, args: "arguments.JobList", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        lines = [
            f"{job.id} [{_KIND}] {job.status} — {job.label}" for job in _jobs(ctx.state).values()
        ]
        return text_outcome("\n".join(lines) or "(no background jobs)")


class JobKill(Builtin):
    """Stops a job."""

    name = "job_kill"

    async def run(self, args: "arguments.JobKill", ctx: ToolContext) -> Outcome:
        """See `Tool.run`."""
        job = _named(args.job_id, ctx)
        if not job.is_running:
            return text_outcome(f"job {job.id} had already finished {job.state}")
        job.stop()
        return text_outcome(f"requested cancellation of job {job.id}")
