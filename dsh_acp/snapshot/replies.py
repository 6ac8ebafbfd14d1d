"""The model's side of a scenario: replies, one per model call.

`replay.override.json` (and `replay.override.N.json` for the N-th further session) is either an
array of entries, which is the whole script, or
`{"patches": [{"at": N, "entry": …}]}`, which changes the script that `session.jsonl` implies.
Entries are those of the replay provider (`chunks`, `throw`, `hang`) or the short form of this kit,
made for writing by hand:

```json
{"kind": "reply", "reasoning": "Hm.", "text": ["Two ", "pieces"],
 "calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}
```

All fields are optional; `text` and `reasoning` are one piece or a list of pieces, `arguments` an
object or raw text, `id` of a call defaults to `call_N` counted over the script, `usage` to 10 and
5 tokens, `finish` to what the content implies.
"""

from collections.abc import Iterable, Sequence
from itertools import count
import re
from typing import Any, Final, TypeAlias, cast

from dsh_acp import jsontext
from dsh_acp.snapshot.rows import unpack

Json: TypeAlias = dict[str, Any]

_KINDS: Final = {
    "chunks": {"kind", "chunks"},
    "throw": {"kind", "chunks", "message", "code"},
    "hang": {"kind", "readyFile"},
    "reply": {"kind", "reasoning", "text", "calls", "usage", "finish"},
}
_FINISH: Final = ("stop", "tool-calls", "max-tokens")


class ReplyError(ValueError):
    """A script that cannot be used, in words."""


def compile_override(document: Any) -> Any:
    """The document with every short entry spelt out for the replay provider.

    Raises:
        ReplyError: it is not an override document.
    """
    numbers = count(1)
    if isinstance(document, list):
        return [_entry(item, numbers) for item in cast(list[Any], document)]
    if isinstance(document, dict) and list(cast(Json, document)) == ["patches"]:
        patches = cast(list[Json], document["patches"])
        return {"patches": [{"at": p["at"], "entry": _entry(p["entry"], numbers)} for p in patches]}
    raise ReplyError('an override is an array of entries or {"patches": […]}')


def entries(log: Sequence[bytes], override: Any | None) -> list[Json]:
    """The whole script: what the log implies, then replaced or patched by the override.

    Raises:
        ReplyError: a call in the log has no end, or a patch lies outside.
    """
    if override is not None:
        override = compile_override(override)
    if isinstance(override, list):
        return cast(list[Json], override)
    script = implied(log, lenient=override is not None)
    length = len(script)
    for patch in cast(list[Json], override["patches"] if override else []):
        if patch["at"] > length:
            raise ReplyError(f"patch at {patch['at']}: the log implies only {length} calls")
        script[patch["at"] : patch["at"] + 1] = [patch["entry"]]
    return script


def implied(log: Sequence[bytes], lenient: bool = False) -> list[Json]:
    """The model calls of a log: each ends at its `finish` chunk.

    A forked or delegated log counts only from its `seedLength`. With `lenient`, a call that has
    no finish (a throw or a hang, which only an override can replay) counts as it is.
    """
    head, *rest = [jsontext.loads(line) for line in log if line.strip()] or [{}]
    script: list[Json] = []
    chunks: list[Json] = []
    where: tuple[int, int] | None = None

    def end(finished: bool) -> None:
        nonlocal chunks
        if not finished and not lenient:
            raise ReplyError(
                f"the model call of turn {where and where[0]}, step {where and where[1]} has no "
                "finish: it needs a replay.override.json"
            )
        script.append({"kind": "chunks", "chunks": chunks})
        chunks = []

    for seq, event in enumerate(unpack(rest)):
        if seq < head.get("seedLength", 0):
            continue
        data = event.get("data", {})
        if event["type"] == "assistant/chunk":
            here = (data["turn"], data["step"])
            if chunks and here != where:
                end(False)
            where = here
            chunks.append(data["chunk"])
            if data["chunk"]["type"] == "finish":
                end(True)
        elif event["type"] == "compaction/summary" and data.get("llmStreamCall"):
            script.append(_summary(data))
    if chunks:
        end(False)
    return script


ROUTE: Final = "deepseek/deepseek-v4-flash"
"""What the scripted model goes by where no log says."""


def synthetic(script: Iterable[Json], route: str = "") -> list[bytes]:
    """A log that implies `script`, for the replay provider; `route` is `provider/model`.

    Raises:
        ReplyError: an entry that no log can imply, because it has no end.
    """
    provider, _, model = (route or ROUTE).partition("/")
    header = {"config": {"provider": provider, "model": model}}
    events: list[Json] = [
        {"type": "session", "version": 0, "id": "synthetic", "createdAt": 0},
        {"type": "request/header", "data": {"header": header, "reason": "initial"}},
    ]
    for step, entry in enumerate(script, 1):
        if entry["kind"] != "chunks":
            raise ReplyError(f"only the first session's model may {entry['kind']}")
        where = {"turn": 1, "step": step}
        events += [
            {"type": "assistant/chunk", "data": {**where, "chunk": chunk}}
            for chunk in entry["chunks"]
        ]
    return [jsontext.encode(event) for event in events]


def _summary(data: Json) -> Json:
    chunks: list[Json] = []
    for index, block in enumerate(cast(list[Json], data["rawOutput"])):
        chunks.append({"type": "block-start", "index": index, "blockType": block["type"]})
        chunks.append({"type": "block-end", "index": index, "block": block})
    if "usage" in data:
        chunks.append({"type": "usage", "usage": data["usage"]})
    chunks.append({"type": "finish", "reason": {"kind": "stop"}})
    return {"kind": "chunks", "chunks": chunks}


def _entry(item: Any, numbers: Iterable[int]) -> Json:
    entry = cast(Json, item)
    allowed = _KINDS.get(entry.get("kind", "")) if isinstance(item, dict) else None
    if allowed is None:
        raise ReplyError(f"an entry has a kind among {', '.join(_KINDS)}: {item!r:.80}")
    if unknown := set(entry) - allowed:
        raise ReplyError(f"a {entry['kind']} entry has no field {', '.join(sorted(unknown))}")
    return entry if entry["kind"] != "reply" else _spell(entry, iter(numbers))


def _spell(entry: Json, numbers: Any) -> Json:
    chunks: list[Json] = []
    index = 0
    for kind in ("reasoning", "text"):
        if kind not in entry:
            continue
        pieces = cast(list[str], entry[kind] if isinstance(entry[kind], list) else [entry[kind]])
        chunks.append({"type": "block-start", "index": index, "blockType": kind})
        chunks += [{"type": f"{kind}-delta", "index": index, "text": piece} for piece in pieces]
        block = {"type": kind, "text": "".join(pieces)}
        chunks.append({"type": "block-end", "index": index, "block": block})
        index += 1
    calls = cast(list[Json], entry.get("calls", []))
    for call in calls:
        args: Any = call.get("arguments", {})
        text = args if isinstance(args, str) else jsontext.encode(args).decode()
        id: str = call.get("id") or f"call_{next(numbers)}"
        block = {"type": "tool-call", "id": id, "name": call["name"], "arguments": text}
        chunks.append({"type": "block-start", "index": index, "blockType": "tool-call"})
        chunks.append({"type": "tool-call-delta", "index": index, "id": id, "name": call["name"],
                       "argumentsDelta": text})  # fmt: skip
        chunks.append({"type": "block-end", "index": index, "block": block})
        index += 1
    usage: Json = entry.get("usage", {"inputTokens": 10, "outputTokens": 5})
    finish: str = entry.get("finish", "tool-calls" if calls else "stop")
    if finish not in _FINISH:
        raise ReplyError(f"finish is one of {', '.join(_FINISH)}, not {finish!r}")
    chunks.append({"type": "usage", "usage": usage})
    chunks.append({"type": "finish", "reason": {"kind": finish}})
    return {"kind": "chunks", "chunks": chunks}


_TOKEN: Final = re.compile(r"\{\{(cwd|home|session:[a-z][a-z0-9-]*|pending:[1-9][0-9]*)\}\}")


def fill(value: Any, known: dict[str, str]) -> Any:
    """`value` with `{{cwd}}`, `{{home}}` and `{{session:NAME}}` replaced in every string.

    Raises:
        ReplyError: a session that does not exist.
    """
    if isinstance(value, str):

        def put(match: re.Match[str]) -> str:
            if match[1] not in known:
                raise ReplyError(f"{match[0]} is not known here")
            return known[match[1]]

        return _TOKEN.sub(put, value)
    if isinstance(value, dict):
        return {key: fill(item, known) for key, item in cast(Json, value).items()}
    if isinstance(value, list | tuple):
        return [fill(item, known) for item in cast(list[Any], value)]
    return value
