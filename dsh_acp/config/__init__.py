"""Settings: built-in values < configuration file < environment < flags.

`load` gives one `Settings`. The file is validated by the pydantic models of `file`, imported only
when a file exists, so that an unconfigured start stays fast.
"""

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
from dsh_acp.config.sources import Flags, load

__all__ = [
    "Flags",
    "LspServerSettings",
    "McpServerSettings",
    "ModelSettings",
    "Preset",
    "ProviderSettings",
    "SandboxChoice",
    "Secret",
    "Settings",
    "load",
]
