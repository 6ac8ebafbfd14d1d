"""One scenario directory: its files, and what is wrong with them before anything runs.

| file | role |
|---|---|
| `input.json` | the client's script |
| `session.jsonl` | the model's script and the expected log; absent when nothing is logged |
| `session.N.jsonl` | the logs of further sessions, numbered from 1 |
| `stdout.expected.jsonl` | the agent's frames in version 1, normalised |
| `stdout.v2.expected.jsonl` | the same in version 2 |
| `replay.override.json` | optional: replies of the model that replace or patch those of the log |
| `replay.override.N.json` | the same for `session.N.jsonl` |
| `system-prompt.expected.md`, `tool-schemas.expected.json` | only in the scenario that pins them |
| `workspace/` | optional: copied into the working directory, symlinks kept |
| `stored/NAME.jsonl` | optional: logs that exist before the agent starts |
| `wire.jsonl` | only in a recording of the proxy, which has nothing but this and `input.json` |
"""

from functools import cached_property
from pathlib import Path
import re
from typing import Any, Final

import msgspec

from dsh_acp import jsontext
from dsh_acp.snapshot.normalise import Normaliser
from dsh_acp.snapshot.replies import ReplyError, compile_override
from dsh_acp.snapshot.script import Input, pretty
from dsh_acp.snapshot.story import discrepancies
from dsh_acp.snapshot.versions import (
    VERSIONS,
    faults as faults_of_versions,
    transcript,
    versions_of,
)

INPUT: Final = "input.json"
SESSION: Final = "session.jsonl"
STDOUT: Final = transcript(1)
SYSTEM: Final = "system-prompt.expected.md"
TOOLS: Final = "tool-schemas.expected.json"
WORKSPACE: Final = "workspace"
STORED: Final = "stored"
WIRE: Final = "wire.jsonl"

_FILES: Final = {INPUT, SESSION, *map(transcript, VERSIONS), SYSTEM, TOOLS, WORKSPACE, STORED}
_OVERRIDE: Final = re.compile(r"replay\.override(?:\.([1-9][0-9]*))?\.json")
_CHILD: Final = re.compile(r"session\.([1-9][0-9]*)\.jsonl")


class Scenario:
    """A directory, read lazily."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self.name: Final = folder.name

    def path(self, name: str) -> Path:
        """A file of the scenario, which may not exist."""
        return self.folder / name

    @cached_property
    def input(self) -> Input:
        """The script.

        Raises:
            msgspec.DecodeError: it cannot be used.
            OSError: it cannot be read.
        """
        return Input.decode(self.path(INPUT).read_bytes())

    @property
    def is_wire(self) -> bool:
        """Whether this is a recording of the proxy."""
        return self.path(WIRE).exists()

    @property
    def stdout(self) -> list[bytes] | None:
        """The expected frames of version 1; `None` when there is no such file yet."""
        return self.transcript(1)

    def transcript(self, version: int) -> list[bytes] | None:
        """The expected frames; `None` when there is no such file."""
        return read_lines(self.path(transcript(version)))

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that have a transcript."""
        return tuple(v for v in VERSIONS if self.path(transcript(v)).is_file())

    @property
    def logs(self) -> list[list[bytes]]:
        """The expected logs: the primary one, then `session.1.jsonl` and so on."""
        found: list[list[bytes]] = []
        while (lines := read_lines(self.path(log_name(len(found))))) is not None:
            found.append(lines)
        return found

    @property
    def overrides(self) -> dict[int, Any]:
        """The override documents as written, by number of the session's log.

        Raises:
            jsontext.DecodeError: one is not JSON.
        """
        found: dict[int, Any] = {}
        for path in sorted(self.folder.glob("replay.override*.json")):
            if (match := _OVERRIDE.fullmatch(path.name)) is not None:
                found[int(match[1] or 0)] = jsontext.loads(path.read_bytes())
        return found

    @property
    def stored(self) -> dict[str, list[bytes]]:
        """Logs that exist before the agent starts, by name."""
        folder = self.path(STORED)
        paths = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
        return {path.stem: path.read_bytes().split(b"\n") for path in paths}

    # ------------------------------------------------------------ guards

    def faults(self, *, ours: bool = True) -> list[str]:
        """What is wrong with the files, in words; empty when all is well.

        `ours` adds what only this project's own scenarios promise: canonical text.
        """
        try:
            script = self.input
        except (OSError, msgspec.DecodeError) as exc:
            return [f"{INPUT}: {exc}"]
        found: list[str] = []
        names = {path.name for path in self.folder.iterdir()}
        if self.is_wire:
            return [f"{name}: not a file of a wire recording" for name in sorted(
                names - {INPUT, WIRE, WORKSPACE})]  # fmt: skip
        children = sorted(int(m[1]) for name in names if (m := _CHILD.fullmatch(name)))
        known = _FILES | {log_name(number) for number in children}
        known |= {name for name in names if _OVERRIDE.fullmatch(name)}
        if ours:
            found += [f"{name}: not a file of a scenario" for name in sorted(names - known)]
        if children != list(range(1, len(children) + 1)):
            found.append(f"{log_name(children[-1])}: the numbers of child logs have a gap")
        found += self._missing(script, ours=ours)
        if ours:
            found += [f"{INPUT}: {words}" for words in faults_of_versions(script)]
            for name in (SYSTEM, TOOLS):
                if (name in names) != script.pins_header:
                    word = "missing from" if script.pins_header else "only for"
                    found.append(f"{name}: {word} a scenario that pins its header")
            found += self._uncanonical(script)
        return found

    def _missing(self, script: Input, *, ours: bool) -> list[str]:
        """Transcripts that should be there, or should not.

        Another agent need not speak both versions; ours tells the same story in each.
        """
        wanted = versions_of(script)
        if not ours or (script.agent and script.agent.argv):
            return [] if self.versions else [f"{transcript(wanted[0])}: missing"]
        found = [f"{transcript(v)}: missing" for v in wanted if v not in self.versions]
        surplus = [transcript(v) for v in self.versions if v not in wanted]
        return found + [f"{name}: there is to be none, `only` says" for name in surplus]

    def discrepancies(self) -> list[str]:
        """Where the transcripts of both versions tell different stories, in words."""
        one, two = self.transcript(1), self.transcript(2)
        return [] if one is None or two is None else discrepancies(one, two)

    def _uncanonical(self, script: Input) -> list[str]:
        found: list[str] = []
        if script.shows is msgspec.UNSET or not script.shows or "\n" in script.shows:
            found.append(f"{INPUT}: `shows` must say in one line what the scenario is for")
        if self.path(INPUT).read_bytes() != script.to_json():
            found.append(f"{INPUT}: not in canonical form (refresh rewrites it)")
        try:
            for number, override in self.overrides.items():
                compile_override(override)
                if self.path(override_name(number)).read_bytes() != pretty(override):
                    name = override_name(number)
                    found.append(f"{name}: not in canonical form (refresh rewrites it)")
        except (jsontext.DecodeError, ReplyError) as exc:
            found.append(f"{override_name(0)}: {exc}")
        for name, canonical in self.canonical_texts():
            if self.path(name).read_bytes() != canonical:
                found.append(f"{name}: not in canonical form (refresh rewrites it)")
        return found

    def canonical_texts(self) -> list[tuple[str, bytes]]:
        """Each expectation normalised once more, which must change nothing."""
        out: list[tuple[str, bytes]] = []
        for version in self.versions:
            lines = self.transcript(version) or []
            # Numbers of frames are by appearance, so they too survive a second pass.
            out.append((transcript(version), join(Normaliser("").frames(lines))))
        for number, log in enumerate(self.logs):
            out.append((log_name(number), join(canonical_log(log))))
        for name in (SYSTEM, TOOLS):
            path = self.path(name)
            if path.exists():
                text = path.read_bytes()
                if name == TOOLS:
                    text = pretty(jsontext.loads(text))
                out.append((name, text.rstrip(b"\n") + b"\n"))
        return out


def canonical_log(lines: list[bytes]) -> list[bytes]:
    """A committed log normalised once more; real gaps between chunks (`dt`) are kept."""
    return Normaliser("").log(lines, keep_gaps=True)


def log_name(number: int) -> str:
    """The file of the log with this number."""
    return SESSION if number == 0 else f"session.{number}.jsonl"


def override_name(number: int) -> str:
    """The file that replaces or patches the script of that log."""
    return "replay.override.json" if number == 0 else f"replay.override.{number}.json"


def read_lines(path: Path) -> list[bytes] | None:
    """The lines of a file without their newlines; `None` when it does not exist."""
    if not path.is_file():
        return None
    text = path.read_bytes()
    return text.split(b"\n")[: -1 if text.endswith(b"\n") else None] if text else []


def join(lines: list[bytes]) -> bytes:
    """Lines as the text of a file."""
    return b"".join(line + b"\n" for line in lines)


def discover(folder: Path, keyword: str = "") -> list[Scenario]:
    """The scenarios in a folder, or the folder itself when it is one; by name."""
    if (folder / INPUT).exists():
        return [Scenario(folder)]
    paths = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return [Scenario(path) for path in sorted(paths) if keyword in path.name]
