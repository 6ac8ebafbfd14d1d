"""`grep` and `glob`."""

import os

import anyio
import pytest
from workbench import Workbench, text_in

from dsh_acp.tools import search


async def test_matches_are_listed_under_their_file(bench: Workbench) -> None:
    bench.put("src/b.ts", "foo\n")
    bench.put("src/a.ts", "x\n  foo\r\nfoo bar\n")
    bench.put("src/c.js", "foo\n")
    outcome = await bench.call("grep", pattern="foo", path="src", include="*.ts")
    assert outcome.content[0].text == (  # type: ignore[union-attr]
        "Found 3 matches\n\nsrc/a.ts\nLine 2:   foo\nLine 3: foo bar\n\nsrc/b.ts\nLine 1: foo"
    )
    assert outcome.meta == {
        "shape": "matches",
        "files": [
            {
                "path": "src/a.ts",
                "matches": [
                    {"lineNumber": 2, "line": "  foo"},
                    {"lineNumber": 3, "line": "foo bar"},
                ],
            },
            {"path": "src/b.ts", "matches": [{"lineNumber": 1, "line": "foo"}]},
        ],
        "truncated": False,
        "total": 3,
    }
    assert (await bench.text("grep", pattern="bar$")).startswith("Found 1 match\n\nsrc/a.ts\n")
    assert await bench.text("grep", pattern="nowhere") == "No matches found"


async def test_a_file_can_be_searched_by_its_absolute_path(bench: Workbench) -> None:
    path = bench.put("a b.txt", "foo\n")
    text = await bench.text("grep", pattern="foo", path=str(path))
    assert text == f"Found 1 match\n\n{path}\nLine 1: foo"


async def test_many_matches_are_cut_and_kept_on_disk(bench: Workbench) -> None:
    bench.put("a.txt", "".join(f"foo {n}\n" for n in range(1, 301)))
    outcome = await bench.call("grep", pattern="foo")
    text = outcome.content[0].text  # type: ignore[union-attr]
    assert text.startswith("Found 250 of 300 matches\n\na.txt\nLine 1: foo 1\n")
    assert "Line 250: foo 250\n\n(Full grep result stored at: " in text
    assert "Line 251" not in text
    file = text.partition("stored at: ")[2].partition(". ")[0]
    assert text_in(file).endswith("\nLine 300: foo 300")
    assert outcome.meta is not None
    assert outcome.meta["truncated"] is True
    assert outcome.meta["total"] == 300


async def test_what_cannot_be_saved_is_said(bench: Workbench) -> None:
    bench.put("a.txt", "foo\n" * 300)
    bench.put("../spill", "in the way")
    assert (await bench.text("grep", pattern="foo")).endswith(
        "(The complete result could not be saved; narrow pattern, path, or include to see more.)"
    )


async def test_a_hit_in_a_huge_line_stays_small(bench: Workbench) -> None:
    bench.put("big.json", "读" * 1_900_000)
    bench.put("latin.txt", b"caf\xe9 foo\n")
    outcome = await bench.call("grep", pattern="读|foo")
    text = outcome.content[0].text  # type: ignore[union-attr]
    assert "Line 1: " + "读" * 666 + " (line truncated)\n" in text
    assert "latin.txt\nLine 1: (line is not valid UTF-8)" in text
    assert len(str(outcome.meta)) < search.META_BYTES


async def test_binary_files_do_not_disturb_the_others(bench: Workbench) -> None:
    for name in ("a.bin", "m.bin"):
        bench.put(name, b"foo\n" * 30_000 + b"\0")
    bench.put("b.txt", "foo\n")
    bench.put("odd\nname.txt", "foo\n")
    text = await bench.text("grep", pattern="foo", include="*.txt")
    assert text == "Found 2 matches\n\nb.txt\nLine 1: foo\n\nodd\nname.txt\nLine 1: foo"
    await bench.text("grep", pattern="foo", path="a.bin")
    outcome = await bench.call("grep", pattern="foo")
    assert outcome.meta is not None
    paths = {
        name for name in str(outcome.content[0]).split("\\n") if name.endswith((".txt", ".bin"))
    }
    assert paths <= {"a.bin", "b.txt", "m.bin", "name.txt"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"pattern": "foo("}, "SEARCH_INVALID_PATTERN"),
        ({"pattern": "foo", "include": "[z"}, "SEARCH_INVALID_PATTERN"),
        ({"pattern": "foo", "path": "missing"}, "SEARCH_FAILED"),
    ],
)
async def test_searches_that_cannot_be_made(
    bench: Workbench, arguments: dict[str, str], code: str
) -> None:
    refusal = await bench.refusal("grep", **arguments)
    assert (refusal.code, refusal.name) == (code, "SearchError")
    assert len(str(refusal)) > 20


async def test_too_much_output_ends_the_search(bench: Workbench) -> None:
    bench.put("a.txt", "x\n" * 1_500_000)
    with anyio.fail_after(30):
        refusal = await bench.refusal("grep", pattern="x")
    assert refusal.code == "SEARCH_RAW_OUTPUT_OVERFLOW"


async def test_a_pattern_is_never_taken_for_an_option(bench: Workbench) -> None:
    bench.put("--files", "-e --pre=sh\n")
    assert "Line 1: -e --pre=sh" in await bench.text("grep", pattern="-e")
    assert await bench.text("glob", pattern="--fil*") == "--files"


async def test_files_are_found_oldest_first(bench: Workbench) -> None:
    names = ["c.py", "a.py", "sub/.hidden/b.py", ".git/d.py", "ignored.py", "x.txt", "new\nline.py"]
    for age, name in enumerate(names):
        os.utime(bench.put(name, ""), (1_000_000 + age, 1_000_000 + age))
    bench.put(".gitignore", "ignored.py\n")
    outcome = await bench.call("glob", pattern="**/*.py")
    assert outcome.content[0].text == (  # type: ignore[union-attr]
        "c.py\na.py\nsub/.hidden/b.py\nignored.py\nnew\nline.py"
    )
    assert outcome.meta == {
        "shape": "paths",
        "paths": ["c.py", "a.py", "sub/.hidden/b.py", "ignored.py", "new\nline.py"],
        "truncated": False,
        "total": 5,
    }
    assert await bench.text("glob", pattern=".hidden/*.py", path="sub") == "sub/.hidden/b.py"
    absolute = f"{bench.cwd}/sub"
    assert await bench.text("glob", pattern="**/b.py", path=absolute) == f"{absolute}/.hidden/b.py"
    assert await bench.text("glob", pattern="*.rs") == "No files found"


async def test_many_files_are_cut(bench: Workbench) -> None:
    for number in range(130):
        bench.put(f"{number}.txt", "")
    lines = (await bench.text("glob", pattern="*.txt")).split("\n")
    assert len(lines) == 102
    assert lines[-1].startswith("(Showing 100 of 130 paths. ")
