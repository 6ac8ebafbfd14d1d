"""How long a provider asks to wait, from headers and words."""

from collections.abc import Mapping
import math
import re
from typing import Final

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS: Final = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_WORDS: Final = re.compile(
    r"(?:try again|retry|wait)[^.\d]{0,30}?((?:\d+(?:\.\d+)?\s?(?:ms|h|m|s)(?![a-z]))+"
    r"|\d+(?:\.\d+)?\s?seconds?)|\"retryDelay\"\s*:\s*\"([\d.]+s)\"",
    re.IGNORECASE,
)
_RESETS: Final = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
)


def retry_after_ms(headers: Mapping[str, str], text: str, now: float) -> int | None:
    """Milliseconds to wait, always positive; `None` when the provider does not say.

    `Retry-After` (seconds or a date) comes first, then the reset of a rate limit that is used up,
    then words such as "try again in 20s". `now` is in Unix seconds.
    """
    asked = _number(headers.get("retry-after-ms"))
    if asked is None and (after := headers.get("retry-after")) is not None:
        seconds = _number(after)
        asked = seconds * 1000 if seconds is not None else _until(after, now)
    if asked is None:
        asked = _reset(headers, now)
    if asked is None and (found := _WORDS.search(text)):
        words = (found[1] or found[2]).replace(" ", "").lower()
        asked = _duration(re.sub(r"seconds?$", "s", words))
    return math.ceil(asked) if asked is not None and asked > 0 else None


def _reset(headers: Mapping[str, str], now: float) -> float | None:
    found: list[float] = []
    for remaining, reset in _RESETS:
        if _number(headers.get(remaining)) == 0 and reset in headers:
            value = headers[reset]
            number = _number(value)
            if number is None:
                delay = _duration(value) or _until(value, now)
            elif number > 1e11:
                delay = number - now * 1000
            else:
                delay = (number - now if number > 1e9 else number) * 1000
            if delay is not None:
                found.append(delay)
    return max(found, default=None)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _duration(text: str) -> float | None:
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _until(text: str, now: float) -> float | None:
    # Imported here: dates are rare, and the mail package is not small.
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when.timestamp() - now) * 1000
