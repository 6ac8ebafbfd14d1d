"""Makes the pictures of sessions in this folder: what real clients show, with the demo's model.

`dsh-acp demo`, and acpx as `make test-clients` installs it, run on a pseudo-terminal; every
question is answered with yes. Of what acpx prints, the picture begins when the files have been
read, and the temporary folder is shown as `/home/me`. Toad takes the picture of its screen itself,
and headless Chromium that of marimo's page, both at a question. No picture fetches fonts; nothing
else is changed.
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

from client_place import INSTALLED, Node, interpreter
import marimo_client
import python_clients
from rich.console import Console
from rich.text import Text
from toad_client import Toad

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
    write(name, console.export_svg(title=title, unique_id=name))


def write(name: str, svg: str) -> None:
    """Write `name`.svg without fonts from the network."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (HERE / f"{name}.svg").write_text(svg, encoding="utf-8")


def acpx(node: Node, home: Path, env: dict[str, str]) -> None:
    """The demo's session in acpx."""
    setup = ["dsh-acp", "setup", "acpx", "--write"]
    subprocess.run(setup, env=env, stdout=subprocess.DEVNULL, check=True)
    client = [node.program, str(node.modules / "acpx/dist/cli.js")]
    told = printed([*client, "dsh-acp", "exec", PROMPT], home / "project", env)
    told = told[told.rindex("\x1b[2m[thinking]") :].replace(str(home), "/home/me")
    picture("acpx", 'acpx dsh-acp exec "One test in this folder fails. …"', told)


def toad(node: Node, home: Path, env: dict[str, str]) -> None:
    """The same in Toad, up to the question whether to run the tests."""
    (home / "Downloads").mkdir()  # where Toad puts pictures of its screen
    with Toad([*python_clients.toad(), "acp", "dsh-acp", "."], home / "project", env) as client:
        client.wait_for("connected")
        client.prompt(PROMPT)
        client.wait_for("Allow once")
        client.type("a")
        client.wait_for("In /")
        client.type("\x10")  # Control-P, its palette
        client.wait_for("Search")
        client.type("screenshot")
        client.wait_for("SVG")
        client.type("\r")
        client.wait_for("Saved")
        client.answer("a")
    [svg] = (home / "Downloads").iterdir()
    write("toad", svg.read_text(encoding="utf-8").replace(">ToadApp<", ">toad acp dsh-acp<"))


def marimo(node: Node, home: Path, env: dict[str, str]) -> None:
    """The same in marimo, up to the question whether to edit the file."""
    with marimo_client.panel(node, home / "project", env) as client:
        client.widen(260)
        client.prompt(PROMPT)
        client.wait_for("Allow once")
        client.wait_for("change just that line.")
        client.page.screenshot(path=HERE / "marimo.png", animations="disabled")


def demo(node: Node, home: Path, env: dict[str, str]) -> None:
    """The demo itself."""
    picture("demo", "dsh-acp demo", printed(["dsh-acp", "demo"], home, env))


def main() -> None:
    """Make all, or those named on the command line; one that cannot be had says why."""
    modules = INSTALLED / "node_modules"
    program = interpreter(modules)
    if program is None or not (modules / "acpx/dist/cli.js").exists():
        sys.exit("acpx is not installed yet: make test-clients")
    for make in (demo, acpx, toad, marimo):
        if sys.argv[1:] and make.__name__ not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory(prefix="") as name:  # short, for it is shown
            home = Path(name)
            env = agent_env(home, f"replay:{DEMO}/session.jsonl", TERM="xterm-256color")
            env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
            shutil.copytree(DEMO / "workspace", home / "project")
            try:
                make(Node(program, modules), home, env)
            except python_clients.UnavailableError as exc:
                sys.stderr.write(f"{make.__name__} is not made: {exc}\n")


if __name__ == "__main__":
    main()
