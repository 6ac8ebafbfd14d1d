import json
import os
from pathlib import Path
import re
import shutil
import subprocess
import tomllib
from xml.etree import ElementTree

import pytest

import dsh_acp
from dsh_acp.commands import jsonc
from dsh_acp.commands.editor_files import EDITORS

FOLDER = Path(__file__).resolve().parents[2] / "editors"
FILES = {
    "zed": "settings.json",
    "jetbrains": "acp.json",
    "neovim": "dsh_acp.lua",
    "emacs": "dsh-acp.el",
    "toad": "dsh-acp.toml",
    "marimo": "dsh-acp.sh",
    "obsidian": "settings.txt",
    "acpx": "config.json",
}


def text(editor: str) -> str:
    return (FOLDER / editor / FILES[editor]).read_text(encoding="utf-8")


def test_every_editor_has_a_folder_with_instructions():
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir()}
    assert folders == {*EDITORS, "registry"}
    for name in folders:
        assert (FOLDER / name / "README.md").read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("editor", EDITORS)
def test_the_file_is_what_setup_prints_for_a_command_on_the_path(editor):
    assert text(editor) == EDITORS[editor].text("dsh-acp")


@pytest.mark.parametrize("editor", ["zed", "jetbrains"])
def test_an_agent_server_entry_starts_the_installed_command(editor):
    entry = json.loads(text(editor))["agent_servers"]["dsh-acp"]
    assert (entry["command"], entry["args"]) == ("dsh-acp", [])
    assert (entry.get("type") == "custom") is (editor == "zed")


def test_acpx_starts_the_installed_command_even_from_a_path_with_spaces():
    assert json.loads(text("acpx"))["agents"]["dsh-acp"] == {"command": "dsh-acp"}
    spaced = json.loads(EDITORS["acpx"].text("/my tools/dsh-acp"))
    assert spaced["agents"]["dsh-acp"] == {"argv": ["/my tools/dsh-acp"]}


def test_toad_gets_every_field_of_its_agent_format():
    agent = tomllib.loads(text("toad"))
    assert agent["run_command"] == {"*": "dsh-acp"}
    assert (agent["protocol"], agent["type"], agent["identity"]) == ("acp", "coding", "dsh-acp")
    for name in ("name", "short_name", "url", "author_name", "publisher_name", "description"):
        assert agent[name]
    for action in agent["actions"]["*"].values():
        assert set(action) == {"command", "description"}


def test_obsidian_gets_the_fields_of_its_settings_page():
    fields = dict(line.split(":", 1) for line in text("obsidian").splitlines())
    assert fields["Path"].strip() == "dsh-acp"
    assert set(fields) == {"Agent ID", "Name", "Path", "Arguments", "Environment"}


def balanced(source: str, comment: str) -> bool:
    """Brackets pair up outside of strings and comments."""
    source = re.sub(rf'"(?:[^"\\]|\\.)*"|{comment}[^\n]*', "", source)
    stack: list[str] = []
    for char in source:
        if char in "([{":
            stack.append(")]}"["([{".index(char)])
        elif char in ")]}" and (not stack or stack.pop() != char):
            return False
    return not stack


def test_the_lua_module_is_whole_and_names_the_command():
    source = text("neovim")
    assert balanced(source, "--")
    assert len(re.findall(r"\bfunction\b", re.sub(r"--.*", "", source))) == len(
        re.findall(r"\bend\b", re.sub(r"--.*", "", source))
    )
    assert 'local command = "dsh-acp"' in source
    assert {"codecompanion", "avante", "agentic"} == set(re.findall(r"M\.(\w+)", source))


@pytest.mark.skipif(not shutil.which("luac"), reason="luac is not installed")
def test_the_lua_module_compiles(tmp_path):
    file = FOLDER / "neovim" / FILES["neovim"]
    subprocess.run(["luac", "-p", str(file)], check=True, cwd=tmp_path)


def test_the_emacs_file_is_whole_and_names_the_command():
    source = text("emacs")
    assert balanced(source.replace("#'", ""), ";")
    assert '(defvar dsh-acp-command \'("dsh-acp")' in source
    assert source.startswith(";;; dsh-acp.el --- ") and "lexical-binding: t" in source
    assert source.endswith("(provide 'dsh-acp)\n;;; dsh-acp.el ends here\n")


def test_the_marimo_script_starts_the_bridge_with_the_command(tmp_path):
    fake = tmp_path / "npx"
    fake.write_text('#!/bin/sh\nprintf "%s|" "$@"\n', encoding="utf-8")
    fake.chmod(0o755)
    script = FOLDER / "marimo" / FILES["marimo"]
    done = subprocess.run(
        ["sh", str(script), "3019"],
        env={"PATH": f"{tmp_path}{os.pathsep}{os.defpath}"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout == "-y|stdio-to-ws|dsh-acp|--port|3019|"


@pytest.mark.parametrize("command", ["C:\\tools\\dsh-acp.exe", '/odd "name"/dsh-acp', "/a b/x"])
def test_any_path_survives_quoting(command):
    assert tomllib.loads(EDITORS["toad"].text(command))["run_command"]["*"] == command
    zed = jsonc.parse(EDITORS["zed"].text(command))
    assert zed["agent_servers"]["dsh-acp"]["command"] == command


def test_the_registry_entry_obeys_the_rules_of_the_registry():
    agent = json.loads((FOLDER / "registry" / "agent.json").read_text(encoding="utf-8"))
    assert re.fullmatch(r"[a-z][a-z0-9-]*", agent["id"]) and agent["name"] and agent["description"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", agent["version"])
    assert agent["version"] == dsh_acp.__version__
    assert agent["distribution"]["uvx"]["package"] == f"dsh-acp=={agent['version']}"
    assert set(agent) <= {
        *("id", "name", "version", "description", "distribution"),
        *("repository", "website", "authors", "license"),
    }


def test_the_icon_is_small_and_takes_the_colour_of_the_text():
    svg = ElementTree.parse(FOLDER / "registry" / "icon.svg").getroot()
    assert (svg.get("width"), svg.get("height")) == ("16", "16")
    colours = [
        value for node in svg.iter() for name in ("fill", "stroke") if (value := node.get(name))
    ]
    assert set(colours) <= {"currentColor", "none", "inherit"} and "currentColor" in colours
