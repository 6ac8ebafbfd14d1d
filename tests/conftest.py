"""Shared by every test: one event loop library, a clean environment, a private home."""

from collections.abc import Iterator
import os
from pathlib import Path

from hypothesis import settings
import pytest

PROJECT = Path(__file__).resolve().parents[1]
SHARED = PROJECT.parent / "shared"

# A busy machine is no fault of what is tested.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "COLUMNS", "PYTHONWARNDEFAULTENCODING")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name not in _KEPT and not name.startswith(("PYTEST", "COV", "HYPOTHESIS")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    yield


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the folder ../shared is not here")
    return SHARED
