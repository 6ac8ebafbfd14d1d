"""Asking a provider's endpoint whether it answers, and whether it takes the key.

Standard library only: a check must not depend on what it checks, and only the model list is read.
"""

import http.client
import ssl
from typing import Any, Final, Literal, TypeAlias, cast
import urllib.error
import urllib.request

from msgspec import Struct

from dsh_acp import __version__, jsontext
from dsh_acp.config import ProviderSettings

Verdict: TypeAlias = Literal["ok", "refused", "unreachable", "odd"]

_LIMIT: Final = 8 * 1024 * 1024


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Following one would hand the key to whoever it points at."""

    def redirect_request(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


_opener: Final = urllib.request.build_opener(_NoRedirects)


class Answer(Struct, frozen=True):
    """`refused` means that the endpoint is there and does not take the key.

    `odd` is any other answer: many local servers have no model list, and work all the same.
    """

    verdict: Verdict
    detail: str
    models: tuple[str, ...] = ()


def ask(provider: ProviderSettings, timeout_s: float = 5) -> Answer:
    """Ask for the list of models; blocks for at most about `timeout_s`, never raises."""
    request = urllib.request.Request(f"{models_base(provider)}/models", headers=_headers(provider))
    try:
        with _opener.open(request, timeout=timeout_s) as response:
            return Answer("ok", "it answers", _models(response.read(_LIMIT)))
    except urllib.error.HTTPError as exc:
        with exc:
            if exc.code in (401, 403):
                return Answer("refused", f"it does not take the key (HTTP {exc.code})")
            return Answer("odd", f"it answers HTTP {exc.code} to a request for its models")
    except urllib.error.URLError as exc:
        reason = exc.reason
        if isinstance(reason, ssl.SSLError):
            return Answer("unreachable", f"its certificate is not trusted here: {reason.reason}")
        return Answer("unreachable", str(reason))
    except (OSError, http.client.HTTPException, ValueError) as exc:
        return Answer("unreachable", str(exc) or type(exc).__name__)


def models_base(provider: ProviderSettings) -> str:
    """The address that `/models` is under."""
    base = provider.base_url.rstrip("/")
    if provider.dialect == "anthropic" and not base.endswith("/v1"):
        return f"{base}/v1"
    return base


def _headers(provider: ProviderSettings) -> dict[str, str]:
    headers = {"user-agent": f"dsh-acp/{__version__}", **provider.headers}
    if provider.api_key is not None:
        key = provider.api_key.reveal()
        if provider.dialect == "anthropic":
            headers |= {"x-api-key": key, "anthropic-version": "2023-06-01"}
        else:
            headers["authorization"] = f"Bearer {key}"
    return headers


def _models(body: bytes) -> tuple[str, ...]:
    try:
        listed: Any = jsontext.loads(body)
    except jsontext.DecodeError:
        return ()
    data: object = cast(dict[str, Any], listed).get("data") if isinstance(listed, dict) else None
    if not isinstance(data, list):
        return ()
    items = (
        cast(dict[str, Any], item) for item in cast(list[object], data) if isinstance(item, dict)
    )
    return tuple(str(item["id"]) for item in items if isinstance(item.get("id"), str))
