import json
from pathlib import Path
import stat
import tomllib

import pytest

from dsh_acp import cli
from dsh_acp.commands import jsonc
from dsh_acp.commands.editor_files import EDITORS


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def setup(*arguments: str) -> int:
    return cli.main(["setup", *arguments, "--command", "/opt/dsh-acp"])


@pytest.mark.parametrize("editor", EDITORS)
def test_without_write_it_prints_only_the_configuration(editor, capsys, home):
    assert setup(editor) == 0
    assert capsys.readouterr().out == EDITORS[editor].text("/opt/dsh-acp")
    assert list(home.iterdir()) == []


def test_a_new_file_is_made_with_its_folders(home, capsys):
    assert setup("jetbrains", "--write") == 0
    path = home / ".jetbrains" / "acp.json"
    assert json.loads(path.read_text(encoding="utf-8"))["agent_servers"]["dsh-acp"]
    assert [file.name for file in path.parent.iterdir()] == ["acp.json"]
    assert f"Wrote {path}." in capsys.readouterr().out


def test_an_existing_file_keeps_comments_settings_mode_and_a_copy(home, capsys):
    path = home / ".config" / "zed" / "settings.json"
    path.parent.mkdir(parents=True)
    old = '// mine\n{\n  "theme": "x", // dark\n  "agent_servers": {\n    "b": {},\n  },\n}\n'
    path.write_text(old, encoding="utf-8")
    path.chmod(0o600)
    assert setup("zed", "--write") == 0
    new = path.read_text(encoding="utf-8")
    assert "// mine" in new and '"theme": "x", // dark' in new and '"b": {},' in new
    server = jsonc.parse(new)["agent_servers"]["dsh-acp"]
    assert server == {"type": "custom", "command": "/opt/dsh-acp", "args": [], "env": {}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (backup,) = path.parent.glob("*.bak")
    assert backup.read_text(encoding="utf-8") == old
    assert '+    "dsh-acp": {' in capsys.readouterr().out


def test_a_second_run_changes_nothing_and_keeps_no_second_copy(home, capsys):
    assert setup("acpx", "--write") == 0
    capsys.readouterr()
    assert setup("acpx", "--write") == 0
    assert "already has it" in capsys.readouterr().out
    assert [file.name for file in (home / ".acpx").iterdir()] == ["config.json"]


def test_an_old_command_is_corrected_and_the_persons_environment_kept(home):
    path = home / ".acpx" / "config.json"
    path.parent.mkdir()
    path.write_text('{"agents": {"dsh-acp": {"command": "/old", "x": 1}}}', encoding="utf-8")
    assert setup("acpx", "--write") == 0
    text = path.read_text(encoding="utf-8")
    assert text == '{"agents": {"dsh-acp": {"command": "/opt/dsh-acp", "x": 1}}}'


def test_a_link_stays_a_link(home, tmp_path):
    real = tmp_path / "dotfiles.json"
    real.write_text("{}", encoding="utf-8")
    link = home / ".acpx" / "config.json"
    link.parent.mkdir()
    link.symlink_to(real)
    assert setup("acpx", "--write") == 0
    assert link.is_symlink() and "dsh-acp" in real.read_text(encoding="utf-8")


def test_a_broken_file_is_left_alone(home, capsys):
    path = home / ".acpx" / "config.json"
    path.parent.mkdir()
    path.write_text('{"agents": ', encoding="utf-8")
    assert setup("acpx", "--write") == 2
    assert "not JSON with comments: line 1, column 12" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == '{"agents": '


def test_a_lua_module_and_an_emacs_file_are_written_whole(home):
    assert setup("neovim", "--write") == 0
    assert setup("emacs", "--write") == 0
    lua = home / ".config/nvim/lua/dsh_acp.lua"
    assert 'local command = "/opt/dsh-acp"' in lua.read_text(encoding="utf-8")
    assert '("/opt/dsh-acp")' in (home / ".emacs.d/dsh-acp.el").read_text(encoding="utf-8")


def test_toml_is_merged_with_its_comments(tmp_path):
    path = tmp_path / "agent.toml"
    path.write_text(
        '# mine\nname = "my name"\n[actions."*".mine]\ncommand = "x"\n', encoding="utf-8"
    )
    assert setup("toad", "--write", "--file", str(path)) == 0
    text = path.read_text(encoding="utf-8")
    agent = tomllib.loads(text)
    assert text.startswith('# mine\nname = "my name"')
    assert agent["run_command"]["*"] == "/opt/dsh-acp"
    assert set(agent["actions"]["*"]) == {"mine", "install", "login"}


@pytest.mark.parametrize("editor", ["obsidian", "toad", "marimo"])
def test_an_editor_without_a_file_says_so(editor, capsys):
    assert setup(editor, "--write") == 2
    assert EDITORS[editor].title in capsys.readouterr().err


def test_a_command_with_arguments_is_split_everywhere(capsys):
    for editor, said in (
        ("zed", '"args": [\n'),
        ("acpx", '"argv": [\n'),
        ("neovim", '{ command, "--model", "x" }'),
        ("emacs", '("dsh-acp" "--model" "x")'),
        ("toad", 'run_command."*" = "dsh-acp --model x"'),
        ("obsidian", "Arguments: --model x\n"),
    ):
        assert cli.main(["setup", editor, "--command", "dsh-acp --model x"]) == 0
        assert said in capsys.readouterr().out


def test_each_copy_of_an_old_file_stays_and_no_value_of_a_person_is_shown(tmp_path, capsys):
    path = tmp_path / "settings.json"
    secrets = (
        '  "agent_servers": {\n    "other": {"env": {"A": "sk-one"}},\n    "api_key": "sk-two"'
    )
    for number in range(3):
        path.write_text(f'{{\n{secrets},\n  {" " * number}"x": 1\n}} }}\n', encoding="utf-8")
        assert setup("zed", "--write", "--file", str(path)) == 0
    assert len(list(tmp_path.glob("*.bak"))) == 3
    out = capsys.readouterr().out
    assert "sk-one" not in out and "sk-two" not in out and '"api_key": …' in out


def test_a_file_that_is_not_understood_is_named_and_left(tmp_path, capsys):
    path = tmp_path / "settings.json"
    path.write_text("{ nonsense", encoding="utf-8")
    assert setup("zed", "--write", "--file", str(path)) == 2
    assert str(path) in capsys.readouterr().err and path.read_text("utf-8") == "{ nonsense"
