"""What of a transcript depends on the speed of a machine, taken out of it.

* Neighbouring text chunks of one message become one, and a chunk that continues a whole message
  becomes part of it: where a stream was cut into frames is pace.
* That a call began to run is left out when it is all that an update says, and so is
  `$/cancel_request`: a fast tool, or a client that answers first, makes either superfluous.
* Output of a running command appears in its final update, not in the pieces that happened to be
  shown before. In version 1 a piece is a `tool_call_update` without a status that carries nothing
  but output, in version 2 a `terminal_output_chunk`, or for what is no terminal the text of a
  `tool_call_content_chunk`.

Everything else keeps its place.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, Final, TypeAlias, cast

Json: TypeAlias = dict[str, Any]

_CHUNKS: Final = frozenset(("agent_message_chunk", "agent_thought_chunk", "user_message_chunk"))
_RUNS: Final = frozenset(("sessionUpdate", "toolCallId", "terminalId", "status", "capabilities"))
_PIECE: Final = frozenset(("sessionUpdate", "toolCallId", "content", "_meta"))


def steady(frames: Iterable[Any]) -> list[Any]:
    """The transcript without what pace decides; the frames given are not changed."""
    out: list[Any] = []
    output: dict[tuple[str, str], str] = {}
    for frame in frames:
        if _is_superfluous(frame):
            continue
        update = _update(frame)
        if update is None:
            out.append(frame)
            continue
        key = str(update.get("toolCallId") or update.get("terminalId"))
        call = (str(frame["params"].get("sessionId")), key)
        kind = update.get("sessionUpdate")
        if _is_piece(update):
            output[call] = output.get(call, "") + _data(update)
        elif kind == "terminal_output_chunk":
            output[call] = _more(output.get(call, ""), str(update.get("data", "")))
        elif kind == "terminal_update" and "exitStatus" in update:
            out.append(_ended_terminal(frame, update, output.pop(call, "")))
        elif update.get("status") in ("completed", "failed", "cancelled"):
            out.append(_ended_call(frame, update, output.pop(call, "")))
        elif out and _continues(out[-1], frame):
            out[-1] = _joined(out[-1], frame)
        else:
            out.append(frame)
    return out


def _update(frame: Any) -> Json | None:
    if not isinstance(frame, dict) or cast(Json, frame).get("method") != "session/update":
        return None
    params = cast(Json, frame).get("params")
    update = cast(Json, params).get("update") if isinstance(params, dict) else None
    return cast(Json, update) if isinstance(update, dict) else None


def _with(frame: Json, update: Json) -> Json:
    return {**frame, "params": {**frame["params"], "update": update}}


def _is_superfluous(frame: Any) -> bool:
    update = _update(frame)
    if update is None:
        return isinstance(frame, dict) and cast(Json, frame).get("method") == "$/cancel_request"
    if update.get("sessionUpdate") not in ("tool_call_update", "terminal_update"):
        return False
    return not update.keys() - _RUNS and update.get("status", "in_progress") == "in_progress"


# ---------------------------------------------------------------- pieces of output


def _is_piece(update: Json) -> bool:
    content = update.get("content")
    if update.get("sessionUpdate") == "tool_call_content_chunk":
        return isinstance(content, dict) and cast(Json, content).get("type") == "content"
    if update.get("sessionUpdate") != "tool_call_update" or update.keys() - _PIECE:
        return False
    if content is None:
        return set(update.get("_meta") or {}) == {"terminal_output"}
    return "_meta" not in update and all(item.get("type") == "content" for item in content)


def _data(update: Json) -> str:
    meta: Json = update.get("_meta") or {}
    return str(meta.get("terminal_output", {}).get("data", ""))


def _more(before: str, piece: str) -> str:
    """Two base64 texts as one."""
    return b64encode(b64decode(before) + b64decode(piece)).decode("ascii")


def _ended_call(frame: Json, update: Json, data: str) -> Json:
    update = _without_capabilities(update)
    if data:
        meta: Json = dict(update.get("_meta") or {})
        own: Json = meta.pop("terminal_output", {})
        shown = {"terminal_id": update["toolCallId"], "data": data + own.get("data", "")}
        update = {**update, "_meta": {"terminal_output": shown, **meta}}
    return _with(frame, update)


def _ended_terminal(frame: Json, update: Json, data: str) -> Json:
    update = _without_capabilities(update)
    if data and "output" not in update:
        kind, id = update["sessionUpdate"], update["terminalId"]
        head = {"sessionUpdate": kind, "terminalId": id, "output": {"data": data}}
        update = head | update
    return _with(frame, update)


def _without_capabilities(update: Json) -> Json:
    """What a call can do no more is told only when it was told what it can."""
    if update.get("capabilities") != {}:
        return update
    return {key: value for key, value in update.items() if key != "capabilities"}


# ---------------------------------------------------------------- chunks


def _continues(before: Any, frame: Any) -> bool:
    one, two = _update(before), _update(frame)
    if one is None or two is None or two.get("sessionUpdate") not in _CHUNKS:
        return False
    if before["params"].get("sessionId") != frame["params"].get("sessionId"):
        return False
    chunk = _bare(two, two.get("content"))
    if chunk is None:
        return False
    if f"{one.get('sessionUpdate')}_chunk" != two["sessionUpdate"]:
        return _bare(one, one.get("content")) == chunk
    content = one.get("content")
    last: Any = cast(list[Any], content)[-1] if isinstance(content, list) and content else None
    return _bare({**one, "sessionUpdate": two["sessionUpdate"]}, last) == chunk


def _bare(update: Json, content: Any) -> Json | None:
    """An update without its text; `None` when its content is not plain text."""
    if not isinstance(content, dict) or set(cast(Json, content)) != {"type", "text"}:
        return None
    return {**update, "content": cast(Json, content)["type"]}


def _joined(before: Any, frame: Any) -> Json:
    update: Json = before["params"]["update"]
    piece: str = frame["params"]["update"]["content"]["text"]
    content: Any = update["content"]
    if isinstance(content, list):
        *rest, last = cast(list[Json], content)
        content = [*rest, {**last, "text": last["text"] + piece}]
    else:
        content = {**content, "text": content["text"] + piece}
    return _with(before, {**update, "content": content})
