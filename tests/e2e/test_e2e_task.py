"""A whole task on a real project: found, changed in three files, tested, mended, finished.

The project is sqlparse as its authors published it, with its own tests. The model's words are
scripted; the process, the files, the language server, the test runs and the log are real.
"""

from collections.abc import Callable
import json
import os
from pathlib import Path
import subprocess
import sys
import tarfile

from e2e_agent import PROJECT, Agent, Frame, bash, bodies, environment, script, tool
import pytest

from dsh_acp.llm.fake import FakeLlm

Start = Callable[..., Agent]

LOCK = PROJECT / "requirements/samples.lock"
SAMPLES = PROJECT / ".cache/samples"
OUTSIDE = dict(os.environ)
"""Package indexes may be configured there; tests run without it."""

PYTEST = f"PYTHONDONTWRITEBYTECODE=1 {sys.executable} -m pytest -q -p no:cacheprovider"
WRONG = """\
    if options.get('strip_semicolon'):
        stack.stmtprocess.append(filters.StripTrailingSemicolonFilter)

    # After grouping
"""
RIGHT = WRONG.replace("Filter)", "Filter())")
OPTION = """\
    group.add_argument(
        '--strip-semicolon',
        dest='strip_semicolon',
        action='store_true',
        default=False,
        help='remove the semicolon at the end of statements')

    group.add_argument(
        '-r', '--reindent',
"""
TEST = """\
    expected = '(where foo = bar) from'
    assert formatted == expected


@pytest.mark.parametrize('sql, expected', [
    ('select 1;', 'select 1'),
    ('select 1 ; ', 'select 1'),
    ('select 1', 'select 1')])
def test_strip_semicolon(sql, expected):
    assert sqlparse.format(sql, strip_semicolon=True) == expected
"""
CHANGES = {
    "sqlparse/formatter.py": ("    # After grouping\n", WRONG),
    "sqlparse/cli.py": ("    group.add_argument(\n        '-r', '--reindent',\n", OPTION),
    "tests/test_format.py": (TEST[: TEST.index("\n\n\n") + 1], TEST),
}


def change(id: str, path: str, old: str, new: str) -> Frame:
    return tool(id, "edit", file_path=path, old_string=old, new_string=new)


ASKED = {"operation": "findReferences", "file_path": "sqlparse/filters/others.py"}
STEPS = [
    [
        tool("grep", "grep", pattern="class StripTrailing|strip_comments", include="*.py"),
        tool("glob", "glob", pattern="tests/test_*.py"),
    ],
    [tool("lsp", "lsp", line=156, character=7, **ASKED)],
    [tool(f"read-{k}", "read", file_path=path) for k, path in enumerate(CHANGES)],
    [change(f"edit-{k}", path, *both) for k, (path, both) in enumerate(CHANGES.items())],
    [bash("first", f"{PYTEST} tests/test_format.py")],
    [change("mend", "sqlparse/formatter.py", WRONG, RIGHT)],
    [bash("second", f"{PYTEST} tests")],
    [bash("use", f"printf 'select 1;' | {sys.executable} -B -m sqlparse --strip-semicolon -")],
]


@pytest.fixture(scope="session")
def sample() -> Path:
    """The source distribution, fetched once and checked against its digest."""
    found = sorted(SAMPLES.glob("sqlparse-*.tar.gz"))
    if not found:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        pip += ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
        got = subprocess.run(
            [*pip, "--requirement", str(LOCK), "--dest", str(SAMPLES)],
            env=OUTSIDE,
            capture_output=True,
            check=False,
        )
        if got.returncode:
            pytest.skip(f"sqlparse cannot be fetched: {got.stderr.decode()[-300:]}")
        found = sorted(SAMPLES.glob("sqlparse-*.tar.gz"))
    return found[0]


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def results(fake: FakeLlm) -> dict[str, str]:
    """What the model was told of each call."""
    last = bodies(fake)[-1]["messages"]
    return {m["tool_call_id"]: m["content"] for m in last if m["role"] == "tool"}


def assert_found(told: dict[str, str]) -> None:
    """Searching led where the work is."""
    assert (
        "sqlparse/filters/others.py\nLine 156: class StripTrailingSemicolonFilter" in told["grep"]
    )
    assert "sqlparse/formatter.py\nLine 31:" in told["grep"]
    assert "tests/test_format.py" in told["glob"].split("\n")
    places = [line.split(":")[0] for line in told["lsp"].split("\n") if line.count(":") == 2]
    assert {"sqlparse/engine/filter_stack.py", "sqlparse/filters/__init__.py"} <= set(places)


def assert_proved(agent: Agent, fake: FakeLlm, session: str) -> None:
    """Every request is rebuilt from the log, and the digests agree."""
    audited = subprocess.run(
        [sys.executable, "-m", "dsh_acp", "audit", session, "--json"],
        env=environment(agent.home, fake.url),
        capture_output=True,
        check=False,
    )
    report = json.loads(audited.stdout)[0]
    assert audited.returncode == 0, report
    assert len(report["requests"]) == len(bodies(fake))


@pytest.mark.long
@pytest.mark.server
def test_a_task_on_a_real_project_is_done_as_scripted_and_proved(
    start: Start, fake: FakeLlm, tmp_path: Path, sample: Path
) -> None:
    with tarfile.open(sample) as archive:
        archive.extractall(tmp_path, filter="data")
    (project,) = tmp_path.glob("sqlparse-*")
    before = files_in(project)
    said = {"text": "The option strip_semicolon is there, on the command line too; all tests pass."}
    fake.use(script(*({"tool_calls": calls} for calls in STEPS), said))
    agent = start(cwd=project)
    session = agent.open()
    assert agent.prompt(session, "Add an option that strips the final semicolon.")["result"] == {
        "stopReason": "end_turn"
    }

    told = results(fake)
    assert_found(told)
    assert "3 failed" in told["first"]
    assert "[exit code: 1]" in told["first"]
    assert " passed, 2 xfailed, 1 xpassed in " in told["second"]
    assert told["use"] == "select 1"
    assert agent.said().endswith("all tests pass.")

    expected = dict(before)
    for path, (old, new) in CHANGES.items():
        text = before[path].decode()
        assert text.count(old) == 1
        expected[path] = text.replace(old, new.replace(WRONG, RIGHT)).encode()
    assert files_in(project) == expected

    asked = [frame["params"]["toolCall"] for frame in agent.asked()]
    blocks = [block for call in asked for block in call.get("content", ())]
    diffs = [Path(block["path"]).name for block in blocks if block["type"] == "diff"]
    assert diffs == ["formatter.py", "cli.py", "test_format.py", "formatter.py"]
    ran = [call["title"] for call in asked if call["kind"] == "execute"]
    assert ran == [STEPS[k][0]["arguments"]["command"] for k in (4, 6, 7)]
    assert agent.close() == 0
    assert_proved(agent, fake, session)
