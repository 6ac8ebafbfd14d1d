"""The fake agent's command line."""

from pathlib import Path
import sys

import pytest

FAKE = Path(__file__).with_name("fake_agent.py")


@pytest.fixture
def fake() -> list[str]:
    return [sys.executable, str(FAKE)]
