"""What language servers tell, in our own words: lines and UTF-16 characters count from 1."""

from typing import Literal, TypeAlias

from msgspec import Struct

Severity: TypeAlias = Literal["error", "warning", "information", "hint"]
Hover: TypeAlias = str


class Place(Struct, frozen=True):
    """A place in a file; `path` is absolute, or a URI that names no file."""

    path: str
    line: int
    character: int


class Symbol(Struct, frozen=True):
    """A definition; `depth` counts the definitions that it is inside of."""

    name: str
    kind: str
    place: Place
    container: str = ""
    depth: int = 0


class Finding(Struct, frozen=True):
    """A diagnostic; `code` and `source` are empty when the server does not say."""

    place: Place
    severity: Severity
    message: str
    code: str = ""
    source: str = ""
