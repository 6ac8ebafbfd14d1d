"""Request headers: the system prompts and tool schemas of a header class, shown once.

One scenario of a class pins them: its `system-prompt.expected.md` and
`tool-schemas.expected.json` show what the model is given. Every request header of every log in
the class must carry one of these pairs, so that a changed prompt is one diff, not sixty.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.snapshot.compare import MISSING, first_difference
from dsh_acp.snapshot.harvest import Harvested
from dsh_acp.snapshot.normalise import Normaliser
from dsh_acp.snapshot.script import pretty

Json: TypeAlias = dict[str, Any]
_MARK: Final = "\n<!-- request/header change {} -->\n\n"


class Part(Struct, frozen=True):
    """What one header showed; `tools` is their JSON text."""

    system: str
    tools: bytes


def parts(logs: Iterable[Harvested], normaliser: Normaliser) -> list[Part]:
    """The distinct pairs in the headers of `logs`, in order of appearance."""
    found: dict[Part, None] = {}
    for log in logs:
        for event in log.events():
            if event["type"] == "request/header":
                header = event["data"]["header"]
                system = normaliser.text(header.get("system", ""))
                tools = jsontext.encode(normaliser.value(header.get("tools", [])))
                found[Part(system, tools)] = None
    return list(found)


def encode(found: Sequence[Part]) -> tuple[bytes, bytes]:
    """The texts of both sidecars."""
    system = found[0].system + "\n"
    for number, part in enumerate(found[1:], 1):
        system += _MARK.format(number) + part.system + "\n"
    tools = [jsontext.loads(part.tools) for part in found]
    return system.encode(), pretty({"initial": tools[0], "changes": tools[1:]})


def decode(system: bytes, tools: bytes) -> list[Part]:
    """The pairs that two sidecars show."""
    document = jsontext.loads(tools)
    lists = [document["initial"], *document["changes"]]
    texts = [system.decode()]
    for number in range(1, len(lists)):
        *before, last = texts
        texts = [*before, *last.split("\n" + _MARK.format(number), 1)]
    return [
        Part(text.removesuffix("\n"), jsontext.encode(schemas))
        for text, schemas in zip(texts, lists, strict=False)
    ]


def strangers(found: Sequence[Part], pinned: Sequence[Part], pin: str) -> list[str]:
    """What in `found` the pin does not show, in words."""
    problems: list[str] = []
    meant = f"\n    if that is meant: dsh-acp snapshot refresh -k {pin}"
    for part in found:
        if part in pinned:
            continue
        if part.system not in [known.system for known in pinned]:
            line = _first_line(part.system, pinned[0].system)
            problems.append(
                f"a system prompt that {pin} does not pin; it differs at: {line!r}{meant}"
            )
        else:
            known = next(known for known in pinned if known.system == part.system)
            path, left, right = first_difference(
                jsontext.loads(known.tools), jsontext.loads(part.tools)
            )
            values = " / ".join(
                repr(v) if v is MISSING else jsontext.encode(v).decode()[:120]
                for v in (left, right)
            )
            problems.append(
                f"tool schemas that {pin} does not pin; they differ at {path}: {values}{meant}"
            )
    return problems


def _first_line(got: str, known: str) -> str:
    for one, two in zip(got.split("\n"), known.split("\n"), strict=False):
        if one != two:
            return one
    return got.split("\n")[-1]
