from contextlib import suppress
import json
import os
from pathlib import Path
import shlex
import subprocess
import sys

import pytest

from dsh_acp import cli
from dsh_acp.commands.setup import own_command
from dsh_acp.llm.fake import FakeLlm

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the demo makes its own folder."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


DEMO = [sys.executable, "-m", "dsh_acp", "demo"]


def environment(folder: Path, **env: str) -> dict[str, str]:
    return {
        "HOME": str(folder / "no home"),
        "PATH": os.defpath,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder),
        "COLUMNS": "100",
        **env,
    }


def demo(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *arguments],
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=environment(folder, **env),
        timeout=120,
    )


def demo_refused(folder: Path) -> tuple[int, str]:
    """On a terminal where somebody always answers no."""
    ours, theirs = os.openpty()
    shown = b""
    with subprocess.Popen(
        DEMO, cwd=folder, env=environment(folder), stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        with suppress(OSError):  # how Linux says that nobody holds the other side any more
            while piece := os.read(ours, 65536):
                shown += piece
                if shown.endswith(b"[n]o: "):
                    os.write(ours, b"n\n")
    os.close(ours)
    return process.returncode, shown.decode()


def test_the_demo_shows_a_whole_session_and_all_of_it_happened(folder):
    done = demo(folder)
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout
    parts = [
        "A failing test and a small module.",
        "✓ Read middle.py",
        "+    return (ordered[half - 1] + ordered[half]) / 2",
        "? allowed once",
        "✓ Edit middle.py",
        "python -m unittest -v",
        "    OK",
        "Both tests pass.",
        "✓ the tests pass now",
        "✓ request 1.4",
    ]
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)
    # It is not on the PATH here, so it is named by its path.
    assert f"  {shlex.quote(own_command())} setup zed" in shown.partition("What now")[2]
    assert "✗" not in shown and "recording:" not in shown
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_a_recording_that_claims_what_was_refused_is_found_out_and_explained(folder):
    code, shown = demo_refused(folder)
    assert code == 1
    _, _, found = shown.partition("What really happened")
    assert "the model is a recording: it goes on as if nothing was refused" in found
    assert "a change waited for approval (0 granted)" in found


def test_the_checks_come_as_json_and_the_folder_stays_when_asked(folder):
    done = demo(folder, "--json", "--keep")
    assert done.returncode == 0
    checks = json.loads(done.stdout)
    assert len(checks) >= 15 and all(check["happened"] for check in checks)
    digests = [c["detail"] for c in checks if c["what"].startswith("request ")]
    assert len(digests) == 4 and all(d.startswith("sha256 ") and len(d) == 71 for d in digests)
    (kept,) = folder.iterdir()
    assert "half - 1" in (kept / "workspace/middle.py").read_text(encoding="utf-8")


def test_the_commands_at_the_end_read_and_prove_the_kept_session(folder, capsys):
    done = demo(folder, "--keep")
    told = [line.split() for line in done.stdout.splitlines() if "DSH_ACP_HOME=" in line]
    assert [line[2] for line in told] == ["show", "audit", "lab"]
    home, session = told[0][0].partition("=")[2], told[0][3]
    assert cli.main(["audit", session, "--home", home]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ok ") and "4 of 4 recorded bodies proved" in said
    assert cli.main(["request", session, "--home", home, "--step", "1.4", "--body"]) == 0


def test_a_model_that_only_claims_success_is_found_out(folder):
    with FakeLlm(["success"], repeat_last=True) as fake:
        env = {"OPENAI_BASE_URL": fake.url, "OPENAI_API_KEY": "sk-12345678"}
        done = demo(folder, "--model", "openai/m", "--json", **env)
    assert done.returncode == 1
    checks = {check["what"]: check for check in json.loads(done.stdout)}
    assert not checks["the file has changed on disk"]["happened"]
    assert not checks["the tests pass now, run once more from here"]["happened"]
    assert checks["the test failed before"]["happened"]
    assert not checks["files were read"]["needed"]


def test_a_model_that_cannot_be_reached_is_a_sentence(folder):
    done = demo(folder, "--model", "nobody/m")
    assert done.returncode == 1
    assert "There is no provider 'nobody'" in done.stderr and "Traceback" not in done.stderr
