"""Files as the editor has them: the disk and the buffer, and which of them is right."""

import json
from pathlib import Path
from typing import Any

import pytest

from dsh_acp.acp.client import Client
from dsh_acp.acp.world import EditorWorld
from dsh_acp.errors import ToolError
from dsh_acp.tools.world import LocalWorld
from dsh_acp.wire.frames import RpcError


class Editor:
    """A client's file methods over buffers; `saves` makes a write reach the disk."""

    def __init__(self, *, saves: bool = True) -> None:
        self.buffers: dict[str, str] = {}
        self.saves = saves
        self.format = lambda text: text
        self.refuses = False
        self.calls: list[str] = []

    async def ask(self, method: str, params: Any) -> bytes:
        self.calls.append(method)
        path = params["path"]
        if self.refuses:
            raise RpcError(-32603, "outside of the project")
        if method == "fs/read_text_file":
            if path in self.buffers:
                return json.dumps({"content": self.buffers[path]}).encode()
            try:
                return json.dumps({"content": _read(path)}).encode()
            except OSError:
                raise RpcError(-32002, "no such file") from None
        text = self.format(params["content"])
        if path in self.buffers:
            self.buffers[path] = text
        if self.saves:
            _write(path, text)
        return b"null"


def _read(path: str) -> str:
    return Path(path).read_bytes().decode()


def _write(path: str, text: str) -> None:
    Path(path).write_bytes(text.encode())


def content(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def world(editor: Editor, *, reads: bool = True, writes: bool = True) -> EditorWorld:
    client = Client(reads_files=reads, writes_files=writes)
    return EditorWorld("S", client, editor.ask, LocalWorld())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    put(path, b"old\n")
    return path


async def test_unsaved_text_is_read_and_kept_by_an_edit(file: Path) -> None:
    editor = Editor()
    editor.buffers[str(file)] = "old+unsaved\n"
    it = world(editor)
    read = await it.read(str(file))
    assert read.data == b"old+unsaved\n" and read.buffer
    version = await it.write(str(file), b"old+kept\n", read.version)
    assert editor.buffers[str(file)] == "old+kept\n"
    assert (await it.read(str(file))).version.digest == version.digest


async def test_a_stale_buffer_does_not_bring_old_text_back(file: Path) -> None:
    editor = Editor(saves=False)
    editor.buffers[str(file)] = "old\n"
    it = world(editor)
    assert (await it.read(str(file))).data == b"old\n"
    put(file, b"two\n")  # a command of ours changed it
    assert (await it.read(str(file))).data == b"two\n"


async def test_what_changed_since_it_was_read_is_not_overwritten(file: Path) -> None:
    editor = Editor()
    it = world(editor)
    read = await it.read(str(file))
    put(file, b"someone else\n")
    with pytest.raises(ToolError) as caught:
        await it.write(str(file), b"mine\n", read.version)
    assert caught.value.code == "FS_STALE_VERSION" and content(file) == b"someone else\n"
    editor.buffers[str(file)] = "typed meanwhile\n"
    read = await it.read(str(file))
    editor.buffers[str(file)] = "typed more\n"
    with pytest.raises(ToolError):
        await it.write(str(file), b"mine\n", read.version)


async def test_own_writes_in_a_row_are_not_stale(file: Path) -> None:
    it = world(Editor())
    version = (await it.read(str(file))).version
    for text in (b"one\n", b"two\n", b"three\n"):
        version = await it.write(str(file), text, version)
    assert content(file) == b"three\n"


async def test_an_editor_that_formats_on_save_is_believed(file: Path) -> None:
    editor = Editor()
    editor.format = lambda text: text.replace("\t", "    ")
    it = world(editor)
    version = await it.write(str(file), b"\tx\n", (await it.read(str(file))).version)
    read = await it.read(str(file))
    assert read.data == b"    x\n" and read.version.digest == version.digest
    await it.write(str(file), b"    y\n", version)
    assert content(file) == b"    y\n"


async def test_line_endings_of_the_disk_survive_an_editor_that_hides_them(file: Path) -> None:
    put(file, b"x\r\ny\r\n")
    editor = Editor()
    editor.buffers[str(file)] = "x\ny\n"
    editor.format = lambda text: text.replace("\r\n", "\n")
    it = world(editor)
    read = await it.read(str(file))
    assert read.data == b"x\r\ny\r\n" and not read.buffer
    await it.write(str(file), b"x\r\nz\r\n", read.version)
    assert content(file) == b"x\r\nz\r\n"


async def test_a_byte_order_mark_and_other_encodings_stay_local(file: Path) -> None:
    editor = Editor()
    it = world(editor)
    for data in (b"\xef\xbb\xbfusing\r\n", b"caf\xe9 menu\n", "héllo\n".encode("utf-16")):
        put(file, data)
        read = await it.read(str(file))
        assert read.data == data
        await it.write(str(file), data + data, read.version)
        assert content(file) == data + data
    assert "fs/write_text_file" not in editor.calls


async def test_files_are_created_through_the_editor(tmp_path: Path) -> None:
    editor = Editor()
    path = tmp_path / "deep/er/new.txt"
    await world(editor).write(str(path), b"hi\n", None)
    assert content(path) == b"hi\n" and "fs/write_text_file" in editor.calls
    with pytest.raises(ToolError):
        await world(editor).write(str(path), b"again\n", None)


async def test_a_file_that_only_the_editor_has_is_read(tmp_path: Path) -> None:
    editor = Editor()
    editor.buffers[str(tmp_path / "untitled")] = "draft"
    assert (await world(editor).read(str(tmp_path / "untitled"))).data == b"draft"
    with pytest.raises(ToolError) as caught:
        await world(editor).read(str(tmp_path / "missing"))
    assert caught.value.code == "FS_NOT_FOUND"


async def test_a_client_that_refuses_leaves_it_to_the_disk(file: Path) -> None:
    editor = Editor()
    editor.refuses = True
    it = world(editor)
    read = await it.read(str(file))
    assert read.data == b"old\n"
    await it.write(str(file), b"new\n", read.version)
    assert content(file) == b"new\n"


async def test_unsaved_text_without_a_way_to_write_it_is_refused_in_words(file: Path) -> None:
    editor = Editor()
    editor.buffers[str(file)] = "unsaved\n"
    it = world(editor, writes=False)
    read = await it.read(str(file))
    with pytest.raises(ToolError, match="save"):
        await it.write(str(file), b"new\n", read.version)
    assert content(file) == b"old\n"


async def test_a_client_without_reads_is_not_asked_for_them(file: Path) -> None:
    editor = Editor()
    it = world(editor, reads=False)
    await it.write(str(file), b"new\n", (await it.read(str(file))).version)
    assert editor.calls == ["fs/write_text_file"] and content(file) == b"new\n"


async def test_missing_files_are_named_by_the_disk(tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        await world(Editor()).read(str(tmp_path))
    assert caught.value.code == "FS_NOT_REGULAR_FILE"
