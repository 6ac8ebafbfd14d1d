"""The head of a Markdown file: `key: value` lines between two lines of dashes.

Only what such files use of YAML is understood: plain and quoted values, values that go on in
indented lines, and block scalars (`|`, `>`). Anything else is left out. Keys are lower-cased.
"""

from collections.abc import Sequence


def split(text: str) -> tuple[dict[str, str], str]:
    """The fields and the text below; no fields when there is no complete head."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}, text
    head, found, body = text[4:].partition("\n---")
    if not found:
        return {}, text
    return _fields(head.split("\n")), body.split("\n", 1)[1] if "\n" in body else ""


def _fields(lines: Sequence[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    key = ""
    parts: list[str] = []

    def close() -> None:
        if key:
            fields[key] = _value(parts)

    for line in lines:
        if line.startswith((" ", "\t")) or not line.strip():
            parts.append(line.strip())
            continue
        name, colon, value = line.partition(":")
        close()
        key, parts = "", []
        if colon and not line.startswith(("#", "-")):
            key, parts = name.strip().lower(), [value.strip()]
    close()
    return fields


def _value(parts: Sequence[str]) -> str:
    first, *rest = parts
    if first[:1] in ("|", ">") and not first.strip("|>+-0123456789"):
        return ("\n" if first[0] == "|" else " ").join(rest).strip()
    value = " ".join(part for part in parts if part)
    for quote in ('"', "'"):
        if len(value) > 1 and value[0] == value[-1] == quote:
            return value[1:-1]
    return value
