"""One script, two protocol versions: which of them a scenario is played in, and how.

Scripts are written in the words of version 1. In version 2 the client says the same things in that
version's words: a mode is a configuration option, a load is a resume with a replay, a prompt is
over when the session is idle again. A scenario that is about something that only one version has
says so in `only`, and its script must show it.
"""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final, TypeAlias, cast

from msgspec import UNSET

from dsh_acp.snapshot import steps as s
from dsh_acp.snapshot.script import Input

Json: TypeAlias = dict[str, Any]

VERSIONS: Final = (1, 2)

_TRANSCRIPTS: Final = {1: "stdout.expected.jsonl", 2: "stdout.v2.expected.jsonl"}
_METHODS: Final = {
    1: ("authenticate", "logout", "session/load", "session/set_mode", "session/fork"),
    2: ("auth/", "tool_call/cancel", "terminal/cancel", "_session/"),
}
_GONE: Final = ("fs", "terminal", "session")
"""Capabilities of a client that version 2 does not have."""


def transcript(version: int) -> str:
    """The file with the agent's frames in this version."""
    return _TRANSCRIPTS[version]


def versions_of(script: Input) -> tuple[int, ...]:
    """The versions in which a scenario has a place."""
    return VERSIONS if script.only is UNSET else (script.only.version,)


def faults(script: Input) -> list[str]:
    """What is wrong with `only`, in words."""
    if script.only is UNSET:
        return []
    version, because = script.only.version, script.only.because
    found: list[str] = []
    if not because.strip() or "\n" in because:
        found.append("`only.because` must say in one line why there is no other transcript")
    if version not in set(_marks(script)):
        found.append(f"`only` names version {version}, but every step has a place in both")
    return found


def _marks(script: Input) -> Iterator[int]:
    """The version of each thing in the script that only one version has."""
    opened = 0
    for step in script.steps:
        match step:
            case s.Initialize(protocol_version=asked) if asked > 1:
                yield 2
            case s.Initialize(capabilities=dict(given)) if given.keys() & {"fs", "terminal"}:
                yield 1
            case s.Initialize() if opened:
                yield 1  # version 2 wants it before any other request
            case s.Fork() | s.SetBuffer() | s.ExpectBuffer():
                yield 1
            case s.Request(method=method) | s.Notify(method=method):
                yield from (v for v, names in _METHODS.items() if method.startswith(names))
            case s.NewSession():
                opened += 1
            case s.Restart():
                opened = 0
            case _:
                pass


# ---------------------------------------------------------------- the client's words


def capabilities(given: Json, version: int) -> Json:
    """A client's capabilities, written for version 1, in the words of `version`."""
    if version < 2:
        return given
    found = {key: value for key, value in given.items() if key not in _GONE}
    auth = found.get("auth")
    if isinstance(auth, dict):
        marks = cast(Json, auth)
        found["auth"] = {key: {} if mark is True else mark for key, mark in marks.items()}
    return found


def servers(given: tuple[Json, ...], version: int) -> list[Json]:
    """MCP servers; version 2 wants the type of each."""
    return [server if version < 2 else {"type": "stdio", **server} for server in given]


def tells(update: Json, fields: Json, version: int) -> bool:
    """Whether an update carries all these fields, which are written for version 1."""
    if version < 2:
        return all(update.get(key) == value for key, value in fields.items())
    return all(_carries(update, key, value) for key, value in fields.items())


def _carries(update: Json, key: str, value: Any) -> bool:
    found = update.get(key)
    if key == "sessionUpdate":
        return found in (value, str(value).removesuffix("_chunk"), f"{value}_update")
    if key == "content" and isinstance(value, dict):
        return found in (value, [value])
    if key == "_meta" and isinstance(value, dict) and "terminal_output" in value:
        shown = cast(Json, cast(Json, value)["terminal_output"])
        data = b64encode(str(shown["data"]).encode()).decode("ascii")
        return (update.get("terminalId"), update.get("data")) == (shown["terminal_id"], data)
    return found == value
