"""Recordings in request bodies: the bytes for who hears, words for who does not."""

from base64 import b64encode
import hashlib
import json
from typing import Any

from hypothesis import given, settings, strategies as st
from llm_talk import PIXELS, request
from msgspec import structs
import pytest

from dsh_acp.agent.summary import transcript
from dsh_acp.commands.transcript import content_text
from dsh_acp.config import ModelSettings, ProviderSettings
from dsh_acp.errors import LogError
from dsh_acp.llm import media
from dsh_acp.llm.anthropic import AnthropicProvider
from dsh_acp.llm.dialects import DIALECTS
from dsh_acp.llm.models import Models, catalogue
from dsh_acp.llm.openai import ChatProvider
from dsh_acp.llm.provider import Provider
from dsh_acp.llm.replay import ReplayProvider
from dsh_acp.llm.replay_script import Script
from dsh_acp.messages import Audio, AudioRef, Image, MediaRef, Message, Text, ToolCall

SPEECH = AudioRef("sha256:cd", "audio/wav", 4, name="note.wav")
SONG = AudioRef("sha256:ef", "audio/mpeg", 3)
BYTES = {"sha256:ab": b"\x89PNG", "sha256:cd": b"RIFF", "sha256:ef": b"\xff\xfb\x90"}
GIVEN = {
    "hears": ModelSettings(audio=True),
    "sees": ModelSettings(vision=True),
    "senses": ModelSettings(vision=True, audio=True),
}


class Shelf:
    """Attachments that are always there; remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, ref: MediaRef, /) -> bytes:
        self.asked.append(ref.attachment_id)
        return BYTES.get(ref.attachment_id, b"?")


def provider(dialect: str = "openai", shelf: Any = None) -> Provider:
    given_ = ProviderSettings(name="p", dialect=dialect, models=GIVEN)
    if dialect == "anthropic":
        return AnthropicProvider(given_, shelf or Shelf())
    return ChatProvider(given_, DIALECTS[dialect], shelf or Shelf())


def said(p: Provider, model: str, *messages: Message) -> list[Any]:
    """The contents of the user's messages in the body."""
    body = json.loads(p.body(request(p, model, messages)).data)
    return [item["content"] for item in body["messages"] if item["role"] == "user"]


HEARD = Message.user((Text("Listen: "), Audio(SPEECH), Audio(SONG)), id="m1")
PLACEHOLDER = "[recording not sent: note.wav, audio/wav, 4 bytes; this model does not hear it]"


@pytest.mark.parametrize("dialect", [*DIALECTS])
def test_a_model_that_hears_gets_the_very_bytes_with_their_format(dialect: str) -> None:
    (content,) = said(provider(dialect), "hears", HEARD)
    assert content == [
        {"type": "text", "text": "Listen: "},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "//uQ", "format": "mp3"}},
    ]
    assert list(content[1]["input_audio"]) == ["data", "format"]


@pytest.mark.parametrize("model", ["m", "sees"])
def test_a_model_that_does_not_hear_reads_that_there_was_a_recording(model: str) -> None:
    (content,) = said(provider(), model, HEARD)
    song = "[recording not sent: audio/mpeg, 3 bytes; this model does not hear it]"
    assert content == f"Listen: \n{PLACEHOLDER}\n{song}"


def test_anthropic_has_no_place_for_recordings_whatever_the_settings_say() -> None:
    p = provider("anthropic")
    assert not p.model("hears").audio and p.model("sees").vision
    (content,) = said(p, "hears", HEARD)
    assert [block["type"] for block in content] == ["text"] * 3
    assert content[1]["text"] == PLACEHOLDER


def test_a_recording_of_a_kind_that_the_wire_does_not_know_is_words() -> None:
    odd = structs.replace(SPEECH, media_type="audio/flac")
    (content,) = said(provider(), "hears", Message.user((Audio(odd),), id="m"))
    assert "audio/flac" in content and "input_audio" not in str(content)


def test_each_model_gets_recordings_in_the_form_that_it_wants() -> None:
    message = Message.user((Audio(SPEECH),), id="m")
    generic = ChatProvider(ProviderSettings(name="p"), DIALECTS["generic"], Shelf())
    wav = b64encode(b"RIFF").decode()
    for model, wanted in {
        "google/gemini-2.5-flash": {"data": wav, "format": "wav"},
        "qwen3-omni-flash": {"data": f"data:;base64,{wav}", "format": "wav"},
        "voxtral-small-latest": wav,
    }.items():
        (content,) = said(generic, model, message)
        assert content == [{"type": "input_audio", "input_audio": wanted}]


def test_the_catalogue_knows_who_hears_under_every_name() -> None:
    hearing = {entry.id for entries in catalogue().values() for entry in entries if entry.audio}
    assert {"gpt-audio", "gpt-4o-audio-preview", "gemini-2.5-pro", "qwen3-omni-flash"} <= hearing
    openai = Models(ProviderSettings(name="openai"), "openai")
    assert openai.get("gpt-4o-audio-preview-2024-12-17").audio
    assert not openai.get("gpt-5").audio and not openai.get("whisper-1").audio
    router = Models(ProviderSettings(name="openrouter"), "openrouter")
    for id in (
        "openai/gpt-audio-mini",
        "google/gemini-2.5-pro",
        "mistralai/voxtral-small-24b-2507",
    ):
        assert router.get(id).audio
    deaf = ProviderSettings(name="o", models={"gpt-audio": ModelSettings(audio=False)})
    assert not Models(deaf, "openai").get("gpt-audio").audio
    # Those that refuse a conversation without sound are not offered by themselves.
    assert "gpt-audio" not in {info.id for info in openai.all()}


def test_a_missing_recording_fails_the_request_loudly_but_only_for_who_hears() -> None:
    class Nothing:
        def get(self, ref: MediaRef, /) -> bytes:
            raise LogError(f"{ref.attachment_id} is missing", code="ATTACHMENT_MISSING")

    p = provider(shelf=Nothing())
    with pytest.raises(LogError):
        p.body(request(p, "hears", [HEARD]))
    assert PLACEHOLDER in said(p, "sees", HEARD)[0]


def test_images_and_recordings_share_one_budget_and_only_what_is_sent_counts() -> None:
    half = media.BUDGET // 2 - 1
    picture = Message.user((Image(structs.replace(PIXELS, bytes=half)),), id="1")
    speech = Message.user((Audio(structs.replace(SPEECH, bytes=half)),), id="2")
    song = Message.user((Audio(structs.replace(SONG, bytes=half)),), id="3")
    shelf = Shelf()
    contents = said(provider(shelf=shelf), "senses", picture, speech, song)
    assert contents[0].startswith("[image not shown:") and "keep the request small" in contents[0]
    assert contents[1].startswith("[recording not sent:") and media.LEFT_OUT in contents[1]
    assert contents[2][0]["type"] == "input_audio" and shelf.asked == ["sha256:ef"]
    # What a model is not sent takes no room from what it is.
    shelf = Shelf()
    contents = said(provider(shelf=shelf), "sees", picture, speech, song)
    assert contents[0][0]["type"] == "image_url" and shelf.asked == ["sha256:ab"]
    shelf = Shelf()
    contents = said(provider(shelf=shelf), "hears", picture, speech, song)
    assert shelf.asked == ["sha256:cd", "sha256:ef"]


def test_recordings_of_tool_results_follow_the_run_of_results() -> None:
    p = provider()
    messages = (
        Message.user((Text("go"),), id="1"),
        Message.assistant((ToolCall("c", "read", "{}"),), "p", "hears", id="2"),
        Message.tool_result("c", (Text("data"), Audio(SPEECH)), False, id="3"),
    )
    body = json.loads(p.body(request(p, "hears", messages)).data)["messages"]
    assert body[-2] == {"role": "tool", "tool_call_id": "c", "content": "data"}
    assert body[-1]["role"] == "user" and body[-1]["content"][1]["type"] == "input_audio"


def test_a_replay_builds_the_bodies_that_were_sent() -> None:
    sent = ChatProvider(ProviderSettings(name="openai"), DIALECTS["openai"], Shelf())
    replayed = ReplayProvider([Script((), "openai", "gpt-audio")], Shelf())
    asked = request(sent, "gpt-audio", [HEARD])
    assert replayed.body(asked) == sent.body(asked)
    assert b"input_audio" in sent.body(asked).data


def test_a_recording_is_told_in_words_where_there_is_only_text() -> None:
    assert "(recording)" in transcript([HEARD])
    assert content_text(HEARD.content).splitlines()[1] == "[recording, audio/wav, 4 bytes]"


MEDIA = st.sampled_from(
    [Image(PIXELS), Audio(SPEECH), Audio(SONG)]
    + [Audio(structs.replace(SPEECH, bytes=size << 20)) for size in (3, 9, 15)]
    + [Image(structs.replace(PIXELS, bytes=size << 20)) for size in (5, 11)]
)
BLOCKS = st.lists(st.one_of(st.builds(Text, st.text(max_size=3)), MEDIA), max_size=3)
MESSAGES = st.one_of(
    st.builds(lambda blocks, id: Message.user(blocks, id=id), BLOCKS, st.uuids().map(str)),
    st.builds(
        lambda id: Message.assistant([ToolCall("c", "read", "{}")], "p", "m", id=id),
        st.uuids().map(str),
    ),
    st.builds(
        lambda blocks, id: Message.tool_result("c", blocks, False, id=id),
        BLOCKS,
        st.uuids().map(str),
    ),
)


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@settings(max_examples=40)
@given(messages=st.lists(MESSAGES, min_size=1, max_size=10), data=st.data())
def test_a_body_with_recordings_is_the_same_however_it_came_about(
    dialect: str, messages: list[Message], data: st.DataObject
) -> None:
    kept = provider(dialect)
    for size in data.draw(st.lists(st.integers(0, len(messages)), max_size=6)):
        model = data.draw(st.sampled_from(["m", "hears", "sees", "senses"]))
        shelf = Shelf()
        asked = request(kept, model, messages[:size])
        fresh = provider(dialect, shelf).body(asked)
        assert kept.body(asked) == fresh
        assert fresh.sha256 == hashlib.sha256(fresh.data).hexdigest()
        # Every byte that the model gets is that of an attachment the messages name.
        sent = fresh.data.count(b'"input_audio":') + fresh.data.count(b'"image_url":')
        assert dialect == "anthropic" or sent == 0 or shelf.asked
