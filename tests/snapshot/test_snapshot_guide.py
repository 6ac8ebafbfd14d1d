"""The guide is all that a new user has."""

import json
from pathlib import Path
import re

import dsh_acp.snapshot
from dsh_acp.snapshot import normalise
from dsh_acp.snapshot.script import schema

FOLDER = Path(dsh_acp.snapshot.__file__).parent
GUIDE = (FOLDER / "README.md").read_text("utf-8")


def test_every_step_is_named():
    definitions = json.loads(schema())["$defs"].values()
    tags = [each["properties"]["op"] for each in definitions if "op" in each["properties"]]
    steps = {step for tag in tags for step in tag.get("enum", [tag.get("const")])}
    assert len(steps) > 40
    assert [step for step in sorted(steps) if f"`{step}`" not in GUIDE] == []


def test_every_placeholder_is_explained():
    rows = re.findall(r"^\| (`\{\{.*?) \|", normalise.__doc__ or "", re.MULTILINE)
    tokens = re.findall(r"`(\{\{[^`]+\}\})`", "\n".join(rows))
    assert len(tokens) > 10
    assert [token for token in tokens if f"`{token}`" not in GUIDE] == []


def test_every_file_of_the_format_is_listed():
    text = (FOLDER / "scenario.py").read_text("utf-8")
    names = set(re.findall(r'"([a-z.-]+\.(?:jsonl|json|md))"', text))
    assert "wire.jsonl" in names
    assert [name for name in sorted(names) if f"`{name}`" not in GUIDE] == []


def test_the_example_script_is_valid():
    (script,) = re.findall(r"### input\.json\n\n```json\n(.*?)```", GUIDE, re.DOTALL)
    from dsh_acp.snapshot.script import Input

    assert Input.decode(script.encode()).shows
