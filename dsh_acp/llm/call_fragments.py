"""Tool calls put together from the fragments of a stream.

The wire is meant to number calls by `index` and to name each one once. Servers share one index
between calls, leave it out, change it midway, repeat or blank ids and names, and send them in any
order. The rules here decide which call a fragment belongs to, from what it brings:

* an id that was seen continues its call; a new one begins a call, unless a call at that index
  still waits for its id;
* a name without an id begins a call when the current one has a name already and is complete, or
  has another name;
* arguments alone continue the newest call at that index, else the last one that is not complete.
"""

from collections.abc import Callable, Collection, Iterator

from msgspec import Raw, Struct

from dsh_acp import jsontext
from dsh_acp.llm.chat_wire import NOTHING, WireCall


class PartialCall(Struct, eq=False):
    """A call as far as it is known. `block` is its index among the blocks, once it has begun.

    `wire_id` is what the server calls it; `id` is that, unless another call has it already.
    """

    key: int | None
    wire_id: str = ""
    id: str = ""
    name: str = ""
    parts: list[str] = []
    size: int = 0
    block: int | None = None
    extra: Raw | None = None

    @property
    def arguments(self) -> str:
        """The raw text so far."""
        return "".join(self.parts)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are a whole JSON object."""
        # The last fragment decides cheaply for almost every unfinished call.
        if not self.parts or not self.parts[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(jsontext.loads(self.arguments.encode("utf-8", "replace")), dict)
        except jsontext.DecodeError:
            return False


class CallFragments:
    """The calls of one answer, in the order of their first fragments.

    `taken` are the ids of earlier answers: servers that count from zero in each are not followed.
    """

    def __init__(self, new_id: Callable[[], str], taken: Collection[str] = ()) -> None:
        self._new_id = new_id
        self._taken = taken
        self._own: set[str] = set()
        self._calls: list[PartialCall] = []

    def __iter__(self) -> Iterator[PartialCall]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def feed(self, fragment: WireCall) -> tuple[PartialCall, str] | None:
        """The call that `fragment` belongs to and what it adds; `None` for a repetition."""
        function = fragment.function
        name = (function.name if function else None) or ""
        added = (function.arguments if function else None) or ""
        identity = fragment.id or ""
        call = self._find(fragment.index, identity, name, added)
        if call is None:
            call = PartialCall(fragment.index, parts=[])
            self._calls.append(call)
        elif name and added and self._repeats(call, added):
            return None
        if identity and not call.wire_id:
            call.wire_id = identity
            call.id = self._unique(identity)
        call.name = call.name or name
        if fragment.extra_content != NOTHING:
            # Copied, because it is a view of the whole event.
            call.extra = fragment.extra_content.copy()
        if added:
            call.parts.append(added)
            call.size += len(added)
        return call, added

    def settle(self) -> list[PartialCall]:
        """The calls at the end of the answer, each with an id of its own; empty shells are gone."""
        self._calls = [call for call in self._calls if call.name or call.parts]
        for call in self._calls:
            call.id = call.id or self._unique(self._new_id())
        return self._calls

    def _unique(self, id: str) -> str:
        while id in self._own or id in self._taken:
            id = self._new_id()
        self._own.add(id)
        return id

    def _find(self, index: int | None, identity: str, name: str, added: str) -> PartialCall | None:
        here = self._newest(index)
        if identity:
            return self._by_id(index, identity, name, added, here)
        if name:
            if here is None:
                return None
            if not here.name:
                return here
            same = here.name == name
            return here if same and not here.is_complete else None
        return here or self._open()

    def _by_id(
        self, index: int | None, identity: str, name: str, added: str, here: PartialCall | None
    ) -> PartialCall | None:
        for call in reversed(self._calls):
            # Two calls may share an id, too: another index with a name is another call.
            other = name and index is not None and call.key is not None and call.key != index
            if call.wire_id == identity and not other:
                return call
        if here is None or here.key != index:
            return None
        waits = not here.wire_id and (not here.name or not name or name == here.name)
        waits = waits and not (added and here.is_complete)
        # An id that changes with every fragment of one call brings arguments and no name.
        drifts = bool(here.name and added and not name and not here.is_complete)
        return here if waits or drifts else None

    @staticmethod
    def _repeats(call: PartialCall, added: str) -> bool:
        return len(added) == call.size and added == call.arguments and call.is_complete

    def _newest(self, index: int | None) -> PartialCall | None:
        if index is None:
            return self._calls[-1] if self._calls else None
        return next((call for call in reversed(self._calls) if call.key == index), None)

    def _open(self) -> PartialCall | None:
        for call in reversed(self._calls):
            if not call.is_complete:
                return call
        return self._calls[-1] if self._calls else None
