"""Writes expectations so that nothing changes when nothing changed."""

from collections.abc import Mapping, Sequence

from dsh_acp import jsontext
from dsh_acp.snapshot.normalise import Normaliser
from dsh_acp.snapshot.scenario import (
    INPUT,
    SESSION,
    SYSTEM,
    TOOLS,
    Scenario,
    join,
    log_name,
    override_name,
    read_lines,
)
from dsh_acp.snapshot.script import pretty
from dsh_acp.snapshot.versions import VERSIONS, transcript, versions_of


def rewrite(
    scenario: Scenario, texts: Mapping[str, Sequence[bytes]], sidecars: Mapping[str, bytes]
) -> list[str]:
    """Write the files that differ and remove surplus logs and sidecars; the names changed."""
    changed: list[str] = []
    for name, lines in texts.items():
        is_log = not name.startswith("stdout.")
        kept = with_old_gaps(scenario, name, lines) if is_log else list(lines)
        changed += _write(scenario, name, join(kept))
    for name, text in sidecars.items():
        changed += _write(scenario, name, text)
    changed += _write(scenario, INPUT, scenario.input.to_json())
    for number, override in scenario.overrides.items():
        changed += _write(scenario, override_name(number), pretty(override))
    surplus = [name for name in (SYSTEM, TOOLS) if name not in sidecars]
    surplus += [transcript(v) for v in VERSIONS if v not in versions_of(scenario.input)]
    number = 1 if SESSION in texts else 0
    while scenario.path(log_name(number)).exists():
        surplus += [log_name(number)] if log_name(number) not in texts else []
        number += 1
    for name in surplus:
        if scenario.path(name).exists():
            scenario.path(name).unlink()
            changed.append(name)
    return changed


def write_transcript(scenario: Scenario, version: int, lines: Sequence[bytes]) -> list[str]:
    """Write the frames of one version alone; the name if that changed the file."""
    return _write(scenario, transcript(version), join(list(lines)))


def with_old_gaps(scenario: Scenario, name: str, lines: Sequence[bytes]) -> list[bytes]:
    """`lines`, with packed rows taken from the old file where they only differ in `dt`.

    A replay knows no real times between tokens; those of the recording are worth keeping.
    """
    old = read_lines(scenario.path(name)) or []
    try:
        bare = Normaliser("").log(old)
    except (ValueError, KeyError):
        return list(lines)
    if len(bare) != len(old):
        return list(lines)
    known = {line: was for line, was in zip(bare, old, strict=True) if b'"dt":[' in line}
    return [known.get(line, line) if _is_zero(line) else line for line in lines]


def _is_zero(line: bytes) -> bool:
    data = jsontext.loads(line).get("data", {})
    return "dt" in data and not any(data["dt"])


def _write(scenario: Scenario, name: str, text: bytes) -> list[str]:
    path = scenario.path(name)
    if path.exists() and path.read_bytes() == text:
        return []
    path.write_bytes(text)
    return [name]
