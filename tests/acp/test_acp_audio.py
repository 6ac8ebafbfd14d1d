"""Recordings in prompts: heard, or saved and said; the same live, loaded and forked."""

import base64
from pathlib import Path
from typing import Any

from acp_bench import Bench, Editor, say
import pytest

from dsh_acp.log.attachments import Attachments
from dsh_acp.messages import Audio, Message

FORM = b"fmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0"
WAV = b"RIFF\x2c\0\0\0WAVE" + FORM + b"data\x08\0\0\0" + b"\x80" * 8
MP3 = b"ID3\x04\0\0\0\0\0\x02\0\0\xff\xfb\x90\x44" + bytes(40)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def audio(data: bytes = WAV, kind: str = "audio/wav") -> dict[str, Any]:
    return {"type": "audio", "data": base64.b64encode(data).decode(), "mimeType": kind}


def typed(bench: Bench) -> Message:
    """What the person sent, as the last request had it."""
    asked = [request for request in bench.model.requests if request.purpose == "conversation"]
    return [m for m in asked[-1].messages if m.kind == "user"][-1]


def saved(bench: Bench, read: str, data: bytes) -> Path:
    """The private file that the model was told of; it holds `data`."""
    path = Path(read.split("was saved to ")[1].split(";")[0])
    assert path.read_bytes() == data and path.parent == bench.home / "uploads"
    assert path.stat().st_mode & 0o777 == 0o600
    return path


async def prompted(bench: Bench, editor: Editor, *blocks: dict[str, Any]) -> str:
    """The session of one prompt."""
    bench.script(say("ok"))
    session = await editor.new()
    assert await editor.prompt(session, list(blocks)) == {"stopReason": "end_turn"}
    return session


async def test_both_versions_of_the_handshake_say_that_recordings_are_taken(bench: Bench) -> None:
    async with bench.editor() as editor:
        capabilities = (await editor.initialize())["agentCapabilities"]["promptCapabilities"]
        assert capabilities == {"image": True, "audio": True, "embeddedContext": True}


@pytest.mark.parametrize(
    ("data", "kind"), [(WAV, "audio/wav"), (MP3, "audio/mpeg")], ids=["wav", "mp3"]
)
async def test_a_recording_reaches_a_model_that_hears_and_comes_back_in_a_replay(
    bench: Bench, data: bytes, kind: str
) -> None:
    bench.model.audio = True
    async with bench.editor() as live:
        await live.initialize(session={"notices": {}})
        # What the bytes say wins over what the client claims.
        session = await prompted(bench, live, text("what is "), audio(data, "x/y"), text(" this?"))
        assert live.updates("notice") == []
    message = typed(bench)
    assert [type(block).__name__ for block in message.content] == ["Text", "Audio", "Text"]
    sound = message.content[1]
    assert isinstance(sound, Audio)
    assert (sound.attachment.media_type, sound.attachment.bytes) == (kind, len(data))
    # The object was durable before anything referred to it, and lies beside the log alone.
    assert Attachments(bench.home).get(sound.attachment) == data
    assert not (bench.home / "uploads").exists()
    async with bench.editor() as loaded:
        await loaded.initialize()
        await loaded.call("session/load", sessionId=session, cwd=str(bench.cwd))
        shown = [update["content"] for update in loaded.updates("user_message_chunk")]
        assert shown == [text("what is "), audio(data, kind), text(" this?")]


async def test_a_recording_alone_is_a_prompt(bench: Bench) -> None:
    bench.model.audio = True
    async with bench.editor() as editor:
        await editor.initialize()
        session = await prompted(bench, editor, audio())
        listed = (await editor.call("session/list"))["sessions"]
        assert [item["sessionId"] for item in listed] == [session]
    assert [type(block).__name__ for block in typed(bench).content] == ["Audio"]


async def test_a_model_that_does_not_hear_is_told_where_the_file_is_and_the_person_what_to_do(
    bench: Bench,
) -> None:
    async with bench.editor() as editor:
        await editor.initialize(session={"notices": {}})
        await prompted(bench, editor, text("write it down"), audio())
        (notice,) = editor.updates("notice")
    read = bench.model.seen[0]
    path = saved(bench, read, WAV)
    assert path.suffix == ".wav"
    assert read.startswith("write it down") and "the current model does not hear" in read
    assert str(path) in notice["description"]
    assert "choose a model that hears (none of those to choose from does)" in notice["description"]


@pytest.mark.parametrize(
    ("data", "claimed", "ending"),
    [
        (b"OggS" + bytes(20), "audio/ogg; codecs=opus", ".ogg"),
        (b"fLaC" + bytes(20), "AUDIO/FLAC", ".flac"),
        (b"no sound at all", "audio/../../x.sh\nIgnore this", ".bin"),
        (b"RIFF\0\0\0\0WAVE", "audio/wav", ".wav"),
        (b"\0", "", ".bin"),
    ],
)
async def test_a_kind_that_no_wire_has_a_name_for_is_a_file_even_for_who_hears(
    bench: Bench, data: bytes, claimed: str, ending: str
) -> None:
    bench.model.audio = True
    async with bench.editor() as editor:
        await editor.initialize(session={"notices": {}})
        await prompted(bench, editor, audio(data, claimed))
        (notice,) = editor.updates("notice")
        assert "it is no WAV or MP3" in notice["description"] and "Ignore" not in str(notice)
    read = bench.model.seen[0]
    assert saved(bench, read, data).suffix == ending and "Ignore" not in read
    assert "does not hear" not in read


async def test_a_fork_and_a_later_prompt_have_the_recording_too(bench: Bench) -> None:
    bench.model.audio = True
    async with bench.editor() as editor:
        await editor.initialize()
        session = await prompted(bench, editor, audio(), text("listen"))
        first = typed(bench)
        forked = await editor.call(
            "session/fork", sessionId=session, cwd=str(bench.cwd), mcpServers=[]
        )
        bench.script(say("again"))
        await editor.prompt(forked["sessionId"], "and now?")
    asked = [request for request in bench.model.requests if request.purpose == "conversation"]
    assert first in asked[-1].messages
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.call("session/load", sessionId=forked["sessionId"], cwd=str(bench.cwd))
        shown = [update["content"] for update in editor.updates("user_message_chunk")]
        assert shown == [audio(), text("listen"), text("and now?")]


@pytest.mark.parametrize("how", ["deleted", "damaged"])
async def test_a_replay_goes_on_without_a_recording_that_cannot_be_read(
    bench: Bench, how: str
) -> None:
    bench.model.audio = True
    async with bench.editor() as editor:
        await editor.initialize()
        session = await prompted(bench, editor, audio(), text("listen"))
    sound = typed(bench).content[0]
    assert isinstance(sound, Audio)
    path = Attachments(bench.home).path(sound.attachment)
    path.unlink() if how == "deleted" else path.write_bytes(MP3)
    async with bench.editor() as editor:
        await editor.initialize()
        await editor.call("session/load", sessionId=session, cwd=str(bench.cwd))
        shown = [update["content"] for update in editor.updates("user_message_chunk")]
        assert shown == [text(f"[recording {sound.attachment.attachment_id}]"), text("listen")]
