"""marimo's notebook in a headless browser, and the person who uses its panel of agents.

marimo reaches agents over WebSocket; `editors/marimo/dsh-acp.sh` starts the bridge, as a user does.
"""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
import os
from pathlib import Path
import signal
import socket
import subprocess
import sys
from typing import Any

from client_place import CLIENT_S, COMMAND, Node
import python_clients

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NOTEBOOK = """\
import marimo

app = marimo.App()


@app.cell
def _():
    from middle import median

    median([1, 2, 3, 4])
    return
"""
SETTINGS = "[experimental]\nexternal_agents = true\n"
PORT = 3017  # where marimo looks for the first of its agents


@contextmanager
def panel(node: Node, project: Path, env: Mapping[str, str]) -> Generator["Panel"]:
    """The panel of a notebook of that project, with a session of the agent.

    Raises:
        UnavailableError: marimo cannot be had, or there is no Chromium.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise python_clients.UnavailableError("playwright is not installed") from None
    if not CHROMIUM.exists():
        raise python_clients.UnavailableError(f"{CHROMIUM} is not here")
    modules = python_clients.packages("marimo")
    settings = Path(env["HOME"]) / ".config/marimo/marimo.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(SETTINGS, encoding="utf-8")
    (project / "notebook.py").write_text(NOTEBOOK, encoding="utf-8")
    programs = (str(COMMAND.parent), str(Path(node.program).parent), env["PATH"])
    bridge = ["sh", str(python_clients.ROOT / "editors/marimo/dsh-acp.sh"), str(PORT)]
    port = str(_free_port())
    edit = ["edit", "notebook.py", "--headless", "--no-token", "--skip-update-check"]
    marimo = [sys.executable, "-m", "marimo", *edit, "--port", port]
    with ExitStack() as stack:
        # npx takes the bridge that is installed in this folder.
        paths = {**env, "PATH": os.pathsep.join(programs)}
        stack.enter_context(_running(bridge, node.modules.parent, paths, f"port {PORT}"))
        theirs = {**env, "PYTHONPATH": str(modules)}
        stack.enter_context(_running(marimo, project, theirs, "URL:"))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        stack.callback(browser.close)
        page = browser.new_page(viewport={"width": 1080, "height": 760}, device_scale_factor=1.25)
        page.set_default_timeout(CLIENT_S * 1000)
        page.goto(f"http://localhost:{port}/")
        yield Panel(page)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def _running(argv: list[str], folder: Path, env: dict[str, str], ready: str) -> Generator[None]:
    """A server, once it has printed `ready`; what it prints afterwards is dropped."""
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        start_new_session=True,
    )
    assert process.stdout is not None
    said: list[str] = []
    try:
        for line in process.stdout:
            said.append(line)
            if ready in line:
                break
        else:
            raise AssertionError(f"{argv[0]} ended: {''.join(said)}")
        # Somebody has to read on, or it would stop at a full pipe.
        with subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL) as reader:
            try:
                yield
            finally:
                os.killpg(process.pid, signal.SIGTERM)
                reader.wait(CLIENT_S)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Panel:
    """The agents' panel, with a new session of the first agent."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.get_by_test_id("save-button").wait_for()
        page.locator("[data-key=ai]").click()
        page.keyboard.press("Escape")  # so quick a click also begins to drag the icon
        page.get_by_role("tab", name="Agents").click()
        page.get_by_role("button", name="New session").first.click()
        page.get_by_role("menuitem", name="New Claude session").click()
        page.get_by_text("Agent is connected").wait_for()

    def prompt(self, text: str) -> None:
        """Ask the agent something."""
        self.page.locator(".cm-content[data-language=markdown]").first.click()
        self.page.keyboard.press("Control+A")  # what was sent before may still stand there
        self.page.keyboard.type(text, delay=20)
        self.page.keyboard.press("Enter")

    def widen(self, pixels: int) -> None:
        """Make the panel wider, at the notebook's expense."""
        box = self.page.get_by_test_id("helper").bounding_box()
        edge = box["x"] + box["width"]
        self.page.mouse.move(edge, 300)
        self.page.mouse.down()
        self.page.mouse.move(edge + pixels, 300, steps=5)
        self.page.mouse.up()

    def press(self, button: str) -> None:
        """Press a button, once it is there; it goes away."""
        found = self.page.get_by_role("button", name=button, exact=True)
        found.click()
        found.wait_for(state="detached")

    def wait_for(self, text: str) -> None:
        """Until the text is shown."""
        self.page.get_by_text(text).first.wait_for()
