"""Setting values in JSON that people wrote: comments, order and spacing stay as they are.

Reads JSON with `//` and `/* */` comments and trailing commas, as Zed and VS Code write it. Edits
touch only the characters that must change; the result is read again before it is given back.
"""

from collections.abc import Iterator, Mapping
import json
import re
from typing import Any, Final, NamedTuple, cast

from dsh_acp.errors import DshError

_SPACE: Final = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_REST_OF_LINE: Final = re.compile(r"(?:[ \t]+|/\*[^\n]*?\*/)*(?://[^\n]*)?")
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_WORD: Final = re.compile(r"[^\s,\]}/]+")
_MAX_DEPTH: Final = 200


class JsoncError(DshError):
    """Text that is not JSON with comments, and where."""

    def __init__(self, text: str, at: int, wanted: str) -> None:
        line = text.count("\n", 0, at) + 1
        column = at - (text.rfind("\n", 0, at) + 1) + 1
        super().__init__(f"line {line}, column {column}: {wanted}", code="JSONC")


class _Node(NamedTuple):
    start: int
    end: int
    value: Any
    members: dict[str, "_Node"] | None = None
    """Of an object: its members. A repeated key counts once, as its last."""
    comma: int | None = None
    """Of an object: just past the comma after its last member, if there is one."""


def parse(text: str) -> Any:
    """The value.

    Raises:
        JsoncError: at the first character that does not fit.
    """
    return _document(text).value


def merge(text: str, changes: Mapping[str, Any], replace: frozenset[str] = frozenset()) -> str:
    """`text` with `changes` merged into its object.

    Objects are merged member by member. Another value that is already there stays, unless its key
    is in `replace`. An empty `text` counts as an empty object.

    Raises:
        JsoncError: `text` is not JSON with comments, or a member to merge into is no object.
    """
    if not text.strip(" \t\r\n\ufeff"):
        return json.dumps(changes, indent=2, ensure_ascii=False) + "\n"
    before = parse(text)
    for path, value in _leaves(changes, ()):
        text = _set(text, path, value, replace)
    wanted = _merged(before, changes, replace)
    if parse(text) != wanted:
        # An edit that changed anything else must never reach the file.
        raise JsoncError(text, 0, "it has a form that cannot be edited safely")
    return text


def _leaves(
    changes: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in changes.items():
        if isinstance(value, dict) and value:
            yield from _leaves(cast(dict[str, Any], value), (*path, key))
        else:
            yield (*path, key), value


def _merged(old: Any, changes: Mapping[str, Any], replace: frozenset[str]) -> Any:
    result = dict(old)
    for key, value in changes.items():
        if key not in result:
            result[key] = value
        elif isinstance(value, dict) and value:
            result[key] = _merged(result[key], cast(dict[str, Any], value), replace)
        elif key in replace:
            result[key] = value
    return result


def _set(text: str, path: tuple[str, ...], value: Any, replace: frozenset[str]) -> str:
    node, depth = _document(text), 0
    for depth, key in enumerate(path):
        if node.members is None:
            raise JsoncError(text, node.start, f"{'.'.join(path[:depth]) or 'it'} is not an object")
        if key not in node.members:
            break
        node = node.members[key]
    else:
        if path[-1] not in replace or node.value == value:
            return text
        return text[: node.start] + json.dumps(value, ensure_ascii=False) + text[node.end :]
    for key in reversed(path[depth + 1 :]):
        value = {key: value}
    return _insert(text, node, path[depth], value)


def _insert(text: str, node: _Node, key: str, value: Any) -> str:
    body = text[node.start : node.end]
    members = node.members or {}
    newline = "\r\n" if "\r\n" in text else "\n"
    if members and "\n" not in body:
        last = max(member.end for member in members.values())
        pair = f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        if node.comma is not None:
            return f"{text[: node.comma]} {pair},{text[node.comma :]}"
        return f"{text[:last]}, {pair}{text[last:]}"
    outer = _indent_of(text, node.start)
    unit = _unit(text)
    dumped = json.dumps({key: value}, indent=unit, ensure_ascii=False)
    # The dumped object's own braces go; its members are already one unit in.
    pair = newline.join(outer + line for line in dumped.splitlines()[1:-1])
    if not members:
        if body[1:-1].strip(" \t\r\n"):
            # Only comments inside: the member goes before the brace, after them.
            at = node.start + len(body[:-1].rstrip())
            return f"{text[:at]}{newline}{pair}{newline}{outer}{text[node.end - 1 :]}"
        return f"{text[: node.start]}{{{newline}{pair}{newline}{outer}}}{text[node.end :]}"
    last = max(member.end for member in members.values())
    after = node.comma if node.comma is not None else last
    # A comment behind the last member stays behind it.
    rest = _REST_OF_LINE.match(text, after)
    at = rest.end() if rest and rest.group().strip() and rest.end() < node.end - 1 else after
    at = after if text[at : node.end - 1].lstrip(" \t")[:1] not in ("\n", "\r", "") else at
    comma = "" if node.comma is not None else ","
    trailing = "," if node.comma is not None else ""
    tail = text[at:]
    if "\n" not in text[at : node.end]:
        tail = f"{newline}{outer}{tail.lstrip(' ')}"
    return f"{text[:last]}{comma}{text[last:at]}{newline}{pair}{trailing}{tail}"


def _indent_of(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    found = re.search(r'[{,][^\S\n]*(?://[^\n]*)?\n([ \t]+)"', text)
    return found.group(1) if found and _indent_of(text, found.start()) == "" else "  "


# ---------------------------------------------------------------- reading


def _document(text: str) -> _Node:
    node = _value(text, _skip(text, 0), 0)
    end = _skip(text, node.end)
    if end != len(text):
        raise JsoncError(text, end, "nothing more was expected")
    if node.members is None:
        raise JsoncError(text, node.start, "an object was expected")
    return node


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> _Node:
    if depth > _MAX_DEPTH:
        raise JsoncError(text, at, "nested too deeply")
    match text[at : at + 1]:
        case "{":
            return _object(text, at, depth)
        case "[":
            return _array(text, at, depth)
        case '"':
            return _string(text, at)
        case _:
            found = _WORD.match(text, at)
            word = found.group() if found else ""
            try:
                return _Node(at, at + len(word), json.loads(word))
            except ValueError as exc:
                raise JsoncError(text, at, "a value was expected") from exc


def _string(text: str, at: int) -> _Node:
    found = _STRING.match(text, at)
    if not found:
        raise JsoncError(text, at, "a text in double quotes was expected")
    try:
        return _Node(at, found.end(), json.loads(found.group(), strict=False))
    except ValueError as exc:
        raise JsoncError(text, at, "a text with valid escapes was expected") from exc


def _object(text: str, start: int, depth: int) -> _Node:
    members: dict[str, _Node] = {}
    comma: int | None = None
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        if members and comma is None:
            raise JsoncError(text, at, "a comma or } was expected")
        key = _string(text, at)
        at = _skip(text, key.end)
        if text[at : at + 1] != ":":
            raise JsoncError(text, at, "a colon was expected")
        member = _value(text, _skip(text, at + 1), depth + 1)
        members.pop(key.value, None)
        members[key.value] = member
        at, comma = _comma(text, member.end)
    value = {key: member.value for key, member in members.items()}
    return _Node(start, at + 1, value, members, comma)


def _array(text: str, start: int, depth: int) -> _Node:
    items: list[Any] = []
    comma: int | None = None
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        if items and comma is None:
            raise JsoncError(text, at, "a comma or ] was expected")
        item = _value(text, at, depth + 1)
        items.append(item.value)
        at, comma = _comma(text, item.end)
    return _Node(start, at + 1, items)


def _comma(text: str, at: int) -> tuple[int, int | None]:
    """Past the space, comma and space after a member, and past the comma if there is one."""
    at = _skip(text, at)
    if text[at : at + 1] != ",":
        return at, None
    return _skip(text, at + 1), at + 1
