"""Sits between an editor and any agent and writes both directions down.

Threads and blocking reads on purpose: bytes pass through unchanged and at once, and each line is
on disk before the other side can answer it, so a killed proxy leaves a usable recording.
"""

from collections.abc import Sequence
import os
from pathlib import Path
import subprocess
import sys
import threading
from typing import IO, BinaryIO, Final

from dsh_acp.snapshot.leaks import redact
from dsh_acp.snapshot.recording import Table
from dsh_acp.snapshot.scenario import INPUT, WIRE
from dsh_acp.snapshot.script import Agent, Input


class Recorder:
    """Appends records to `wire.jsonl`; safe from two threads."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        script = Input(
            shows=f"a recorded conversation with {Path(command[0]).name}",
            agent=Agent(argv=tuple(command)),
            compares_log=False,
        )
        (folder / INPUT).write_bytes(script.to_json())
        self._file: Final = (folder / WIRE).open("wb")
        self._table: Final = Table()
        self._lock: Final = threading.Lock()

    def write(self, sender: str, line: bytes) -> None:
        """Write one line down; secrets are replaced first."""
        text = line.strip()
        if not text:
            return
        with self._lock:
            if not self._file.closed:
                clean = redact(text.decode("utf-8", "replace")).encode()
                self._file.write(self._table.record(sender, clean).encode() + b"\n")
                self._file.flush()

    def close(self) -> None:
        """Nothing is written any more."""
        with self._lock:
            self._file.close()


def proxy(folder: Path, command: Sequence[str]) -> int:
    """Run `command` as the agent of whoever started us; its exit code.

    Refuses a folder that exists, so that no recording is overwritten.
    """
    if folder.exists():
        sys.stderr.write(f"dsh-acp snapshot proxy: {folder} exists already\n")
        return 2
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as exc:
        sys.stderr.write(f"dsh-acp snapshot proxy: cannot start {command[0]}: {exc.strerror}\n")
        return 2
    assert process.stdin is not None and process.stdout is not None
    recorder = Recorder(folder, command)
    client = threading.Thread(
        target=_pump, args=(sys.stdin.buffer, process.stdin, recorder, "client"), daemon=True
    )
    client.start()
    _pump(process.stdout, sys.stdout.buffer, recorder, "agent")
    code = process.wait()
    recorder.close()
    sys.stderr.write(f"dsh-acp snapshot proxy: wrote {folder}\n")
    sys.stderr.flush()
    # The thread may still wait for a client that keeps its end open.
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)


def _pump(
    source: IO[bytes] | BinaryIO, target: IO[bytes] | BinaryIO, to: Recorder, who: str
) -> None:
    try:
        for line in source:
            to.write(who, line)
            target.write(line)
            target.flush()
        if who == "client":
            target.close()
    except (BrokenPipeError, ValueError):
        return
