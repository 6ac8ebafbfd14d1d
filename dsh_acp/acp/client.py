"""What a client said about itself at `initialize`, in no version's words."""

from typing import Any, Final, cast

from msgspec import Struct

AGENT_METHOD: Final = "api-key"
LOGIN_METHOD: Final = "login"
LOGIN_FLAG: Final = "--login"
"""How to sign in: with a key that is there already, and in a terminal with this argument."""


class Client(Struct, frozen=True, kw_only=True):
    """The connection's version, and what the client can do in it."""

    version: int = 1
    asked: int = 1
    """The version that it asked for; `version` is the one that is spoken."""
    name: str = ""
    reads_files: bool = False
    writes_files: bool = False
    terminals: bool = False
    terminal_output: bool = False
    """It shows terminals that the agent runs itself, fed through `_meta`."""
    boolean_options: bool = False
    compaction: bool = False
    notices: bool = False
    forms: bool = False
    urls: bool = False
    auth_terminal: bool = False
    auth_terminal_meta: bool = False


def part(value: Any, key: str) -> dict[str, Any]:
    """The object at `key` of free JSON; empty when there is none."""
    return free_object(free_object(value).get(key))


def free_object(value: Any) -> dict[str, Any]:
    """`value` when it is an object, else an empty one."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def has(value: dict[str, Any], marker: str) -> bool:
    """Whether a capability that is marked by an object is there."""
    return isinstance(value.get(marker), dict)
