"""What a server offers and answers, in plain values that need no SDK."""

from typing import Literal, TypeAlias

from msgspec import Struct


class RemoteTool(Struct, frozen=True, kw_only=True):
    """A tool as its server describes it; `parameters` is the JSON text of an object schema.

    The hints are the server's own word, `None` where it gives none.
    """

    name: str
    title: str = ""
    description: str = ""
    parameters: bytes
    read_only: bool | None = None
    destructive: bool | None = None


class PromptArgument(Struct, frozen=True):
    """One argument of a prompt; all of them are texts."""

    name: str
    required: bool = False


class RemotePrompt(Struct, frozen=True, kw_only=True):
    """A prompt that a server offers."""

    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class Words(Struct, frozen=True):
    """Text of an answer."""

    text: str


class Picture(Struct, frozen=True):
    """An image of an answer, of the kind that the server claims."""

    data: bytes
    media_type: str


class Attached(Struct, frozen=True):
    """Bytes of an answer that are neither text nor image."""

    data: bytes
    media_type: str
    name: str = ""


Piece: TypeAlias = Words | Picture | Attached


class Answer(Struct, frozen=True):
    """What a call, or a prompt, came to."""

    pieces: tuple[Piece, ...]
    is_error: bool = False


State: TypeAlias = Literal["connecting", "ready", "lost", "failed"]


class Status(Struct, frozen=True):
    """Where one server stands.

    `lost` servers were connected once and are started again when a call needs them; `failed` ones
    never were. `reason` is a clause for people, without secrets.
    """

    server: str
    state: State
    reason: str = ""
    tools: int = 0
