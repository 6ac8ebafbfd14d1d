"""Scripted answers to the agent's questions: permissions and elicitations.

Answers are consumed first in, first out. With nothing left, a permission question is answered
`cancelled` and an elicitation `cancel`: an agent must be able to live with both.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, TypeAlias, cast

Json: TypeAlias = dict[str, Any]

HELD: Final = object()
"""What a handler returns for a request that stays open (see `Client.held`)."""


class RpcError(Exception):
    """A JSON-RPC error object, received or to be sent."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code: Final = code
        self.message: Final = message
        self.data: Final = data

    @classmethod
    def from_json(cls, error: Any) -> "RpcError":
        """Tolerates shapes that are not a proper error object."""
        if not isinstance(error, dict):
            return cls(0, repr(error))
        found = cast(Json, error)
        return cls(found.get("code", 0), str(found.get("message", "")), found.get("data"))

    def to_json(self) -> Json:
        """The error object; `data` only when there is some."""
        error: Json = {"code": self.code, "message": self.message}
        return error if self.data is None else error | {"data": self.data}


class Desk:
    """The two queues. `faults` lists scripted answers that the agent's question did not allow."""

    def __init__(self) -> None:
        self.permissions: Final[deque[Json]] = deque()
        self.elicitations: Final[deque[Json]] = deque()
        self.faults: Final[list[str]] = []

    def script(self, permissions: Iterable[Json] = (), elicitations: Iterable[Json] = ()) -> None:
        """Queue answers.

        A permission answer is one of `{"kind": "allow_once"}` (the first offered option of that
        kind), `{"optionId": …}` (sent verbatim, offered or not), `{"outcome": "cancelled"}`,
        `{"error": {code, message}}`, `{"hold": true}` (left open until the turn is cancelled).
        An elicitation answer is `{"action": …, "content"?: {…}}`, or the short form
        `{"action": "accept", "choice"?: …, "custom"?: …}`, `{"error": …}` or `{"hold": true}`.
        """
        self.permissions.extend(permissions)
        self.elicitations.extend(elicitations)

    @staticmethod
    def cancelled(method: str) -> Json:
        """The answer to a question whose turn was cancelled."""
        if method == "elicitation/create":
            return {"action": "cancel"}
        return {"outcome": {"outcome": "cancelled"}}

    async def permission(self, params: Json) -> Any:
        """Answer `session/request_permission`."""
        cancelled = self.cancelled("session/request_permission")
        answer = self.permissions.popleft() if self.permissions else {"outcome": "cancelled"}
        if "error" in answer:
            raise RpcError.from_json(answer["error"])
        if answer.get("hold"):
            return HELD
        if "optionId" in answer:
            return {"outcome": {"outcome": "selected", "optionId": answer["optionId"]}}
        if "kind" not in answer:
            return cancelled
        for option in params.get("options") or ():
            if option.get("kind") == answer["kind"]:
                return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
        offered = [option.get("kind") for option in params.get("options") or ()]
        self.faults.append(f"permission answer {answer['kind']!r} is not among {offered}")
        return cancelled

    async def elicitation(self, params: Json) -> Any:
        """Answer `elicitation/create`."""
        if not self.elicitations:
            return {"action": "cancel"}
        answer = dict(self.elicitations.popleft())
        if "error" in answer:
            raise RpcError.from_json(answer["error"])
        if answer.get("hold"):
            return HELD
        short = {key: answer.pop(key) for key in ("choice", "custom") if key in answer}
        return answer | {"content": short} if short else answer
