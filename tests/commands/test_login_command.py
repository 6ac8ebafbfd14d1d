import io
import json
from pathlib import Path
import stat
import sys

import pytest

from dsh_acp import cli, config


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return tmp_path / "home/.config/dsh-acp/credentials.json"


@pytest.fixture
def typed(monkeypatch):
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


@pytest.fixture
def endpoint(model_list, monkeypatch):
    monkeypatch.setenv("DEEPSEEK_BASE_URL", model_list.url)
    return model_list


def test_a_key_is_checked_stored_and_used(endpoint, typed, stored, capsys):
    typed("sk-right\n")
    assert cli.main(["login", "deepseek"]) == 0
    assert json.loads(stored.read_bytes())["keys"] == {"deepseek": "sk-right"}
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    out = capsys.readouterr().out
    assert "sk-right" not in out and "deepseek/deepseek-v4-flash" in out
    assert config.load().model == "deepseek/deepseek-v4-flash"


@pytest.mark.parametrize(
    "arguments",
    [["--login"], ["serve", "--model", "x/y", "--login"], ["--login", "--home", "/x"]],
)
def test_the_flag_signs_in_from_any_position(arguments, endpoint, typed, stored):
    typed("sk-right")
    assert cli.main(arguments) == 0
    assert stored.exists()


def test_a_key_that_is_refused_is_not_stored_unless_forced(endpoint, typed, stored, capsys):
    typed("sk-wrong\n")
    assert cli.main(["login"]) == 1
    assert "Nothing was stored" in capsys.readouterr().out and not stored.exists()
    typed("sk-wrong\n")
    assert cli.main(["login", "--force"]) == 0
    assert stored.exists()


def test_an_endpoint_that_cannot_be_asked_does_not_stand_in_the_way(typed, stored, monkeypatch):
    monkeypatch.setenv("DEEPSEEK_BASE_URL", "http://127.0.0.1:1")
    typed("sk-right\n")
    assert cli.main(["login"]) == 0
    assert stored.exists()


@pytest.mark.parametrize(
    ("text", "said"), [("\n", "no key was given"), ("two words\n", "a space"), ("clé\n", "unusual")]
)
def test_what_cannot_be_a_key_is_refused(text, said, typed, stored, capsys):
    typed(text)
    assert cli.main(["login", "--no-check"]) == 2
    assert said in capsys.readouterr().err and not stored.exists()


def test_an_unknown_provider_is_answered_with_the_known_ones(typed, capsys):
    typed("k\n")
    assert cli.main(["login", "deepsek"]) == 2
    assert "there are deepseek, anthropic, openai, openrouter" in capsys.readouterr().err


def test_logout_forgets_one_or_all(typed, stored, capsys, monkeypatch):
    for name in ("deepseek", "openai", "openrouter"):
        typed("k\n")
        assert cli.main(["login", name, "--no-check"]) == 0
    assert cli.main(["logout", "openai"]) == 0
    assert set(json.loads(stored.read_bytes())["keys"]) == {"deepseek", "openrouter"}
    monkeypatch.setenv("DEEPSEEK_API_KEY", "env")
    capsys.readouterr()
    assert cli.main(["logout"]) == 0
    out = capsys.readouterr().out
    assert "Forgot the key of deepseek, openrouter." in out
    assert "DEEPSEEK_API_KEY is still set" in out
    assert json.loads(stored.read_bytes())["keys"] == {}


def test_logging_out_without_a_key_is_no_failure(capsys):
    assert cli.main(["logout"]) == 0
    assert cli.main(["logout", "deepseek"]) == 0
    assert cli.main(["logout", "nobody"]) == 2
    assert "No key was stored." in capsys.readouterr().out
