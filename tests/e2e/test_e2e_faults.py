"""The table of reported faults is complete, and every test that it names exists."""

import ast
from functools import cache
from pathlib import Path
import re
import tomllib

import pytest

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
TABLE: dict[str, list[str] | str] = tomllib.loads((HERE / "faults.toml").read_text("utf-8"))
AT_THE_WIRE = ("START", "FRAME", "STREAM", "CANCEL")


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of the tests that a file defines."""
    tree = ast.parse(path.read_bytes())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def test_every_reported_fault_is_in_the_table(shared: Path) -> None:
    text = (shared / "faults.md").read_text("utf-8")
    ids = re.findall(r"^### ([A-Z]+-\d+)", text, re.MULTILINE)
    assert len(ids) > 100
    assert list(TABLE) == ids


@pytest.mark.parametrize("id", TABLE)
def test_each_fault_has_a_test_that_exists_or_a_reason(id: str) -> None:
    entry = TABLE[id]
    if isinstance(entry, str):
        assert len(entry.split()) > 3, "a reason is a sentence"
        pytest.skip(f"{id}: {entry}")
    assert entry
    for node in entry:
        file, _, name = node.partition("::")
        assert (PROJECT / file).is_file(), file
        assert name in names_in(PROJECT / file), node


def test_the_wire_and_the_turn_are_tested_with_real_processes() -> None:
    through = {"tests/e2e", "tests/cli", "tests/acp"}
    for id, entry in TABLE.items():
        if id.split("-")[0] in AT_THE_WIRE:
            assert isinstance(entry, list)
            assert {"/".join(node.split("/")[:2]) for node in entry} & through, id
