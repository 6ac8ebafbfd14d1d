"""Where two transcripts or logs part, in words.

The first difference is named by file, line, what the line is, and the field; then both values.
Inserted and missing lines are told apart from changed ones by aligning the two lists.
"""

from collections.abc import Sequence
import difflib
from typing import Any, Final, cast

from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.snapshot.calls import update_of

SHOWN: Final = 600


class Difference(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One difference. `line` counts from 1 in the expected file; `path` is the field."""

    file: str
    line: int
    what: str
    """`changed`, `missing` (expected, did not come) or `extra` (came, not expected)."""
    label: str
    path: str = ""
    expected: str = ""
    got: str = ""
    more: int = 0
    """Further lines that differ after this one."""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line} ({self.label})"
        if self.what == "missing":
            text = f"{where} did not come\n    expected: {self.expected}"
        elif self.what == "extra":
            text = f"{where} came unexpectedly\n    got:      {self.got}"
        else:
            at = f" at {self.path}" if self.path else ""
            text = f"{where} differs{at}\n    expected: {self.expected}\n    got:      {self.got}"
        return text + (f"\n    … and {self.more} more lines" if self.more else "")


def compare(file: str, expected: Sequence[bytes], got: Sequence[bytes]) -> Difference | None:
    """The first difference between two lists of canonical JSON lines."""
    if list(expected) == list(got):
        return None
    matcher = difflib.SequenceMatcher(None, expected, got, autojunk=False)
    changes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    tag, i1, _, j1, _ = changes[0]
    touched = sum(max(b - a, d - c) for _, a, b, c, d in changes)
    more = max(0, touched - 1)
    if tag == "replace":
        # A replaced block may start with an insertion: same kind of line means it changed.
        return _changed(file, i1, expected[i1], got[j1], more)
    if tag == "delete":
        line = expected[i1]
        shown = _short(line)
        return Difference(file, i1 + 1, "missing", label(line), expected=shown, more=more)
    line = got[j1]
    return Difference(file, i1 + 1, "extra", label(line), got=_short(line), more=more)


def _changed(file: str, index: int, expected: bytes, got: bytes, more: int) -> Difference:
    name = label(expected)
    try:
        path, left, right = first_difference(jsontext.loads(expected), jsontext.loads(got))
    except jsontext.DecodeError:
        path, left, right = "", expected, got
    if label(got) != name:
        path, left, right = "", expected, got
    return Difference(
        file, index + 1, "changed", name, path, expected=_show(left), got=_show(right), more=more
    )


def first_difference(left: Any, right: Any, path: str = "") -> tuple[str, Any, Any]:
    """The path of the first field that differs, and both values there; `MISSING` for none."""
    if isinstance(left, dict) and isinstance(right, dict):
        a, b = cast(dict[str, Any], left), cast(dict[str, Any], right)
        for key in [*a, *(key for key in b if key not in a)]:
            at = f"{path}.{key}" if path else key
            if key not in a or key not in b:
                return at, a.get(key, MISSING), b.get(key, MISSING)
            if jsontext.encode(a[key]) != jsontext.encode(b[key]):
                return first_difference(a[key], b[key], at)
        return f"{path} (order of keys)".strip(), list(a), list(b)
    if isinstance(left, list) and isinstance(right, list):
        one: list[Any]
        two: list[Any]
        one, two = cast(list[Any], left), cast(list[Any], right)
        for k, (x, y) in enumerate(zip(one, two, strict=False)):
            if jsontext.encode(x) != jsontext.encode(y):
                return first_difference(x, y, f"{path}[{k}]")
        k = min(len(one), len(two))
        return (
            f"{path}[{k}]",
            one[k] if k < len(one) else MISSING,
            two[k] if k < len(two) else MISSING,
        )
    return path, left, right  # pyright: ignore[reportUnknownVariableType]


class _Missing:
    def __repr__(self) -> str:
        return "(nothing)"


MISSING: Final = _Missing()


def label(line: bytes) -> str:
    """What a line is, such as `session/update tool_call`, `answer 3` or `turn/end`."""
    try:
        found = jsontext.loads(line)
    except jsontext.DecodeError:
        return "not JSON"
    if not isinstance(found, dict):
        return "not an object"
    frame = cast(dict[str, Any], found)
    if "from" in frame and isinstance(frame.get("frame"), dict):  # a line of a proxy's recording
        frame = cast(dict[str, Any], frame["frame"])
    if "method" in frame:
        update = update_of(frame) or {}
        kind = f" {update.get('sessionUpdate')}" if "sessionUpdate" in update else ""
        return f"{frame['method']}{kind}"
    if "type" in frame:
        return str(frame["type"])
    return f"{'error' if 'error' in frame else 'answer'} {frame.get('id')}"


def _show(value: Any) -> str:
    if value is MISSING:
        return repr(MISSING)
    if isinstance(value, bytes):
        return _short(value)
    return _short(jsontext.encode(value))


def _short(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
