"""`dsh-acp bench`: run the measurements of a source checkout."""

from pathlib import Path
import subprocess
import sys

from dsh_acp.errors import ConfigError


def main(argv: list[str]) -> int:
    """Run `tests/bench/run.py` with `argv`; its exit code."""
    script = Path(__file__).resolve().parents[2] / "tests" / "bench" / "run.py"
    if not script.exists():
        raise ConfigError(
            ["the measurements are part of the source: clone it, then run: make bench"]
        )
    return subprocess.run([sys.executable, str(script), *argv]).returncode
