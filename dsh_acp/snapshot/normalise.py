"""What differs between two runs of the same scenario, replaced by placeholders.

| placeholder | stands for |
|---|---|
| `{{cwd}}` | the workspace, in every spelling, at path boundaries only |
| `{{home}}` | the agent's private home |
| `{{cwdSlug}}` | the workspace as the name of its folder of sessions |
| `{{sessionId}}`, `{{sessionId.2}}`, … | session ids, in order of appearance |
| `{{id.1}}`, `{{id.2}}`, … | every other UUID, in order of appearance: equal ids stay equal |
| `{{updatedAt}}` | a time of day in an `updatedAt` |
| `{{time}}` | any other ISO 8601 time |
| `{{version}}` | the agent's version in the answer to `initialize` |
| `{{delay}}` | a retry's waiting time in words, which has jitter |
| `{{os}}` | the operating system in the runtime context |
| `{{spillLocator:NAME}}` | a file that holds output too long to show |
| `{{sha256}}` | the digest of a request's body |
| `{{system}}`, `{{tools}}`, `{{messagePrefix}}` | parts of a request header that its pin shows |

JSON-RPC ids are renumbered from 1 by first appearance of their text; both directions share one
table. In a log, `seq` and `time` are dropped (sequence numbers were checked to be contiguous),
durations and times inside events are 0, and runs of chunks are packed anew, because where a
writer flushed is an accident. Keys keep their order: it is behaviour.
"""

from collections.abc import Iterable, Sequence
import re
from typing import Any, Final, TypeAlias, cast

from dsh_acp import jsontext
from dsh_acp.log.paths import project_key
from dsh_acp.snapshot.rows import pack, unpack
from dsh_acp.snapshot.steady import steady

Json: TypeAlias = dict[str, Any]

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_UUIDS: Final = re.compile(_UUID)
_TIMES: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)")
_EDGE: Final = r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"
_SPILL: Final = re.compile(
    r"(?:\{\{(?:home|cwd)\}\}|/tmp/dsh-acp-snap-[0-9a-f]{9})"
    r"/[^\s'\"<>]*?\b[0-9a-f]{12}-([^/\s'\"<>\]]+)"
)
_DELAY: Final = re.compile(r"(retrying \d+(?:/\d+)? in )[0-9.]+ ?m?s")
_OS: Final = re.compile(r"(Operating system: )\w+")
_ZEROED: Final = frozenset(
    ("durationMs", "delayMs", "createdAt", "updatedAt", "clearedAt", "scheduledAt", "acceptedAt")
)


class Normaliser:
    """One transcript's or log's table of placeholders.

    `live` holds the value behind each placeholder.
    """

    def __init__(
        self, cwd: str, home: str = "", sessions: Iterable[str] = (), keys: Iterable[str] = ()
    ) -> None:
        """`keys` name fields whose values are ids, whatever they look like."""
        self.live: Final[dict[str, str]] = {}
        self._paths: Final[list[tuple[str, re.Pattern[str], str]]] = []
        self._keys: Final = frozenset(keys)
        self._sessions: Final[dict[str, str]] = {}
        self._ids: Final[dict[str, str]] = {}
        self._rpc: Final[dict[bytes, int]] = {}
        self.add_path(cwd, "{{cwd}}")
        self.add_path(home, "{{home}}")
        for sid in sessions:
            self.session(sid)

    def add_path(self, path: str, token: str) -> None:
        """`token` stands for `path` from now on; an empty path is none."""
        if not path:
            return
        self.live[token] = path
        for spelling in (path, "/private" + path):
            self._paths.append((spelling, re.compile(re.escape(spelling) + _EDGE), token))
        slug = project_key(path)
        self._paths.append((slug, re.compile(re.escape(slug)), slug_of(token)))
        # A home inside the workspace, or the reverse, must not be eaten by the shorter path.
        self._paths.sort(key=lambda item: len(item[1].pattern), reverse=True)

    def session(self, sid: str) -> str:
        """The placeholder of a session id, which is new or known."""
        if sid.startswith("{{") or not sid:
            return sid
        if sid not in self._sessions:
            number = len(self._sessions) + 1
            token = "{{sessionId}}" if number == 1 else f"{{{{sessionId.{number}}}}}"
            self._sessions[sid] = token
            self.live[token] = sid
        return self._sessions[sid]

    def text(self, text: str) -> str:
        """One string value."""
        for spelling, pattern, token in self._paths:
            if spelling in text:
                text = pattern.sub(token, text)
        for sid, token in self._sessions.items():
            if sid in text:
                text = text.replace(sid, token)
        if "-" in text:
            text = _UUIDS.sub(lambda match: self.id(match[0]), text)
            text = _TIMES.sub("{{time}}", text)
        if "}}/" in text or "/tmp/dsh-acp-snap-" in text:
            text = _SPILL.sub(r"{{spillLocator:\1}}", text)
        if "retrying " in text:
            text = _DELAY.sub(r"\1{{delay}}", text)
        return _OS.sub(r"\1{{os}}", text) if "Operating system" in text else text

    def id(self, found: str) -> str:
        """The placeholder of an id, which is new or known."""
        if found.startswith("{{"):
            return found
        if found not in self._ids:
            self._ids[found] = f"{{{{id.{len(self._ids) + 1}}}}}"
            self.live[self._ids[found]] = found
        return self._ids[found]

    def value(self, value: Any, key: str = "") -> Any:
        """Any JSON value; `key` is the one it lies under."""
        if isinstance(value, str):
            if key == "parentSession" or (key == "sessionId" and value in self._sessions):
                return self.session(value)
            return self.id(value) if key in self._keys else self.text(value)
        if isinstance(value, dict):
            return {k: self.value(v, k) for k, v in cast(Json, value).items()}
        if isinstance(value, list):
            return [self.value(item) for item in cast(list[Any], value)]
        return value

    # ------------------------------------------------------------ frames

    def frame(self, frame: Any) -> Any:
        """One JSON-RPC frame."""
        if not isinstance(frame, dict):
            return self.value(frame)
        found = dict(cast(Json, frame))
        if found.get("id") is not None:
            found["id"] = self.rpc_id(found["id"])
        update = _path(found, "params", "update")
        if isinstance(update.get("updatedAt"), str):
            update["updatedAt"] = "{{updatedAt}}"
        result = _path(found, "result")
        if isinstance(result.get("sessionId"), str):
            self.session(result["sessionId"])
        for name in ("agentInfo", "info"):
            info = _path(result, name)
            if "protocolVersion" in result and "version" in info:
                info["version"] = "{{version}}"
        for item in cast(list[Any], result.get("sessions") or []):
            if isinstance(item, dict) and "updatedAt" in item:
                item["updatedAt"] = "{{updatedAt}}"
        return self.value(found)

    def rpc_id(self, id: Any) -> int:
        """A request id as its number of appearance."""
        return self._rpc.setdefault(jsontext.encode(id), len(self._rpc) + 1)

    def frames(self, lines: Iterable[bytes]) -> list[bytes]:
        """Received lines as canonical text, without what pace decides; see `steady`.

        Raises:
            jsontext.DecodeError: a line is not JSON.
        """
        found = steady(jsontext.loads(line) for line in lines if line.strip())
        return [jsontext.encode(self.frame(frame)) for frame in found]

    # ------------------------------------------------------------ logs

    def log(
        self, lines: Sequence[bytes], *, scrub: bool = True, keep_gaps: bool = False
    ) -> list[bytes]:
        """A log's lines, header first, as canonical text.

        With `scrub`, request headers lose system prompt, tools and framing (see `scrub_header`);
        with `keep_gaps`, packed rows keep the milliseconds between their members.

        Raises:
            ValueError: a line is not an event, or sequence numbers are not contiguous.
        """
        records: list[Json] = [jsontext.loads(line) for line in lines if line.strip()]
        if not records:
            return []
        head, *rest = records
        self.session(str(head.get("id", "")))
        head["id"] = self.session(str(head.get("id", "")))
        head["createdAt"] = 0
        out = [self.value(head)]
        for event in pack(list(unpack(rest)), keep_gaps=keep_gaps):
            event.pop("seq", None)
            event.pop("time", None)
            out.append(self.value(self._event(event, scrub)))
        return [jsontext.encode(event) for event in out]

    def _event(self, event: Json, scrub: bool) -> Json:
        data = event.get("data")
        if not isinstance(data, dict):
            return event
        data = cast(Json, data)
        if event["type"] == "request/digest":
            data |= {"sha256": "{{sha256}}", "bytes": 0}
        if event["type"] == "request/header" and scrub:
            scrub_header(data["header"])
        if event["type"] not in ("user/message", "assistant/message", "assistant/chunk"):
            _zero(data)
        return event


def slug_of(token: str) -> str:
    """The placeholder for a folder's name among the sessions."""
    return token.replace("}}", "Slug}}")


def scrub_header(header: Json) -> None:
    """Replace what a pin shows by placeholders; presence, config and order stay."""
    for name in ("system", "tools"):
        if name in header:
            header[name] = f"{{{{{name}}}}}"
    for name in ("messagePrefix", "messageSuffix"):
        if name in header:
            header[name] = [f"{{{{{name}}}}}" for _ in header[name]]


def _zero(value: Any) -> None:
    if isinstance(value, dict):
        found = cast(Json, value)
        for key, item in found.items():
            if key in _ZEROED and isinstance(item, (int, float)):
                found[key] = 0
            else:
                _zero(item)
    elif isinstance(value, list):
        for item in cast(list[Any], value):
            _zero(item)


def _path(value: Any, *keys: str) -> Json:
    """The object at `keys`, or an empty one."""
    for key in keys:
        value = cast(Json, value).get(key) if isinstance(value, dict) else None
    return cast(Json, value) if isinstance(value, dict) else {}
