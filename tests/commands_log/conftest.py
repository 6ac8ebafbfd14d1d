"""A recorded session with everything that reaches a request, and a browser for its page."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recording_loop import Clock, record

from dsh_acp.log.store import Store

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands look for sessions."""
    monkeypatch.setenv("DSH_ACP_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def recorded(home: Path) -> Path:
    """The log file of one recorded session."""
    log = Store(home, clock=Clock()).create("/work/demo", id="5e55107a-0001")
    record(log)
    log.close()
    assert log.path is not None
    return log.path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not here (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a page's HTML; fails the test when the page complains or asks for anything."""
    complaints: list[str] = []
    contexts: list[Any] = []

    def open(html: str, **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        target = tmp_path / f"page-{len(contexts)}.html"
        target.write_text(html, encoding="utf-8")

        def asked(request: Any) -> None:
            if request.url != target.as_uri():
                complaints.append(f"it asks for {request.url}")

        def said(message: Any) -> None:
            complaints.append(str(getattr(message, "text", message)))

        page.on("pageerror", said)
        page.on("console", said)
        page.on("request", asked)
        page.goto(target.as_uri())
        return page

    yield open
    for context in contexts:
        context.close()
    assert complaints == []
