"""The format of input.json: what is accepted, what its schema says, its one canonical text."""

import json
from pathlib import Path
from typing import get_args

import jsonschema
import msgspec
import pytest

from dsh_acp.snapshot import moves, script
from dsh_acp.snapshot.script import Input

PUBLISHED = Path(script.__file__).with_name("input.schema.json")
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "acp"


def test_the_published_schema_is_the_one_of_the_structs():
    assert PUBLISHED.read_bytes() == script.schema(), "run: dsh-acp snapshot schema > …"


def test_every_step_of_the_format_has_a_move():
    assert set(moves.MOVES) == set(get_args(script.AnyStep))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"steps": [{"op": "dance"}]}', "Invalid value 'dance' - at `$.steps[0].op`"),
        ('{"steps": [{"op": "prompt"}]}', "missing required field `text`"),
        ('{"steps": [{"op": "prompt", "text": 1}]}', "Expected `str`, got `int`"),
        ('{"steps": [{"op": "newSession", "cwdd": "/"}]}', "unknown field `cwdd`"),
        ('{"stepz": []}', "unknown field `stepz`"),
        ('{"permissionAnswers": [{"kind": "maybe"}]}', "Invalid enum value 'maybe'"),
    ],
)
def test_a_mistake_is_refused_by_structs_and_schema_alike(text: str, words: str):
    with pytest.raises(msgspec.ValidationError, match=words.split(" - ")[0].replace("$", r"\$")):
        Input.decode(text.encode())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(text), json.loads(PUBLISHED.read_bytes()))


def test_every_committed_scenario_satisfies_the_schema():
    validator = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_bytes()))
    for path in FIXTURES.glob("*/input.json"):
        validator.validate(json.loads(path.read_bytes()))


def test_recordings_of_the_other_harness_satisfy_the_schema(shared: Path):
    validator = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_bytes()))
    paths = sorted(shared.glob("dsh-sessions/*/input.json"))
    assert len(paths) == 40
    for path in paths:
        validator.validate(json.loads(path.read_bytes()))
        Input.decode(path.read_bytes())


def test_the_canonical_text_reads_back_as_itself():
    given = b'{"steps":[{"text":"hi \\u00e9","op":"prompt"}],"shows":"one"}'
    text = Input.decode(given).to_json()
    assert text == (
        b'{\n  "shows": "one",\n  "steps": [\n    {\n      "op": "prompt",\n'
        b'      "text": "hi \xc3\xa9"\n    }\n  ]\n}\n'
    )
    assert Input.decode(text).to_json() == text
