"""What the model is told about where it is: a snapshot message, sent again when it changes.

The snapshot is an ordinary `user/message`, so the system prompt stays the same while directories
and permissions change, and the history says what held when.
"""

from collections.abc import Mapping, Sequence
import sys
from typing import Any, Final

from msgspec import Struct

from dsh_acp.config import Preset
from dsh_acp.messages import Message, Text
from dsh_acp.tools.sandbox import Sandbox

PLUGIN: Final = "@deepseek-ai/dsh-system-prompt"
"""The source label that recorded sessions use, so that their snapshots are recognised."""

_PREAMBLE: Final = (
    "Current runtime context. This snapshot supersedes earlier runtime-context snapshots."
)
_NONE: Final = "Current runtime context: none. Earlier runtime-context snapshots no longer apply."

_SYSTEMS: Final = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}

_POLICY: Final[Mapping[Preset, str]] = {
    "plan": (
        "Plan mode is on. You may read and search; changing files and running commands is refused. "
        "Investigate until you can present a concrete plan, then present it and wait for the user "
        "to leave plan mode. Do not start carrying it out."
    ),
    "ask": "Permissions: the user is asked before a file is changed or a command runs.",
    "workspace-write": (
        "Permissions: files inside the workspace may be changed without asking. The user is asked "
        "before commands run and before anything outside the workspace is touched."
    ),
    "full-access": (
        "Permissions: every call runs without asking. Be careful with anything that cannot be "
        "undone."
    ),
}


_DELEGATED: Final = (
    "You are a subagent: another agent gave you this task and reads nothing but your last message. "
    "Nobody can answer questions. Finish the task on your own, and say in your last message what "
    "you found or did, where, and what you could not do and why. When a call is refused, do not "
    "try to reach its effect another way."
)


_CONFINED: Final = (
    "Permissions: files inside the workspace may be changed without asking. Commands run without "
    "asking in a sandbox: they may write to the workspace and to temporary folders and nowhere "
    "else{network}. What it refuses is marked `[sandbox: … access denied …]` in the result. When a "
    "command needs more, run exactly the same command once more with sandbox_permissions and a "
    "justification, which asks the user; never try to get around a refusal. The user is also asked "
    "before commands that delete or overwrite much, and before anything outside the workspace is "
    "touched."
)
_OFFLINE: Final = ", and they have no network"


class Part(Struct, frozen=True):
    """One named paragraph of the snapshot."""

    name: str
    text: str


def parts(
    cwd: str,
    additional: Sequence[str],
    preset: Preset,
    *,
    sandbox: Sandbox | None = None,
    is_subagent: bool = False,
) -> tuple[Part, ...]:
    """The paragraphs for a session that works in `cwd`; `sandbox` holds its commands."""
    lines = [f"Working directory: {cwd}"]
    if additional:
        lines.append("Additional workspace directories: " + ", ".join(additional))
    lines.append(f"Operating system: {_SYSTEMS.get(sys.platform, sys.platform)}")
    found = (
        Part("workspace", "\n".join(lines)),
        Part("permissions:policy", _policy(preset, sandbox)),
    )
    return (*found, Part("delegation", _DELEGATED)) if is_subagent else found


def _policy(preset: Preset, sandbox: Sandbox | None) -> str:
    if preset != "workspace-write" or sandbox is None:
        return _POLICY[preset]
    return _CONFINED.replace("{network}", "" if sandbox.network else _OFFLINE)


def render(found: Sequence[Part]) -> str:
    """The snapshot's text."""
    return "\n\n".join((_PREAMBLE, *(part.text for part in found)))


def project(found: Sequence[Part], retained: str | None) -> Message | None:
    """The message that is owed when `retained` is the last snapshot the model still sees.

    `None` when that snapshot still holds, or when there is nothing to say and never was.
    """
    text = render(found) if found else _NONE
    if text == retained or (not found and retained is None):
        return None
    source: dict[str, Any] = {"kind": "plugin", "plugin": PLUGIN}
    if found:
        source["form"] = "snapshot"
        source["sections"] = [{"name": part.name, "text": part.text} for part in found]
    return Message.user((Text(text),), source)


def is_snapshot(source: Mapping[str, Any]) -> bool:
    """Whether a message with this source is a runtime-context snapshot."""
    return source.get("kind") == "plugin" and source.get("plugin") == PLUGIN
