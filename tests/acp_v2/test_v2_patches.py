"""Changes as git patches: what a patch says applies to what it was made from."""

from pathlib import Path
import re
import shutil
import subprocess
from typing import Any

from hypothesis import assume, given, strategies as st
import pytest

from dsh_acp.acp.patches import diffs
from dsh_acp.tools.files import file_diffs
from dsh_acp.tools.tool import FileDiff

LINES = st.lists(st.sampled_from(["", "a", "b", " c", "\td", "é", "-x", "+y", "\\ z"]), max_size=30)
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def patch(*found: FileDiff) -> str:
    (item,) = diffs(found)
    assert item["patch"]["format"] == "git_patch"
    return item["patch"]["text"]


def changes(*found: FileDiff) -> list[dict[str, Any]]:
    (item,) = diffs(found)
    return item["changes"]


def applied(old: list[str], text: str) -> list[str]:
    """The new lines, by the rules of unified diffs."""
    result: list[str] = []
    at = 0
    lines = text.split("\n")[:-1]
    position = next((n for n, line in enumerate(lines) if line.startswith("@@")), len(lines))
    while position < len(lines):
        header = HUNK.fullmatch(lines[position])
        assert header, lines[position]
        old_start, old_count = int(header[1]), int(header[2] or 1)
        new_start, new_count = int(header[3]), int(header[4] or 1)
        start = old_start - 1 if old_count else old_start
        result += old[at:start]
        at = start
        assert len(result) == (new_start - 1 if new_count else new_start)
        position += 1
        seen_old = seen_new = 0
        while seen_old < old_count or seen_new < new_count:
            side, line = lines[position][0], lines[position][1:]
            if side in " -":
                assert old[at] == line
                at, seen_old = at + 1, seen_old + 1
            if side in " +":
                result.append(line)
                seen_new += 1
            position += 1
        while position < len(lines) and lines[position].startswith("\\"):
            position += 1
    return result + old[at:]


@given(LINES, LINES)
def test_the_hunks_of_an_edit_lead_from_old_to_new(old: list[str], new: list[str]) -> None:
    assume([""] not in (old, new))  # a single blank line cannot be told from no line
    before, after = "\n".join([*old, ""]), "\n".join([*new, ""])
    found = file_diffs("/p/a.txt", before, after)
    if not found:
        assert old == new
        return
    assert applied(old, patch(*found)) == new


def test_a_new_file_comes_from_nothing() -> None:
    diff = FileDiff("/p/a.txt", None, "one\ntwo")
    assert changes(diff) == [{"operation": "add", "path": "/p/a.txt", "fileType": "text"}]
    assert patch(diff) == (
        "diff --git /p/a.txt /p/a.txt\n"
        "new file mode 100644\n"
        "--- /dev/null\n"
        "+++ /p/a.txt\n"
        "@@ -0,0 +1,2 @@\n"
        "+one\n"
        "+two\n"
        "\\ No newline at end of file\n"
    )


def test_an_empty_new_file_has_no_hunk() -> None:
    assert patch(FileDiff("/p/a", None, "")) == "diff --git /p/a /p/a\nnew file mode 100644\n"


def test_a_deleted_file_leads_to_nothing() -> None:
    diff = FileDiff("/p/a.txt", "one\n", "", is_deleted=True)
    assert changes(diff)[0]["operation"] == "delete"
    assert patch(diff) == (
        "diff --git /p/a.txt /p/a.txt\n"
        "deleted file mode 100644\n"
        "--- /p/a.txt\n"
        "+++ /dev/null\n"
        "@@ -1 +0,0 @@\n"
        "-one\n"
    )


def test_a_moved_file_has_both_names_and_what_changed_in_it() -> None:
    diff = FileDiff("/p/b", "x", "y", line=7, moved_from="/p/a")
    assert changes(diff) == [
        {"operation": "move", "oldPath": "/p/a", "path": "/p/b", "fileType": "text"}
    ]
    assert patch(diff) == (
        "diff --git /p/a /p/b\n"
        "rename from /p/a\n"
        "rename to /p/b\n"
        "--- /p/a\n"
        "+++ /p/b\n"
        "@@ -7 +7 @@\n"
        "-x\n"
        "+y\n"
    )


@pytest.mark.parametrize(
    ("old", "more", "sides"),
    [
        (None, {}, "/dev/null and /p/i.png"),
        ("", {}, "/p/i.png and /p/i.png"),
        ("", {"is_deleted": True}, "/p/i.png and /dev/null"),
    ],
)
def test_a_binary_file_only_differs(old: str | None, more: dict[str, Any], sides: str) -> None:
    diff = FileDiff("/p/i.png", old, "", is_binary=True, **more)
    assert changes(diff)[0]["fileType"] == "binary"
    assert patch(diff).splitlines()[-1] == f"Binary files {sides} differ"


def test_several_files_are_one_patch_and_a_relative_path_is_left_out() -> None:
    found = [FileDiff("/p/a", "x", "y"), FileDiff("/p/b", None, "z"), FileDiff("c", "x", "y")]
    assert [change["path"] for change in changes(*found)] == ["/p/a", "/p/b"]
    assert patch(*found).count("diff --git") == 2
    assert diffs([FileDiff("c", "x", "y")]) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize(
    "name", ["a b.txt", 'q"t.txt', "tab\t.txt", "é.txt", "back\\.txt", "n.txt"]
)
def test_names_are_written_as_git_writes_them(name: str, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, text in ((old, "one\n"), (new, "two\n")):
        folder.mkdir()
        (folder / name).write_text(text, encoding="utf-8")
    command = ["git", "diff", "--no-index", "--no-prefix", "old", "new"]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
    theirs = done.stdout.decode().replace("old/", "/p/").replace("new/", "/p/").splitlines()
    ours = patch(FileDiff(f"/p/{name}", "one", "two")).splitlines()
    assert ours[0] == theirs[0]
    assert ours[1:] == theirs[2:]  # without the line of object ids
