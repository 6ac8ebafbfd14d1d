"""Where a call goes: addresses, and what sentences about a call need to know."""

import re
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from dsh_acp import jsontext

_HERE: Final = ("localhost", "::1", "0.0.0.0")
_QUOTED_LIMIT: Final = 400
_SHORTEST_KEY: Final = 8


def is_loopback(url: str) -> bool:
    """Whether `url` names this machine."""
    try:
        host = (urlsplit(url).hostname or "").lower()
    except ValueError:
        return False
    return host in _HERE or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


def join(base_url: str, path: str) -> str:
    """`path` under `base_url`, before its query if it has one."""
    base, mark, query = base_url.partition("?")
    base = base.rstrip("/")
    whole = base if base.endswith(path) else base + path
    return whole + mark + query


class Place(Struct, frozen=True):
    """A provider, its address and the model asked for. `secret` is only there to be hidden."""

    provider: str
    base_url: str = ""
    model: str = ""
    key_env: str = ""
    known_models: tuple[str, ...] = ()
    secret: str = ""

    @property
    def base(self) -> str:
        """The base URL without credentials."""
        return re.sub(r"//[^/@]*@", "//", self.base_url).partition("?")[0]

    def clean(self, text: str) -> str:
        """`text` from outside: one line, bounded, markup and keys taken out."""
        # A short one is no real key, but part of many a word.
        if len(self.secret) >= _SHORTEST_KEY:
            text = text.replace(self.secret, "[key]")
        if "<" in text:
            text = re.sub(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>", " ", text)
        text = re.sub(_KEYS, "[key]", text)
        text = " ".join(jsontext.clean(text).split())
        return text if len(text) <= _QUOTED_LIMIT else text[: _QUOTED_LIMIT - 1] + "…"


# Compiled when a failure first needs it: starting up must not pay for it.
_KEYS: Final = (
    r"(?i:bearer|basic)\s+[^\s\"',]{6,}|\b(?:sk|pk|rk|gsk|xai|hf|nvapi|r8|fw)[-_][\w*.\-]{4,}"
    r"|\bAIza[\w\-]{10,}|(?<=//)[^/@\s]+@"
)
