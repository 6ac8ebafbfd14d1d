"""The levels of a check that need no process: `log` and `projection`.

`log` asks whether the committed logs hold together: they load, keep their relations, and every
request can be rebuilt from what precedes it. `projection` derives the transcripts of each version
from script and logs alone and compares them with the committed ones: what a log says and what an
editor is shown are the same story.
"""

from base64 import b64decode
from collections.abc import Iterator, Sequence
import re
from typing import Any, Final, TypeAlias

from dsh_acp import jsontext
from dsh_acp.errors import DshError
from dsh_acp.log.audit import audit_log
from dsh_acp.snapshot.calls import update_of
from dsh_acp.snapshot.compare import Difference, compare
from dsh_acp.snapshot.normalise import Normaliser
from dsh_acp.snapshot.runner import Result
from dsh_acp.snapshot.scenario import Scenario, join, log_name
from dsh_acp.snapshot.steps import Initialize, Load, Restart, Resume
from dsh_acp.snapshot.versions import capabilities, transcript

Json: TypeAlias = dict[str, Any]
SHOWN: Final = 5

_CWD: Final = "/acp-snap/cwd"
_HOME: Final = "/acp-snap/home"
"""Where a log that is only read is taken to have been: cards need absolute paths."""

_DERIVED: Final = frozenset(
    (
        "agent_message",
        "agent_message_chunk",
        "agent_thought",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "terminal_update",
        "plan",
        "plan_update",
        "notice",
        "session_info_update",
        "usage_update",
        "compaction_update",
    )
)
"""The updates that follow from a log; all others answer requests or tell of the connection."""


async def check_log(scenario: Scenario) -> Result:
    """The level `log`."""
    problems: list[str] = []
    logs = scenario.logs
    for number, lines in enumerate(logs):
        try:
            report = audit_log(join(lines), fixture=True)
        except DshError as exc:
            problems.append(f"{log_name(number)}: {exc}")
            continue
        words = [f"{log_name(number)}, event {p.seq}: {p.text}" for p in report.problems]
        problems += words[:SHOWN]
    skipped = "" if logs else "has no log"
    return Result(name=scenario.name, problems=tuple(problems), skipped=skipped)


async def check_projection(scenario: Scenario) -> Result:
    """The level `projection`."""
    name = scenario.name
    told = tuple(scenario.discrepancies())
    if reason := _not_derivable(scenario):
        return Result(name=name, problems=told, skipped="" if told else reason)
    found = [difference for v in scenario.versions for difference in _differences(scenario, v)]
    return Result(name=name, problems=told, differences=tuple(found[:1]))


def _differences(scenario: Scenario, version: int) -> list[Difference]:
    committed = [jsontext.loads(line) for line in scenario.transcript(version) or []]
    differences: list[Difference] = []
    for lines in scenario.logs:
        header = jsontext.loads(lines[0])
        if header.get("origin") == "subagent":
            continue  # shown in its parent's card, never as a session of its own
        sid = str(header["id"])
        shown = [frame for frame in committed if _is_derived(frame, sid)]
        derived = [frame for frame in _derive(scenario, lines, version) if _is_derived(frame, sid)]
        found = compare(transcript(version), _canonical(shown), _canonical(derived))
        differences += [found] if found else []
    return differences


def _not_derivable(scenario: Scenario) -> str:
    if not scenario.logs:
        return "has no log"
    for step in scenario.input.steps:
        if isinstance(step, Load | Resume | Restart):
            return "shows a session more than once"
        if isinstance(step, Initialize) and (step.capabilities or {}).get("terminal"):
            return "shows output in the editor's own terminal"
    return ""


def _is_derived(frame: Json, sid: str) -> bool:
    update = update_of(frame, sid)
    if update is None or update.get("sessionUpdate") not in _DERIVED:
        return False
    if _ELSEWHERE.search(str(update.get("toolCallId", update.get("terminalId", "")))):
        return False
    if update["sessionUpdate"] == "notice" and not _LOGGED.match(str(update.get("title"))):
        return False
    if update.get("status") == "in_progress" and "title" not in update:
        return False  # that a call runs is not a fact of the log
    return _BESIDE.fullmatch(str(update.get("messageId", ""))) is None


_ELSEWHERE: Final = re.compile(r"/|^job-\d+$")
"""Ids of a subagent's calls that are asked about in its parent's session, and of jobs."""

_LOGGED: Final = re.compile(r"Retrying |The model failed$|Prompt refused$")
"""Titles of notices that follow from a log."""

_BESIDE: Final = re.compile(r"[a-z]+-\d+")
"""Ids of messages that are shown beside the log."""

_ID: Final = re.compile(rb"\{\{(?:id|log)\.\d+\}\}")


def _canonical(frames: Sequence[Any]) -> list[bytes]:
    """Frames as text, ids numbered anew: a part of a transcript has other first appearances."""
    for frame in frames:
        update = frame["params"]["update"]
        update.pop("cost", None)  # prices are the catalogue's, not the log's
        if update["sessionUpdate"] == "usage_update" and "_meta" not in update:
            update.pop("used")  # an estimate, and committed headers hold no system prompt
        if "output" in update:  # a log keeps both streams, but not how they were interleaved
            lines = b64decode(update["output"]["data"]).split(b"\n")
            update["output"]["data"] = sorted(str(line) for line in lines if line != b"[stderr]")
    table = Normaliser(_CWD, _HOME)
    text = b"\n".join(table.frames(map(jsontext.encode, frames)))
    numbers: dict[bytes, bytes] = {}

    def number(match: re.Match[bytes]) -> bytes:
        return numbers.setdefault(match[0], b"{{id.%d}}" % (len(numbers) + 1))

    return _ID.sub(number, text).split(b"\n") if text else []


def _derive(scenario: Scenario, lines: Sequence[bytes], version: int) -> Iterator[Json]:
    """The live updates of one log, as frames for the script's client."""
    from dsh_acp.acp.handshake import decode
    from dsh_acp.acp.projection import Projection
    from dsh_acp.acp.updates import Update
    from dsh_acp.acp.versions import dialect
    from dsh_acp.config.sources import load
    from dsh_acp.log.load import load_fixture
    from dsh_acp.tools import catalog

    # Ids of the log must not be taken for those that this transcript numbers itself.
    text = join(list(lines)).replace(b"{{id.", b"{{log.")
    text = text.replace(b"{{cwd}}", _CWD.encode()).replace(b"{{home}}", _HOME.encode())
    log = load_fixture(text)
    sid = log.header.id
    tools = catalog.builtin(load(environ={}))
    projection = Projection(sid, log.header.cwd or "", tools, lambda provider, model: None)

    projection.is_live = True

    def no_image(_: Any) -> bytes:
        raise OSError("a committed log has no images beside it")

    client = decode(jsontext.encode(_client(scenario, version)))
    codec = dialect(client.version).codec(sid, client, no_image)
    updates: list[Update] = []
    for entry in log.entries(0):
        found = projection.apply(entry)
        if entry.seq >= (log.header.seed_length or 0):
            updates += found
    for update in updates:
        for line in codec.encode(update).split(b"\n")[:-1]:
            yield jsontext.loads(line)


def _client(scenario: Scenario, version: int) -> Json:
    for step in scenario.input.steps:
        if isinstance(step, Initialize):
            given: Json = dict(step.capabilities or {})
            if step.terminal_output:
                given["_meta"] = {"terminal_output": True}
            name = "clientCapabilities" if version == 1 else "capabilities"
            info = {"name": "dsh-acp-snapshot", "version": "1"}
            return {"protocolVersion": version, name: capabilities(given, version), "info": info}
    return {"protocolVersion": version, "info": {"name": "none", "version": "0"}}
