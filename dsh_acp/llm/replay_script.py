"""A recorded log as a script of model calls, and what may override it."""

from collections.abc import Sequence
import re
from typing import Any, Final, Literal, cast

from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.errors import LlmError
from dsh_acp.log.packed import MalformedRow, decode_row

_ROWS: Final = ("text-chunks", "reasoning-chunks", "tool-call-chunks")
_KEYS: Final = {
    "chunks": {"kind", "chunks"},
    "throw": {"kind", "chunks", "message", "code"},
    "hang": {"kind", "readyFile"},
}
_OPTIONAL: Final = {"readyFile"}
# The last two braces of a run of closing ones end a placeholder.
_FROM_REQUEST: Final = re.compile(r"\{\{fromRequest:(.+?)\}\}(?!\})", re.DOTALL)


def _error(text: str) -> LlmError:
    return LlmError(text, code="UNKNOWN")


class Entry(Struct, frozen=True, kw_only=True):
    """One model call. `chunks` are JSON values; `problem` says why it cannot be replayed."""

    kind: Literal["chunks", "throw", "hang"] = "chunks"
    chunks: tuple[Any, ...] = ()
    message: str = ""
    code: str = ""
    ready_file: str | None = None
    problem: str = ""


class Script(Struct, frozen=True):
    """The calls of one recorded session, and the route they were recorded on."""

    entries: tuple[Entry, ...]
    provider: str = ""
    model: str = ""
    order: tuple[float, str] = (0, "")


class _Event(Struct):
    type: str
    data: dict[str, Any]
    seq: int


def _events(lines: Sequence[bytes]) -> list[_Event]:
    """Every event, rows expanded; a missing `seq` is counted, as projected logs need."""
    found: list[_Event] = []
    seq = 0
    for number, line in enumerate(lines, 1):
        if number == 1 or not line.strip():
            continue
        where = f"session snapshot line {number}"
        try:
            value = jsontext.loads(line)
        except jsontext.DecodeError:
            raise _error(f"{where} contains invalid JSON") from None
        if not isinstance(value, dict):
            raise _error(f"{where} must be a JSON object")
        fields = cast("dict[str, Any]", value)
        if fields.get("type") in _ROWS:
            placed = {"type": fields["type"], "seq0": seq, "time0": 0, **fields}
            try:
                row = decode_row(jsontext.encode(placed))
            except MalformedRow as exc:
                raise _error(f"{where}: {exc}") from None
            for at, chunk in enumerate(row.chunks()):
                plain = jsontext.loads(jsontext.encode(chunk))
                data = {"turn": row.turn, "step": row.step, "chunk": plain}
                found.append(_Event("assistant/chunk", data, row.seq + at))
            seq = row.end_seq
        else:
            data = fields.get("data")
            given = fields.get("seq")
            seq = given if isinstance(given, int) else seq
            found.append(
                _Event(
                    str(fields.get("type", "")),
                    cast("dict[str, Any]", data) if isinstance(data, dict) else {},
                    seq,
                )
            )
            seq += 1
    return found


def parse(text: bytes) -> Script:
    """The script of a log: each `finish` ends a call, so a retried attempt is one of its own.

    A log that continues another one counts from its `seedLength`.

    Raises:
        LlmError: the text is no session log.
    """
    lines = [line for line in text.split(b"\n") if line.strip()]
    header: Any = {}
    if lines:
        try:
            header = jsontext.loads(lines[0])
        except jsontext.DecodeError:
            raise _error("session snapshot line 1 contains invalid JSON") from None
    header = cast("dict[str, Any]", header if isinstance(header, dict) else {})
    route = ("", "")
    entries: list[Entry] = []
    chunks: list[Any] = []
    at: tuple[Any, Any] | None = None
    for event in _events(lines):
        if event.type == "request/header" and not route[0]:
            config: Any = cast("Any", event.data.get("header") or {}).get("config") or {}
            route = (str(config.get("provider", "")), str(config.get("model", "")))
        if event.seq < int(header.get("seedLength") or 0):
            continue
        if event.type == "compaction/summary" and event.data.get("llmStreamCall") is True:
            entries.append(_summary(event.data))
        if event.type != "assistant/chunk":
            continue
        here = (event.data.get("turn"), event.data.get("step"))
        if chunks and here != at:
            entries.append(_unfinished(at, chunks))
            chunks = []
        at = here
        chunk = event.data.get("chunk")
        chunks.append(chunk)
        if isinstance(chunk, dict) and cast("dict[str, Any]", chunk).get("type") == "finish":
            entries.append(Entry(chunks=tuple(chunks)))
            chunks = []
    if chunks:
        entries.append(_unfinished(at, chunks))
    order = (float(header.get("createdAt") or 0), str(header.get("id") or ""))
    return Script(tuple(entries), *route, order)


def _unfinished(at: tuple[Any, Any] | None, chunks: list[Any]) -> Entry:
    turn, step = at or ("?", "?")
    return Entry(
        chunks=tuple(chunks),
        problem=f"llm-replay: model call {turn}/{step} ended without a finish chunk (a thrown "
        "stream); this scenario needs a replay.override.json sidecar",
    )


def _summary(data: dict[str, Any]) -> Entry:
    raw = data.get("rawOutput")
    if not isinstance(raw, list):
        return Entry(
            problem="llm-replay: compaction/summary marks an LLM stream call without rawOutput"
        )
    chunks: list[Any] = []
    for index, block in enumerate(cast("list[dict[str, Any]]", raw)):
        chunks.append({"type": "block-start", "index": index, "blockType": block.get("type")})
        chunks.append({"type": "block-end", "index": index, "block": block})
    if data.get("usage"):
        chunks.append({"type": "usage", "usage": data["usage"]})
    chunks.append({"type": "finish", "reason": {"kind": "stop"}})
    return Entry(chunks=tuple(chunks))


# ---------------------------------------------------------------- overrides


def overridden(script: Script, text: bytes, file: str) -> Script:
    """`script` as an override document says: a whole script, or patches of single calls.

    Raises:
        LlmError: `llm-replay: invalid override <file>: <location> <detail>`.
    """

    def wrong(location: str, detail: str) -> LlmError:
        return _error(f"llm-replay: invalid override {file}: {location} {detail}")

    try:
        document = jsontext.loads(text)
    except jsontext.DecodeError:
        raise wrong("document", "is not JSON") from None
    entries = list(script.entries)
    if isinstance(document, list):
        items = cast("list[Any]", document)
        entries = [_entry(item, f"entry {at}", wrong) for at, item in enumerate(items)]
        return Script(tuple(entries), script.provider, script.model, script.order)
    patches = cast("dict[str, Any]", document).get("patches") if _has(document, "patches") else None
    if not isinstance(patches, list):
        raise wrong("document", 'must be an array of entries or {"patches": [...]}')
    derived = len(entries)
    taken: set[int] = set()
    for number, patch in enumerate(cast("list[Any]", patches)):
        where = f"patch {number}"
        if not _has(patch, "at", "entry"):
            raise wrong(where, "must be exactly {at, entry}")
        at = patch["at"]
        if not isinstance(at, int) or isinstance(at, bool) or at < 0:
            raise wrong(where, "at must be a non-negative integer")
        if at in taken:
            raise wrong(where, f"patches call {at} twice")
        if at > derived:
            raise wrong(where, f"at {at} is out of range: the script has {derived} calls")
        taken.add(at)
        entries[at : at + 1] = [_entry(patch["entry"], where, wrong)]
    return Script(tuple(entries), script.provider, script.model, script.order)


def _has(value: Any, *keys: str) -> bool:
    return isinstance(value, dict) and set(cast("dict[str, Any]", value)) == set(keys)


def _entry(value: Any, where: str, wrong: Any) -> Entry:
    if not isinstance(value, dict):
        raise wrong(where, "must be an object")
    body = cast("dict[str, Any]", value)
    kind = body.get("kind")
    if kind not in _KEYS:
        raise wrong(where, f"kind must be one of {', '.join(_KEYS)}")
    extra, missing = set(body) - _KEYS[kind], _KEYS[kind] - set(body) - _OPTIONAL
    if extra or missing:
        raise wrong(where, f"must have exactly the keys {', '.join(sorted(_KEYS[kind]))}")
    chunks = body.get("chunks", [])
    if not isinstance(chunks, list):
        raise wrong(where, "chunks must be an array")
    for name in ("message", "code", "readyFile"):
        if name in body and not isinstance(body[name], str):
            raise wrong(where, f"{name} must be a string")
    return Entry(
        kind=kind,
        chunks=tuple(cast("list[Any]", chunks)),
        message=body.get("message", ""),
        code=body.get("code", ""),
        ready_file=body.get("readyFile"),
    )


# ---------------------------------------------------------------- placeholders


def filled(value: Any, leaves: Sequence[str]) -> Any:
    """`value` with every `{{fromRequest:<regex>}}` replaced.

    The last match in the request's strings counts, its first group if it has one.

    Raises:
        LlmError: nothing matches.
    """
    if isinstance(value, str):
        return _FROM_REQUEST.sub(lambda found: _last(found[1], leaves), value)
    if isinstance(value, list | tuple):
        return [filled(item, leaves) for item in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {name: filled(item, leaves) for name, item in items}
    return value


def _last(pattern: str, leaves: Sequence[str]) -> str:
    try:
        found = list(re.finditer(pattern, "\n".join(leaves)))
    except re.error as exc:
        raise _error(f"llm-replay: {{{{fromRequest:{pattern}}}}} is no pattern: {exc}") from None
    if not found:
        raise _error(f"llm-replay: {{{{fromRequest:{pattern}}}}} matches nothing in the request")
    match = found[-1]
    return match[1] or "" if match.re.groups else match[0]


def strings(value: Any) -> list[str]:
    """All strings inside a JSON value, in order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        return [text for item in cast("list[Any]", value) for text in strings(item)]
    return []
