"""Request bodies whose cost grows with what is new.

A conversation's body is a head, its messages, and a tail. The head and the messages are kept with
a running hash, and the next request of the same session adds to them. Whatever does not extend
what is kept is encoded anew: the bytes are the same either way.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Final, Generic, Protocol, TypeVar

from dsh_acp.llm.media import Budget, Senses
from dsh_acp.llm.provider import Body
from dsh_acp.messages import Message, Request

MAX_SESSIONS: Final = 32
MAX_BYTES: Final = 64 * 1024 * 1024


class Key(Protocol):
    """What decides the encoding of messages, besides the messages."""

    @property
    def senses(self) -> Senses: ...


K = TypeVar("K", bound=Key)


class Encoder(Protocol):
    """Encodes the messages of one body, in order.

    `add` gives bytes that later messages never change. What may still change is in `tail`.
    `call_ids` are those of all calls so far.
    """

    call_ids: set[str]

    def add(self, message: Message) -> bytes: ...

    def tail(self) -> bytes: ...


class Format(Protocol[K]):
    """How a wire format builds bodies. `key` and `dropped` decide everything but the messages."""

    def key(self, request: Request) -> K: ...

    def head(self, key: K, request: Request) -> bytes: ...

    def encoder(self, key: K, dropped: int) -> Encoder: ...

    def foot(self, key: K, request: Request) -> bytes: ...


class _Kept(Generic[K]):
    """What is kept of one conversation."""

    def __init__(self, key: K, head: bytes, encoder: Encoder, budget: Budget) -> None:
        self.key: Final = key
        self.dropped: Final = budget.dropped
        self.head: Final = head
        self.encoder: Final = encoder
        self.budget: Final = budget
        self.messages: list[Message] = []
        self.data = bytearray(head)
        self.hash = sha256(head)

    def add(self, message: Message) -> None:
        piece = self.encoder.add(message)
        self.messages.append(message)
        self.data += piece
        self.hash.update(piece)


class Bodies(Generic[K]):
    """Bodies of one format; what it keeps is bounded, the least recently used goes first."""

    def __init__(self, form: Format[K]) -> None:
        self._form = form
        self._kept: OrderedDict[tuple[str, str], _Kept[K]] = OrderedDict()

    def body(self, request: Request) -> Body:
        """The bytes for `request` and their hash.

        Raises:
            LogError: an attachment is missing or corrupt.
        """
        name = (request.session_id, request.purpose)
        key = self._form.key(request)
        head = self._form.head(key, request)
        kept = self._kept.pop(name, None)
        if kept is not None and kept.key == key and kept.head == head:
            kept = self._extended(kept, request.messages)
        else:
            kept = None
        if kept is None:
            kept = self._anew(key, head, request.messages)
        self._keep(name, kept)
        tail = kept.encoder.tail() + self._form.foot(key, request)
        digest = kept.hash.copy()
        digest.update(tail)
        return Body(b"".join((kept.data, tail)), digest.hexdigest())

    def call_ids(self, request: Request) -> Collection[str]:
        """The ids of the calls in `request`, as far as its body is still kept."""
        kept = self._kept.get((request.session_id, request.purpose))
        return kept.encoder.call_ids if kept is not None else ()

    def _extended(self, kept: _Kept[K], messages: Sequence[Message]) -> _Kept[K] | None:
        size = len(kept.messages)
        if len(messages) < size:
            return None
        # Comparing lists looks at identity first, so what was there before costs a pointer.
        if kept.messages != list(messages[:size]):
            return None
        added = messages[size:]
        for message in added:
            kept.budget.add(message)
        if kept.budget.dropped != kept.dropped:
            return None
        for message in added:
            kept.add(message)
        return kept

    def _anew(self, key: K, head: bytes, messages: Sequence[Message]) -> _Kept[K]:
        budget = Budget(key.senses.takes)
        for message in messages:
            budget.add(message)
        kept = _Kept(key, head, self._form.encoder(key, budget.dropped), budget)
        for message in messages:
            kept.add(message)
        return kept

    def _keep(self, name: tuple[str, str], kept: _Kept[K]) -> None:
        self._kept[name] = kept
        size = sum(len(item.data) for item in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > MAX_SESSIONS or size > MAX_BYTES):
            _, gone = self._kept.popitem(last=False)
            size -= len(gone.data)
