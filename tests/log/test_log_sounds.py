"""Recordings beside the log: told by their bytes, kept and checked like images."""

import io
from pathlib import Path
import struct
import zipfile

from hypothesis import given, strategies as st
from msgspec import structs
import pytest

from dsh_acp.errors import LogError, PromptError
from dsh_acp.log.attachments import Attachments
from dsh_acp.log.events import UserMessage
from dsh_acp.log.export import export
from dsh_acp.log.sounds import audio_type
from dsh_acp.log.store import Store
from dsh_acp.log.token_meter import price_block
from dsh_acp.messages import Audio, Message, Opaque, Text, decode_blocks, encode_blocks


def chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def wav(*before: bytes, samples: bytes = b"\x80" * 8) -> bytes:
    form = chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8))
    body = b"WAVE" + b"".join(before) + form + chunk(b"data", samples)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def tag(size: int, flags: int = 0) -> bytes:
    """An ID3v2 tag of `size` bytes, all zero."""
    sizes = bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\x04\x00" + bytes([flags]) + sizes + bytes(size) + bytes(10 if flags & 16 else 0)


FRAME = b"\xff\xfb\x90\x44" + bytes(100)
SOUNDS = [
    ("audio/wav", wav()),
    ("audio/wav", wav(chunk(b"LIST", b"odd"), chunk(b"bext", bytes(600)))),
    ("audio/wav", wav(samples=bytes(3))),
    ("audio/mpeg", FRAME),
    ("audio/mpeg", b"\xff\xf3\x84\xc4" + bytes(10)),
    ("audio/mpeg", b"\xff\xe3\x18\xc4"),
    ("audio/mpeg", tag(0) + FRAME),
    ("audio/mpeg", tag(300) + bytes(77) + FRAME),
    ("audio/mpeg", tag(5, 16) + tag(200) + FRAME),
]
OTHERS = [
    b"",
    b"RIFF",
    b"RIFF\0\0\0\0WEBPVP8 " + bytes(40),
    b"RIFF\x04\0\0\0WAVE",
    b"RIFF\0\0\0\0WAVE" + chunk(b"data", bytes(8)),
    wav(samples=b""),
    b"\xff\xd8\xff\xe0" + bytes(20),
    b"\xff\xfe\xff\xfe" + bytes(20),  # UTF-16 with a byte order mark
    b"\xff\xf1\x50\x80" + bytes(20),  # AAC
    b"\xff\xfd\x90\x44" + bytes(20),  # layer II
    b"\xff\xeb\x90\x44" + bytes(20),  # a version that does not exist
    b"\xff\xfb\xf0\x44" + bytes(20),  # a bitrate that does not exist
    b"\xff\xfb\x9c\x44" + bytes(20),  # a sample rate that does not exist
    tag(10) + b"fLaC" + bytes(20),
    tag(10),
    b"OggS" + bytes(40),
    b"fLaC" + bytes(40),
    b"\0\0\0\x20ftypM4A " + bytes(40),
    b"just words, not a sound",
]


@pytest.mark.parametrize(("kind", "data"), SOUNDS)
def test_a_recording_is_told_as_soon_as_its_bytes_allow(kind: str, data: bytes) -> None:
    told = [audio_type(data[:size]) for size in range(len(data) + 1)]
    assert told[-1] == kind
    known = told.index(kind)
    assert set(told[:known]) == {None} and set(told[known:]) == {kind}


@pytest.mark.parametrize("data", OTHERS)
def test_other_kinds_of_files_are_no_recordings(data: bytes) -> None:
    assert audio_type(data) is None


@given(data=st.binary(max_size=64))
def test_any_bytes_are_something_or_nothing_but_never_an_error(data: bytes) -> None:
    for start in (b"", b"RIFF", b"RIFF\0\0\0\0WAVE", b"ID3\x03\0\0", b"\xff"):
        told = [audio_type(start + data[:size]) for size in range(len(data) + 1)]
        found = [kind for kind in told if kind is not None]
        # What is known stays known, whatever follows.
        assert len(set(found)) <= 1 and told[len(told) - len(found) :] == found


@given(
    sound=st.sampled_from([data for _, data in SOUNDS]),
    at=st.integers(0, 60),
    byte=st.integers(0, 255),
)
def test_a_changed_byte_makes_no_recording_of_the_other_kind(
    sound: bytes, at: int, byte: int
) -> None:
    changed = bytearray(sound)
    changed[min(at, len(changed) - 1)] = byte
    assert audio_type(bytes(changed)) in (audio_type(sound), None)


def test_a_recording_is_kept_by_its_content_and_checked_when_read(tmp_path: Path) -> None:
    attachments = Attachments(tmp_path)
    ref = attachments.put_audio(wav(), "note.wav")
    assert (ref.media_type, ref.bytes, ref.name) == ("audio/wav", len(wav()), "note.wav")
    assert attachments.path(ref).stat().st_mode & 0o777 == 0o600
    assert Attachments(tmp_path).get(ref) == wav()
    assert attachments.put_audio(wav()).attachment_id == ref.attachment_id
    for other in (
        structs.replace(ref, bytes=1),
        structs.replace(ref, media_type="audio/mpeg"),
        structs.replace(ref, attachment_id="x"),
    ):
        with pytest.raises(LogError) as caught:
            attachments.get(other)
        assert caught.value.code == "ATTACHMENT_CORRUPT"
    attachments.path(ref).write_bytes(wav(samples=b"\x81" * 8))
    with pytest.raises(LogError) as caught:
        attachments.get(ref)
    assert caught.value.code == "ATTACHMENT_CORRUPT"
    attachments.path(ref).unlink()
    with pytest.raises(LogError) as caught:
        attachments.get(ref)
    assert caught.value.code == "ATTACHMENT_MISSING"


def test_what_is_no_recording_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(PromptError) as caught:
        Attachments(tmp_path / "none").put_audio(b"OggS")
    assert caught.value.code == "UNSUPPORTED_CONTENT" and not (tmp_path / "none").exists()


def test_an_archive_holds_the_recordings_that_its_log_names(tmp_path: Path) -> None:
    store, attachments = Store(tmp_path), Attachments(tmp_path)
    ref = attachments.put_audio(FRAME)
    log = store.create("/w", id="s")
    log.append(UserMessage(Message.user([Audio(ref), Text("listen")])))
    log.flush()
    archive = zipfile.ZipFile(io.BytesIO(export(store, "s", attachments)))
    assert archive.namelist() == ["session.jsonl", f"media/{ref.attachment_id}.mp3"]
    assert archive.read(f"media/{ref.attachment_id}.mp3") == FRAME


def test_a_recording_in_the_log_is_the_same_for_who_does_not_know_of_them(tmp_path: Path) -> None:
    block = Audio(Attachments(tmp_path).put_audio(wav(), "a.wav"))
    text = encode_blocks([block])
    assert decode_blocks(text) == (block,)
    unknown = Opaque(text[1:-1])
    assert encode_blocks([unknown]) == text and price_block(unknown) == price_block(block)
