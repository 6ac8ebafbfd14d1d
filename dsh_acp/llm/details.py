"""Structured reasoning that a gateway streams in fragments and wants back whole."""

from collections.abc import Iterable
from typing import Any, cast

from msgspec import Raw

from dsh_acp import jsontext

_TEXTS = ("text", "summary", "data")


def merge_details(fragments: Iterable[Raw]) -> list[dict[str, Any]]:
    """The items of `reasoning_details`, each put together from its fragments.

    Fragments belong together by `index` and `type`. Their texts are joined; of other fields the
    last value that is not `null` counts.
    """
    items: dict[tuple[Any, Any], dict[str, Any]] = {}
    for raw in fragments:
        value = jsontext.loads(bytes(raw))
        if not isinstance(value, list):
            continue
        for number, entry in enumerate(cast("list[Any]", value)):
            if not isinstance(entry, dict):
                continue
            fragment = cast("dict[str, Any]", entry)
            key = (fragment.get("index", number), fragment.get("type"))
            item = items.setdefault(key, {})
            for name, field in fragment.items():
                if name in _TEXTS and isinstance(field, str):
                    item[name] = str(item.get(name) or "") + field
                elif field is not None or name not in item:
                    item[name] = field
    return list(items.values())
