"""The local world: files on this disk, commands on this machine.

An editor's world wraps this one: what the editor does not offer, it passes on.
"""

from collections.abc import Callable, Mapping
import os
from pathlib import Path
import tempfile
from typing import Final

from anyio import CancelScope, to_thread

from dsh_acp.tools import confine_git, disk, process
from dsh_acp.tools.output import Tail
from dsh_acp.tools.sandbox import Sandbox
from dsh_acp.tools.tool import CommandEnd, FileRead, Version

BASH: Final = ("bash", "-c")
# Linux refuses a single argument of 128 KiB.
_ARGUMENT_BYTES: Final = 100_000


class LocalWorld:
    """Implements `World` on the operating system.

    `env` is added to the scrubbed environment of every command. `spill_dir` is where output past
    the kept tail goes when a call names no folder of its own.
    """

    def __init__(self, env: Mapping[str, str] | None = None, spill_dir: str | None = None) -> None:
        self._env = dict(env or {})
        self._spill_dir = spill_dir

    async def read(self, path: str, max_bytes: int | None = None) -> FileRead:
        """The bytes on disk; see `World.read`."""
        # Judging the call has just looked its path up on this disk: what is small is read in
        # less time than a thread takes to begin.
        if disk.is_small(path):
            return disk.read_file(path, max_bytes)
        return await to_thread.run_sync(disk.read_file, path, max_bytes)

    async def write(
        self, path: str, data: bytes, expected: Version | None, *, real: str | None = None
    ) -> Version:
        """Replace or create on disk; see `World.write`. Runs to its end once begun."""
        return await to_thread.run_sync(disk.write_file, path, data, expected, real)

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        timeout_ms: int,
        env: Mapping[str, str] | None = None,
        output: Callable[[bytes], None] | None = None,
        spill_dir: str | None = None,
        sandbox: Sandbox | None = None,
    ) -> CommandEnd:
        """Run `bash -c`; see `World.run`.

        Raises:
            ToolError: the shell or the folder cannot be used.
        """
        stdout, stderr = (Tail(path) for path in _spill_files(spill_dir or self._spill_dir))

        private = spill_dir or self._spill_dir
        script = await to_thread.run_sync(_script, command, private) if is_long(command) else None
        watch = None
        if sandbox is not None:
            watch = await to_thread.run_sync(confine_git.Watch, sandbox.writable)
        undone: tuple[str, ...] = ()
        try:
            ended = await process.run(
                (*BASH, command) if script is None else (BASH[0], script),
                cwd=cwd,
                env=process.environment({**self._env, **(env or {})}),
                timeout_s=timeout_ms / 1000,
                stdout=_live(stdout, output),
                stderr=_live(stderr, output),
                sandbox=sandbox,
            )
        finally:
            if watch is not None:
                with CancelScope(shield=True):
                    undone = await to_thread.run_sync(watch.restore)
            stdout.close()
            stderr.close()
            if script is not None:
                os.unlink(script)  # noqa: PTH108 - a name that mkstemp gave
        denied = () if sandbox is None else sandbox.denied((stderr.kept, stdout.kept), cwd)
        return CommandEnd(
            stdout=stdout.kept,
            stderr=stderr.kept,
            denied=denied,
            undone=undone,
            exit_code=ended.exit_code,
            signal=ended.signal,
            timed_out=ended.timed_out,
            left_behind=ended.left_behind,
            stdout_truncated=stdout.truncated,
            stderr_truncated=stderr.truncated,
            full_stdout=stdout.full,
            full_stderr=stderr.full,
        )


def is_long(command: str) -> bool:
    """Whether `command` must be a file to be run."""
    return len(command) > _ARGUMENT_BYTES // 4 and len(command.encode()) > _ARGUMENT_BYTES


def _script(command: str, folder: str | None) -> str:
    # Where temporary files go, a confined command could exchange it for another.
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    fd, name = tempfile.mkstemp(prefix="dsh-", suffix=".sh", dir=folder)
    with open(fd, "wb") as file:  # noqa: PTH123 - the descriptor is open already
        file.write(command.encode())
    return name


def _live(tail: Tail, output: Callable[[bytes], None] | None) -> Callable[[bytes], None]:
    if output is None:
        return tail.feed
    show = output

    def feed(data: bytes) -> None:
        tail.feed(data)
        show(data)

    return feed


def _spill_files(folder: str | None) -> tuple[Path | None, Path | None]:
    if folder is None:
        return None, None
    stem = os.urandom(6).hex()
    return Path(folder) / f"{stem}-bash.txt", Path(folder) / f"{stem}-bash-stderr.txt"
