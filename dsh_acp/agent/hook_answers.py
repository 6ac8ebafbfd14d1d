"""What a hook's command says: its exit code and output as a decision."""

from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Struct

from dsh_acp import jsontext

Decision: TypeAlias = Literal["pass", "allow", "ask", "block"]

_BLOCK_CODE: Final = 2
_TALKATIVE: Final = ("UserPromptSubmit", "SessionStart")
_PERMISSIONS: Final[dict[str, Decision]] = {"allow": "allow", "deny": "block", "ask": "ask"}
_LEGACY: Final[dict[str, Decision]] = {"approve": "allow", "block": "block"}


class Answer(Struct, frozen=True):
    """A decision, why, and what the model is to be told. `stop` ends the turn for that reason."""

    decision: Decision = "pass"
    reason: str = ""
    context: str = ""
    stop: str | None = None


def of(point: str, exit_code: int | None, stdout: str, stderr: str) -> Answer:
    """The answer of a command that ended.

    Exit code 2 blocks, with stderr as the reason. Code 0 may come with a JSON object that says
    more, or, where a prompt is submitted or a session starts, with text for the model. Any other
    end is a failure of the hook and decides nothing.
    """
    if exit_code == _BLOCK_CODE:
        return Answer("block", stderr.strip() or f"blocked by a {point} hook")
    if exit_code != 0:
        return Answer()
    said = stdout.strip()
    if not said.startswith("{"):
        return Answer(context=said if point in _TALKATIVE else "")
    try:
        value: Any = jsontext.loads(said.encode("utf-8", "replace"))
    except jsontext.DecodeError:
        return Answer()
    return _structured(point, cast(dict[str, Any], value)) if isinstance(value, dict) else Answer()


def _structured(point: str, value: dict[str, Any]) -> Answer:
    given: Any = value.get("hookSpecificOutput")
    specific = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    decision = _LEGACY.get(_text(value, "decision"), "pass")
    reason = _text(value, "reason")
    if point == "PreToolUse":
        decision = _PERMISSIONS.get(_text(specific, "permissionDecision"), decision)
        reason = _text(specific, "permissionDecisionReason") or reason
    elif decision == "allow":
        decision = "pass"
    if decision == "block" and not reason:
        reason = f"blocked by a {point} hook"
    stop = _text(value, "stopReason") if value.get("continue") is False else None
    return Answer(decision, reason, _text(specific, "additionalContext"), stop)


def _text(value: dict[str, Any], key: str) -> str:
    found = value.get(key)
    return found.strip() if isinstance(found, str) else ""
