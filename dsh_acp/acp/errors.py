"""Failures of the core as JSON-RPC errors: a number, and the core's own sentence."""

from typing import Any, Final

from dsh_acp.errors import ConfigError, DshError, LlmError, LogError, PromptError
from dsh_acp.wire.frames import INTERNAL_ERROR, INVALID_PARAMS, RpcError

AUTH_REQUIRED: Final = -32000
NOT_FOUND: Final = -32002

_INVALID_PROMPTS: Final = frozenset({"EMPTY_PROMPT", "UNSUPPORTED_CONTENT", "INVALID_CONTENT"})
_AUTH: Final = frozenset({"AUTH", "MISSING_CREDENTIAL"})


def unknown_session(session_id: str) -> RpcError:
    """The error for an id that names no session here."""
    return RpcError(NOT_FOUND, f'There is no session "{session_id}".', {"sessionId": session_id})


def auth_required(sentence: str, methods: list[dict[str, Any]]) -> RpcError:
    """The error for a call that needs a sign-in first."""
    return RpcError(AUTH_REQUIRED, sentence, {"authMethods": methods})


def translate(exc: Exception) -> RpcError | None:
    """The error for a failure of the core; `None` for a bug."""
    if not isinstance(exc, DshError):
        return None
    code = INTERNAL_ERROR
    match exc:
        case PromptError(code=kind) if kind in _INVALID_PROMPTS:
            code = INVALID_PARAMS
        case LlmError(code=kind) if kind in _AUTH:
            code = AUTH_REQUIRED
        case LogError(code="NOT_FOUND"):
            code = NOT_FOUND
        case ConfigError():
            return RpcError(code, f"The settings cannot be used: {exc.message}", {"code": "CONFIG"})
        case _:
            pass
    return RpcError(code, exc.message, {"code": exc.code})
