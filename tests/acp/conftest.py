"""An editor and an agent in one process."""

from pathlib import Path

from acp_bench import Bench
import pytest


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
