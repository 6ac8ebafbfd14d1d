"""Sessions over real files, with a scripted model."""

from pathlib import Path

from agent_bench import Bench
import pytest


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    cwd = tmp_path / "project"
    cwd.mkdir()
    return Bench(tmp_path / "state", cwd)
