import os
from pathlib import Path
import subprocess
import sys

import pytest

from dsh_acp import __version__, cli
from dsh_acp.config import Flags

HEAVY = {"pydantic", "httpx", "pygls", "mcp", "rich", "anyio", "asyncio", "argparse", "tomllib"}


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dsh_acp", *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        stdin=subprocess.DEVNULL,
        **options,
    )


def test_importing_the_command_line_imports_nothing_heavy():
    code = "import sys, dsh_acp.cli; print(*sys.modules)"
    out = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {os.getcwd()!r}); {code}"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert not HEAVY & set(out.stdout.split())


@pytest.mark.parametrize("word", ["version", "--version", "-V"])
def test_it_says_its_version(word, capsys):
    assert cli.main([word]) == 0
    assert capsys.readouterr().out == f"dsh-acp {__version__}\n"


@pytest.mark.parametrize("words", [["help"], ["--help"], ["-h"]])
def test_the_help_names_every_command(words, capsys):
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in cli.COMMANDS)
    assert max(map(len, out.splitlines())) <= 100


def test_the_help_of_a_command_within_a_command(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["help", "snapshot", "check"])
    assert ended.value.code == 0 and "--level" in capsys.readouterr().out


def test_the_help_of_serve_does_not_serve(capsys):
    assert cli.main(["serve", "--help"]) == 0
    assert "--permission PRESET" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verson"], "There is no command verson. Did you mean version?"),
        (["--modle", "x"], "There is no option --modle. Did you mean --model?"),
        (["--model"], "--model needs a value"),
        (["serve", "--effort="], "--effort needs a value"),
        (["help", "verson"], "There is no command verson. Did you mean version?"),
        (["serve", "now"], "There is no option now. Run: dsh-acp --help"),
    ],
)
def test_what_cannot_be_understood_is_a_sentence_and_exit_2(arguments, said, capsys):
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err == f"dsh-acp: {said}\n"
    assert captured.out == ""


def test_flags_of_serve_are_read_in_both_spellings():
    flags = cli.serve_flags(["--model", "a/b", "--effort=high", "--home=/s", "--model=c/d"])
    assert flags == Flags(model="c/d", effort="high", home="/s")
    assert cli.serve_flags([]) == Flags()


def test_a_closed_pipe_is_no_error(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-m", "dsh_acp", "help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")


def test_it_runs_from_a_directory_without_permission_to_anything():
    done = run("version", cwd="/", env={"PYTHONPATH": os.getcwd()})
    assert (done.returncode, done.stderr) == (0, "")
