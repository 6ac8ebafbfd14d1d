"""Images in requests: by value for models that see, in words for those that do not."""

from base64 import b64encode
from collections.abc import Iterable
from typing import Final, Protocol

from dsh_acp.messages import Block, Image, ImageRef, Message, Opaque, ToolResult

BUDGET: Final = 20 * 1024 * 1024
"""Bytes of images in one request; beyond it, the oldest go."""


class Images(Protocol):
    """Where the bytes of images are."""

    def get(self, ref: ImageRef, /) -> bytes:
        """The verified bytes.

        Raises:
            LogError: `ATTACHMENT_MISSING`, `ATTACHMENT_CORRUPT`.
        """
        ...


def placeholder(ref: ImageRef, why: str = "this model does not see images") -> str:
    """What stands for an image in text; always the same for the same image."""
    name = f"{ref.name}, " if isinstance(ref.name, str) and ref.name else ""
    return f"[image not shown: {name}{ref.media_type}, {ref.width}x{ref.height}; {why}]"


def data_url(ref: ImageRef, data: bytes) -> str:
    """The image as a URL that holds it."""
    return f"data:{ref.media_type};base64,{b64encode(data).decode()}"


def images_of(message: Message) -> list[ImageRef]:
    """The images of a message in order, those inside tool results included."""
    # Decoding the blocks of every message only to find no image would double the work.
    return _images(message.content) if b'"image"' in message.json else []


def _images(blocks: Iterable[Block | Opaque]) -> list[ImageRef]:
    found: list[ImageRef] = []
    for block in blocks:
        if isinstance(block, Image):
            found.append(block.attachment)
        elif isinstance(block, ToolResult):
            found += _images(block.content)
    return found


class Budget:
    """How many of the oldest images a request goes without, as a fold over their sizes.

    When the budget is exceeded the oldest go until half of it is free, so that the images left
    out stay the same for many requests, and the prefix with them.
    """

    def __init__(self, limit: int = BUDGET) -> None:
        self.dropped = 0
        self._limit = limit
        self._sizes: list[int] = []
        self._total = 0

    def add(self, message: Message) -> None:
        """Count the images of `message`, which comes after those added before."""
        for ref in images_of(message):
            self._sizes.append(ref.bytes)
            self._total += ref.bytes
            if self._total <= self._limit:
                continue
            while self._total > self._limit // 2 and self.dropped < len(self._sizes) - 1:
                self._total -= self._sizes[self.dropped]
                self.dropped += 1
