"""Makes the pictures of sessions in this folder: what real clients print on a terminal, as SVG.

`dsh-acp demo`, and acpx as `make test-clients` installs it, run on a pseudo-terminal with the
recorded model of the demo; every question is answered with yes. Of what acpx prints, the picture
begins when the files have been read, and the temporary folder is shown as `/home/me`; nothing else
is changed.
"""

from contextlib import suppress
import io
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import tempfile
import termios

from client_place import INSTALLED, interpreter
from rich.console import Console
from rich.text import Text

from dsh_acp.commands.demo import PROMPT
from dsh_acp.snapshot.agents import agent_env

HERE = Path(__file__).parent
DEMO = HERE.parent / "dsh_acp/commands/demo_data"
COLUMNS = 100
QUESTION = re.compile(rb"Allow\?.*\[n\]o: $|\(y/N\) \x1b\[\d+G$")


def printed(argv: list[str], folder: Path, env: dict[str, str]) -> str:
    """Everything that a program prints on a terminal where somebody always answers yes."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (50, COLUMNS))
    out = b""
    with subprocess.Popen(argv, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        with suppress(OSError):  # how Linux says that nobody holds the other side any more
            while piece := os.read(ours, 65536):
                out += piece
                if QUESTION.search(out):
                    os.write(ours, b"y\n")
    os.close(ours)
    return re.sub(r"\r+\n", "\n", out.decode())


def picture(name: str, title: str, output: str) -> None:
    """Write `name`.svg; long lines are broken where a terminal breaks them."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for line in Text.from_ansi(output.strip("\n")).split(allow_blank=True):
        for row in line.divide(range(COLUMNS, len(line), COLUMNS)):
            console.print(row, no_wrap=True)
    console.print()
    svg = console.export_svg(title=title, unique_id=name)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # no fonts from the network
    (HERE / f"{name}.svg").write_text(svg, encoding="utf-8")


def main() -> None:
    """Make both."""
    modules = INSTALLED / "node_modules"
    node, acpx = interpreter(modules), modules / "acpx/dist/cli.js"
    if node is None or not acpx.exists():
        sys.exit("acpx is not installed yet: make test-clients")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        env = agent_env(home, f"replay:{DEMO}/session.jsonl", TERM="xterm-256color")
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
        shutil.copytree(DEMO / "workspace", project := home / "project")
        setup = ["dsh-acp", "setup", "acpx", "--write"]
        subprocess.run(setup, env=env, stdout=subprocess.DEVNULL, check=True)
        told = printed([node, str(acpx), "dsh-acp", "exec", PROMPT], project, env)
        told = told[told.rindex("\x1b[2m[thinking]") :].replace(name, "/home/me")
        picture("acpx", 'acpx dsh-acp exec "One test in this folder fails. …"', told)
        picture("demo", "dsh-acp demo", printed(["dsh-acp", "demo"], home, env))


if __name__ == "__main__":
    main()
