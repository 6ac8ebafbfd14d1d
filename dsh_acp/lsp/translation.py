"""From the types of LSP to ours."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from lsprotocol import types
from pygls import uris

from dsh_acp.lsp.findings import Finding, Place, Severity, Symbol

_SEVERITIES: Final[dict[int, Severity]] = {
    1: "error",
    2: "warning",
    3: "information",
    4: "hint",
}


def places(result: Any) -> list[Place]:
    """Of a definition, implementation or references request; each place once, in order."""
    if result is None:
        return []
    found = cast(Sequence[Any], result) if isinstance(result, list | tuple) else [result]
    return list(dict.fromkeys(_place(each) for each in found))


def _place(location: types.Location | types.LocationLink) -> Place:
    if isinstance(location, types.LocationLink):
        return _at(location.target_uri, location.target_selection_range)
    return _at(location.uri, location.range)


def _at(uri: str, where: types.Range) -> Place:
    path = uris.to_fs_path(uri) if uri.startswith("file:") else uri
    return Place(path or uri, where.start.line + 1, where.start.character + 1)


def hover_text(result: types.Hover | None) -> str | None:
    """The text of a hover; `None` when there is none."""
    if result is None:
        return None
    contents: Any = result.contents
    parts = cast(Sequence[Any], contents) if isinstance(contents, list | tuple) else [contents]
    text = "\n\n".join(part if isinstance(part, str) else str(part.value) for part in parts)
    return text.strip() or None


def outline(path: str, result: Any) -> list[Symbol]:
    """Of a document symbol request, nested or flat."""
    found: list[Symbol] = []
    for each in cast(Sequence[Any], result or ()):
        if isinstance(each, types.DocumentSymbol):
            found.extend(_nested(path, each, 0))
        else:
            found.append(_flat(each))
    return found


def _nested(path: str, symbol: types.DocumentSymbol, depth: int) -> Iterator[Symbol]:
    start = symbol.selection_range.start
    place = Place(path, start.line + 1, start.character + 1)
    yield Symbol(symbol.name, _kind(symbol.kind), place, depth=depth)
    # One can make a server nest without end.
    if depth < 50:
        for child in symbol.children or ():
            yield from _nested(path, child, depth + 1)


def symbols(result: Any) -> list[Symbol]:
    """Of a workspace symbol request."""
    return [_flat(each) for each in cast(Sequence[Any], result or ())]


def _flat(symbol: types.SymbolInformation | types.WorkspaceSymbol) -> Symbol:
    location = symbol.location
    if isinstance(location, types.Location):
        place = _at(location.uri, location.range)
    else:
        place = Place(uris.to_fs_path(location.uri) or location.uri, 1, 1)
    return Symbol(symbol.name, _kind(symbol.kind), place, symbol.container_name or "")


def _kind(kind: types.SymbolKind | int) -> str:
    try:
        name = types.SymbolKind(kind).name
    except ValueError:
        return "symbol"
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()


def findings(path: str, published: Sequence[types.Diagnostic]) -> list[Finding]:
    """Diagnostics, the gravest first, then by place."""
    found = [
        Finding(
            place=Place(path, each.range.start.line + 1, each.range.start.character + 1),
            severity=_SEVERITIES.get(int(each.severity or 1), "error"),
            message=" ".join(_message(each.message).split()),
            code="" if each.code is None else str(each.code),
            source=each.source or "",
        )
        for each in published
    ]
    grave = list(_SEVERITIES.values())
    return sorted(found, key=lambda f: (grave.index(f.severity), f.place.line, f.place.character))


def _message(message: Any) -> str:
    return message if isinstance(message, str) else str(getattr(message, "value", message))
