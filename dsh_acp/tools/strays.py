"""Processes that left the group they were started in, found by a mark in their environment.

A process that clears its environment is not found, except where a sandbox has its own table of
processes.
"""

import contextlib
import os
from pathlib import Path
import signal
from typing import Final

import anyio
from anyio import CancelScope, to_thread

PROC: Final = Path("/proc")
_LOOKS: Final = 100
_BLINK_S: Final = 0.005


async def end(mark: str) -> bool:
    """Kill whatever has `mark`, a `NAME=value`, in its environment; whether anything had.

    Shielded from cancellation. Goes on until two looks find nothing, because of exec's blink.
    """
    found = False
    clean = 0
    with CancelScope(shield=True):
        for _ in range(_LOOKS):
            pids, blinks = await to_thread.run_sync(holders, mark)
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            found = found or bool(pids)
            clean = 0 if pids or blinks else clean + 1
            if clean == 2:
                break
            if blinks or pids:
                await anyio.sleep(_BLINK_S)
    return found


def holders(mark: str) -> tuple[list[int], bool]:
    """Processes whose environment has `mark`, where there is a `/proc`.

    The second value tells whether some process shows no environment, as one does for a moment in
    the middle of an exec; it may be one of them.
    """
    found: list[int] = []
    blinks = False
    if PROC.is_dir():
        needle = mark.encode()
        for folder in PROC.iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    environment = (folder / "environ").read_bytes()
                    if needle in environment.split(b"\0"):
                        found.append(int(folder.name))
                    elif not environment:
                        blinks = blinks or _is_in_exec(folder)
    return found, blinks


def _is_in_exec(folder: Path) -> bool:
    # Neither dead (those have no program) nor the kernel's own, nor one that wants no environment.
    with contextlib.suppress(OSError):
        return bool((folder / "exe").readlink().name) and not (folder / "cmdline").read_bytes()
    return False
