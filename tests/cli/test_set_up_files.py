"""What a fresh clone is set up from, and what the README promises."""

import os
from pathlib import Path
import re
import subprocess
import tomllib

import pytest

from dsh_acp import cli
from dsh_acp.commands.editor_files import EDITORS
from dsh_acp.config.file import read
from dsh_acp.config.sources import BUILTIN

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
LOCKS = ["requirements/test.lock", "requirements/local.lock"]
ALL_LOCKS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("requirements/*.lock"))


def name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found.group()).lower()


@pytest.mark.parametrize("lock", ALL_LOCKS)
def test_every_locked_version_is_exact_and_hashed(lock):
    text = (ROOT / lock).read_text(encoding="utf-8")
    said = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    pins = re.split(r"\n(?=[a-z0-9])", said.strip())
    assert pins
    for pin in pins:
        assert re.match(r"[a-z0-9-]+==\S+ ", pin) and "--hash=sha256:" in pin
    assert "://" not in text and "/root" not in text and "--index" not in text


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_of_the_project_is_locked(lock):
    text = (ROOT / lock).read_text(encoding="utf-8")
    locked = set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))
    groups = PROJECT["dependency-groups"]
    wanted = [*PROJECT["project"]["dependencies"], *groups["test"], *groups["check"]]
    wanted += PROJECT["build-system"]["requires"]
    if "local" in lock:
        wanted += PROJECT["project"]["optional-dependencies"]["local"]
    assert {name(requirement) for requirement in wanted} <= locked


def test_the_scripts_are_sound_and_ci_runs_checks_and_tests():
    ci = ROOT / ".ci/run"
    assert os.access(ci, os.X_OK)
    subprocess.run(["bash", "-n", str(ci)], check=True)
    subprocess.run(["sh", "-n", str(ROOT / "requirements/venv.sh")], check=True)
    text = ci.read_text(encoding="utf-8")
    assert "set -eu" in text and "\nmake check\nmake test\n" in text


def test_an_interpreter_that_is_too_old_is_refused_with_a_way_out(tmp_path):
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    done = subprocess.run(
        ["sh", str(ROOT / "requirements/venv.sh"), str(tmp_path / "venv"), str(old)],
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr and "apt-get install" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_the_readmes_configuration_is_valid_to_the_last_key(tmp_path):
    (block,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "config.toml"
    path.write_text(re.sub(r"^# ", "", block, flags=re.MULTILINE), encoding="utf-8")
    config, notes = read(path, [known.name for known in BUILTIN])
    assert notes == []
    unset = [key for key in type(config).model_fields if getattr(config, key) is None]
    assert unset == []
    here = config.providers["here"]
    assert [key for key in type(here).model_fields if getattr(here, key) is None] == ["api_key"]


def test_the_readme_names_every_command_editor_and_provider():
    for command in set(cli.COMMANDS) - {"serve", "version", "bench"}:
        assert re.search(rf"`(dsh-acp )?{command}`", README), command
    for editor in EDITORS.values():
        assert editor.title in README
    for known in BUILTIN:
        assert known.api_key_env in README and known.base_url_env in README


def test_every_link_within_the_readme_leads_somewhere():
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)\)", README):
        assert (ROOT / target).exists()
