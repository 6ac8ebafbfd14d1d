"""Questions on a real terminal: Ctrl-C and Ctrl-D end them at once, with a sentence or none."""

import os
from pathlib import Path
import select
import sys

import pytest

ROOT = Path(__file__).resolve().parents[2]


def typed(folder: Path, wait: bytes, keys: bytes, *arguments: str) -> tuple[int, str]:
    """The exit code and the screen of a command that gets `keys` once it has shown `wait`."""
    env = {
        "HOME": str(folder),
        "PATH": os.defpath,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder),
        "TERM": "dumb",
        "COLUMNS": "80",
    }
    argv = [sys.executable, "-m", "dsh_acp", *arguments]
    screen, terminal = os.openpty()
    os.set_inheritable(terminal, True)
    process = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", _CHILD, str(terminal), *argv],
        env,
        setsid=True,
    )
    os.close(terminal)
    shown, sent = b"", False
    while select.select([screen], [], [], 20)[0]:
        try:
            piece = os.read(screen, 4096)
        except OSError:
            break
        shown += piece
        if wait in shown and not sent:
            os.write(screen, keys)
            sent = True
    os.close(screen)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown.decode()


_CHILD = """
import fcntl, os, sys, termios
terminal = int(sys.argv[1])
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
for stream in range(3):
    os.dup2(terminal, stream)
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_ctrl_c_at_a_question_of_the_demo_ends_it_and_leaves_nothing(tmp_path):
    code, shown = typed(tmp_path, b"Allow?", b"\x03", "demo")
    assert code == 130 and "Traceback" not in shown
    assert not list(tmp_path.glob("dsh-acp-demo-*"))


@pytest.mark.parametrize(
    ("question", "arguments"),
    [(b"Number or name", ("login",)), (b"Key for openai", ("login", "openai"))],
)
def test_the_end_of_input_ends_a_sign_in_with_a_sentence(question, arguments, tmp_path):
    code, shown = typed(tmp_path, question, b"\x04", *arguments)
    assert code == 1 and "nothing was stored" in shown and "Traceback" not in shown
