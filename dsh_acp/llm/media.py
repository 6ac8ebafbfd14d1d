"""Images and recordings in requests: by value for models that take them, else in words."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from dsh_acp.llm.provider import AudioForm, ModelInfo
from dsh_acp.messages import (
    Audio,
    AudioRef,
    Block,
    Image,
    ImageRef,
    MediaRef,
    Message,
    Opaque,
    ToolResult,
)

BUDGET: Final = 20 * 1024 * 1024
"""Bytes of images and recordings in one request; beyond it, the oldest go."""

AUDIO_FORMATS: Final[Mapping[str, str]] = {"audio/wav": "wav", "audio/mpeg": "mp3"}
"""What Chat Completions calls the kinds of recordings that it takes."""

LEFT_OUT: Final = "left out to keep the request small"


class Media(Protocol):
    """Where the bytes of images and recordings are."""

    def get(self, ref: MediaRef, /) -> bytes:
        """The verified bytes.

        Raises:
            LogError: `ATTACHMENT_MISSING`, `ATTACHMENT_CORRUPT`.
        """
        ...


class Senses(Struct, frozen=True):
    """Which attachments a model is given by value, and how it wants recordings."""

    sees: bool = False
    hears: bool = False
    form: AudioForm = "object"

    def takes(self, ref: MediaRef) -> bool:
        """Whether `ref` goes to the model, if there is room."""
        if isinstance(ref, AudioRef):
            return self.hears and ref.media_type in AUDIO_FORMATS
        return self.sees


def senses_of(info: ModelInfo, media: Media | None) -> Senses:
    """The senses of a model; none where there are no bytes to give it."""
    return Senses() if media is None else Senses(info.vision, info.audio, info.audio_form)


def placeholder(ref: MediaRef, why: str = "") -> str:
    """What stands for an attachment in text; always the same for the same attachment."""
    name = f"{ref.name}, " if isinstance(ref.name, str) and ref.name else ""
    if isinstance(ref, AudioRef):
        why = why or "this model does not hear it"
        return f"[recording not sent: {name}{ref.media_type}, {ref.bytes} bytes; {why}]"
    why = why or "this model does not see images"
    return f"[image not shown: {name}{ref.media_type}, {ref.width}x{ref.height}; {why}]"


def data_url(ref: ImageRef, data: bytes) -> str:
    """The image as a URL that holds it."""
    return f"data:{ref.media_type};base64,{b64encode(data).decode()}"


def input_audio(ref: AudioRef, data: bytes, form: AudioForm) -> str | dict[str, str]:
    """The recording as the value of `input_audio`."""
    text = b64encode(data).decode()
    if form == "string":
        return text
    prefix = "data:;base64," if form == "data-url" else ""
    return {"data": prefix + text, "format": AUDIO_FORMATS[ref.media_type]}


def media_of(message: Message) -> list[MediaRef]:
    """The attachments of a message in order, those inside tool results included."""
    # Decoding the blocks of every message only to find nothing would double the work.
    return _media(message.content) if b'"attachmentId"' in message.json else []


def _media(blocks: Iterable[Block | Opaque]) -> list[MediaRef]:
    found: list[MediaRef] = []
    for block in blocks:
        if isinstance(block, Image | Audio):
            found.append(block.attachment)
        elif isinstance(block, ToolResult):
            found += _media(block.content)
    return found


class Budget:
    """How many of the oldest attachments a request goes without, as a fold over their sizes.

    When the budget is exceeded the oldest go until half of it is free, so that what is left out
    stays the same for many requests, and the prefix with it. Only what the model `takes` counts.
    """

    def __init__(self, takes: Callable[[MediaRef], bool], limit: int = BUDGET) -> None:
        self.dropped = 0
        self._takes = takes
        self._limit = limit
        self._sizes: list[int] = []
        self._total = 0

    def add(self, message: Message) -> None:
        """Count the attachments of `message`, which comes after those added before."""
        for ref in filter(self._takes, media_of(message)):
            self._sizes.append(ref.bytes)
            self._total += ref.bytes
            if self._total <= self._limit:
                continue
            while self._total > self._limit // 2 and self.dropped < len(self._sizes) - 1:
                self._total -= self._sizes[self.dropped]
                self.dropped += 1
