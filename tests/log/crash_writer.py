"""A process that writes a session until it is killed, telling what the log has accepted.

usage: crash_writer.py HOME ID
"""

from pathlib import Path
import sys

import anyio
from log_samples import Recorder

from dsh_acp.log.store import Store


async def main() -> None:
    log = Store(Path(sys.argv[1])).create("/w", id=sys.argv[2])
    recorder = Recorder(log)

    def tell() -> None:
        # Long lines fill the pipe soon, so that nobody writes far ahead of its reader.
        sys.stdout.write(f"{log.seq:>400}\n")
        sys.stdout.flush()

    log.observers.append(lambda event: tell())
    while True:
        recorder.begin("question")
        if not log.header_in_this_life:
            recorder.header()
        await log.sync()
        recorder.answer("a longer answer " * 20, ["c"])
        call = recorder.call("c")
        await log.sync()
        recorder.result("c", call.seq)
        recorder.end_step()
        recorder.end()


anyio.run(main)
