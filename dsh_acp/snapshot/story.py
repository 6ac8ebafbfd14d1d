"""What a transcript tells, whatever the version of the protocol it is told in.

A story is a list of lines per session: texts, calls and what came of them, questions, choices and
how each prompt ended. What only one version has no words for is left out of it: states, terminals
as things of their own, the person's own words as they are received. Two transcripts of one script
must tell the same story.
"""

from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
import difflib
import re
from typing import Any, Final, TypeAlias, cast

from dsh_acp import jsontext
from dsh_acp.snapshot.calls import params_of, update_of

Json: TypeAlias = dict[str, Any]

SHOWN: Final = 300
_ENDS: Final = {"completed": "completed", "failed": "failed", "cancelled": "failed"}
"""Version 1 has no word for a call that was stopped."""

_INVALID_PARAMS: Final = -32602
_CANCELLED: Final = -32800
_FAILED: Final = re.compile(
    r"\[(?:Previous model attempt discarded; retrying \S+ in \S+|"
    r"Model attempt failed; any partial output above is discarded): (.*)\]"
    r"|The model's attempt failed and is discarded: (.*)"
    r"|\[Model attempt failed; the partial output above is discarded\]"
    r"|The partial output above is discarded\.",
    re.DOTALL,
)
"""How each version says that an attempt of the model failed."""

_FENCE: Final = re.compile(r"(`{3,})console\n(.*?)\n?\1", re.DOTALL)
_MESSAGES: Final = {
    "user_message": "user",
    "agent_message": "agent",
    "agent_thought": "thought",
}


def discrepancies(one: Sequence[bytes], two: Sequence[bytes]) -> list[str]:
    """Where two transcripts tell different stories, as one diff in words; empty for the same."""
    left, right = tell(one), tell(two)
    if left == right:
        return []
    diff = list(difflib.unified_diff(left, right, lineterm="", n=2))[2:]
    shown = "\n".join(f"    {_cut(line)}" for line in diff)
    return [f"the versions tell different stories (- version 1, + version 2)\n{shown}"]


def tell(lines: Sequence[bytes]) -> list[str]:
    """The story of a transcript."""
    frames = [cast(Json, jsontext.loads(line)) for line in lines]
    story = _Story(frames)
    for frame in frames:
        story.take(frame)
    many = len(story.told) > 1
    return [
        line
        for sid, entries in story.told.items()
        for line in ([f"--- {sid}"] if many else []) + [entry.line() for entry in entries]
    ]


class _Entry:
    """One line; a message's grows while it is streamed."""

    def __init__(self, head: str, text: str = "") -> None:
        self.head: Final = head
        self.text = text

    def line(self) -> str:
        text = self.text.strip()
        if self.head == "agent" and (found := _FAILED.fullmatch(text)):
            text = found[1] or found[2] or "discarded"
        return f"{self.head}: {text}" if text else self.head


class _Story:
    """Takes frames one by one. `told` holds the entries of each session, in order."""

    def __init__(self, frames: Sequence[Json]) -> None:
        self.told: Final[dict[str, list[_Entry]]] = {}
        self._sid = "the connection"
        self._messages: dict[tuple[str, str, str], _Entry] = {}
        self._live: Final = {
            str(result["messageId"]) for frame in frames if "messageId" in (result := _of(frame))
        }
        """The person's own messages that were not yet told while live: version 1 never does."""
        self._hidden: Final[set[str]] = set()
        self._open: Final[dict[str, list[str]]] = {}
        """The prompts that were received and are not over, by session."""
        self._place: Final[dict[str, str]] = {}
        self._terminals: Final[dict[str, bytes]] = {}

    def _say(self, head: str, text: str = "") -> _Entry:
        entry = _Entry(head, text)
        entries = self.told.setdefault(self._sid, [])
        # What can be chosen is a state: to hear of it twice tells nothing.
        states = [e.line() for e in entries if e.head == head] if head in _STATES else []
        if not states or states[-1] != entry.line():
            entries.append(entry)
        return entry

    def take(self, frame: Json) -> None:
        """The next frame of the transcript."""
        params = params_of(frame)
        named = params.get("sessionId") or _of(frame).get("sessionId")
        self._sid = str(named) if isinstance(named, str) else self._sid
        update = update_of(frame)
        if update is not None:
            self._update(update)
        elif "error" in frame:
            self._error(frame["error"])
        elif "method" in frame and "id" in frame:
            self._ask(str(frame["method"]), params)
        elif "result" in frame:
            self._answer(_of(frame))

    # ------------------------------------------------------------ answers

    def _answer(self, result: Json) -> None:
        if "stopReason" in result:
            self._say("the turn ends", str(result["stopReason"]))
        if "messageId" in result:
            sid = self._place.get(str(result["messageId"]), self._sid)
            self._open.setdefault(sid, []).append(str(result["messageId"]))
        if "protocolVersion" in result:
            self._open.clear()  # another process, which knows of no prompts
            names = [str(method.get("name")) for method in result.get("authMethods") or ()]
            self._say("sign-in methods", ", ".join(names))
        if "sessions" in result:
            self._say("sessions", _text(result))
        if "availableCommands" in result or "configOptions" in result:
            self._choices(result)

    def _error(self, error: Json) -> None:
        reason = _part(error, "data").get("stopReason")
        if reason is not None or error.get("code") == _CANCELLED:
            self._say("the turn ends", str(reason or "cancelled"))
        else:
            told = {key: error[key] for key in sorted(error)}
            if "authMethods" in _part(error, "data"):
                names = [method.get("name") for method in error["data"]["authMethods"]]
                told["data"] = {"authMethods": names}
            if told.get("code") == _INVALID_PARAMS:
                del told["message"]  # it speaks of the params of its version
            self._say("error", _text(told))

    def _idle(self, update: Json) -> None:
        for _ in self._open.pop(self._sid, []):
            if update.get("stopReason") == "error":
                self._error(_part(update, "error"))
            else:
                self._say("the turn ends", str(update.get("stopReason")))

    def _choices(self, found: Json) -> None:
        if found.get("configOptions"):
            self._say("options", "; ".join(map(_option, found["configOptions"])))
        if found.get("availableCommands"):
            self._say("commands", "; ".join(map(_named, found["availableCommands"])))

    # ------------------------------------------------------------ updates

    def _update(self, update: Json) -> None:
        kind = str(update.get("sessionUpdate"))
        match kind:
            case "tool_call" | "tool_call_update":
                self._call(update)
            case "terminal_update" if "output" in update:
                self._terminals[str(update["terminalId"])] = _bytes(update["output"])
            case "terminal_output_chunk":
                id = str(update["terminalId"])
                self._terminals[id] = self._terminals.get(id, b"") + _bytes(update)
            case "plan" | "plan_update":
                plan = update.get("plan") or update
                entries = [f"[{entry['status']}] {entry['content']}" for entry in plan["entries"]]
                self._say("plan", "; ".join(entries))
            case "session_info_update" | "usage_update":
                self._say(kind, _text({key: update[key] for key in list(update)[1:]}))
            case "available_commands_update" | "config_option_update":
                self._choices(update)
            case "notice":
                self._say("agent", str(update.get("description") or update.get("title")))
            case "state_update" if update.get("state") == "idle":
                self._idle(update)
            case _ if (role := _MESSAGES.get(kind.removesuffix("_chunk"))) is not None:
                self._message(role, update, is_whole=not kind.endswith("_chunk"))
            case _:
                pass

    def _message(self, role: str, update: Json, *, is_whole: bool) -> None:
        id, content = str(update.get("messageId")), update.get("content")
        blocks = cast(list[Any], content) if isinstance(content, list) else [content]
        text = "".join(map(_block, blocks))
        key = (self._sid, role, id)
        if role == "user" and is_whole:
            self._place[id] = self._sid
            self._hidden.discard(id)
            if id in self._live:
                self._live.discard(id)
                self._hidden.add(id)
            self._messages.pop(key, None)
        if role == "user" and id in self._hidden:
            return
        if role == "user" and key not in self._messages:
            # A replay: what follows is told again.
            self._messages = {k: e for k, e in self._messages.items() if k[0] != self._sid}
        entry = self._messages.get(key)
        if entry is None:
            self._messages[key] = self._say(role, text)
        elif is_whole:
            entry.text = text
        else:
            entry.text += text

    def _call(self, update: Json) -> None:
        id = str(update.get("toolCallId"))
        status = _ENDS.get(str(update.get("status")), "")
        told = [status] if status else []
        told += [f"{key} {_text(update[key])}" for key in _SHOWN_OF_CALLS if update.get(key)]
        content = cast(list[Json], update.get("content") or [])
        told += [text for text in map(_words, _texts(content)) if text]
        told += _changes(content)
        meta = _part(update, "_meta", "terminal_output")
        output = str(meta.get("data", "")) if meta else ""
        if status and id in self._terminals:
            output = self._terminals.pop(id).decode("utf-8", "replace")
        told += [words] if (words := _words(output)) else []
        if told:
            self._say(f"call {id}", " · ".join(told))

    def _ask(self, method: str, params: Json) -> None:
        if method != "session/request_permission":
            asked = {key: value for key, value in params.items() if key != "sessionId"}
            self._say(method, _text(asked))
            return
        subject = _part(params, "subject")
        call = _part(params, "toolCall") or _part(subject, "toolCall") or subject
        options = [f"{option['kind']} {option['name']!r}" for option in params["options"]]
        changes = _changes(cast(list[Json], call.get("content") or []))
        told = " · ".join([*changes, *options])
        self._say(f"question about call {call.get('toolCallId')}", told)


_STATES: Final = frozenset(("commands", "options"))
_SHOWN_OF_CALLS: Final = ("title", "name", "kind", "locations", "rawInput", "rawOutput")


# ---------------------------------------------------------------- parts of frames


def _of(frame: Json) -> Json:
    return _part(frame, "result")


def _part(value: Any, *keys: str) -> Json:
    for key in keys:
        value = cast(Json, value).get(key) if isinstance(value, dict) else None
    return cast(Json, value) if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else jsontext.encode(value).decode()


def _cut(line: str) -> str:
    line = line.replace("\n", "\\n")
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}… ({len(line)} characters)"


def _block(block: Any) -> str:
    found = _part(block)
    return str(found.get("text")) if set(found) == {"type", "text"} else _text(block)


def _named(command: Json) -> str:
    hint = _part(command, "input").get("hint")
    return f"{command.get('name')}{f' <{hint}>' if hint else ''} ({command.get('description')})"


def _option(option: Json) -> str:
    """An option's current value and those that it can have; groups count by their order."""
    values = [
        str(value.get("value"))
        for item in cast(list[Json], option.get("options") or [])
        for value in (item["options"] if "options" in item else [item])
    ]
    name = option.get("id", option.get("configId"))
    return f"{name} = {option.get('currentValue')} of {'|'.join(values)}"


def _bytes(holder: Any) -> bytes:
    data: Any = _part(holder).get("data", "")
    return b64decode(data)


# ---------------------------------------------------------------- what a call shows


def _texts(content: Iterable[Json]) -> Iterator[str]:
    for item in content:
        if item.get("type") == "content":
            yield _block(item["content"])


def _words(text: str) -> str:
    """Output, whether it is fenced, labelled by its stream, or as it came."""
    text = _FENCE.sub(r"\2", text)
    return "\n".join(line for line in text.strip().split("\n") if line != "[stderr]")


def _changes(content: Iterable[Json]) -> list[str]:
    """Each changed file and which lines it loses and gains, however the change is written."""
    net: dict[tuple[str, str], Counter[str]] = {}
    for item in content:
        if item.get("type") != "diff":
            continue
        if "patch" in item:
            operations = {_place(change): str(change["operation"]) for change in item["changes"]}
            for path, lines in _patched(str(item["patch"]["text"])):
                net.setdefault((operations.get(path, "?"), path), Counter()).update(lines)
        else:
            old = cast("str | None", item.get("oldText"))
            lines = Counter(str(item["newText"]).splitlines())
            lines.subtract((old or "").splitlines())
            key = ("add" if old is None else "modify", str(item["path"]))
            net.setdefault(key, Counter()).update(lines)
    return [
        f"{operation} {path} {_text([_sign(n) + line for line, n in sorted(lines.items()) if n])}"
        for (operation, path), lines in net.items()
    ]


def _sign(count: int) -> str:
    sign = "+" if count > 0 else "-"
    return sign if abs(count) == 1 else f"{sign}{abs(count)}× "


def _place(change: Json) -> str:
    return str(change["path"])


def _patched(text: str) -> Iterator[tuple[str, Counter[str]]]:
    """The net lines of each file in a patch in git's format."""
    for section in re.split(r"(?m)^diff --git ", text)[1:]:
        names, _, rest = section.partition("\n")
        lines: Counter[str] = Counter()
        old = ""
        is_hunk = False
        for line in rest.split("\n"):
            is_hunk = is_hunk or line.startswith("@@")
            old = line[4:] if not is_hunk and line.startswith("+++ ") else old
            if is_hunk and line.startswith(("+", "-")):
                lines[line[1:]] += 1 if line.startswith("+") else -1
        yield (old or names[len(names) // 2 + 1 :]).strip('"'), lines
