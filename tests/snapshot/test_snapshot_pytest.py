"""The pytest plug-in, in a pytest of its own."""

import json
from pathlib import Path
import subprocess
import sys

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path, fake: list[str]) -> Path:
    for name in ("one", "two", "three"):
        path = tmp_path / "suite" / "acp" / name
        path.mkdir(parents=True)
        steps = [{"op": "initialize"}, {"op": "newSession"}, {"op": "prompt", "text": name}]
        document = {"shows": name, "agent": {"argv": fake}, "comparesLog": False, "steps": steps}
        (path / "input.json").write_text(json.dumps(document), encoding="utf-8")
        (path / "stdout.expected.jsonl").touch()
    return tmp_path / "suite"


def run(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    plugin = ("-p", "dsh_acp.snapshot.pytest_plugin", "-p", "no:cacheprovider")
    argv = [sys.executable, "-m", "pytest", *plugin, *arguments, "-q", "--rootdir", str(folder)]
    env |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        argv, cwd=folder, env=env, capture_output=True, encoding="utf-8", timeout=60
    )


@pytest.mark.long
def test_scenarios_are_refreshed_then_green_then_red_when_the_agent_changes(folder: Path):
    assert "3 passed" in run(folder, "--acp-refresh").stdout
    parallel = run(folder, "-p", "xdist", "-n", "2")
    assert "3 passed" in parallel.stdout
    changed = run(folder, "-k", "two", FAKE_STYLE="Other")
    assert "1 failed, 2 deselected" in changed.stdout
    assert "stdout.expected.jsonl:3 (session/update agent_message_chunk) differs" in changed.stdout
    assert "Traceback" not in changed.stdout
