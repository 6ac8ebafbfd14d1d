"""Bytes outside a change stay as they are, whatever kind of file it is."""

from collections.abc import Callable
import os
from pathlib import Path
import stat

from hypothesis import given, settings, strategies as st
import pytest
from workbench import Workbench

from dsh_acp.errors import ToolError
from dsh_acp.tools import encoding, files
from dsh_acp.tools.arguments import Edit
from dsh_acp.tools.tool import FileRead, Version

BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        pytest.param(
            b"a = 1\r\nb = 2\r\nc = 3\r\n", "a = 1\nb = 2", "a = 1\nb = 22",
            b"a = 1\r\nb = 22\r\nc = 3\r\n", id="CRLF file, LF from the model",
        ),
        pytest.param(
            b"x\r\n" * 99 + b"y\r\n" + b"x\r\n" * 100, "y", "z\nz",
            b"x\r\n" * 99 + b"z\r\nz\r\n" + b"x\r\n" * 100, id="new lines end as the others",
        ),
        pytest.param(
            b"a\nb\n", "a\r\nb", "a\r\nc", b"a\nc\n", id="LF file, CRLF from the model",
        ),
        pytest.param(
            b"a\r\nb\nc\r\nd\n", "a\nb\nc\nd", "a\nB\nc\nd\ne",
            b"a\r\nB\nc\r\nd\ne\n", id="mixed endings stay mixed",
        ),
        pytest.param(
            b"a\nb\r\nc", "b", "b\nb2", b"a\nb\r\nb2\r\nc", id="a new line ends as its neighbour",
        ),
        pytest.param(b"a\rb\rc", "b", "x\ny", b"a\rx\ry\rc", id="old Macintosh endings"),
        pytest.param(b"a\rb\nc\n", "c", "d", b"a\rb\nd\n", id="a lone carriage return"),
        pytest.param(
            BOM + b"using System;\r\n", "using System;", "using X;",
            BOM + b"using X;\r\n", id="byte order mark",
        ),
        pytest.param(
            BOM + b"using System;\r\n", "\ufeffusing System;", "\ufeffusing X;",
            BOM + b"using X;\r\n", id="byte order mark, and one from the model",
        ),
        pytest.param(b"a\nb", "a", "A", b"A\nb", id="no final newline"),
        pytest.param(b"a\n\n\n", "a", "A", b"A\n\n\n", id="blank lines at the end"),
        pytest.param(b"a  \n\tb\t\n", "b", "c", b"a  \n\tc\t\n", id="trailing blanks"),
        pytest.param(
            "价格=1\r\n".encode("gbk"), "=1", "=2", "价格=2\r\n".encode("gbk"), id="GBK",
        ),
        pytest.param(
            "价格=1\n".encode("gbk"), "格", "钱", "价钱=1\n".encode("gbk"), id="GBK, Chinese edit",
        ),
        pytest.param(
            "中文𠀀文本内容=1\n".encode("gb18030"), "=1", "=2",
            "中文𠀀文本内容=2\n".encode("gb18030"), id="GB18030",
        ),
        pytest.param(
            "héllo\n".encode("utf-16"), "llo", "y", "héy\n".encode("utf-16"), id="UTF-16",
        ),
        pytest.param(
            b"\xfe\xff" + "a\r\nb".encode("utf-16-be"), "b", "c\nd",
            b"\xfe\xff" + "a\r\nc\r\nd".encode("utf-16-be"), id="UTF-16, big end first",
        ),
        pytest.param(b"caf\xe9 menu\n", "menu", "bar", b"caf\xe9 bar\n", id="Latin-1"),
        pytest.param(
            b"\x93quoted\x94 text \x80 5\n", "text", "words",
            b"\x93quoted\x94 words \x80 5\n", id="Windows-1252",
        ),
        pytest.param("a\u2028b\x85c\n".encode(), "b", "d", "a\u2028d\x85c\n".encode(), id="U+2028"),
        pytest.param(b"\x1b[31mred\x0c\n", "red", "blue", b"\x1b[31mblue\x0c\n", id="controls"),
    ],
)  # fmt: skip
async def test_an_edit_changes_only_what_it_says(
    bench: Workbench, before: bytes, old: str, new: str, after: bytes
) -> None:
    bench.put("file", before)
    page = await bench.text("read", file_path="file")
    assert "\ufeff" not in page
    card = await bench.final_card("edit", file_path="file", old_string=old, new_string=new)
    assert bench.bytes_of("file") == after
    assert card.diffs
    assert all("\ufeff" not in (diff.old or "") + diff.new for diff in card.diffs)


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "a\nB\n", b"a\r\nB\r\n"),
        (b"a\r\nb\n", "a\nx\nb\n", b"a\r\nx\r\nb\n"),
        (b"a\nb\n", "a\r\nb\r\n", b"a\r\nb\r\n"),
        (BOM + b"a\r\n", "\ufeffb\n", BOM + b"b\r\n"),
        ("价\n".encode("gbk"), "格\n", "格\n".encode("gbk")),
        ("é\n".encode("utf-16"), "è\n", "è\n".encode("utf-16")),
        (b"a\n", "b", b"b"),
        (b"", "b\n", b"b\n"),
        (b"a\n", "", b""),
    ],
)
async def test_an_overwrite_keeps_how_the_file_was_stored(
    bench: Workbench, before: bytes, content: str, after: bytes
) -> None:
    bench.put("file", before)
    await bench.call("read", file_path="file")
    await bench.call("write", file_path="file", content=content)
    assert bench.bytes_of("file") == after


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x01", "binary file"),
        (b"\x7fELF\x02\x01\x01" + bytes(range(1, 32)) * 4 + b"\xff", "binary file"),
        (BOM + b"\xff\xfe", "not valid utf-8 with a byte order mark"),
        (b"\xff\xfea", "not valid utf-16-le with a byte order mark"),
        ("Привет, мир\n".encode("cp1251"), "neither UTF-8 nor another encoding"),
        ("こんにちは\n".encode("shift-jis"), "neither UTF-8 nor another encoding"),
    ],
)
async def test_what_is_no_known_text_is_refused_in_words(
    bench: Workbench, data: bytes, reason: str
) -> None:
    bench.put("file", data)
    refusal = await bench.refusal("read", file_path="file")
    assert refusal.code == "FS_NOT_TEXT"
    assert reason in str(refusal)


async def test_a_character_that_the_encoding_lacks_is_refused(bench: Workbench) -> None:
    bench.put("file", b"caf\xe9 menu\n")
    await bench.call("read", file_path="file")
    for name, arguments in (
        ("edit", {"old_string": "menu", "new_string": "读"}),
        ("write", {"content": "读"}),
    ):
        refusal = await bench.refusal(name, file_path="file", **arguments)
        assert f'cannot {name} "{bench.cwd}/file": its encoding latin-1 has no character' in str(
            refusal
        )
        assert "U+8BFB" in str(refusal)
    assert bench.bytes_of("file") == b"caf\xe9 menu\n"


@pytest.mark.parametrize("size", [512, 1000, 1024, 4096, 8192, encoding.SAMPLE])
@pytest.mark.parametrize("text", ["ç", "读", "😀"])
def test_a_sample_that_ends_within_a_character_is_still_text(size: int, text: str) -> None:
    for lead in range(5):
        data = (b"a" * (size - lead) + text.encode() * 9)[:size]
        assert encoding.detect_start(data) == encoding.UTF8
    assert encoding.detect(("这" * 3000).encode()) == encoding.UTF8


# ---------------------------------------------------------------- what is not content


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def _edited(bench: Workbench, name: str) -> None:
    await bench.call("read", file_path=name)
    await bench.call("edit", file_path=name, old_string="old", new_string="new")


async def test_a_chain_of_links_stays_and_its_target_changes(bench: Workbench) -> None:
    real = bench.put("real.md", "old\n")
    real.chmod(0o755)
    for link, target in (("c.md", "real.md"), ("b.md", "c.md"), ("a.md", "b.md")):
        (bench.folder / link).symlink_to(target)
    await _edited(bench, "a.md")
    assert real.read_text("utf-8") == "new\n"
    assert _mode(real) == 0o755
    assert all((bench.folder / name).is_symlink() for name in ("a.md", "b.md", "c.md"))


async def test_a_link_to_nothing_creates_its_target(bench: Workbench) -> None:
    (bench.folder / "link").symlink_to("sub/target")
    await bench.call("write", file_path="link", content="x")
    assert (bench.folder / "link").is_symlink()
    assert bench.bytes_of("sub/target") == b"x"


async def test_a_cycle_of_links_is_refused(bench: Workbench) -> None:
    (bench.folder / "a").symlink_to("b")
    (bench.folder / "b").symlink_to("a")
    refusal = await bench.refusal("write", file_path="a", content="x")
    assert "too many levels of symbolic links" in str(refusal)
    assert sorted(os.listdir(bench.folder)) == ["a", "b"]


async def test_hard_links_stay_one_file(bench: Workbench) -> None:
    first = bench.put("one", "old and longer than what comes\n")
    os.link(first, bench.folder / "two")
    await _edited(bench, "one")
    assert bench.bytes_of("two") == b"new and longer than what comes\n"
    await bench.call("edit", file_path="one", old_string=" and longer than", new_string="")
    assert bench.bytes_of("two") == b"new what comes\n"
    assert first.stat().st_nlink == 2


async def test_mode_and_attributes_stay(bench: Workbench) -> None:
    path = bench.put("file", "old\n")
    path.chmod(0o4751)
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    await _edited(bench, "file")
    assert _mode(path) == 0o4751
    assert os.getxattr(path, "user.note") == b"kept"


async def test_owner_stays(bench: Workbench) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file to somebody else")
    path = bench.put("file", "old\n")
    os.chown(path, 12345, 23456)
    await _edited(bench, "file")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


async def test_a_new_file_has_the_mode_that_the_umask_says(bench: Workbench) -> None:
    before = os.umask(0o027)
    try:
        await bench.call("write", file_path="file", content="x")
    finally:
        os.umask(before)
    assert _mode(bench.folder / "file") == 0o640


def _as_nobody(work: Callable[[], None]) -> int:
    """Run `work` in a child without root's rights; its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.setgid(65534)
        os.setuid(65534)
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the child must not run the parent's tests
        os._exit(1)


def test_a_read_only_file_is_refused_and_a_read_only_folder_is_written_in_place(
    tmp_path: Path,
) -> None:
    from dsh_acp.tools import disk

    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    locked, inside = tmp_path / "locked", tmp_path / "inside"
    locked.write_bytes(b"old")
    locked.chmod(0o444)
    inside.write_bytes(b"old")
    inside.chmod(0o666)
    inode = inside.stat().st_ino

    def refused() -> None:
        with pytest.raises(ToolError, match="permission denied") as caught:
            disk.write_file(str(locked), b"new", disk.digest_file(str(locked)))
        assert caught.value.code == "FS_PERMISSION_DENIED"

    def written() -> None:
        disk.write_file(str(inside), b"newer", disk.digest_file(str(inside)))

    assert _as_nobody(refused) == 0
    assert _as_nobody(written) == 0
    assert locked.read_bytes() == b"old"
    assert inside.read_bytes() == b"newer"
    assert inside.stat().st_ino == inode


def test_a_full_disk_leaves_the_file_and_no_rest(tmp_path: Path) -> None:
    from dsh_acp.tools import disk

    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    path = tmp_path / "file"
    path.write_bytes(b"old")
    limited = disk.digest_file(str(path))

    def exceed() -> None:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        with pytest.raises(ToolError) as caught:
            disk.write_file(str(path), b"x" * 100, limited)
        assert caught.value.code == "FS_IO_ERROR"

    child = os.fork()
    if not child:
        try:
            exceed()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the child must not run the parent's tests
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file", "home"] or os.listdir(tmp_path) == ["home", "file"]


def test_a_second_byte_order_mark_is_text_and_stays() -> None:
    data = b"\xff\xfe\xff\xfea\0"
    text, known = encoding.decode(data)
    assert text == "\ufeffa"
    assert known.encode(text) == data


# ---------------------------------------------------------------- fuzz

_WORDS = st.text(st.sampled_from("ab é读😀\t\u2028“'"), max_size=4)
_ENDINGS = st.sampled_from(["\n", "\r\n", "\n\n", "\r\n\r\n"])
_TEXTS = st.lists(st.one_of(_WORDS, _ENDINGS), max_size=12).map("".join)
_CODECS = st.sampled_from(
    [("utf-8", b""), ("utf-8", BOM), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")]
)


@settings(max_examples=150)
@given(_TEXTS, _TEXTS, _TEXTS, _CODECS, st.integers(0, 9), st.integers(0, 9))
def test_bytes_around_an_edit_are_untouched(
    head: str, tail: str, new: str, codec: tuple[str, bytes], before: int, after: int
) -> None:
    name, bom = codec
    stored = bom + f"{head}#{tail}".encode(name)
    seen = files.shown(FileRead(stored, Version("")))
    # The mark makes the part unique.
    at = seen.index("#")
    start, end = max(0, at - before), min(len(seen), at + 1 + after)
    new = new.replace("\r\n", "\n")
    args = Edit(file_path="f", old_string=seen[start:end], new_string=new)
    result, note = files.apply("f", FileRead(stored, Version("")), args)
    assert not note
    # The model's view changes exactly as it asked …
    assert result.startswith(bom)
    assert files.shown(FileRead(result, Version(""))) == seen[:start] + new + seen[end:]
    # … and every whole line before and after it keeps its bytes.
    lines_before, lines_after = seen[:start].count("\n"), seen[end:].count("\n")
    old_lines = f"{head}#{tail}".split("\n")
    new_lines = result[len(bom) :].decode(name).split("\n")
    assert new_lines[:lines_before] == old_lines[:lines_before]
    assert new_lines[len(new_lines) - lines_after :] == old_lines[len(old_lines) - lines_after :]


@settings(max_examples=100)
@given(_TEXTS, _TEXTS, _CODECS)
def test_overwriting_a_file_with_what_was_read_changes_nothing(
    head: str, tail: str, codec: tuple[str, bytes]
) -> None:
    name, bom = codec
    stored = bom + (head + tail).encode(name)
    found = FileRead(stored, Version(""))
    assert files.rewritten("f", found, files.shown(found)) == stored
    # A line more touches no other.
    more = files.rewritten("f", found, files.shown(found) + "\nmore")
    assert more.startswith(stored)


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_decoding_is_lossless_or_refused(data: bytes) -> None:
    try:
        text, known = encoding.decode(data)
    except encoding.NotText as exc:
        assert str(exc)
    else:
        assert known.bom + text.encode(known.codec) == data


@settings(max_examples=100)
@given(
    st.text(
        st.sampled_from("的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出"), min_size=2
    )
)
def test_chinese_in_gbk_is_read_as_such(text: str) -> None:
    # Short texts happen to be valid UTF-8 now and then, and nothing can tell.
    text += "中"
    assert encoding.decode(text.encode("gbk"))[0] == text
