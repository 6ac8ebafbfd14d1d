"""What outlives us to end what we started, should we be killed ourselves.

A shell waits on a pipe whose only writer is this process. We name to it each process group that we
start and each that has ended; when the pipe closes, however this process died, it ends the rest.

Why not a death signal: the kernel ties that to the thread that forked, and it reaches one process,
not the group.
"""

import os
import threading
from typing import Final

_SCRIPT: Final = """
trap '' HUP INT TERM
live=
while read -r what group; do
  if [ "$what" = start ]; then live="$live $group"; continue; fi
  rest=
  for one in $live; do [ "$one" = "$group" ] || rest="$rest $one"; done
  live=$rest
done
[ -n "$live" ] || exit 0
for one in $live; do kill -TERM "-$one"; done 2>/dev/null
sleep 1
for one in $live; do kill -KILL "-$one"; done 2>/dev/null
"""


class _Reaper:
    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._fd: int | None = None
        self._owner = 0

    def prepare(self) -> None:
        with self._guard:
            # After a fork the pipe is the parent's.
            if self._fd is None or self._owner != os.getpid():
                self._fd = self._spawn()

    def tell(self, line: str) -> None:
        with self._guard:
            if self._fd is not None and self._owner == os.getpid():
                try:
                    os.write(self._fd, line.encode())
                except OSError:
                    os.close(self._fd)
                    self._fd = None

    def _spawn(self) -> int | None:
        self._owner = os.getpid()
        reads, writes = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            # Neither end is inheritable, so no other child keeps the pipe open.
            os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", _SCRIPT],
                {"PATH": "/usr/bin:/bin"},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reads, 0),
                    (os.POSIX_SPAWN_DUP2, null, 1),
                    (os.POSIX_SPAWN_DUP2, null, 2),
                ],
                setpgroup=0,
            )
        except OSError:
            os.close(writes)
            return None
        finally:
            os.close(reads)
            os.close(null)
        return writes


_reaper: Final = _Reaper()


def prepare() -> None:
    """Be ready to `watch`, so that no time passes between a start and its announcement."""
    _reaper.prepare()


def watch(group: int) -> None:
    """End process group `group` when this process is gone."""
    _reaper.tell(f"start {group}\n")


def forget(group: int) -> None:
    """Nothing of `group` runs any more; its number may become another's."""
    _reaper.tell(f"end {group}\n")
