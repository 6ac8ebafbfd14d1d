"""What can go wrong, as one tree.

```
DshError                 code: a stable word for programs; str(): a sentence for people
  ConfigError            settings are wrong: every problem at once; the cli exits with 2
  LogError               the log cannot be read or written; never repaired by guessing
  InvariantError         a request that its log does not explain; it never leaves
  LlmError               the provider failed; `failure` is what the log records
  LspError               a language server failed; the tool makes a ToolError of it
  McpError               an MCP server failed; the tool's border makes a ToolError of it
  ToolError              a tool says no; the model reads the sentence and the turn goes on
  PromptError            input that cannot become a prompt
```

Cancellation is not an error and has no place here. Anything outside this tree is a bug: its
traceback goes to stderr and nobody else sees its text.
"""

from collections.abc import Sequence
from typing import Final, cast


class DshError(Exception):
    """A failure with a stable `code` and a sentence that says what to do next."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code: Final = code

    @property
    def message(self) -> str:
        """The sentence."""
        return str(self)


class ConfigError(DshError):
    """Settings that cannot be used, with every problem found."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems), code="CONFIG")
        self.problems: Final = tuple(problems)


class LogError(DshError):
    """A session log that cannot be read, written or interpreted.

    Codes: `NOT_FOUND`, `EXISTS`, `LOCKED`, `CORRUPT`, `UNSUPPORTED_VERSION`, `UNKNOWN_EVENT`,
    `INVALID_EVENT`, `INVALID_BOUNDARY`, `OPEN_TURN`, `READ_ONLY`, `DISK_FULL`, `IO`, `CLOSED`,
    `ATTACHMENT_MISSING`, `ATTACHMENT_CORRUPT`.
    """


class InvariantError(DshError):
    """A request or an event that breaks an invariant of the log; `detail` is the bare text."""

    def __init__(self, package: str, detail: str) -> None:
        super().__init__(f'invariant violated by "{package}": {detail}', code="INVARIANT")
        self.package: Final = package
        self.detail: Final = detail


class LlmError(DshError):
    """A provider's failure.

    Codes are those of the log's failure vocabulary: `AUTH`, `QUOTA`, `RATE_LIMIT`, `SERVER`,
    `TIMEOUT`, `TRANSPORT`, `ABORTED`, `INVALID_REQUEST`, `CONTEXT_WINDOW_EXCEEDED`,
    `EMPTY_RESPONSE`, `MALFORMED_RESPONSE`, `STREAM_CLOSED`, `MISSING_CREDENTIAL`, `NO_ADAPTER`,
    `UNSUPPORTED_REASONING_EFFORT`, `UNSUPPORTED_CONTENT`, `MODEL_NOT_FOUND`, `HTTP_<status>`,
    upper-cased finish reasons, `UNKNOWN`.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int | None = None,
        retry_after_ms: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.status: Final = status
        self.retry_after_ms: Final = retry_after_ms
        self.request_id: Final = request_id


class LspError(DshError):
    """A language server that cannot be used, as a clause about it.

    Codes: `NOT_STARTED`, `ENDED`, `TIMEOUT`, `MALFORMED`, `REFUSED`, `UNSUPPORTED`.
    """


class McpError(DshError):
    """An MCP server that cannot be used, as a clause about it.

    Codes: `NOT_STARTED`, `UNREACHABLE`, `ENDED`, `TIMEOUT`, `MALFORMED`, `REFUSED`.
    """


class ToolError(DshError):
    """A tool's refusal or failure, in words for the model.

    `name` is the error class that the log records beside the code; a `code` of `""` means that
    no structured error is recorded (denials, plain failures).
    """

    def __init__(self, message: str, *, code: str = "", name: str = "ToolError") -> None:
        super().__init__(message, code=code)
        self.name: Final = name


class PromptError(DshError):
    """Input that cannot become a prompt, in words for its author.

    Codes: `EMPTY_PROMPT`, `UNSUPPORTED_CONTENT`, `INVALID_CONTENT`, `SESSION_CLOSED`, `READ_ONLY`.
    """


def chain(exc: BaseException) -> str:
    """One line that says what happened and why: the message, then each distinct cause.

    Members of a group are listed in brackets; a cause that repeats its wrapper's text is left
    out; a cycle ends the line.
    """
    parts: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = exc
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        text = str(current) or type(current).__name__
        if isinstance(current, BaseExceptionGroup):
            members = cast(BaseExceptionGroup[BaseException], current).exceptions
            text += f" [{'; '.join(chain(member) for member in members)}]"
        if not parts or parts[-1] != text:
            parts.append(text)
        current = current.__cause__
    if current is not None:
        parts.append("<circular cause>")
    return ": ".join(parts)
