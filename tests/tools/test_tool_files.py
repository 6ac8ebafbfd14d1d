"""`read`, `write` and `edit`: what the model reads, and what it may not do."""

import os

import anyio
import pytest
from workbench import Workbench

from dsh_acp.messages import encode_blocks
from dsh_acp.tools import disk
from dsh_acp.tools.tool import FileDiff, FileRead, Version
from dsh_acp.tools.world import LocalWorld


def envelope(path: object, body: str) -> str:
    return f"<path>{path}</path>\n<type>file</type>\n<content>\n{body}\n</content>"


async def test_a_page_numbers_its_lines_and_says_where_the_file_ends(bench: Workbench) -> None:
    path = bench.put("a.txt", "one\r\ntwo\n\nfour")
    assert await bench.text("read", file_path="a.txt") == envelope(
        path, "1: one\n2: two\n3: \n4: four\n\n(End of file - total 4 lines)"
    )


async def test_an_empty_file_has_only_a_footer(bench: Workbench) -> None:
    path = bench.put("a.txt", "")
    wanted = envelope(path, "(End of file - total 0 lines)")
    assert await bench.text("read", file_path="a.txt", offset=1) == wanted


async def test_a_page_says_how_to_go_on(bench: Workbench) -> None:
    path = bench.put("a.txt", "\n".join(map(str, range(1, 11))))
    assert await bench.text("read", file_path="a.txt", offset=3, limit="2") == envelope(
        path, "3: 3\n4: 4\n\n(Showing lines 3-4 of 10. Use offset=5 to continue.)"
    )


async def test_a_page_holds_fifty_kibibytes(bench: Workbench) -> None:
    bench.put("a.txt", ("x" * 1023 + "\n") * 60)
    text = await bench.text("read", file_path="a.txt")
    assert text.endswith(
        "(Output capped. Showing lines 1-50. Use offset=51 to continue.)\n</content>"
    )


@pytest.mark.parametrize("char", ["x", "读", "😀"])
async def test_a_long_line_is_cut_at_2000_utf16_units(bench: Workbench, char: str) -> None:
    bench.put("a.txt", char * 3000)
    line = (await bench.text("read", file_path="a.txt")).split("\n")[3]
    kept = 2000 // (len(char.encode("utf-16-le")) // 2)
    assert line == "1: " + char * kept + "... (line truncated to 2000 chars)"


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        ({"file_path": "no.txt"}, "FS_NOT_FOUND", 'cannot read "{}/no.txt": not found'),
        ({"file_path": "a.txt/x"}, "FS_NOT_DIRECTORY", 'cannot read "{}/a.txt/x": not a directory'),
        ({"file_path": "."}, "FS_NOT_REGULAR_FILE", 'cannot read "{}": not a regular file'),
        (
            {"file_path": "/dev/zero"},
            "FS_NOT_REGULAR_FILE",
            'cannot read "/dev/zero": not a regular',
        ),
        ({"file_path": "pipe"}, "FS_NOT_REGULAR_FILE", 'cannot read "{}/pipe": not a regular file'),
        ({"file_path": "nul.bin"}, "FS_NOT_TEXT", 'cannot read "{}/nul.bin": binary file'),
        ({"file_path": "loop"}, "FS_IO_ERROR", "too many levels of symbolic links"),
        ({"file_path": "a\0b"}, "FS_NOT_FOUND", "not a valid path"),
        (
            {"file_path": "a.txt", "offset": 4},
            "FS_NOT_FOUND",
            'offset 4 is out of range for "{}/a.txt" (1 lines)',
        ),
    ],
)
async def test_what_cannot_be_read_is_refused_at_once(
    bench: Workbench, arguments: dict[str, str], code: str, reason: str
) -> None:
    bench.put("a.txt", "x\n")
    bench.put("nul.bin", b"ab\0cd")
    os.mkfifo(bench.folder / "pipe")
    (bench.folder / "loop").symlink_to("loop")
    with anyio.fail_after(30):
        refusal = await bench.refusal("read", **arguments)
    assert refusal.code == code
    assert refusal.name == "FsError"
    assert reason.format(bench.cwd) in str(refusal)


async def test_a_file_beyond_ten_mebibytes_is_read_in_constant_memory(bench: Workbench) -> None:
    lines = 400_000
    bench.put("big.txt", "".join(f"line {n} of a big file\n" for n in range(1, lines + 1)) * 2)
    text = await bench.text("read", file_path="big.txt", offset=lines, limit=2)
    assert f"{lines}: line {lines} of a big file\n{lines + 1}: line 1 of a big file\n" in text
    assert f"(Showing lines {lines}-{lines + 1} of {2 * lines}. " in text


async def test_the_last_line_of_a_big_file_needs_no_newline(bench: Workbench) -> None:
    bench.put("big.txt", b"x" * (disk.PIECE - 1) + b"\n" + b"y\n" * (6 * disk.PIECE) + b"end")
    total = 6 * disk.PIECE + 2
    text = await bench.text("read", file_path="big.txt", offset=total)
    assert f"{total}: end\n\n(End of file - total {total} lines)" in text
    first = await bench.text("read", file_path="big.txt", limit=1)
    assert "1: " + "x" * 2000 + "... (line truncated to 2000 chars)\n" in first


async def test_a_sparse_giant_is_refused_without_reading_it(bench: Workbench) -> None:
    with (bench.folder / "giant").open("wb") as file:
        file.truncate(3 << 30)
    with anyio.fail_after(30):
        assert (await bench.refusal("read", file_path="giant")).code == "FS_NOT_TEXT"
        assert (await bench.refusal("edit", file_path="giant", old_string="a", new_string="b")).code


async def test_a_new_file_is_created_with_its_folders(bench: Workbench) -> None:
    outcome = await bench.call("write", file_path="a/b/c.txt", content="x\r\n")
    assert outcome.content[0].text == envelope(bench.folder / "a/b/c.txt", "Created file")  # type: ignore[union-attr]
    assert outcome.meta == {"diffs": []}
    assert bench.bytes_of("a/b/c.txt") == b"x\r\n"
    # What was just written is known, so it may be changed at once.
    await bench.call("edit", file_path="a/b/c.txt", old_string="x", new_string="y")
    assert bench.bytes_of("a/b/c.txt") == b"y\r\n"


async def test_an_unread_file_is_neither_overwritten_nor_edited(bench: Workbench) -> None:
    path = bench.put("a.txt", "old\n")
    refusal = await bench.refusal("write", file_path="a.txt", content="new\n")
    assert str(refusal) == (
        f'cannot overwrite existing "{path}" without reading it first — read the file, then retry'
    )
    assert refusal.code == "FS_NOT_OBSERVED"
    refusal = await bench.refusal("edit", file_path="a.txt", old_string="old", new_string="new")
    assert str(refusal) == f'edit requires reading "{path}" first — read the file, then retry'
    assert refusal.code == "FS_NOT_OBSERVED"
    assert bench.bytes_of("a.txt") == b"old\n"


async def test_a_file_changed_by_someone_else_is_not_clobbered(bench: Workbench) -> None:
    path = bench.put("a.txt", "old\n")
    await bench.call("read", file_path="a.txt")
    before = path.stat()
    path.write_bytes(b"odd\n")
    # Same size, same time: only the content tells.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for name, arguments in (
        ("write", {"content": "new\n"}),
        ("edit", {"old_string": "o", "new_string": "n"}),
    ):
        refusal = await bench.refusal(name, file_path="a.txt", **arguments)
        assert refusal.code == "FS_STALE_VERSION"
        assert str(refusal) == (
            f'cannot {name} "{path}": file changed since it was read — re-read the file, then retry'
        )
    assert bench.bytes_of("a.txt") == b"odd\n"


async def test_what_a_command_changed_is_not_edited_from_memory(bench: Workbench) -> None:
    bench.put("a.txt", "one\n")
    await bench.call("read", file_path="a.txt")
    await bench.call("bash", command="echo two > a.txt", description="change")
    edit = {"file_path": "a.txt", "old_string": "two", "new_string": "three"}
    assert (await bench.refusal("edit", **edit)).code == "FS_STALE_VERSION"
    assert bench.bytes_of("a.txt") == b"two\n"
    await bench.call("read", file_path="a.txt")
    await bench.call("edit", **edit)
    assert bench.bytes_of("a.txt") == b"three\n"


async def test_a_giant_line_never_reaches_the_model_whole(bench: Workbench) -> None:
    bench.put("big.json", '{"a": "' + "x" * 5_600_000 + '"}\n')
    for name, arguments in (
        ("read", {"file_path": "big.json"}),
        ("grep", {"pattern": ".*"}),
        ("grep", {"pattern": "x"}),
        ("bash", {"command": "cat big.json", "description": "show"}),
    ):
        outcome = await bench.call(name, **arguments)
        assert len(encode_blocks(outcome.content)) < 70_000
        assert len(str(outcome.meta)) < 70_000


async def test_a_touched_file_with_the_same_content_is_still_known(bench: Workbench) -> None:
    path = bench.put("a.txt", "old\n")
    await bench.call("read", file_path="a.txt")
    path.unlink()
    bench.put("a.txt", "old\n")
    await bench.call("edit", file_path="a.txt", old_string="old", new_string="new")
    assert bench.bytes_of("a.txt") == b"new\n"


async def test_a_file_that_vanished_is_not_written_back(bench: Workbench) -> None:
    path = bench.put("a.txt", "old\n")
    await bench.call("read", file_path="a.txt")
    path.unlink()
    refusal = await bench.refusal("write", file_path="a.txt", content="new")
    assert refusal.code == "FS_STALE_VERSION"
    assert f'cannot write "{path}": file no longer exists — ' in str(refusal)
    # Once the model has seen that it is gone, it may create it.
    await bench.refusal("read", file_path="a.txt")
    await bench.call("write", file_path="a.txt", content="new")
    assert bench.bytes_of("a.txt") == b"new"


async def test_a_file_that_appeared_meanwhile_is_not_overwritten(bench: Workbench) -> None:
    await bench.refusal("read", file_path="a.txt")
    bench.put("a.txt", "theirs")
    assert (await bench.refusal("write", file_path="a.txt", content="x")).code == "FS_NOT_OBSERVED"
    assert bench.bytes_of("a.txt") == b"theirs"


async def test_the_world_refuses_what_changed_between_check_and_write(bench: Workbench) -> None:
    world = LocalWorld()
    path = bench.put("a.txt", "one")
    seen = await world.read(str(path))
    path.write_bytes(b"two")
    for expected in (seen.version, None):
        with pytest.raises(Exception, match="cannot write") as caught:
            await world.write(str(path), b"mine", expected)
        assert getattr(caught.value, "code", "") == "FS_STALE_VERSION"
    assert path.read_bytes() == b"two"
    assert os.listdir(bench.folder) == ["a.txt"]


async def test_texts_of_an_edit(bench: Workbench) -> None:
    path = bench.put("a.txt", "a b a\n")
    await bench.call("read", file_path="a.txt")
    edit = {"file_path": "a.txt", "old_string": "a", "new_string": "c"}
    refusal = await bench.refusal("edit", **edit)
    assert (refusal.code, str(refusal)) == (
        "FS_AMBIGUOUS_EDIT",
        f'old_string matched 2 times in "{path}"; '
        "provide a more specific old_string or set replace_all to true",
    )
    refusal = await bench.refusal("edit", **edit | {"old_string": "nowhere"})
    assert (refusal.code, str(refusal)) == (
        "FS_EDIT_NOT_FOUND",
        f'old_string was not found in "{path}"',
    )
    assert await bench.text("edit", **edit, replace_all="true") == (
        f"The file {path} has been updated. All occurrences were successfully replaced."
    )
    assert await bench.text("edit", **edit | {"old_string": "b"}) == (
        f"The file {path} has been updated successfully."
    )
    assert bench.bytes_of("a.txt") == b"c c c\n"


async def test_an_inexact_match_is_told(bench: Workbench) -> None:
    bench.put("a.py", "def f():\n\treturn “it’s”  \n\nx = 1\n")
    await bench.call("read", file_path="a.py")
    text = await bench.text(
        "edit", file_path="a.py", old_string='return "it\'s"', new_string='return "its"'
    )
    assert text.endswith("successfully. (old_string matched after reading typographic characters.)")
    assert bench.bytes_of("a.py").decode() == "def f():\n\treturn “its”  \n\nx = 1\n"
    text = await bench.text(
        "edit",
        file_path="a.py",
        old_string="def f():\n    return “its”\n",
        new_string="def f():\n    y = 2\n    return “its”\n",
    )
    assert text.endswith("successfully. (old_string matched after ignoring blanks at line ends.)")
    assert bench.bytes_of("a.py").decode() == "def f():\n\ty = 2\n\treturn “its”  \n\nx = 1\n"


async def test_two_edits_at_once_both_take_effect_in_call_order(bench: Workbench) -> None:
    bench.put("a.py", "".join(f"line {n}\n" for n in range(1, 51)))
    await bench.call("read", file_path="a.py")
    (bench.folder / "link.py").symlink_to("a.py")
    diffs: list[object] = []

    async def edit(name: str, line: int) -> None:
        outcome = await bench.call(
            "edit", file_path=name, old_string=f"line {line}\n", new_string=f"LINE {line}\n"
        )
        diffs.append(outcome.meta)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for name, line in (("a.py", 1), ("link.py", 50), ("a.py", 25)):
                group.start_soon(edit, name, line)
    text = bench.bytes_of("a.py").decode()
    assert [n for n in range(1, 51) if f"LINE {n}\n" in text] == [1, 25, 50]
    assert [str(meta).count("LINE") for meta in diffs] == [1, 1, 1]


async def test_a_preview_is_the_change_against_the_disk(bench: Workbench) -> None:
    path = bench.put("a.txt", "".join(f"{n}\r\n" for n in range(1, 21)))
    empty = bench.put("empty.txt", "")
    await bench.call("read", file_path="a.txt")
    edit = {"file_path": "a.txt", "old_string": "10\n", "new_string": "ten\n"}
    wanted = FileDiff(str(path), "7\n8\n9\n10\n11\n12\n13", "7\n8\n9\nten\n11\n12\n13", line=7)
    assert await bench.preview("edit", **edit) == (wanted,)
    new = bench.folder / "new.txt"
    assert await bench.preview("write", file_path="new.txt", content="x") == (
        FileDiff(str(new), None, "x"),
    )
    assert await bench.preview("write", file_path="empty.txt", content="x") == (
        FileDiff(str(empty), "", "x"),
    )
    assert await bench.preview("edit", **edit | {"old_string": "nowhere"}) == ()
    assert await bench.preview("write", file_path=".", content="x") == ()
    # Nothing of this is an effect.
    assert bench.bytes_of("empty.txt") == b""
    assert not new.exists()


class FormattingWorld(LocalWorld):
    """An editor that formats what it saves."""

    async def write(
        self, path: str, data: bytes, expected: Version | None, *, real: str | None = None
    ) -> Version:
        return await super().write(path, data.replace(b"\t", b"    "), expected)


async def test_the_diff_is_what_an_editor_that_formats_has_stored(bench: Workbench) -> None:
    bench.world = FormattingWorld()
    card = await bench.final_card("write", file_path="a.py", content="if x:\n\ty = 1\n")
    assert [(diff.old, diff.new) for diff in card.diffs] == [(None, "if x:\n    y = 1\n")]
    card = await bench.final_card(
        "edit", file_path="a.py", old_string="    y = 1\n", new_string="\ty = 1\n\tz = 2\n"
    )
    assert card.diffs == (
        FileDiff(str(bench.folder / "a.py"), "if x:\n    y = 1", "if x:\n    y = 1\n    z = 2"),
    )
    await bench.call("edit", file_path="a.py", old_string="    z = 2", new_string="    z = 3")


async def test_a_buffer_of_the_editor_is_what_is_read_and_edited(bench: Workbench) -> None:
    class BufferWorld(LocalWorld):
        async def read(self, path: str, max_bytes: int | None = None) -> FileRead:
            data = b"old+unsaved\n"
            return FileRead(data, Version(disk.digest(data)), buffer=True)

        async def write(
            self, path: str, data: bytes, expected: Version | None, *, real: str | None = None
        ) -> Version:
            bench.put("buffer", data)
            return Version(disk.digest(data))

    bench.put("a.txt", "old\n")
    bench.world = BufferWorld()
    assert "1: old+unsaved\n" in await bench.text("read", file_path="a.txt")
    await bench.call("edit", file_path="a.txt", old_string="unsaved", new_string="kept")
    assert bench.bytes_of("buffer") == b"old+kept\n"


async def test_paths_of_every_kind_work(bench: Workbench) -> None:
    for name in ("a\nb.txt", "space d.txt", "读.txt", "-rf", "*", "e\u0301.txt"):
        await bench.call("write", file_path=name, content="x")
        await bench.call("edit", file_path=f"./{name}", old_string="x", new_string="y")
        assert bench.bytes_of(name) == b"y"
