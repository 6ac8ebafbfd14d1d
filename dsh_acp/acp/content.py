"""What a person sends, as what the model reads.

Their own words are kept verbatim and in place. A link becomes a readable reference that says where
it leads and whether it can be read; embedded text is included once, clearly delimited; an image
goes to a model that sees and a recording to one that hears; otherwise each is saved as a file and
mentioned. Plain text is never searched for mentions: an `@word` is whatever its author meant.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from anyio import to_thread
from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.acp import links
from dsh_acp.acp.uploads import Uploads, image_type, sound_name
from dsh_acp.errors import DshError, PromptError
from dsh_acp.log.attachments import Attachments
from dsh_acp.log.sounds import audio_type
from dsh_acp.messages import Audio, Block, Image, Text

_NAMED: Final = 3
"""How many models a note names."""


class Note(Struct, frozen=True):
    """Something that the person should know of their prompt."""

    title: str
    text: str


class Reading(Struct):
    """A prompt as blocks for the model.

    `shown` are the blocks to replay, when they are not the same; `notes` are for the person.
    """

    content: list[Block]
    shown: list[dict[str, Any]] | None
    notes: list[Note]


def text_of(blocks: Sequence[Any]) -> str:
    """The text blocks, joined: what a slash command is recognised in."""
    return "".join(
        str(cast(dict[str, Any], block).get("text", ""))
        for block in blocks
        if isinstance(block, dict) and cast(dict[str, Any], block).get("type") == "text"
    )


def is_plain(blocks: Sequence[Any]) -> bool:
    """Whether there is nothing but text, which is read without waiting."""
    return all(
        isinstance(block, dict) and cast(dict[str, Any], block).get("type") == "text"
        for block in blocks
    )


def read_plain(blocks: Sequence[Any]) -> Reading:
    """A prompt of text alone.

    Raises:
        PromptError: `EMPTY_PROMPT`, `INVALID_CONTENT`.
    """
    texts = [_string(block, "text", position) for position, block in enumerate(blocks, 1)]
    joined = jsontext.clean("".join(texts))
    if not joined.strip():
        raise PromptError("The prompt is empty.", code="EMPTY_PROMPT")
    return Reading([Text(joined)], None, [])


async def read(
    blocks: Sequence[Any],
    *,
    cwd: str,
    sees_images: bool,
    hears: bool,
    attachments: Attachments,
    uploads: Uploads,
    hearing: Callable[[], Sequence[str]] = tuple,
) -> Reading:
    """Any prompt. Files are looked at in a thread.

    What the model takes goes to `attachments` and is durable there when this returns; what it
    does not take goes to `uploads`. `hearing` names the models to choose from that would hear.

    Raises:
        PromptError: `EMPTY_PROMPT`, `UNSUPPORTED_CONTENT`, `INVALID_CONTENT`; nothing is stored
            for a prompt that is refused for its shape.
    """
    if is_plain(blocks):
        return read_plain(blocks)
    reader = _Reader(cwd, sees_images, hears, attachments, uploads, hearing)
    for position, block in enumerate(blocks, 1):
        reader.check(position, block)
    return await to_thread.run_sync(reader.read, blocks)


class _Reader:
    def __init__(
        self,
        cwd: str,
        sees_images: bool,
        hears: bool,
        attachments: Attachments,
        uploads: Uploads,
        hearing: Callable[[], Sequence[str]],
    ) -> None:
        self._cwd = cwd
        self._sees_images = sees_images
        self._hears = hears
        self._hearing = hearing
        self._named: Sequence[str] = ()
        self._attachments = attachments
        self._uploads = uploads
        self._content: list[Block] = []
        self._text: list[str] = []
        self._notes: list[Note] = []
        self._decoded: dict[int, bytes] = {}

    # ------------------------------------------------------------ checking

    def check(self, position: int, block: Any) -> None:
        """Refuse a block that cannot be read, before anything is stored."""
        match _kind(block, position):
            case "text":
                _string(block, "text", position)
            case "resource_link":
                _string(block, "uri", position)
            case "image" | "audio" as kind:
                data = _string(block, "data", position)
                self._decoded[position] = _base64(data, position, kind)
                if kind == "audio" and not self._hears:
                    self._named = self._hearing()[:_NAMED]
            case "resource":
                self._check_resource(position, block)
            case kind:
                raise PromptError(
                    f'Prompt block {position}: content of type "{kind}" is not supported.',
                    code="UNSUPPORTED_CONTENT",
                )

    def _check_resource(self, position: int, block: dict[str, Any]) -> None:
        resource = _resource(block, position)
        if "text" not in resource or resource["text"] is None:
            data = _string(resource, "blob", position)
            self._decoded[position] = _base64(data, position, "resource")
        else:
            _string(resource, "text", position)

    # ------------------------------------------------------------ reading

    def read(self, blocks: Sequence[Any]) -> Reading:
        """In a thread: the blocks in order, neighbouring text joined."""
        shown: list[dict[str, Any]] = []
        for position, block in enumerate(blocks, 1):
            match block["type"]:
                case "text":
                    self._text.append(block["text"])
                    shown.append({"type": "text", "text": jsontext.clean(block["text"])})
                case "resource_link":
                    self._text.append(links.reference(block, self._cwd))
                    shown.append(_shown_link(block))
                case "image":
                    name = links.file_name(block.get("uri"))
                    shown.append(self._picture(self._decoded[position], name))
                case "audio":
                    shown.append(self._sound(self._decoded[position], block.get("mimeType")))
                case _:
                    shown.append(self._embedded(position, _resource(block, position)))
        self._end_text()
        if not self._content:
            raise PromptError("The prompt is empty.", code="EMPTY_PROMPT")
        return Reading(self._content, shown, self._notes)

    def _end_text(self) -> None:
        text = jsontext.clean("".join(self._text))
        self._text = []
        if text.strip():
            self._content.append(Text(text))

    def _embedded(self, position: int, resource: dict[str, Any]) -> dict[str, Any]:
        uri = resource.get("uri") if isinstance(resource.get("uri"), str) else ""
        link = links.locate(str(uri), self._cwd)
        name = links.file_name(uri) or "resource"
        if position not in self._decoded:
            place = f' path="{link.path}"' if link.path else ""
            tag = f"<resource uri={links.quoted(str(uri))}{place}>"
            self._text.append(f"\n{tag}\n{resource['text']}\n</resource>\n")
            return _shown_link({"uri": uri, "name": name})
        data = self._decoded[position]
        if image_type(data):
            return self._picture(data, name)
        path = self._uploads.save(data, name)
        where = f" of {link.path}" if link.path else ""
        self._text.append(f"\n[The content{where} ({len(data)} bytes) was saved to {path}]\n")
        return _shown_link({"uri": uri or Path(path).as_uri(), "name": name})

    def _picture(self, data: bytes, name: str | None) -> dict[str, Any]:
        media_type = image_type(data)
        if media_type and self._sees_images:
            try:
                image = self._attachments.put(data, media_type, name)
            except DshError:
                pass  # no usable picture after all; it is still a file
            else:
                self._end_text()
                self._content.append(Image(image))
                return {"type": "attachment", "id": image.attachment_id}
        path = self._uploads.save(data, name or "image")
        why = (
            "the current model does not see images"
            if media_type
            else "it is no PNG, JPEG, WebP or GIF that could be read"
        )
        self._text.append(f"\n[An image ({len(data)} bytes) was saved to {path}; {why}]\n")
        said = f"An image of your prompt was saved to {path}: {why}."
        self._notes.append(Note("Image saved", said))
        return {"type": "text", "text": f"[image {name or path}]"}

    def _sound(self, data: bytes, claimed: Any) -> dict[str, Any]:
        is_known = audio_type(data) is not None
        if is_known and self._hears:
            sound = self._attachments.put_audio(data)
            self._end_text()
            self._content.append(Audio(sound))
            return {"type": "attachment", "id": sound.attachment_id}
        path = self._uploads.save(data, sound_name(data, claimed))
        reasons: list[str] = []
        remedies: list[str] = []
        if not self._hears:
            reasons.append("the current model does not hear")
            named = ", ".join(self._named) or "none of those to choose from does"
            remedies.append(f"choose a model that hears ({named})")
        if not is_known:
            reasons.append("it is no WAV or MP3")
            remedies.append("send it as WAV or MP3")
        why, what = " and ".join(reasons), " and ".join(remedies)
        self._text.append(f"\n[A recording ({len(data)} bytes) was saved to {path}; {why}]\n")
        said = (
            f"A recording of your prompt was saved to {path}, and the model was told where it is: "
            f"{why}. To have it heard, {what}."
        )
        self._notes.append(Note("Recording not heard", said))
        return {"type": "text", "text": f"[recording {path}]"}


# ---------------------------------------------------------------- shapes


def _kind(block: Any, position: int) -> str:
    kind = cast(dict[str, Any], block).get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise PromptError(f"Prompt block {position} is no content block.", code="INVALID_CONTENT")
    return kind


def _string(block: Any, key: str, position: int) -> str:
    value = cast(dict[str, Any], block).get(key)
    if not isinstance(value, str):
        raise PromptError(
            f'Prompt block {position}: "{key}" is missing or no text.', code="INVALID_CONTENT"
        )
    return value


def _resource(block: dict[str, Any], position: int) -> dict[str, Any]:
    value = block.get("resource")
    if not isinstance(value, dict):
        raise PromptError(
            f'Prompt block {position}: "resource" is missing.', code="INVALID_CONTENT"
        )
    return cast(dict[str, Any], value)


def _base64(text: str, position: int, what: str) -> bytes:
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data:
        raise PromptError(
            f"Prompt block {position}: the data of the {what} is not valid base64.",
            code="INVALID_CONTENT",
        )
    return data


def _shown_link(block: dict[str, Any]) -> dict[str, Any]:
    uri = str(block.get("uri", ""))
    name = block.get("name")
    return {
        "type": "resource_link",
        "uri": uri,
        "name": name if isinstance(name, str) else links.file_name(uri) or uri,
    }
