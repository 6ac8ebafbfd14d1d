"""What the rest of the program reads: resolved, immutable values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

Preset: TypeAlias = Literal["plan", "ask", "workspace-write", "full-access"]
SandboxChoice: TypeAlias = Literal["auto", "landlock", "bubblewrap", "off"]


class Secret:
    """A key that does not print."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself, for an HTTP header only."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__


class ModelSettings(Struct, frozen=True, kw_only=True):
    """What a user says of one model, over the catalogue."""

    context_window: int | None = None
    max_output: int | None = None
    vision: bool | None = None
    audio: bool | None = None
    efforts: tuple[str, ...] | None = None
    price_input: float | None = None
    price_output: float | None = None
    price_cache_read: float | None = None


class ProviderSettings(Struct, frozen=True, kw_only=True):
    """How to reach one provider."""

    name: str
    dialect: str = "generic"
    base_url: str = ""
    api_key: Secret | None = None
    api_key_env: str | None = None
    context_window: int | None = None
    headers: Mapping[str, str] = {}
    models: Mapping[str, ModelSettings] = {}
    idle_timeout_s: float = 120.0
    connect_timeout_s: float = 15.0
    max_retries: int = 5
    retry_delay_s: float = 0.5
    """The wait before the first retry; each further one waits twice as long."""
    retry_delay_max_s: float = 10.0


class McpServerSettings(Struct, frozen=True, kw_only=True):
    """An MCP server: `command` for stdio, `url` for HTTP."""

    name: str
    type: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}


class LspServerSettings(Struct, frozen=True, kw_only=True):
    """A language server, or what to change of a known one of that `name`.

    `languages` gives the language id for each ending of file names, such as `.py`. The two JSON
    texts go to the server as they are. `command` `""` keeps that of the known server.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    languages: Mapping[str, str] = {}
    initialization_options: str | None = None
    settings: str | None = None
    enabled: bool = True


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that is configurable, resolved."""

    home: Path
    config_path: Path
    config_dir: Path
    model: str | None = None
    effort: str | None = None
    permission: Preset = "ask"
    providers: Mapping[str, ProviderSettings] = {}
    mcp_servers: tuple[McpServerSettings, ...] = ()
    mcp_wait_s: float = 5.0
    """How long the first prompt waits for MCP servers that still connect."""
    mcp_connect_timeout_s: float = 30.0
    mcp_call_timeout_s: float = 300.0
    lsp_servers: tuple[LspServerSettings, ...] = ()
    lsp_max_places: int = 100
    sandbox: SandboxChoice = "auto"
    """What confines commands under the preset `workspace-write`."""
    sandbox_network: bool = False
    sandbox_writable: tuple[str, ...] = ()
    """Folders beside the workspace that confined commands may write to, `~` allowed."""
    max_tokens: int | None = None
    bash_timeout_ms: int = 120_000
    max_parallel_tool_calls: int = 10
    max_requests_per_turn: int = 200
    max_result_bytes: int | None = None
    """What a tool's result may hold; the whole of a longer one is in a file. `None`: no bound."""
    client_terminals: bool = False
    prompt_while_running: Literal["queue", "steer"] = "queue"
    auto_compact: bool = True
    compact_threshold: float = 0.8
    instructions: str | None = None
    title_model: str | None = None
    """The model that names sessions, as provider/model; `None` is the session's own."""
    project_hooks: bool = False
    """Whether the hook files of a project are run."""
    web_private_hosts: tuple[str, ...] = ()
    """Hosts of this machine or its network that `web_fetch` may ask."""
    search_url: str | None = None
    """The search endpoint of a SearXNG service."""
    offers_local: bool = True
    """Whether the local model, where it is installed, is among the models to choose from."""
    notes: tuple[str, ...] = ()
    """Sentences for stderr: unknown keys, ignored values."""
