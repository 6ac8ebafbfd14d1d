"""Finds what must not be committed: keys, tokens, private paths.

`record` runs with a real key in the environment, so nothing is written before this has looked.
"""

from collections.abc import Mapping
import os
from pathlib import Path
import re
from typing import Final

_SHAPES: Final = {
    "an API key": re.compile(r"\b(?:sk|pk|rk)[-_](?:[a-z0-9]+[-_])*[A-Za-z0-9]{16,}"),
    "an AWS key": re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    "a GitHub token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,})"),
    "a Google key": re.compile(r"\bAIza[A-Za-z0-9_-]{30,}"),
    "a Slack token": re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    "a bearer token": re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{20,}"),
    "a JSON web token": re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\."),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "a password in a URL": re.compile(r"\b[a-z][a-z0-9+.-]*://[^/\s:@]+:[^/\s:@]+@"),
}
_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|passw|credential")
_SHORTEST: Final = 8


def leaks(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """What in `text` looks like a secret, each with its line; never the secret itself.

    Besides known shapes of keys this finds the value of any variable in `environ` (default: this
    process's own) whose name says that it is secret, and the user's home directory.
    """
    environ = os.environ if environ is None else environ
    found: list[str] = []
    private = {
        f"the value of {name}": value
        for name, value in environ.items()
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST
    }
    home = environ.get("HOME", "")
    if len(Path(home).parts) > 2:
        private["the home directory"] = home
    for number, line in enumerate(text.split("\n"), 1):
        found += [f"line {number}: {what}" for what, shape in _SHAPES.items() if shape.search(line)]
        found += [f"line {number}: {what}" for what, value in private.items() if value in line]
    return found


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """`text` with every key, token and secret value replaced by `{{secret}}`."""
    environ = os.environ if environ is None else environ
    for shape in _SHAPES.values():
        text = shape.sub("{{secret}}", text)
    for name, value in environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST:
            text = text.replace(value, "{{secret}}")
    return text
