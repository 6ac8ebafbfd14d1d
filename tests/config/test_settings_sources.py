import os
from pathlib import Path

import pytest

from dsh_acp import config
from dsh_acp.config import Flags
from dsh_acp.config.credentials import Credentials
from dsh_acp.config.sources import BUILTIN
from dsh_acp.errors import ConfigError
from dsh_acp.llm.dialects import DIALECTS
from dsh_acp.llm.models import find


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "conf"), **more}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "conf" / "dsh-acp" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def problems(tmp_path: Path, text: str, **more: str) -> tuple[str, ...]:
    write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        config.load(environ=environ(tmp_path, **more))
    return caught.value.problems


def test_nothing_configured_is_a_usable_configuration_without_a_model(tmp_path):
    settings = config.load(environ=environ(tmp_path))
    assert settings.model is None
    assert settings.permission == "ask"
    assert settings.home == tmp_path / ".local/state/dsh-acp"
    assert settings.config_path == tmp_path / "conf/dsh-acp/config.toml"
    assert list(settings.providers) == ["deepseek", "anthropic", "openai", "openrouter"]
    assert settings.notes == ()
    assert not (tmp_path / "conf").exists()


@pytest.mark.parametrize(
    ("variable", "model"),
    [
        ("DEEPSEEK_API_KEY", "deepseek/deepseek-v4-flash"),
        ("OPENAI_API_KEY", "openai/"),
        ("ANTHROPIC_API_KEY", "anthropic/"),
        ("OPENROUTER_API_KEY", "openrouter/"),
    ],
)
def test_the_key_that_exists_chooses_the_model(tmp_path, variable, model):
    settings = config.load(environ=environ(tmp_path, **{variable: " sk-1\n"}))
    assert settings.model is not None and settings.model.startswith(model)
    key = settings.providers[model.partition("/")[0]].api_key
    assert key is not None and key.reveal() == "sk-1"


def test_every_default_model_is_in_the_catalogue():
    for known in BUILTIN:
        assert find(known.model) is not None
        assert known.dialect == "anthropic" or known.dialect in DIALECTS


def test_deepseek_comes_first_when_several_keys_exist(tmp_path):
    keys = {"OPENAI_API_KEY": "a", "DEEPSEEK_API_KEY": "b", "ANTHROPIC_API_KEY": "c"}
    assert config.load(environ=environ(tmp_path, **keys)).model == "deepseek/deepseek-v4-flash"


def test_flags_win_over_the_environment_which_wins_over_the_file(tmp_path):
    write(tmp_path, 'model = "a/file"\neffort = "low"\npermission = "plan"\n')
    only_file = config.load(environ=environ(tmp_path))
    assert (only_file.model, only_file.effort, only_file.permission) == ("a/file", "low", "plan")
    env = environ(tmp_path, DSH_ACP_MODEL="a/env", DSH_ACP_PERMISSION="workspace-write")
    both = config.load(environ=env)
    assert (both.model, both.effort, both.permission) == ("a/env", "low", "workspace-write")
    every = config.load(Flags(model="a/flag", effort="high", permission="ask"), env)
    assert (every.model, every.effort, every.permission) == ("a/flag", "high", "ask")


def test_the_local_model_is_offered_unless_the_environment_says_no(tmp_path):
    assert config.load(environ=environ(tmp_path)).offers_local
    assert not config.load(environ=environ(tmp_path, DSH_ACP_LOCAL="0")).offers_local
    with pytest.raises(ConfigError, match="DSH_ACP_LOCAL: must be 0 or 1, not 'no'"):
        config.load(environ=environ(tmp_path, DSH_ACP_LOCAL="no"))


def test_a_whole_file_is_understood(tmp_path):
    write(
        tmp_path,
        """
        max_tokens = 4096
        bash_timeout_ms = 5000
        client_terminals = true
        prompt_while_running = "steer"
        compact_threshold = 0.5
        instructions = "Be brief."

        [providers.deepseek]
        max_retries = 0
        retry_delay_s = 0.25
        retry_delay_max_s = 4
        idle_timeout_s = 30

        [providers.here]
        base_url = "http://127.0.0.1:8080/v1/"
        dialect = "generic"
        context_window = 32768
        headers = { X-Team = "one" }

        [providers.here.models."qwen/coder"]
        vision = true
        audio = true
        efforts = ["low", "high"]
        price_input = 0

        [mcp_servers.files]
        command = "/usr/bin/files"
        args = ["--ro"]
        env = { TOKEN = "t" }

        [mcp_servers.web]
        url = "https://example.org/mcp"
        """,
    )
    settings = config.load(environ=environ(tmp_path))
    assert settings.model == "here/qwen/coder"
    assert (settings.max_tokens, settings.bash_timeout_ms) == (4096, 5000)
    assert settings.client_terminals and settings.prompt_while_running == "steer"
    assert (settings.compact_threshold, settings.instructions) == (0.5, "Be brief.")
    deepseek, here = settings.providers["deepseek"], settings.providers["here"]
    assert (deepseek.max_retries, deepseek.idle_timeout_s) == (0, 30)
    assert (deepseek.retry_delay_s, deepseek.retry_delay_max_s) == (0.25, 4)
    assert deepseek.base_url == "https://api.deepseek.com"
    assert (here.base_url, here.context_window) == ("http://127.0.0.1:8080/v1", 32768)
    assert here.api_key is None and here.api_key_env is None
    assert here.headers == {"X-Team": "one"}
    coder = here.models["qwen/coder"]
    assert (coder.vision, coder.audio, coder.efforts) == (True, True, ("low", "high"))
    files, web = settings.mcp_servers
    assert (files.name, files.type, files.command) == ("files", "stdio", "/usr/bin/files")
    assert (files.args, files.env) == (("--ro",), {"TOKEN": "t"})
    assert (web.type, web.url) == ("http", "https://example.org/mcp")


def test_every_mistake_is_reported_at_once_with_file_and_key(tmp_path):
    found = problems(
        tmp_path,
        """
        model = 3
        permission = "yolo"
        compact_threshold = 2.0
        [providers.deepseek]
        base_url = "api.example.org"
        api_key = 7
        [providers.elsewhere]
        dialect = "generic"
        [mcp_servers.a]
        [mcp_servers.b]
        command = "x"
        url = "https://example.org"
        """,
        DSH_ACP_PERMISSION="root",
        OPENAI_BASE_URL="ftp://example.org",
    )
    path = tmp_path / "conf/dsh-acp/config.toml"
    text = "\n".join(found)
    assert len(found) == 10
    assert f"{path}: model must be text in quotes, not 3" in found
    assert "permission must be one of 'plan', 'ask', 'workspace-write' or 'full-access'" in text
    assert f"{path}: compact_threshold must be less than 1.0, not 2.0" in found
    assert "providers.deepseek.base_url must start with http:// or https://" in text
    assert f"{path}: providers.deepseek.api_key must be text in quotes" in found
    assert "providers.elsewhere needs base_url" in text
    assert "mcp_servers.a needs either command" in text
    assert "DSH_ACP_PERMISSION: must be one of plan, ask, workspace-write, full-access" in text
    assert "OPENAI_BASE_URL: must start with http:// or https://" in text


def test_a_key_in_the_file_is_used_and_never_shown(tmp_path):
    write(tmp_path, '[providers.openai]\napi_key = "sk-secret"\n')
    settings = config.load(environ=environ(tmp_path))
    assert settings.providers["openai"].api_key is not None
    assert settings.model is not None and settings.model.startswith("openai/")
    assert "sk-secret" not in repr(settings)
    shown = problems(tmp_path, '[mcp_servers.a]\ncommand = "x"\nenv = { T = ["sk-secret"] }\n')
    assert "sk-secret" not in "".join(shown) and "mcp_servers.a.env.T" in shown[0]


def test_an_unknown_key_is_only_a_note_with_a_guess(tmp_path):
    write(
        tmp_path,
        'modle = "a/b"\n[future]\nx = 1\n[providers.deepseek.models.m]\ncontext_windw = 4\n',
    )
    settings = config.load(environ=environ(tmp_path))
    assert len(settings.notes) == 3
    assert "modle is not a setting of this version (did you mean model?)" in settings.notes[0]
    assert "future is not a setting" in settings.notes[1]
    assert "providers.deepseek.models.m.context_windw" in settings.notes[2]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"model = ", "is not valid TOML"),
        (b'model = "a"\nmodel = "b"', "is not valid TOML"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_a_file_that_is_not_toml_is_one_sentence(tmp_path, data, said):
    write(tmp_path, "").write_bytes(data)
    with pytest.raises(ConfigError, match=said) as caught:
        config.load(environ=environ(tmp_path))
    assert len(caught.value.problems) == 1


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    write(tmp_path, "").write_bytes(b'\xef\xbb\xbfmodel = "a/b"\r\n')
    assert config.load(environ=environ(tmp_path)).model == "a/b"


def test_a_file_that_was_asked_for_must_exist(tmp_path):
    with pytest.raises(ConfigError, match="there is no such configuration file"):
        config.load(Flags(config=str(tmp_path / "none.toml")), environ(tmp_path))
    other = tmp_path / "other.toml"
    other.write_text('model = "o/m"', encoding="utf-8")
    assert config.load(Flags(config=str(other)), environ(tmp_path)).model == "o/m"
    env = environ(tmp_path, DSH_ACP_CONFIG=str(other))
    assert config.load(environ=env).config_path == other


def test_a_base_url_from_the_environment_needs_no_key(tmp_path):
    env = environ(tmp_path, OPENAI_BASE_URL="http://127.0.0.1:9/v1/", DSH_ACP_MODEL="openai/m")
    settings = config.load(environ=env)
    assert settings.providers["openai"].base_url == "http://127.0.0.1:9/v1"
    assert settings.model == "openai/m"


def test_a_key_with_an_impossible_character_is_a_note(tmp_path):
    settings = config.load(environ=environ(tmp_path, DEEPSEEK_API_KEY="sk 1", OPENAI_API_KEY="é"))
    assert settings.model is None
    assert len(settings.notes) == 2 and "DEEPSEEK_API_KEY" in settings.notes[0]


def test_the_environment_wins_over_a_stored_key(tmp_path):
    Credentials(tmp_path / "conf/dsh-acp", keyring=lambda: None).put("deepseek", "stored")
    settings = config.load(environ=environ(tmp_path))
    key = settings.providers["deepseek"].api_key
    assert key is not None and key.reveal() == "stored"
    assert settings.model == "deepseek/deepseek-v4-flash"
    key = config.load(environ=environ(tmp_path, DEEPSEEK_API_KEY="e")).providers["deepseek"].api_key
    assert key is not None and key.reveal() == "e"


@pytest.mark.parametrize(
    "environment", [{}, {"HOME": ""}, {"HOME": "relative"}, {"HOME": "/proc/x"}]
)
def test_a_bare_environment_gives_absolute_places(environment):
    settings = config.load(environ=environment)
    assert settings.home.is_absolute() and settings.config_path.is_absolute()


def test_relative_directories_in_the_environment_are_ignored_with_a_note(tmp_path):
    env = environ(tmp_path, DSH_ACP_HOME="state", XDG_STATE_HOME="./x")
    settings = config.load(environ=env)
    assert settings.home == tmp_path / ".local/state/dsh-acp"
    assert [note.split()[0] for note in settings.notes] == ["DSH_ACP_HOME", "XDG_STATE_HOME"]
    assert config.load(environ=environ(tmp_path, DSH_ACP_HOME="~/s")).home == tmp_path / "s"


def test_the_current_directory_need_not_exist(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert config.load(environ=environ(tmp_path)).home.is_absolute()
    assert not os.path.lexists(gone)


def test_a_misspelt_key_is_told_beside_the_mistakes(tmp_path):
    told = problems(tmp_path, 'permision = "x"\nmax_tokens = 0\n[providers.a]\nbase_ulr = "x"\n')
    assert any("did you mean permission?" in problem for problem in told)
    assert any("did you mean base_url?" in problem for problem in told)
    assert any("max_tokens must be more than 0" in problem for problem in told)


def test_with_leniency_mistakes_are_notes_and_builtin_values_are_used(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("model = [", encoding="utf-8")
    environ = {
        "HOME": str(tmp_path),
        "DSH_ACP_CONFIG": str(path),
        "DSH_ACP_PERMISSION": "silly",
        "OPENAI_BASE_URL": "nowhere",
    }
    found = config.load(Flags(), environ, is_lenient=True)
    assert found.permission == "ask" and "openai" in found.providers
    for words in ("not valid TOML", "DSH_ACP_PERMISSION", "OPENAI_BASE_URL"):
        assert any(words in note for note in found.notes)
