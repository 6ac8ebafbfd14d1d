"""Sessions on disk: create, open, read, fork, delete, list."""

from collections.abc import Callable, Iterable
import os
from pathlib import Path
from typing import Final

from dsh_acp.errors import LogError
from dsh_acp.log import paths
from dsh_acp.log.load import LoadedLog, load
from dsh_acp.log.logfile import LogFile
from dsh_acp.log.packed import Entry
from dsh_acp.log.session_log import SessionLog, now_ms
from dsh_acp.log.validation import SessionHeader
from dsh_acp.messages import new_id


class Store:
    """All sessions under `<home>/sessions`. Construction never fails."""

    def __init__(self, home: Path, *, clock: Callable[[], int] = now_ms) -> None:
        self.home: Final = home
        self.root: Final = home / "sessions"
        self._clock = clock
        self._memory: dict[str, SessionLog] = {}
        self.memory_only: str | None = None
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not os.access(self.root, os.W_OK | os.X_OK):
                self.memory_only = f"{self.root} is not writable"
        except OSError as exc:
            self.memory_only = f"{self.root} cannot be created: {exc.strerror}"

    def create(
        self,
        cwd: str | None,
        *,
        id: str | None = None,
        parent: str | None = None,
        seed: Iterable[Entry] = (),
        seed_length: int | None = None,
        origin: str | None = None,
        delegation_depth: int = 0,
        preset: str | None = None,
    ) -> SessionLog:
        """A new session. Nothing is on disk before its first event.

        Raises:
            LogError: `EXISTS`, there is one with that id.
        """
        header = SessionHeader(
            id=id or new_id(),
            created_at=self._clock(),
            cwd=cwd,
            parent_session=parent,
            seed_length=seed_length,
            origin=origin,
            delegation_depth=delegation_depth,
            agent_preset=preset,
        )
        if id is not None and (id in self._memory or self.find(id) is not None):
            raise LogError(
                f'session "{id}" already has a persisted log on disk;'
                " load/resume it instead of creating",
                code="EXISTS",
            )
        file = None
        if self.memory_only is None:
            file = LogFile(paths.log_path(self.root, cwd, header.id), self.root)
        log = SessionLog(header, file, clock=self._clock)
        seeded = list(seed)
        if seeded:
            log.inherit(seeded)
        return log

    def find(self, id: str) -> Path | None:
        """The log of a session, wherever it was started."""
        try:
            segment = paths.encode_segment(id)
            with os.scandir(self.root) as projects:
                for project in projects:
                    path = Path(project.path, segment, paths.LOG_NAME)
                    if path.is_file():
                        return path
        except (OSError, ValueError):
            pass
        return None

    def open(self, id: str) -> SessionLog:
        """Open a session for writing."""
        path = self.find(id)
        if path is None:
            raise LogError(f'session "{id}" not found', code="NOT_FOUND")
        file = LogFile.open(path, self.root)
        try:
            loaded = load(file.read(), expected_id=id, path=path, close=True)
            if loaded.torn:
                file.truncate(loaded.committed)
            log = SessionLog(loaded.header, file, clock=self._clock)
            log.adopt(loaded)
        except BaseException:
            file.close()
            raise
        return log

    def read(self, id_or_path: str | Path) -> LoadedLog:
        """A session as it is now, without lock and without writing."""
        path = id_or_path if isinstance(id_or_path, Path) else self.find(id_or_path)
        if path is None:
            raise LogError(f'session "{id_or_path}" not found', code="NOT_FOUND")
        return load(path.read_bytes(), path=path)
