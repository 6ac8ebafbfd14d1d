"""How this project's own agent is started for a test or a scenario."""

import os
from pathlib import Path
import sys


def agent_argv(*args: str) -> list[str]:
    """The command line of this project's own agent, under the running interpreter."""
    return [sys.executable, "-m", "dsh_acp", *args]


def agent_env(
    home: str | os.PathLike[str], model: str | None = None, **more: str
) -> dict[str, str]:
    """An environment for this project's agent: a private home, no keys, the scripted `model`.

    Commands are not confined unless `more` says so.
    """
    kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "VIRTUAL_ENV")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    root = Path(__file__).parents[2]
    if (root / "pyproject.toml").exists():  # a checkout: importable from any folder
        env["PYTHONPATH"] = str(root)
    env |= {"HOME": os.fspath(home), "DSH_ACP_HOME": os.fspath(Path(home) / ".dsh-acp")}
    # What a machine can confine, or has installed, must not show in what is compared.
    env |= {"DSH_ACP_SANDBOX": "off", "DSH_ACP_LOCAL": "0"}
    if model is not None:
        env["DSH_ACP_MODEL"] = model
    return env | more
