"""The methods that are answered, and the capabilities that follow from them.

The table is both: the bridge serves exactly these names, and `initialize` advertises exactly what
they make possible, so neither can promise what the other lacks.
"""

from collections.abc import Mapping
from typing import Any, Final

V1: Final[Mapping[str, str]] = {
    "initialize": "initialize",
    "authenticate": "authenticate",
    "logout": "logout",
    "session/new": "new_session",
    "session/load": "load_session",
    "session/resume": "resume_session",
    "session/list": "list_sessions",
    "session/fork": "fork_session",
    "session/close": "close_session",
    "session/delete": "delete_session",
    "session/set_mode": "set_mode",
    "session/set_config_option": "set_config_option",
    "session/prompt": "prompt",
    "session/cancel": "cancel",
}
"""Method name to the name of the bridge's handler."""

_SESSION_MARKERS: Final = ("list", "resume", "close", "delete", "fork")


def capabilities(methods: Mapping[str, str] = V1) -> dict[str, Any]:
    """`agentCapabilities` of version 1 for a table of methods.

    Images are always accepted: a model that sees them gets them, for others they are saved as
    files and mentioned, and the person is told. So the flag holds whichever model is chosen later.
    """
    session: dict[str, Any] = {
        marker: {} for marker in _SESSION_MARKERS if f"session/{marker}" in methods
    }
    session["additionalDirectories"] = {}
    found: dict[str, Any] = {
        "loadSession": "session/load" in methods,
        "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
        "mcpCapabilities": {"http": True, "sse": True},
        "sessionCapabilities": session,
    }
    if "logout" in methods:
        found["auth"] = {"logout": {}}
    found["_meta"] = {"dsh-acp": {"promptQueueing": True, "steering": True}}
    return found
