"""Servers on a project of their own."""

from pathlib import Path

from mcp_bench import Bench
import pytest


@pytest.fixture
def mcp(tmp_path: Path) -> Bench:
    cwd = tmp_path / "project"
    cwd.mkdir()
    return Bench(cwd)
