"""What outlives us to end what we started, should we be killed ourselves.

A shell waits on a pipe whose only writer is this process. We name to it each process group that we
start and each that has ended; when the pipe closes, however this process died, it ends the rest,
and what left those groups but carries their mark.

Why not a death signal: the kernel ties that to the thread that forked, and it reaches one process,
not the group.
"""

import os
import threading
from typing import Final

_SCRIPT: Final = """
trap '' HUP INT TERM
live=
while read -r what group mark; do
  if [ "$what" = start ]; then live="$live $group:$mark"; continue; fi
  if [ "$what" = keep ]; then live="$live $group:$group"; continue; fi
  rest=
  for one in $live; do [ "${one%%:*}" = "$group" ] || rest="$rest $one"; done
  live=$rest
done
[ -n "$live" ] || exit 0
stop() {
  for one in $live; do
    case $one in *=*:*) ;; *) kill "-$1" "-${one%%:*}";; esac
    for file in $(grep -lszxF -e "${one#*:}" /proc/[0-9]*/environ); do
      pid=${file#/proc/}
      kill "-$1" "${pid%/environ}"
    done
  done
} 2>/dev/null
stop TERM
sleep 1
stop KILL
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


def watch(group: int, mark: str) -> None:
    """End process group `group` when this process is gone.

    So are those that left the group and have `mark`, a `NAME=value` without blanks, in their
    environment.
    """
    _reaper.tell(f"start {group} {mark}\n")


def keep(mark: str) -> None:
    """End whatever has `mark`, a `NAME=value` without blanks, when this process is gone."""
    _reaper.tell(f"keep {mark}\n")


def drop(mark: str) -> None:
    """Nothing with `mark` runs any more."""
    _reaper.tell(f"end {mark}\n")


async def sweep(mark: str) -> None:
    """End whatever has `mark` in its environment, now."""
    from dsh_acp.tools import strays

    await strays.end(mark)


def forget(group: int) -> None:
    """Nothing of `group` runs any more; its number may become another's."""
    _reaper.tell(f"end {group}\n")
