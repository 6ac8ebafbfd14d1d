"""Work of a session that goes on beside its turns: the jobs that its commands have started."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dsh_acp.acp.updates import JobEnded, JobOutput, JobStarted, Update

if TYPE_CHECKING:
    from dsh_acp.tools.jobs import Job


class Background:
    """The jobs, as their end or begin is noticed. `state` is that of the session's tools."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state: Final = state
        self._running: dict[str, Job] = {}
        self._told: dict[str, int] = {}
        """How much was told of what each has printed."""

    @property
    def running(self) -> tuple[str, ...]:
        """The ids of the jobs that run, as far as they were noticed."""
        return tuple(self._running)

    def look(self) -> list[Update]:
        """What has changed since the last look."""
        jobs: Mapping[str, Job] = self._state.get("jobs", {})
        updates: list[Update] = []
        for id, job in list(self._running.items()):
            if not job.is_running:
                del self._running[id]
                updates.append(JobEnded(id, job.printed, job.exit_code, job.signal))
        for id, job in jobs.items():
            if job.is_running and id not in self._running:
                self._running[id] = job
                updates.append(JobStarted(id, job.call_id, job.command, job.cwd))
        return updates

    def again(self) -> list[Update]:
        """Those that run, told once more."""
        updates: list[Update] = []
        for id, job in self._running.items():
            if job.is_running:
                output = job.printed
                self._told[id] = len(output)
                updates.append(JobStarted(id, job.call_id, job.command, job.cwd, output))
        return updates

    def printed(self) -> list[Update]:
        """What they have printed since they were told of; the end brings what is kept of more."""
        updates: list[Update] = []
        for id, job in self._running.items():
            output = job.printed[self._told.get(id, 0) :] if job.is_whole else b""
            if output and job.is_running:
                self._told[id] = self._told.get(id, 0) + len(output)
                updates.append(JobOutput(id, output))
        return updates

    def is_running(self, id: str) -> bool:
        """Whether a job that was noticed runs still."""
        job = self._running.get(id)
        return job is not None and job.is_running

    def stop(self, id: str) -> bool:
        """Ask a job to end; `False` when it does not run."""
        if not self.is_running(id):
            return False
        self._running[id].stop()
        return True
