"""Logs as long use leaves them: a short one that the agent really wrote, multiplied.

Turns of a log differ in their numbers and ids alone, so one recorded turn stands for hundreds, and
these logs stay true to what the agent writes today.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
import re
from typing import Any
import uuid

_SEQ = re.compile(rb'(?<=^{"type":")([a-z/-]+","seq0?":)(\d+)')
_TURN = re.compile(rb'("data":{"turn":)(\d+)')
_SOURCES = re.compile(rb'"sourceEventSeqs":\[([\d,]+)\]')


def turn(calls: int, per_step: int, folder: Path) -> list[dict[str, Any]]:
    """A scripted turn: reads, commands, edits and searches in a file `a.txt`, then an answer."""
    path = str(folder / "a.txt")
    makers: list[Callable[[int], tuple[str, dict[str, Any]]]] = [
        lambda n: ("read", {"file_path": path}),
        lambda n: ("bash", {"command": "echo well", "description": "Say so"}),
        lambda n: ("edit", {"file_path": path, **_swap(n // 4)}),
        lambda n: ("grep", {"pattern": "two", "path": str(folder)}),
    ]
    made = []
    for n in range(calls):
        name, arguments = makers[n % 4](n)
        made.append({"id": f"call-1-{n}", "name": name, "arguments": arguments})
    steps = [made[at : at + per_step] for at in range(0, calls, per_step)]
    said = {"reasoning": "The file is short. " * 3, "text": "I look at it first. " * 3}
    return [*({**said, "tool_calls": step} for step in steps), {"text": "Done.", "repeat": 0}]


def _swap(n: int) -> dict[str, str]:
    old, new = ("one", "uno") if n % 2 == 0 else ("uno", "one")
    return {"old_string": old, "new_string": new}


def multiply(log: Path, turns: int) -> None:
    """Repeat the last turn of `log`, so that it is there `turns` times."""
    head, *lines = log.read_bytes().splitlines()
    start = max(n for n, line in enumerate(lines) if line.startswith(b'{"type":"turn/start"'))
    number = int(_TURN.search(lines[start])[2])
    # Its prompt comes before it; something of the turn before, such as a title, may lie between.
    prompt = max(n for n in range(start) if b'"inserted":[{' in lines[n])
    last = lines[prompt:]
    size = int(_SEQ.search(last[-1])[2]) + 1 - int(_SEQ.search(last[0])[2])
    made = [head, *lines]
    for n in range(1, turns):
        made += _renumbered(last, n * size, number + n)
    log.write_bytes(b"".join(line + b"\n" for line in made))


def _renumbered(lines: list[bytes], shift: int, turn: int) -> Iterator[bytes]:
    def moved(match: re.Match[bytes]) -> bytes:
        return match[1] + b"%d" % (int(match[2]) + shift)

    def cited(match: re.Match[bytes]) -> bytes:
        seqs = [b"%d" % (int(seq) + shift) for seq in match[1].split(b",")]
        return b'"sourceEventSeqs":[%b]' % b",".join(seqs)

    for line in lines:
        line = _SEQ.sub(moved, line, count=1)
        line = _TURN.sub(rb"\g<1>%d" % turn, line, count=1)
        yield _SOURCES.sub(cited, line).replace(b"call-1-", b"call-%d-" % turn)


def scatter(log: Path, count: int) -> None:
    """Copy the session of `log`, under ids of their own, until there are `count` of them."""
    data, id = log.read_bytes(), log.parent.name.encode()
    for _ in range(count - 1):
        copy = str(uuid.uuid4())
        folder = log.parent.with_name(copy)
        folder.mkdir()
        (folder / log.name).write_bytes(data.replace(id, copy.encode(), 1))
