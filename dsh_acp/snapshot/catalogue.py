"""A folder of scenarios as a whole: guards that no single scenario can check, and the index."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from dsh_acp.snapshot.scenario import INPUT, SYSTEM, TOOLS, Scenario

INDEX: Final = "README.md"
_HEAD: Final = """\
# Scenarios

Each folder is one recorded session: what a client sends, what the model says, what the agent
answers and what its log holds. `dsh-acp snapshot check` plays them all through the real process;
[the guide](../../dsh_acp/snapshot/README.md) tells how to read and write them. This index is
written by `dsh-acp snapshot refresh`.

| scenario | shows |
|---|---|
"""


def faults(folder: Path, scenarios: Sequence[Scenario]) -> list[str]:
    """What is wrong with the folder, in words.

    `scenarios` are all of it. Sidecars that equal each other belong in one header class.
    """
    found: list[str] = []
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".")
        if path.is_dir() and not hidden and not (path / INPUT).exists():
            found.append(f"{path.name}/: a folder without {INPUT}")
        if path.is_file() and not hidden and path.name != INDEX:
            found.append(f"{path.name}: not a scenario")
    pins: dict[str, list[str]] = defaultdict(list)
    for scenario in scenarios:
        try:
            script = scenario.input
        except (OSError, msgspec.DecodeError):
            continue
        if script.pins_header:
            pins[script.header_class].append(scenario.name)
    found += [
        f"{' and '.join(names)} pin the same header class {name}"
        for name, names in pins.items()
        if len(names) > 1
    ]
    found += _twins(scenarios)
    if (folder / INDEX).exists() and (folder / INDEX).read_text("utf-8") != index(scenarios):
        found.append(f"{INDEX}: not up to date (refresh rewrites it)")
    return found


def _twins(scenarios: Sequence[Scenario]) -> list[str]:
    """Sidecar pairs with the same text: one of the classes is superfluous."""
    seen: dict[bytes, str] = {}
    found: list[str] = []
    for scenario in scenarios:
        if not scenario.path(SYSTEM).exists() or not scenario.path(TOOLS).exists():
            continue
        text = scenario.path(SYSTEM).read_bytes() + b"\0" + scenario.path(TOOLS).read_bytes()
        if text in seen:
            found.append(f"{scenario.name}: its sidecars are those of {seen[text]}")
        seen.setdefault(text, scenario.name)
    return found


def index(scenarios: Sequence[Scenario]) -> str:
    """The text of the index."""
    lines = [_HEAD]
    for scenario in scenarios:
        try:
            shows = scenario.input.shows or ""
        except (OSError, msgspec.DecodeError):
            shows = "cannot be read"
        shows = shows.replace("|", "\\|")
        lines.append(f"| [{scenario.name}]({scenario.name}/{INPUT}) | {shows} |\n")
    return "".join(lines)


def write_index(folder: Path, scenarios: Sequence[Scenario]) -> bool:
    """Write the index when it differs; whether it did."""
    text = index(scenarios)
    path = folder / INDEX
    if path.exists() and path.read_text("utf-8") == text:
        return False
    path.write_text(text, "utf-8")
    return True
