"""Clients that are not ours, installed as their authors publish them, each on an agent of its own.

What comes from npm is pinned by `package-lock.json` beside this file, and kept in `.cache/clients`.
A client that cannot be had is skipped with the reason; one that can be had must work.
"""

from collections.abc import Iterator
from pathlib import Path
import shutil
import subprocess

from client_place import COMMAND, HERE, INSTALLED, NODE_VERSION, Node, Place, interpreter, script
import pytest

from dsh_acp.llm.fake import FakeLlm
from dsh_acp.snapshot.agents import agent_env


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    if not COMMAND.exists():
        pytest.skip("the command dsh-acp is not installed beside this interpreter")
    project = tmp_path / "project"
    project.mkdir()
    with FakeLlm(script()) as fake:
        env = agent_env(tmp_path / "home", "openai/m", OPENAI_BASE_URL=fake.url, OPENAI_API_KEY="x")
        yield Place(project, env, fake)


@pytest.fixture(scope="session")
def node() -> Node:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed here")
    lock = "package-lock.json"
    wanted, marker = (HERE / lock).read_bytes(), INSTALLED / "installed.json"
    if not marker.exists() or marker.read_bytes() != wanted:
        INSTALLED.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", lock):
            shutil.copy(HERE / name, INSTALLED / name)
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        done = subprocess.run(
            [npm, "install", *quiet],
            cwd=INSTALLED,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
        )
        assert done.returncode == 0, f"npm install failed:\n{done.stderr}"
        marker.write_bytes(wanted)
    modules = INSTALLED / "node_modules"
    program = interpreter(modules)
    if program is None:
        pytest.skip(f"there is no Node.js {NODE_VERSION} or newer for this machine")
    return Node(program, modules)
