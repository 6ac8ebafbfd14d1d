"""`config.toml`: what a person writes, checked as a whole.

Every mistake is reported at once, each with file, key and rule. A key that this version does not
know is only a note: the file may have been written for a newer one.
"""

from collections.abc import Collection, Iterator, Mapping
import difflib
import json
from pathlib import Path
import tomllib
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dsh_acp.errors import ConfigError

Positive = Annotated[int, Field(gt=0)]
Amount = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Words = Annotated[str, Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class ModelTable(_Table):
    """`[providers.NAME.models."ID"]`: prices are per million tokens."""

    context_window: Positive | None = None
    max_output: Positive | None = None
    vision: bool | None = None
    audio: bool | None = None
    efforts: list[Words] | None = None
    price_input: Amount | None = None
    price_output: Amount | None = None
    price_cache_read: Amount | None = None


class ProviderTable(_Table):
    """`[providers.NAME]`."""

    dialect: Words | None = None
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+\S*$")] | None = None
    api_key: Words | None = None
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    context_window: Positive | None = None
    headers: dict[str, str] = {}
    models: dict[str, ModelTable] = {}
    idle_timeout_s: Seconds | None = None
    connect_timeout_s: Seconds | None = None
    max_retries: Annotated[int, Field(ge=0)] | None = None
    retry_delay_s: Seconds | None = None
    retry_delay_max_s: Seconds | None = None


class McpServerTable(_Table):
    """`[mcp_servers.NAME]`."""

    type: Literal["stdio", "http", "sse"] | None = None
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> "McpServerTable":
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either command (a program to start) or url, and not both")
        if self.type == "stdio" and not self.command:
            raise ValueError("type stdio needs command")
        if self.type in ("http", "sse") and not self.url:
            raise ValueError(f"type {self.type} needs url")
        return self

    @property
    def kind(self) -> Literal["stdio", "http", "sse"]:
        """How to reach it: as said, else by what is given."""
        return self.type or ("stdio" if self.command else "http")


class LspTable(_Table):
    """`[lsp.NAME]`: a language server of one's own, or changes to a known one."""

    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    languages: dict[Annotated[str, Field(pattern=r"^\.[^\s/]+$")], Words] = {}
    initialization_options: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    enabled: bool = True

    @model_validator(mode="after")
    def _plain(self) -> "LspTable":
        for name in ("initialization_options", "settings"):
            try:
                json.dumps(getattr(self, name), allow_nan=False)
            except (TypeError, ValueError) as exc:
                raise ValueError(f"{name} holds a value that JSON has no word for") from exc
        return self


class ConfigFile(_Table):
    """The whole file."""

    model: Words | None = None
    effort: Words | None = None
    permission: Literal["plan", "ask", "workspace-write", "full-access"] | None = None
    max_tokens: Positive | None = None
    bash_timeout_ms: Annotated[int, Field(gt=0, le=600_000)] | None = None
    max_parallel_tool_calls: Positive | None = None
    max_requests_per_turn: Positive | None = None
    max_result_bytes: Annotated[int, Field(ge=500)] | None = None
    client_terminals: bool | None = None
    prompt_while_running: Literal["queue", "steer"] | None = None
    auto_compact: bool | None = None
    compact_threshold: Annotated[float, Field(gt=0, lt=1)] | None = None
    instructions: str | None = None
    project_hooks: bool | None = None
    title_model: Words | None = None
    web_private_hosts: list[Words] | None = None
    search_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+\S*$")] | None = None
    providers: dict[str, ProviderTable] = {}
    mcp_servers: dict[str, McpServerTable] = {}
    lsp: dict[str, LspTable] = {}
    lsp_max_places: Positive | None = None
    sandbox: Literal["auto", "landlock", "bubblewrap", "off"] | None = None
    sandbox_network: bool | None = None
    sandbox_writable: list[Annotated[str, Field(pattern=r"^[/~]")]] | None = None
    mcp_wait_s: Amount | None = None
    mcp_connect_timeout_s: Seconds | None = None
    mcp_call_timeout_s: Seconds | None = None


def read(path: Path, builtin: Collection[str]) -> tuple[ConfigFile, list[str]]:
    """The checked file, and notes about keys that are not known.

    Providers other than the `builtin` ones must say where they are.

    Raises:
        ConfigError: it cannot be read, is not TOML, or holds values that cannot be used; with
            every problem found.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        tables = tomllib.loads(text)
    except OSError as exc:
        raise ConfigError([f"{path}: cannot be read: {exc.strerror or exc}"]) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError([f"{path}: is not UTF-8 text"]) from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError([f"{path}: is not valid TOML: {exc}"]) from exc
    problems = [
        f"{path}: {_key(('providers', name))} needs base_url, because it is not a built-in provider"
        for name in _without_address(tables, builtin)
    ]
    notes = [_note(path, *found) for found in _unknown(ConfigFile, tables, ())]
    try:
        config = ConfigFile.model_validate(tables)
    except ValidationError as exc:
        wrong = [_problem(path, dict(error)) for error in exc.errors()]
        # A misspelt key is often why another one is wrong or missing.
        raise ConfigError([*wrong, *problems, *notes]) from exc
    if problems:
        raise ConfigError([*problems, *notes])
    return config, notes


def _without_address(tables: Mapping[str, Any], builtin: Collection[str]) -> list[str]:
    providers: object = tables.get("providers")
    if not isinstance(providers, dict):
        return []
    return [
        name
        for name, table in cast(dict[str, object], providers).items()
        if name not in builtin and isinstance(table, dict) and "base_url" not in table
    ]


_SECRET = ("api_key", "headers", "env")
_WORDS = {
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "string_too_short": "must not be empty",
}


def _problem(path: Path, error: Mapping[str, Any]) -> str:
    location = tuple(str(part) for part in error["loc"])
    rule = _rule(error, location)
    shown = ""
    if not set(location) & set(_SECRET) and error["type"] != "value_error":
        value = repr(error.get("input"))
        shown = f", not {value if len(value) <= 60 else value[:60] + '…'}"
    return f"{path}: {_key(location)} {rule}{shown}"


def _rule(error: Mapping[str, Any], location: tuple[str, ...]) -> str:
    kind, context = str(error["type"]), cast(dict[str, Any], error.get("ctx", {}))
    if kind in _WORDS:
        return _WORDS[kind]
    match kind:
        case "literal_error":
            return f"must be one of {context['expected']}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            words = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
            name = next(iter(context))
            return f"must be {words[name]} {context[name]}"
        case "string_pattern_mismatch" if location[-1] in ("base_url", "search_url"):
            return "must start with http:// or https://"
        case "string_pattern_mismatch" if location[0] == "sandbox_writable":
            return "must be an absolute path, or start with ~"
        case "string_pattern_mismatch" if location[0] == "lsp":
            return "must be an ending of file names, such as .py"
        case "string_pattern_mismatch":
            return "must be the name of an environment variable"
        case "value_error":
            return str(context["error"])
        case _:
            return str(error["msg"])


def _unknown(
    kind: type[BaseModel], table: Mapping[str, Any], location: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """The keys of the file as written that `kind` does not know, with those that it does."""
    known = list(kind.model_fields)
    for name, value in table.items():
        field = kind.model_fields.get(name)
        if field is None:
            yield (*location, name), known
            continue
        inner = next((t for t in get_args(field.annotation) if _is_table(t)), None)
        if inner is None or not isinstance(value, dict):
            continue
        for key, item in cast(dict[str, object], value).items():
            if isinstance(item, dict):
                yield from _unknown(inner, cast(dict[str, Any], item), (*location, name, key))


def _is_table(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _note(path: Path, location: tuple[str, ...], known: list[str]) -> str:
    near = difflib.get_close_matches(location[-1], known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{path}: {_key(location)} is not a setting of this version{hint}; it is ignored"


def _key(location: tuple[str, ...]) -> str:
    return ".".join(
        part if (part and part.replace("-", "_").isidentifier()) or part.isdigit() else f'"{part}"'
        for part in location
    )
