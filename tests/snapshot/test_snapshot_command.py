"""The command line, as a new user meets it."""

import json
from pathlib import Path
import shutil

import pytest

from dsh_acp.commands.snapshot import main
from dsh_acp.snapshot.script import schema

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "acp"


def test_a_new_scenario_is_made_refreshed_checked_and_fails_when_edited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = str(tmp_path / "acp")
    call = ["--call", "read", '{"file_path": "a.txt"}']
    assert main(["new", "my-tool", folder, "--prompt", "Read it.", *call, "--reply", "Done."]) == 0
    assert "snapshot refresh" in capsys.readouterr().out
    scenario = tmp_path / "acp" / "my-tool"
    (scenario / "workspace" / "a.txt").write_text("one\n", encoding="utf-8")
    document = json.loads((scenario / "input.json").read_bytes()) | {"pinsHeader": True}
    (scenario / "input.json").write_text(json.dumps(document), encoding="utf-8")
    assert main(["refresh", folder, "-k", "tool"]) == 0, capsys.readouterr().out
    assert "1: one" in (scenario / "stdout.expected.jsonl").read_text(encoding="utf-8")
    assert "[my-tool](my-tool/input.json)" in (tmp_path / "acp" / "README.md").read_text(
        encoding="utf-8"
    )
    capsys.readouterr()
    assert main(["check", folder]) == 0
    assert capsys.readouterr().out.startswith("ok    my-tool (")
    assert "1: one" in (scenario / "stdout.v2.expected.jsonl").read_text(encoding="utf-8")
    expected = scenario / "stdout.expected.jsonl"
    expected.write_text(
        expected.read_text(encoding="utf-8").replace("Done.", "Gone."), encoding="utf-8"
    )
    assert main(["check", folder, "--json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["differences"][0]["path"] == "params.update.content.text"
    assert main(["new", "my-tool", folder]) == 1


def test_levels_without_a_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(FIXTURES / "text-turn", tmp_path / "acp" / "text-turn")
    for level in ("log", "projection"):
        assert main(["check", str(tmp_path / "acp"), "--level", level]) == 0
    assert capsys.readouterr().out.count("1 ok in") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "no/such/folder"], "there is no folder"),
        (["check", str(FIXTURES), "-k", "no-such-scenario"], "no scenario matches"),
        (["new", "x", "somewhere", "--call", "read", "{"], "the arguments of read are not JSON"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]):
    assert main(["schema"]) == 0
    assert capsys.readouterr().out.encode() == schema()


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "dsh-acp snapshot proxy --out" in capsys.readouterr().out
