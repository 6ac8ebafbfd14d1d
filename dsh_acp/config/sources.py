"""From file, environment and flags to `Settings`.

Later sources win key by key. A key for a provider comes from the environment, else from the file,
else from `dsh-acp login`. A setting that cannot be used is a problem with its source and name, and
all problems are reported together.
"""

from collections.abc import Mapping
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from dsh_acp import jsontext
from dsh_acp.config.places import find
from dsh_acp.config.settings import (
    LspServerSettings,
    McpServerSettings,
    ModelSettings,
    Preset,
    ProviderSettings,
    SandboxChoice,
    Secret,
    Settings,
)
from dsh_acp.errors import ConfigError

if TYPE_CHECKING:
    from dsh_acp.config.file import ConfigFile, LspTable, McpServerTable, ProviderTable


class Flags(Struct, frozen=True, kw_only=True):
    """What the command line says; `None` is "not said"."""

    model: str | None = None
    effort: str | None = None
    permission: str | None = None
    config: str | None = None
    home: str | None = None


class Builtin(Struct, frozen=True):
    """A provider that needs nothing but a key."""

    name: str
    title: str
    dialect: str
    base_url: str
    api_key_env: str
    base_url_env: str
    model: str
    keys_page: str


BUILTIN: Final = (
    Builtin(
        "deepseek",
        "DeepSeek",
        "deepseek",
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
        "DEEPSEEK_BASE_URL",
        "deepseek-v4-flash",
        "https://platform.deepseek.com/api_keys",
    ),
    Builtin(
        "anthropic",
        "Anthropic",
        "anthropic",
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "claude-sonnet-4-6",
        "https://console.anthropic.com/settings/keys",
    ),
    Builtin(
        "openai",
        "OpenAI",
        "openai",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "gpt-5.2",
        "https://platform.openai.com/api-keys",
    ),
    Builtin(
        "openrouter",
        "OpenRouter",
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        "OPENROUTER_BASE_URL",
        "deepseek/deepseek-v4-flash",
        "https://openrouter.ai/settings/keys",
    ),
)
"""In the order in which a default model is chosen."""

PRESETS: Final = cast(tuple[str, ...], get_args(Preset))
_SANDBOXES: Final = cast(tuple[str, ...], get_args(SandboxChoice))


def load(
    flags: Flags | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    is_lenient: bool = False,
) -> Settings:
    """Resolve everything.

    With `is_lenient` mistakes are notes, and built-in values take the place of what cannot be used:
    for commands that need none of it.

    Reads the configuration file and the stored keys, and touches nothing else: no directory is
    created, and neither HOME nor a current directory need exist.

    Raises:
        ConfigError: with every problem of file, environment and flags.
    """
    flags = flags or Flags()
    environ = os.environ if environ is None else environ
    found, notes = find(environ)
    problems: list[str] = []
    home = _flag_path(flags.home, "--home", problems) or found.state
    named = flags.config or environ.get("DSH_ACP_CONFIG", "").strip()
    said = "--config" if flags.config else "DSH_ACP_CONFIG"
    config_path = _flag_path(named, said, problems) or found.config / "config.toml"
    file = _read_file(config_path, said if named else "", notes, problems)
    model = flags.model or environ.get("DSH_ACP_MODEL", "").strip() or (file and file.model)
    effort = flags.effort or environ.get("DSH_ACP_EFFORT", "").strip() or (file and file.effort)
    sandbox = _sandbox(environ, problems) or (file and file.sandbox) or "auto"
    permission = _permission(flags, environ, problems) or (file and file.permission) or "ask"
    offers_local = _is_on(environ, "DSH_ACP_LOCAL", problems)
    try:
        providers = _providers(file, environ, found.config, notes)
    except ConfigError as exc:
        problems.extend(exc.problems)
        providers = _providers(None, {}, found.config, notes) if is_lenient else {}
    if problems and not is_lenient:
        raise ConfigError(problems)
    notes.extend(problems)
    return Settings(
        home=home,
        config_path=config_path,
        config_dir=found.config,
        model=model or _default_model(providers),
        effort=effort or None,
        permission=cast(Preset, permission),
        providers=providers,
        mcp_servers=tuple(
            _mcp_server(name, table) for name, table in (file.mcp_servers if file else {}).items()
        ),
        lsp_servers=tuple(
            _lsp_server(name, table) for name, table in (file.lsp if file else {}).items()
        ),
        sandbox=cast(SandboxChoice, sandbox),
        sandbox_writable=tuple((file and file.sandbox_writable) or ()),
        web_private_hosts=tuple((file and file.web_private_hosts) or ()),
        offers_local=offers_local,
        notes=tuple(notes),
        **_plain(file),
    )


_PLAIN: Final = (
    "max_tokens",
    "bash_timeout_ms",
    "max_parallel_tool_calls",
    "max_requests_per_turn",
    "max_result_bytes",
    "mcp_wait_s",
    "mcp_connect_timeout_s",
    "mcp_call_timeout_s",
    "sandbox_network",
    "client_terminals",
    "prompt_while_running",
    "auto_compact",
    "compact_threshold",
    "instructions",
    "title_model",
    "project_hooks",
    "lsp_max_places",
    "search_url",
)


def _plain(file: "ConfigFile | None") -> dict[str, Any]:
    return {
        name: value
        for name in _PLAIN
        if file is not None and (value := getattr(file, name)) is not None
    }


def _flag_path(value: str | None, said: str, problems: list[str]) -> Path | None:
    if not value:
        return None
    try:
        return Path(value).expanduser().absolute()
    except (OSError, RuntimeError) as exc:
        problems.append(f"{said}: {value} cannot be made an absolute path: {exc}")
        return None


def _read_file(
    path: Path, named_by: str, notes: list[str], problems: list[str]
) -> "ConfigFile | None":
    try:
        if not path.exists():
            if named_by:
                text = f"there is no such configuration file; create it, or correct {named_by}"
                problems.append(f"{path}: {text}")
            return None
    except OSError as exc:
        notes.append(f"{path}: cannot be looked at ({exc.strerror}); built-in values are used")
        return None
    from dsh_acp.config.file import read

    try:
        file, more = read(path, [known.name for known in BUILTIN])
    except ConfigError as exc:
        problems.extend(exc.problems)
        return None
    notes.extend(more)
    return file


def _permission(flags: Flags, environ: Mapping[str, str], problems: list[str]) -> str | None:
    for said, value in (
        ("--permission", flags.permission),
        ("DSH_ACP_PERMISSION", environ.get("DSH_ACP_PERMISSION", "").strip()),
    ):
        if value and value not in PRESETS:
            problems.append(f"{said}: must be one of {', '.join(PRESETS)}, not {value!r}")
        elif value:
            return value
    return None


def _sandbox(environ: Mapping[str, str], problems: list[str]) -> str | None:
    value = environ.get("DSH_ACP_SANDBOX", "").strip()
    if value and value not in _SANDBOXES:
        known = ", ".join(_SANDBOXES)
        problems.append(f"DSH_ACP_SANDBOX: must be one of {known}, not {value!r}")
        return None
    return value or None


def _is_on(environ: Mapping[str, str], name: str, problems: list[str]) -> bool:
    value = environ.get(name, "").strip()
    if value not in ("", "0", "1"):
        problems.append(f"{name}: must be 0 or 1, not {value!r}")
    return value != "0"


def _providers(
    file: "ConfigFile | None", environ: Mapping[str, str], directory: Path, notes: list[str]
) -> dict[str, ProviderSettings]:
    from dsh_acp.config.credentials import Credentials

    stored = Credentials(directory)
    tables = file.providers if file else {}
    resolved: dict[str, ProviderSettings] = {}
    problems: list[str] = []
    for known in BUILTIN:
        provider = ProviderSettings(
            name=known.name,
            dialect=known.dialect,
            base_url=known.base_url,
            api_key_env=known.api_key_env,
        )
        if known.name in tables:
            provider = _over(provider, tables[known.name])
        if url := environ.get(known.base_url_env, "").strip():
            provider = replace(provider, base_url=url)
            if not url.startswith(("http://", "https://")):
                problems.append(
                    f"{known.base_url_env}: must start with http:// or https://, not {url!r}"
                )
        resolved[known.name] = provider
    for name, table in tables.items():
        if name not in resolved:
            resolved[name] = _over(ProviderSettings(name=name), table)
    for name, provider in resolved.items():
        key = _environment_key(provider, environ, notes) or provider.api_key or stored.get(name)
        resolved[name] = replace(provider, base_url=provider.base_url.rstrip("/"), api_key=key)
    notes.extend(dict.fromkeys(stored.notes))
    if problems:
        raise ConfigError(problems)
    return resolved


def _over(provider: ProviderSettings, table: "ProviderTable") -> ProviderSettings:
    changes: dict[str, Any] = {
        name: value
        for name in (
            "dialect",
            "base_url",
            "api_key_env",
            "context_window",
            "idle_timeout_s",
            "connect_timeout_s",
            "max_retries",
            "retry_delay_s",
            "retry_delay_max_s",
        )
        if (value := getattr(table, name)) is not None
    }
    if table.api_key:
        changes["api_key"] = Secret(table.api_key.strip())
    if table.headers:
        changes["headers"] = dict(table.headers)
    if table.models:
        changes["models"] = {
            name: ModelSettings(
                context_window=model.context_window,
                max_output=model.max_output,
                vision=model.vision,
                audio=model.audio,
                efforts=None if model.efforts is None else tuple(model.efforts),
                price_input=model.price_input,
                price_output=model.price_output,
                price_cache_read=model.price_cache_read,
            )
            for name, model in table.models.items()
        }
    return replace(provider, **changes)


def _environment_key(
    provider: ProviderSettings, environ: Mapping[str, str], notes: list[str]
) -> Secret | None:
    name = provider.api_key_env
    value = environ.get(name, "").strip() if name else ""
    if not value:
        return None
    # An HTTP header cannot carry anything else; better said here than as a failed request.
    if not value.isascii() or not value.isprintable() or " " in value:
        notes.append(f"{name} holds a character that no key has; it is ignored")
        return None
    return Secret(value)


def _mcp_server(name: str, table: "McpServerTable") -> McpServerSettings:
    return McpServerSettings(
        name=name,
        type=table.kind,
        command=table.command,
        args=tuple(table.args),
        env=table.env,
        url=table.url,
        headers=table.headers,
    )


def _lsp_server(name: str, table: "LspTable") -> LspServerSettings:
    def text(value: dict[str, Any] | None) -> str | None:
        return None if value is None else jsontext.encode(value).decode()

    return LspServerSettings(
        name=name,
        command=table.command,
        args=tuple(table.args),
        env=table.env,
        languages=table.languages,
        initialization_options=text(table.initialization_options),
        settings=text(table.settings),
        enabled=table.enabled,
    )


def _default_model(providers: Mapping[str, ProviderSettings]) -> str | None:
    """The model of the first built-in provider with a key, else the first that a file lists."""
    for known in BUILTIN:
        if providers[known.name].api_key is not None:
            return f"{known.name}/{known.model}"
    for name, provider in providers.items():
        if provider.models:
            return f"{name}/{next(iter(provider.models))}"
    return None
