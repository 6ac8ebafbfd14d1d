"""Which server serves a file, and from where its program may come."""

from pathlib import Path
import sys

import pytest

from dsh_acp.config import LspServerSettings
from dsh_acp.lsp.servers import KNOWN, Servers


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("gopls", "basedpyright-langserver", "pylsp", "ruff", "clangd"):
        program(folder, name)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return folder


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def names(servers: Servers, path: str, *roots: str) -> list[str]:
    return [found.known.name for found in servers.of(path, roots)]


def test_the_first_that_is_installed_answers_and_a_checker_checks(programs: Path) -> None:
    servers = Servers(())
    assert names(servers, "/p/a.py") == ["basedpyright", "ruff"]
    (programs / "basedpyright-langserver").unlink()
    assert names(servers, "/p/a.PY") == ["pylsp", "ruff"]
    assert names(servers, "/p/a.go") == ["gopls"]
    assert names(servers, "/p/a.cpp") == ["clangd"]
    assert names(servers, "/p/a.rs") == []
    assert names(servers, "/p/Makefile") == []
    assert servers.names("/p/a.rs") == ["rust-analyzer"]


def test_a_program_of_the_project_is_not_started(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    evil = program(project, "rust-analyzer")
    monkeypatch.setenv("PATH", f"{project}:{programs}")
    assert names(Servers(()), "/p/a.rs") == ["rust-analyzer"]
    assert names(Servers(()), "/p/a.rs", str(project)) == []
    (programs / "rust-analyzer").symlink_to(evil)
    monkeypatch.setenv("PATH", str(programs))
    assert names(Servers(()), "/p/a.rs", str(project)) == []
    chosen = LspServerSettings(name="rust-analyzer", command=str(evil))
    assert names(Servers((chosen,)), "/p/a.rs", str(project)) == ["rust-analyzer"]


def test_a_configuration_adds_changes_and_removes(programs: Path) -> None:
    own = LspServerSettings(name="mine", command="pylsp", languages={".py": "python"})
    off = LspServerSettings(name="ruff", enabled=False)
    changed = LspServerSettings(
        name="gopls", args=("-v",), env={"A": "b"}, initialization_options='{"x": 1}'
    )
    servers = Servers((own, off, changed))
    assert names(servers, "/p/a.py") == ["mine"]
    (found,) = servers.of("/p/a.go", ())
    assert found.argv == (str(programs / "gopls"), "-v")
    assert found.known.env["A"] == "b"
    assert "GOCACHE" in found.known.env
    assert found.known.options == {"x": 1}
    assert found.language("/p/go.mod") == "go.mod"


def test_every_known_server_has_a_name_and_languages() -> None:
    assert len({known.name for known in KNOWN}) == len(KNOWN)
    for known in KNOWN:
        assert known.command and known.languages
        assert all(ending.startswith(".") for ending in known.languages)
