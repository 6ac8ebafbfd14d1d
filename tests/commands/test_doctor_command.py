import importlib.util
import json
import os
import socket
import sys
import threading

import pytest

from dsh_acp import cli
from dsh_acp.commands.endpoint import ask
from dsh_acp.config import ProviderSettings, Secret


@pytest.fixture
def findings(capsys):
    """Run the doctor and give its exit code and findings by what they are about."""

    def run(*arguments: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
        capsys.readouterr()
        code = cli.main(["doctor", "--json", *arguments])
        found: dict[str, list[dict[str, str]]] = {}
        for finding in json.loads(capsys.readouterr().out):
            found.setdefault(finding["what"], []).append(finding)
        return code, found

    return run


@pytest.fixture
def endpoint(model_list, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", model_list.url)
    monkeypatch.setenv("DSH_ACP_MODEL", "openai/m")
    return model_list


def test_without_any_key_it_says_how_to_give_one(findings):
    code, found = findings()
    assert code == 1
    (model,) = found["model"]
    assert model["state"] == "problem" and "dsh-acp login" in model["fix"]
    assert found["installation"][0]["state"] == "ok"


def test_with_a_key_that_is_taken_everything_is_well(findings, endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-right")
    code, found = findings()
    assert code == 0
    names = ("model", "key", "endpoint", "sessions")
    assert {found[name][0]["state"] for name in names} == {"ok"}
    assert endpoint.paths == ["/v1/models"]


def test_a_chosen_model_without_its_key_is_a_problem(findings):
    code, found = findings("--offline", "--model", "anthropic/claude-sonnet-4-6")
    assert code == 1
    (key,) = found["key"]
    assert key["state"] == "problem" and "dsh-acp login anthropic" in key["fix"]


def test_a_model_that_is_not_known_is_a_note(findings, monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-right")
    code, found = findings("--offline", "--model", "deepseek/deepseek-v44")
    assert code == 0
    assert found["model"][1]["state"] == "note" and "deepseek-v4-flash" in found["model"][1]["fix"]


def test_a_key_that_is_not_known_is_a_note_beside_mistakes_too(findings, tmp_path, monkeypatch):
    file = tmp_path / "config.toml"
    file.write_text('modle = "x"\nmax_tokens = "many"\n', encoding="utf-8")
    monkeypatch.setenv("DSH_ACP_CONFIG", str(file))
    code, found = findings("--offline")
    assert code == 1
    states = {
        finding["detail"].partition(": ")[2]: finding["state"] for finding in found["configuration"]
    }
    assert [(detail.split()[0], state) for detail, state in states.items()] == [
        ("max_tokens", "problem"),
        ("modle", "note"),
    ]


def test_looking_makes_no_directory(findings, tmp_path, monkeypatch):
    monkeypatch.setenv("DSH_ACP_HOME", str(tmp_path / "a" / "state"))
    assert findings("--offline")[1]["sessions"][0]["state"] == "ok"
    assert not (tmp_path / "a").exists()


def test_a_configuration_file_that_was_named_and_is_not_there_gets_fitting_advice(
    findings, monkeypatch
):
    monkeypatch.setenv("DSH_ACP_CONFIG", "/nowhere/x.toml")
    (finding,) = findings("--offline")[1]["configuration"]
    assert finding["detail"].endswith("create it, or correct DSH_ACP_CONFIG")
    assert finding["fix"] == ""


def test_a_key_that_is_not_taken_is_told_and_not_shown(findings, endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    code, found = findings()
    assert code == 1
    assert found["endpoint"][0]["state"] == "problem"
    assert "does not take the key" in found["endpoint"][0]["detail"]
    assert "sk-wrong" not in str(found)


def test_a_model_that_the_endpoint_does_not_list_is_a_note(findings, endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-right")
    code, found = findings("--model", "openai/zzz")
    assert code == 0
    assert found["model"][1]["detail"].endswith("does not list zzz")
    assert "m, n" in found["model"][1]["fix"]


def test_an_endpoint_that_is_not_there_is_a_problem_with_a_way_out(findings, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    monkeypatch.setenv("DSH_ACP_MODEL", "openai/m")
    code, found = findings()
    assert code == 1
    assert found["endpoint"][0]["state"] == "problem"
    assert "HTTPS_PROXY" in found["endpoint"][0]["fix"]
    assert findings("--offline")[0] == 0


def test_an_endpoint_that_never_answers_costs_only_the_time_given(findings, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("DSH_ACP_MODEL", "openai/m")
        _, found = findings("--timeout", "0.2")
    assert found["endpoint"][0]["detail"].endswith("timed out")


@pytest.mark.parametrize(
    ("model", "state"),
    [
        ("replay:/x.jsonl", "ok"),
        ("ollama/qwen3", "ok"),
        ("here/m", "problem"),
        ("deepseek", "problem"),
    ],
)
def test_every_form_of_naming_a_model_is_understood(model, state, findings):
    _, found = findings("--offline", "--model", model)
    assert found["model"][0]["state"] == state


def test_the_model_in_this_process_needs_its_extra(findings):
    code, found = findings("--offline", "--model", "local")
    installed = importlib.util.find_spec("xllamacpp") is not None
    assert code == (0 if installed else 1)
    assert installed or "dsh-acp[local]" in found["model"][0]["fix"]


def test_every_mistake_of_the_configuration_is_a_finding(findings, tmp_path):
    path = tmp_path / "home/.config/dsh-acp/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('model = 1\npermission = "x"\n', encoding="utf-8")
    code, found = findings()
    assert code == 1
    assert [item["state"] for item in found["configuration"]] == ["problem", "problem"]
    assert str(path) in found["configuration"][0]["detail"]
    assert found["sessions"][0]["state"] == "ok"


def test_an_unusable_state_directory_is_told(findings, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("DSH_ACP_HOME", str(tmp_path / "file" / "state"))
    code, found = findings()
    assert code == 1
    assert "DSH_ACP_HOME" in found["sessions"][0]["fix"]


def test_editor_files_are_looked_at_when_they_exist(findings, tmp_path):
    home = tmp_path / "home"
    zed = home / ".config/zed/settings.json"
    zed.parent.mkdir(parents=True)
    zed.write_text("// nothing\n{}\n", encoding="utf-8")
    acpx = home / ".acpx/config.json"
    acpx.parent.mkdir()
    acpx.write_text('{"agents": {"dsh-acp": {"command": "/gone/dsh-acp"}}}', encoding="utf-8")
    jetbrains = home / ".jetbrains/acp.json"
    jetbrains.parent.mkdir()
    jetbrains.write_text('{"agent_servers": {"dsh-acp": ', encoding="utf-8")
    _, found = findings("--offline")
    assert found["editor zed"][0]["fix"] == "Run: dsh-acp setup zed --write"
    assert "which does not exist" in found["editor acpx"][0]["detail"]
    assert "line 1" in found["editor jetbrains"][0]["detail"]
    assert "editor neovim" not in found
    cli.main(["setup", "acpx", "--write", "--command", sys.executable])
    assert findings("--offline")[1]["editor acpx"][0]["state"] == "ok"


def test_on_a_terminal_it_reads_as_sentences(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["doctor", "--offline"]) == 1
    out = capsys.readouterr().out
    assert "→ Run: dsh-acp login" in out
    assert out.endswith("1 thing must be put right first.\n")


def test_it_works_without_a_home(capsys, monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setenv("DSH_ACP_HOME", os.devnull)
    assert cli.main(["doctor", "--offline"]) == 1
    assert os.devnull in capsys.readouterr().out


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_the_key_goes_where_the_dialect_wants_it(dialect, model_list):
    base = model_list.url.removesuffix("/v1") if dialect == "anthropic" else model_list.url
    provider = ProviderSettings(
        name="p", dialect=dialect, base_url=base, api_key=Secret("sk-right")
    )
    answer = ask(provider)
    assert (answer.verdict, answer.models) == ("ok", ("m", "n"))
    assert model_list.paths == ["/v1/models"]


def serve_once(response: bytes) -> str:
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(response)

    threading.Thread(target=run, daemon=True).start()
    return f"http://127.0.0.1:{server.getsockname()[1]}/v1"


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        (b"HTTP/1.0 401 No\r\n\r\n", "refused"),
        (b"HTTP/1.0 404 No\r\n\r\n", "odd"),
        (b"HTTP/1.0 302 Go\r\nLocation: http://127.0.0.1:9/\r\n\r\n", "odd"),
        (b"HTTP/1.0 200 OK\r\n\r\n<html>", "ok"),
        (b'HTTP/1.0 200 OK\r\n\r\n{"data": [1, {"id": 2}, {"id": "a"}]}', "ok"),
        (b"nonsense", "unreachable"),
        (b"", "unreachable"),
    ],
)
def test_any_answer_is_understood_as_something(response, verdict):
    url = serve_once(response)
    answer = ask(ProviderSettings(name="p", base_url=url), timeout_s=5)
    assert answer.verdict == verdict
    assert answer.models == (("a",) if b"data" in response else ())


def test_it_says_whether_commands_are_confined(findings, monkeypatch):
    monkeypatch.setenv("DSH_ACP_SANDBOX", "off")
    (off,) = findings("--offline")[1]["confinement"]
    assert off["state"] == "note" and "each command is asked about" in off["detail"]
    monkeypatch.setenv("DSH_ACP_SANDBOX", "auto")
    (found,) = findings("--offline")[1]["confinement"]
    assert found["state"] == ("note" if "nothing on this system" in found["detail"] else "ok")
