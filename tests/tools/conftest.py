from pathlib import Path

import pytest
from workbench import Workbench


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    folder = tmp_path / "work"
    folder.mkdir()
    return Workbench(folder, tmp_path / "spill")
