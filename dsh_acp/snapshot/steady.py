"""What of a transcript depends on the speed of a machine, taken out of it.

* Neighbouring text chunks of one message become one: where a stream was cut into frames is pace.
* That a call began to run is left out when it is all that an update says, and so is
  `$/cancel_request`: a fast tool, or a client that answers first, makes either superfluous.
* Output of a running command appears in its final update, not in the pieces that happened to be
  shown before; a piece is a `tool_call_update` without a status that carries nothing but output.

Everything else keeps its place.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias, cast

Json: TypeAlias = dict[str, Any]

_CHUNKS: Final = frozenset(("agent_message_chunk", "agent_thought_chunk", "user_message_chunk"))
_RUNS: Final = frozenset(("sessionUpdate", "toolCallId", "status"))
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
        call = (str(frame["params"].get("sessionId")), str(update.get("toolCallId")))
        if _is_piece(update):
            output[call] = output.get(call, "") + _data(update)
        elif update.get("status") in ("completed", "failed") and output.get(call):
            out.append(_with_output(frame, update, output.pop(call)))
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


def _is_superfluous(frame: Any) -> bool:
    update = _update(frame)
    if update is None:
        return isinstance(frame, dict) and cast(Json, frame).get("method") == "$/cancel_request"
    return update.keys() == _RUNS and update["status"] == "in_progress"


# ---------------------------------------------------------------- pieces of output


def _is_piece(update: Json) -> bool:
    if update.get("sessionUpdate") != "tool_call_update" or set(update) - _PIECE:
        return False
    content = update.get("content")
    if content is None:
        return set(update.get("_meta") or {}) == {"terminal_output"}
    return "_meta" not in update and all(item.get("type") == "content" for item in content)


def _data(update: Json) -> str:
    meta: Json = update.get("_meta") or {}
    return str(meta.get("terminal_output", {}).get("data", ""))


def _with_output(frame: Json, update: Json, data: str) -> Json:
    meta: Json = dict(update.get("_meta") or {})
    own: Json = meta.pop("terminal_output", {})
    shown = {"terminal_id": update["toolCallId"], "data": data + own.get("data", "")}
    changed = {**update, "_meta": {"terminal_output": shown, **meta}}
    return {**frame, "params": {**frame["params"], "update": changed}}


# ---------------------------------------------------------------- chunks


def _continues(before: Any, frame: Any) -> bool:
    one, two = _update(before), _update(frame)
    if one is None or two is None or two.get("sessionUpdate") not in _CHUNKS:
        return False
    if before["params"].get("sessionId") != frame["params"].get("sessionId"):
        return False
    texts = [_bare(update) for update in (one, two)]
    return texts[0] == texts[1] and texts[0] is not None


def _bare(update: Json) -> Json | None:
    """A text chunk without its text; `None` for any other update."""
    content = update.get("content")
    if not isinstance(content, dict) or set(cast(Json, content)) != {"type", "text"}:
        return None
    return {**update, "content": cast(Json, content)["type"]}


def _joined(before: Any, frame: Any) -> Json:
    update: Json = before["params"]["update"]
    text = update["content"]["text"] + frame["params"]["update"]["content"]["text"]
    changed = {**update, "content": {**update["content"], "text": text}}
    return {**before, "params": {**before["params"], "update": changed}}
