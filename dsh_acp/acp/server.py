"""The process that an editor starts: one connection on stdin and stdout.

The first line is read, and answered if it is an `initialize`, before the event loop and the agent
are imported, so an editor never waits for what it has not asked for yet.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from dsh_acp.acp import handshake
from dsh_acp.config import Flags
from dsh_acp.wire import stdio


def serve(flags: Flags | None = None) -> int:
    """Serve until the input ends or a signal comes; the exit code is 0 then.

    Descriptors 0 and 1 belong to the protocol from here on.
    """
    source, sink = stdio.claim()
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _leave)
    output, lines = stdio.Output(sink), stdio.Input(source)
    first = lines.read()
    early = None
    if first and isinstance(first[0], bytes):
        early = handshake.early(first[0])
        if early is not None:
            output.write(early.line)
            del first[0]
    if lines.ended and not first:
        output.close()
        return 0

    # Loading the agent takes longer than an editor that leaves at once should wait.
    lines.listen(unwanted=lambda: None if first else os._exit(0))

    from dsh_acp.acp import connection

    connection.run(flags or Flags(), lines, output, first, early.client if early else None)
    sys.stderr.flush()
    # Everything is written and closed; taking the interpreter apart would only keep the editor.
    os._exit(0)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)
