"""One real agent for all attacks of a run; each attack has a session and a yard of its own."""

from collections.abc import Iterator
import os
from pathlib import Path
import pwd
import shutil
import sys

import pytest

sys.path.append(str(Path(__file__).parents[1] / "e2e"))

from e2e_agent import PROJECT
from redteam_yard import Ring, Yard

from dsh_acp.tools import confine


@pytest.fixture(scope="session")
def ground() -> Iterator[Path]:
    """A folder that confined commands cannot write to, wherever this project lies."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for place in (PROJECT / ".cache", home / ".cache"):
        if not any(place.is_relative_to(folder) for folder in confine.temporary_folders()):
            break
    else:
        pytest.skip("project and home lie where temporary files go, which is writable")
    folder = place / f"redteam-{os.getpid()}"
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def ring(ground: Path) -> Iterator[Ring]:
    with Ring(ground) as made:
        yield made


@pytest.fixture
def yard(ring: Ring) -> Yard:
    return ring.yard()
