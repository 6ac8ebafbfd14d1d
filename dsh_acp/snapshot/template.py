"""A new scenario to start from: one prompt, the tools the model calls, its answer."""

from collections.abc import Sequence
import json
from pathlib import Path
from typing import Any

from msgspec import UNSET

from dsh_acp.snapshot.scenario import INPUT, WORKSPACE, override_name
from dsh_acp.snapshot.script import Agent, Input, pretty
from dsh_acp.snapshot.steps import Initialize, NewSession, Prompt


def create(
    folder: Path, shows: str, prompt: str, calls: Sequence[Sequence[str]], reply: str
) -> None:
    """Write `input.json` and `replay.override.json` into a new folder.

    Each of `calls` is a tool's name and its arguments as JSON text; a script with calls runs
    unasked (`full-access`), so that it plays without answers.

    Raises:
        ValueError: arguments that are not a JSON object.
    """
    replies: list[dict[str, Any]] = []
    for tool, text in calls:
        try:
            arguments = json.loads(text)
        except ValueError as exc:
            raise ValueError(f"the arguments of {tool} are not JSON: {exc}") from exc
        if not isinstance(arguments, dict):
            raise ValueError(f"the arguments of {tool} are not a JSON object")
        call: dict[str, Any] = {"name": tool, "arguments": arguments}
        replies.append({"kind": "reply", "calls": [call]})
    replies.append({"kind": "reply", "text": reply})
    script = Input(
        shows=shows or f"what {folder.name.replace('-', ' ')} looks like",
        steps=(Initialize(), NewSession(), Prompt(text=prompt)),
        agent=Agent(permission="full-access") if calls else UNSET,
    )
    (folder / WORKSPACE).mkdir(parents=True)
    (folder / INPUT).write_bytes(script.to_json())
    (folder / override_name(0)).write_bytes(pretty(replies))
