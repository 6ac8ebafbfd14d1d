"""Toad on a terminal of its own, and the person who types into it and reads what it shows."""

from contextlib import suppress
import json
import os
from pathlib import Path
import re
import select
import subprocess
import termios
import time
from types import TracebackType
from typing import Any, Self

from client_place import CLIENT_S

SIZE = (42, 100)
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*([A-Za-z])")


def _apart(escape: re.Match[bytes]) -> bytes:
    return b"" if escape[1] == b"m" else b"\n"  # a colour, or another place on the screen


class Toad:
    """A running Toad; `log` is its own record of the frames, `home` its folder.

    As a context manager, it is left with its own key at the end, and is killed if it stays.
    """

    def __init__(self, argv: list[str], project: Path, env: dict[str, str]) -> None:
        home = Path(env["HOME"])
        home.mkdir(exist_ok=True)
        self.log = home / "toad.log"
        self._seen = b""
        self._ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, SIZE)
        self._process = subprocess.Popen(
            argv,
            cwd=project,
            env={**env, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
            | {"LANG": "C.UTF-8", "SHELL": "/bin/sh", "TOAD_LOG": str(self.log)},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if value is None:
                self.type("\x11")  # Control-Q
                with suppress(OSError):  # how Linux says that nobody holds the other side any more
                    while self._read():
                        pass
                self._process.wait(CLIENT_S)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._ours)

    def type(self, keys: str) -> None:
        """Press keys. What is waited for from now on must appear from now on."""
        self._seen = b""
        os.write(self._ours, keys.encode())

    def prompt(self, text: str) -> None:
        """Ask the agent something."""
        self.type(text)
        self.wait_for(text.split()[-1])
        self.type("\r")

    def answer(self, key: str) -> None:
        """Answer a question; the next prompt may then be typed."""
        self.type(key)
        self.wait_for(" Send ")

    def wait_for(self, text: str) -> None:
        """Until the text is drawn on the screen.

        Raises:
            AssertionError: It is not, in good time.
        """
        wanted, until = text.encode(), time.monotonic() + CLIENT_S
        while wanted not in (drawn := _ESCAPES.sub(_apart, self._seen)):
            assert time.monotonic() < until, f"{text!r} did not appear:\n{drawn.decode()}"
            self._read()

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._ours], [], [], CLIENT_S)
        piece = os.read(self._ours, 65536) if ready else b""
        self._seen += piece
        return piece

    def frames(self) -> list[dict[str, Any]]:
        """What the agent has sent."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line[8:]) for line in lines if line.startswith("[agent] ")]
