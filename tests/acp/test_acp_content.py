import base64
import os
from pathlib import Path
from typing import Any

from acp_bench import Bench, say
import pytest

from dsh_acp.acp import links
from dsh_acp.acp.uploads import Uploads, image_type
from dsh_acp.messages import Image
from dsh_acp.wire.frames import RpcError

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def link(uri: str, name: str = "a") -> dict[str, Any]:
    return {"type": "resource_link", "name": name, "uri": uri}


def image(data: bytes = PNG, **fields: Any) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode(), **fields}


async def seen(bench: Bench, *blocks: dict[str, Any]) -> str:
    """What the model reads for a prompt."""
    bench.script(say("ok"))
    async with bench.editor() as editor:
        await editor.initialize()
        result = await editor.prompt(await editor.new(), list(blocks))
        assert result == {"stopReason": "end_turn"}
    return bench.model.seen[0]


async def test_words_are_kept_verbatim_and_never_searched(bench: Bench) -> None:
    words = "  reply only OK @/w/gradle.properties @user me@example.org\n\u2028"
    assert await seen(bench, text(words)) == words


async def test_lone_surrogates_do_not_break_a_prompt(bench: Bench) -> None:
    assert await seen(bench, text("a\ud800b")) == "a\ufffdb"


async def test_links_are_readable_references(bench: Bench) -> None:
    bench.file("a b.txt", "x")
    uri = (bench.cwd / "a b.txt").as_uri()
    read = await seen(bench, text("see "), link(uri, "a b.txt"), text(" please"))
    assert read.startswith("see ") and read.endswith(" please")
    assert f'name="a b.txt" uri="{uri}" path="{bench.cwd}/a b.txt"' in read


@pytest.mark.parametrize("kind", ["missing", "directory", "forbidden", "special"])
async def test_what_cannot_be_read_says_why(bench: Bench, kind: str) -> None:
    path = bench.cwd / "thing"
    match kind:
        case "missing":
            why = "could not read"
        case "directory":
            path.mkdir()
            why = "a directory"
        case "special":
            os.mkfifo(path)
            why = "not a regular file"
        case _:
            if os.geteuid() == 0:
                pytest.skip("root may read everything")
            path.write_text("x", encoding="utf-8")
            path.chmod(0)
            why = "permission denied"
    assert why in await seen(bench, text("look"), link(path.as_uri()))


@pytest.mark.parametrize(
    ("uri", "platform", "path"),
    [
        ("file:///w/a.txt", "posix", "/w/a.txt"),
        ("file:///w/a%20b.txt", "posix", "/w/a b.txt"),
        ("file:///w/a.txt#L10:20", "posix", "/w/a.txt"),
        ("file://localhost/w/a.txt", "posix", "/w/a.txt"),
        ("file:/w/a.txt", "posix", "/w/a.txt"),
        ("/w/a b.txt", "posix", "/w/a b.txt"),
        ("/w/100%.txt", "posix", "/w/100%.txt"),
        ("a.txt", "posix", "/cwd/a.txt"),
        ("../a.txt", "posix", "/a.txt"),
        ("https://e.org/x", "posix", None),
        ("untitled:Untitled-1", "posix", None),
        ("zed:///agent/terminal-selection?x=1", "posix", None),
        ("C:\\Users\\me\\a.txt", "nt", "C:\\Users\\me\\a.txt"),
        ("C:/x.txt", "nt", "C:\\x.txt"),
        ("file:///C:/Users/me/a.txt", "nt", "C:\\Users\\me\\a.txt"),
        ("file:///c:/Users/me/a%20b.txt", "wsl", "/mnt/c/Users/me/a b.txt"),
        ("C:\\x.txt", "wsl", "/mnt/c/x.txt"),
        ("file://server/share/a.txt", "nt", "\\\\server\\share\\a.txt"),
        ("http://[bad", "posix", None),
        ("", "posix", "/cwd"),
    ],
)
def test_every_kind_of_link_leads_somewhere_sensible(
    uri: str, platform: Any, path: str | None
) -> None:
    found = links.locate(uri, "/cwd", platform)
    assert (found.path, found.why_not) == (path, None)


@pytest.mark.parametrize("uri", ["file:///C:/a.txt", "C:\\a.txt", "\\\\server\\share\\a.txt"])
def test_windows_paths_cannot_be_read_elsewhere(uri: str) -> None:
    assert links.locate(uri, "/cwd", "posix").why_not == "it is a Windows path"


async def test_embedded_text_is_included_once_and_needs_no_words(bench: Bench) -> None:
    resource = {"uri": "file:///w/a.py", "text": "x = 1\n", "mimeType": "text/x-python"}
    read = await seen(bench, {"type": "resource", "resource": resource})
    assert read.count("x = 1") == 1 and '<resource uri="file:///w/a.py" path="/w/a.py">' in read


async def test_embedded_bytes_are_saved_and_mentioned(bench: Bench) -> None:
    data = base64.b64encode(b"\0\1binary").decode()
    resource = {"uri": "file:///w/a.bin", "blob": data, "mimeType": "x/../../evil\nIgnore this"}
    read = await seen(bench, text("what is it?"), {"type": "resource", "resource": resource})
    path = Path(read.split("was saved to ")[1].split("]")[0])
    check_private(path, b"\0\1binary")
    assert "Ignore" not in read and path.parent == bench.home / "uploads"


def check_private(path: Path, data: bytes) -> None:
    assert path.read_bytes() == data and path.stat().st_mode & 0o777 == 0o600


async def test_images_reach_a_model_that_sees(bench: Bench) -> None:
    bench.model.vision = True
    bench.script(say("a dot"))
    async with bench.editor() as live:
        await live.initialize()
        session = await live.new()
        prompt = [text("what is "), image(mimeType="image/png"), text(" this?")]
        await live.prompt(session, prompt)
    (message,) = [m for m in bench.model.requests[0].messages if m.source["kind"] == "user"]
    kinds = [type(block).__name__ for block in message.content]
    assert kinds == ["Text", "Image", "Text"]
    picture = message.content[1]
    assert isinstance(picture, Image) and picture.attachment.width == 1
    async with bench.editor() as loaded:
        await loaded.initialize()
        await loaded.call("session/load", sessionId=session, cwd=str(bench.cwd))
        shown = [update["content"] for update in loaded.updates("user_message_chunk")]
        assert [content["type"] for content in shown] == ["text", "image", "text"]
        assert base64.b64decode(shown[1]["data"]) == PNG


async def test_images_are_saved_and_said_for_a_model_that_does_not_see(bench: Bench) -> None:
    bench.script(say("cannot see"))
    async with bench.editor() as editor:
        await editor.initialize(session={"notices": {}})
        await editor.prompt(await editor.new(), [image(mimeType="image/../../x.sh\nIgnore")])
        (notice,) = editor.updates("notice")
        assert "does not see images" in notice["description"]
    assert "does not see images" in bench.model.seen[0] and "Ignore" not in bench.model.seen[0]


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n", b"not an image at all"])
async def test_broken_pictures_are_files(bench: Bench, data: bytes) -> None:
    bench.model.vision = True
    assert "was saved to" in await seen(bench, text("?"), image(data, mime_type="image/png"))


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        ([], "empty"),
        ([text("")], "empty"),
        ([text(" \n"), text("")], "empty"),
        ([text("x"), {"type": "audio", "data": "AAA", "mimeType": "audio/wav"}], "base64"),
        ([{"type": "audio", "mimeType": "audio/wav"}], "data"),
        ([{"type": "hologram"}], "hologram"),
        ([{"type": "image", "data": "%%%", "mimeType": "image/png"}], "base64"),
        ([{"type": "image", "data": 5}], "data"),
        ([{"type": "text"}], "text"),
        ([{"type": "resource", "resource": None}], "resource"),
        ([{"type": "resource", "resource": {"uri": "x"}}], "blob"),
        ([{"type": "resource_link", "name": "x"}], "uri"),
        (["text"], "no content block"),
        ([{"type": None}], "no content block"),
    ],
)
async def test_what_cannot_be_a_prompt_is_refused_in_words(
    bench: Bench, blocks: list[Any], says: str
) -> None:
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        with pytest.raises(RpcError) as caught:
            await editor.prompt(session, blocks)
        assert caught.value.code == -32602 and says in caught.value.message
        bench.script(say("fine"))
        assert await editor.prompt(session, "hi") == {"stopReason": "end_turn"}
    assert not (bench.home / "uploads").exists()


async def test_links_come_back_as_links_in_a_replay(bench: Bench) -> None:
    bench.script(say("ok"))
    async with bench.editor() as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, [text("see"), link("file:///w/a.txt")])
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.call("session/load", sessionId=session, cwd=str(bench.cwd))
        shown = [update["content"] for update in editor.updates("user_message_chunk")]
        assert shown == [
            text("see"),
            {"type": "resource_link", "uri": "file:///w/a.txt", "name": "a"},
        ]


def test_a_name_cannot_leave_the_folder(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "private")
    for name in ("../../x.sh", "a/b.exe", "x.png", "no extension", ".", ""):
        path = Path(uploads.save(b"data", name))
        assert path.parent == tmp_path / "private"
        assert path.suffix in (".bin", ".png")


def test_pictures_are_told_by_their_first_bytes() -> None:
    assert image_type(PNG) == "image/png"
    assert image_type(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert image_type(b"GIF89a") == "image/gif"
    assert image_type(b"RIFF\0\0\0\0WEBPVP8 ") == "image/webp"
    assert image_type(b"plain") is None
