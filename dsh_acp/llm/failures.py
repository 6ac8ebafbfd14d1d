"""What a provider's refusal means: a code for programs and a sentence for people.

The sentence says what happened, in the provider's words where it has any, and what to do. It
never holds a key: providers quote keys in their errors, so everything quoted is cleaned.
"""

from collections.abc import Mapping
import re
from typing import Any, Final, cast

from msgspec import UNSET, Struct

from dsh_acp import jsontext
from dsh_acp.llm.place import Place
from dsh_acp.llm.waiting import retry_after_ms
from dsh_acp.messages import Failure

_CONTEXT: Final = re.compile(
    r"context[ _]?length[ _]?exceeded|exceed_context_size|context_window_exceeded"
    r"|max(imum)?[ _](context|model)[ _](length|window|size)"
    r"|too (large|long) for (the |this )?(model('s)? )?context"
    r"|(input|prompt|request|conversation) (is |was )?too (large|long)(?!.* (bytes|mb)\b)"
    r"|exceed(s|ed)? (the |this |its )?(\w+('s)? )?(\w+ )?context"
    r"|longer than the (model's )?(maximum )?context"
    r"|reduce the length of the (messages|prompt|input)|input token count .* exceeds"
    r"|prompt_tokens_exceeded|context window exceeds",
    re.IGNORECASE,
)
_QUOTA: Final = re.compile(
    r"insufficient[ _](user[ _])?(quota|balance|credits?|funds)"
    r"|(quota|usage limit|credit limit)( \w+)? (is |has been |was )?(exceeded|exhausted|reached)"
    r"|exceeded (your )?(current )?quota|(balance|credits?) (is |are )?(exhausted|depleted|too low)"
    r"|out of (credits?|budget|funds)|requires more credits|arrearage|account[ _]?overdue"
    r"|billing[ _]hard[ _]limit",
    re.IGNORECASE,
)
_NO_MODEL: Final = re.compile(
    r"model[ _]not[ _](exist|found)|model_?not_?found|no such model|unknown[ _]model"
    r"|invalid[ _]model|not a valid model|unsupported model"
    r"|model [^.]{0,80}?(does not exist|not found|is not available|doesn't exist)"
    r"|no endpoints found|deploymentnotfound|not_found_error model:",
    re.IGNORECASE,
)
_FILTERED: Final = re.compile(
    r"content[ _]filter|content[ _]policy|content management policy|content exists risk"
    r"|data_inspection_failed|responsibleai",
    re.IGNORECASE,
)
_LATER: Final = re.compile(
    r"overload|unavailable|server[ _]?error|internal|bad gateway|upstream|provider returned"
    r"|capacity|try again",
    re.IGNORECASE,
)
_RATE: Final = re.compile(r"rate[ _-]?limit|too many requests|throttl|resource_exhausted", re.I)
_TIMEOUT: Final = re.compile(r"time[ds]?[ _-]?out|deadline", re.IGNORECASE)
_AUTH: Final = re.compile(r"auth|api[ _]?key|permission|credential", re.IGNORECASE)
_INVALID: Final = re.compile(r"invalid|bad[ _]?request|unprocessable|validation", re.IGNORECASE)

ADVICE: Final[Mapping[str, str]] = {
    "AUTH": "Set {key} or run `dsh-acp login {provider}`.",
    "FORBIDDEN": "Check what the key may use, or choose another model.",
    "QUOTA": "Top up the account or choose another provider.",
    "RATE_LIMIT": "Wait a little, or choose another model.",
    "SERVER": "Try again in a moment, or choose another model.",
    "TIMEOUT": "Try again, or raise `idle_timeout_s` for [providers.{provider}].",
    "CONTEXT_WINDOW_EXCEEDED": "Run /compact, or start a new session.",
    "MODEL_NOT_FOUND": "Choose another model{models}.",
    "CONTENT_FILTER": "Rephrase the request, or choose another model.",
    "TOO_LARGE": "Remove large attachments, run /compact, or start a new session.",
    "NO_PATH": "Check `base_url` for [providers.{provider}]: {base}.",
    "EMPTY_RESPONSE": "Try again, or choose another model.",
    "MALFORMED_RESPONSE": "Try again; if it stays, check `base_url` and `dialect` for "
    "[providers.{provider}].",
    "STREAM_CLOSED": "What came is no whole answer; send the prompt again.",
    "TRANSPORT": "Check the network, the proxy settings and `base_url`: {base}.",
}


def advise(place: Place, kind: str) -> str:
    """The sentence that says what to do."""
    known = ", ".join(place.known_models[:8])
    return ADVICE[kind].format(
        key=place.key_env or "its API key",
        provider=place.provider,
        base=place.base,
        models=f"; known are {known}" if known else "",
    )


class Complaint(Struct, frozen=True):
    """What a provider said: its message, the words of its code and type, a status inside."""

    message: str = ""
    words: str = ""
    status: int | None = None


def complaint(value: Any) -> Complaint:
    """The complaint in a decoded error body, whatever its shape."""
    if isinstance(value, list) and value:
        return complaint(cast("list[Any]", value)[0])
    if not isinstance(value, dict):
        return Complaint(message=value if isinstance(value, str) else "")
    body = cast("dict[str, Any]", value)
    inner = body.get("error", body.get("errors"))
    if isinstance(inner, list | str):
        inner = {"message": complaint(inner).message}
    fields = {**body, **cast("dict[str, Any]", inner)} if isinstance(inner, dict) else body
    message = ""
    for name in ("message", "error_message", "msg", "detail", "error_description"):
        if isinstance(text := fields.get(name), str) and text:
            message = text
            break
        if isinstance(text, list | dict) and text:
            message = jsontext.encode(text).decode()
            break
    raw = cast("Any", fields.get("metadata") or {})
    if isinstance(raw, dict) and isinstance(upstream := cast("Any", raw).get("raw"), str):
        message = f"{message}: {upstream}"
    words = [fields.get(name) for name in ("code", "type", "error_type", "status")]
    numbers = [fields.get(name) for name in ("code", "status", "status_code", "http_status")]
    status = next((int(n) for n in numbers if n is not None and _is_status(n)), None)
    return Complaint(message, " ".join(word for word in words if isinstance(word, str)), status)


def _is_status(value: Any) -> bool:
    if isinstance(value, str) and value.isdecimal() and len(value) == 3:
        value = int(value)
    return isinstance(value, int) and 400 <= value <= 599


def code_of(status: int | None, said: Complaint, has_delay: bool = False) -> str:
    """The failure code for an HTTP status (`None`: an error inside a stream) and a complaint."""
    text = f"{said.words} {said.message}"
    quota = _QUOTA.search(text) is not None
    if status == 401:
        return "AUTH"
    # A daily or per-minute "quota" that names its end is a rate limit in other words.
    if status == 402 or (quota and not (has_delay and "insufficient" not in text.lower())):
        return "QUOTA"
    if status == 403:
        return "AUTH"
    if status == 429:
        return "RATE_LIMIT"
    if status != 404 and _CONTEXT.search(text):
        return "CONTEXT_WINDOW_EXCEEDED"
    if status in (None, 400, 404, 422) and _NO_MODEL.search(text):
        return "MODEL_NOT_FOUND"
    if status in (None, 400, 422) and _FILTERED.search(text):
        return "CONTENT_FILTER"
    if status is None:
        return _code_of_words(text)
    if status in (400, 413, 422):
        return "INVALID_REQUEST"
    if status in (408, 504):
        return "TIMEOUT"
    return "SERVER" if status >= 500 else f"HTTP_{status}"


def _code_of_words(text: str) -> str:
    for pattern, code in (
        (_RATE, "RATE_LIMIT"),
        (_TIMEOUT, "TIMEOUT"),
        (_LATER, "SERVER"),
        (_AUTH, "AUTH"),
        (_INVALID, "INVALID_REQUEST"),
    ):
        if pattern.search(text):
            return code
    # A stream that breaks off with a complaint nobody knows is more often a bad moment than a bad
    # request, and the number of repetitions is bounded.
    return "SERVER"


_WHAT: Final[Mapping[str, str]] = {
    "AUTH": "{provider} refused the API key",
    "FORBIDDEN": "{provider} does not allow this key to use {model}",
    "QUOTA": "the {provider} account has no balance or quota left",
    "RATE_LIMIT": "{provider} limits the rate of requests",
    "SERVER": "{provider} failed",
    "OVERLOADED": "{provider} is overloaded",
    "TIMEOUT": "{provider} did not answer in time",
    "CONTEXT_WINDOW_EXCEEDED": "the conversation is longer than {model} can read",
    "MODEL_NOT_FOUND": "{provider} has no model {model}",
    "CONTENT_FILTER": "the content filter of {provider} refused the request",
    "TOO_LARGE": "the request is too large for {provider}",
    "NO_PATH": "there is nothing at this address of {provider}",
    "INVALID_REQUEST": "{provider} refused the request",
}


def _kind(code: str, status: int | None) -> str:
    match code, status:
        case "AUTH", 403:
            return "FORBIDDEN"
        case "INVALID_REQUEST", 413:
            return "TOO_LARGE"
        case "HTTP_404" | "HTTP_301" | "HTTP_302" | "HTTP_307" | "HTTP_308", _:
            return "NO_PATH"
        case _:
            return code


def ended(text: str) -> str:
    """`text` with a full stop, unless it has an end of its own."""
    return text if text.endswith((".", "?", "!", "…")) else f"{text}."


def sentence(place: Place, code: str, status: int | None, message: str) -> str:
    """What happened, the provider's own words, and what to do."""
    kind = _kind(code, status)
    what = _WHAT.get("OVERLOADED" if status == 529 else kind, "{provider} answered with an error")
    text = what.format(provider=place.provider, model=place.model)
    if status is not None:
        text += f" (HTTP {status})"
    if quoted := place.clean(message).rstrip("."):
        text += f": {quoted}"
    return f"{ended(text)} {advise(place, kind)}" if kind in ADVICE else ended(text)


def from_response(
    place: Place, status: int, headers: Mapping[str, str], body: bytes, now: float
) -> Failure:
    """The failure in an HTTP response. Header names are lower-case; `now` is in Unix seconds."""
    text = body.decode("utf-8", "replace")
    try:
        said = complaint(jsontext.loads(body))
    except jsontext.DecodeError:
        said = Complaint(message=text)
    delay = retry_after_ms(headers, text, now)
    code = code_of(status, said, delay is not None)
    return Failure(
        message=sentence(place, code, status, said.message),
        code=code,
        status=status,
        provider_retry_after_ms=UNSET if delay is None else delay,
        request_id=request_id(headers) or UNSET,
    )


def from_stream(place: Place, value: Any, id: str | None = None) -> Failure:
    """The failure in an error object that came inside a successful response."""
    said = complaint(value)
    delay = retry_after_ms({}, said.message, 0)
    code = code_of(said.status, said, delay is not None)
    return Failure(
        message=sentence(place, code, said.status, said.message or said.words),
        code=code,
        status=UNSET if said.status is None else said.status,
        provider_retry_after_ms=UNSET if delay is None else delay,
        request_id=id or UNSET,
    )


def from_page(place: Place, page: str, id: str | None = None) -> Failure:
    """The failure when a web page came instead of an answer, as captive portals and proxies do."""
    shown = place.clean(page)[:160]
    # A page that speaks of a 5xx is a gateway in trouble; any other is the wrong address.
    is_trouble = re.search(r"\b5\d\d\b|bad gateway|unavailable|timed? ?out", shown, re.IGNORECASE)
    advice = advise(place, "SERVER" if is_trouble else "NO_PATH")
    return Failure(
        message=f"{place.provider} answered with a web page (HTTP 200): {shown}. {advice}",
        code="SERVER" if is_trouble else "MALFORMED_RESPONSE",
        status=200,
        request_id=id or UNSET,
    )


def from_transport(place: Place, code: str, what: str, id: str | None = None) -> Failure:
    """The failure that nobody reported: no connection, a broken one, an answer that is none."""
    text = ended(place.clean(what))
    message = f"{text} {advise(place, code)}" if code in ADVICE else text
    return Failure(message=message, code=code, request_id=id or UNSET)


def request_id(headers: Mapping[str, str]) -> str | None:
    """The id under which the provider knows the call."""
    for name in ("x-request-id", "request-id", "x-deepseek-request-id", "cf-ray"):
        if name in headers:
            return headers[name]
    return None
