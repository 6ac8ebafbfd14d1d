"""The clients of `tests/clients`, where they speak version 2."""

import importlib.util
from pathlib import Path
import sys
from typing import Any

CLIENTS = Path(__file__).resolve().parents[1] / "clients"
sys.path.insert(0, str(CLIENTS))


def _fixtures() -> Any:
    spec = importlib.util.spec_from_file_location("clients_conftest", CLIENTS / "conftest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_module = _fixtures()
node = _module.node
place = _module.place
