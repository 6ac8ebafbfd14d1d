"""Recorded sessions of the DeepSeek Harness, played by our process (level `full`).

Their bridge shows an editor less than ours, so of their transcript the assistant's text and the
stop reasons count. Their logs count whole, apart from what a composition decides: ids, times,
system prompts, tool schemas, the runtime context, titles and the presentation data of tools.
What a scenario needs that is not here is told instead of a difference.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from dsh_acp import jsontext
from dsh_acp.config.sources import load
from dsh_acp.snapshot.bench import Bench, bench, launch
from dsh_acp.snapshot.calls import update_of
from dsh_acp.snapshot.compare import Difference, compare
from dsh_acp.snapshot.compositions import composed, missing, names_sessions
from dsh_acp.snapshot.harvest import harvest
from dsh_acp.snapshot.moves import MOVES
from dsh_acp.snapshot.normalise import Normaliser
from dsh_acp.snapshot.play import Player
from dsh_acp.snapshot.rows import unpack
from dsh_acp.snapshot.runner import Options, Result
from dsh_acp.snapshot.scenario import STDOUT, Scenario, log_name
from dsh_acp.snapshot.script import Agent, Input
from dsh_acp.snapshot.steps import NewSessionExpectError
from dsh_acp.tools import catalog

Json: TypeAlias = dict[str, Any]

AGENT: Final = b'"deepseek-harness-acp"'

_NEEDS: Final = {
    "run_code": "needs a JavaScript runtime for code mode",
    "workflow": "needs a JavaScript runtime for workflows",
    "subagent": "needs subagents",
    "subagent_fork": "needs subagents",
    "report": "needs subagents that report while they run",
    "create_goal": "needs goals",
}
"""Why a scenario that calls a tool which is not here cannot be played."""

_MARKS: Final = {
    b'"message":"snapshot disk full"': "a disk of theirs is made to fail inside the third turn",
    b'"compactionId":"workspace-context-fixture"': "a plug-in of theirs compacts inside the turn",
}
_COMPOSED: Final = frozenset(
    ("permission/preset", "sandbox/mode", "approval/policy", "request/context")
)


def is_foreign(scenario: Scenario) -> bool:
    """Whether a scenario was recorded by that harness."""
    return any(AGENT in line for line in (scenario.stdout or [])[:1])


async def run_foreign(scenario: Scenario, options: Options) -> Result:
    """Play one of their scenarios and compare what both harnesses must agree on."""
    name = scenario.name
    if reason := _missing(scenario):
        return Result(name=name, skipped=reason)
    with bench(scenario) as found, composed(scenario, found) as config:
        scenario = _Adapted(scenario, config)
        player = Player(
            scenario.input,
            found.cwd,
            found.home,
            MOVES,
            lambda life: launch(found, scenario, life, None, None),
        )
        await player.run(options.timeout_s)
        differences = _transcripts(scenario, player)
        if not player.problems:
            differences += _logs(scenario, found, player)
    return Result(name=name, problems=tuple(player.problems), differences=tuple(differences[:1]))


class _Adapted(Scenario):
    """One of theirs, started the way they start: unasked, unless the script answers questions."""

    def __init__(self, scenario: Scenario, config: str) -> None:
        super().__init__(scenario.folder)
        self._config = config

    @property
    def overrides(self) -> dict[int, Any]:
        return {} if names_sessions(self) else super().overrides

    @property
    def input(self) -> Input:  # pyright: ignore[reportIncompatibleVariableOverride]
        script = Input.decode(self.path("input.json").read_bytes())
        preset = "workspace-write" if script.permission_answers else "full-access"
        return msgspec.structs.replace(script, agent=Agent(permission=preset, config=self._config))


def _missing(scenario: Scenario) -> str:
    """What the scenario needs that is not here; empty when it can be played."""
    for step in scenario.input.steps:
        if isinstance(step, NewSessionExpectError) and step.additional_directories:
            return "refuses additional directories, which are accepted here"
    known = catalog.builtin(load(environ={}))
    text = b"\n".join(line for log in scenario.logs for line in log)
    text += jsontext.encode(scenario.overrides.get(0))
    for name, reason in _NEEDS.items():
        if name not in known and b'"name":"%b"' % name.encode() in text:
            return reason
    found = next((reason for mark, reason in _MARKS.items() if mark in text), "")
    return found or missing(scenario)


# ---------------------------------------------------------------- transcripts


def _transcripts(scenario: Scenario, player: Player) -> list[Difference]:
    theirs = [jsontext.loads(line) for line in scenario.stdout or []]
    ours = [jsontext.loads(line) for line in player.received]
    found = compare(STDOUT, list(_said(theirs)), list(_said(ours)))
    return [found] if found else []


def _said(frames: Iterable[Json]) -> Iterator[bytes]:
    """The assistant's text of each turn, and how the turn ended."""
    text = ""
    for frame in frames:
        update = update_of(frame) or {}
        content = update.get("content")
        if update.get("sessionUpdate") == "agent_message_chunk" and isinstance(content, dict):
            piece = str(cast(Json, content).get("text", ""))
            text += "" if _is_notice(piece, str(update.get("messageId", ""))) else piece
        result = frame.get("result")
        if isinstance(result, dict) and "stopReason" in result:
            stop = _STOPS.get(str(result["stopReason"]), str(result["stopReason"]))  # pyright: ignore[reportUnknownArgumentType]
            yield jsontext.encode({"said": text, "stopReason": stop})
            text = ""
        elif "error" in frame:
            yield jsontext.encode({"said": text, "error": True})
            text = ""


def _is_notice(piece: str, message_id: str) -> bool:
    """Whether a bridge says this of itself: theirs in brackets, ours by the id of the message."""
    return piece.startswith("\n\n[") or "-8fff-" in message_id


_STOPS: Final = {"max_tokens": "end_turn", "refusal": "end_turn"}
"""Their bridge knows only `end_turn` and `cancelled`."""


async def check_foreign_projection(scenario: Scenario) -> Result:
    """Whether our projection of their log says what their transcript says.

    Turns of their own (goals, reports of subagents) have no prompt that they answer, so the text
    of a whole session is compared, and how each prompted turn ended.
    """
    if not scenario.logs or b'"type":"turn/end"' not in b"".join(scenario.logs[0]):
        return Result(name=scenario.name, skipped="has no turn")
    ours = _derived(scenario.logs[0])
    said = [jsontext.loads(line) for line in _said(map(jsontext.loads, scenario.stdout or []))]
    theirs: Json = {
        "said": "".join(turn["said"] for turn in said),
        "ends": [turn.get("stopReason", "error") for turn in said],
    }
    if ours["said"].startswith(theirs["said"]):
        ours["said"] = theirs["said"]  # a turn of its own may have outlived their client
    found = compare(STDOUT, [jsontext.encode(theirs)], [jsontext.encode(ours)])
    return Result(name=scenario.name, differences=(found,) if found else ())


def _derived(lines: Sequence[bytes]) -> Json:
    from dsh_acp.acp.projection import Projection
    from dsh_acp.acp.prompts import outcome
    from dsh_acp.acp.updates import Chunk
    from dsh_acp.log.events import Event
    from dsh_acp.log.load import load_fixture
    from dsh_acp.log.payloads import TurnEnd, TurnStart, UserMessage

    log = load_fixture(b"".join(line + b"\n" for line in lines))
    shown = Projection(
        log.header.id, "", catalog.builtin(load(environ={})), lambda provider, model: None
    )
    said, ends, is_prompted = "", list[str](), False
    for entry in log.entries(0):
        for update in shown.apply(entry):
            said += update.text if isinstance(update, Chunk) and update.role == "agent" else ""
        match entry.payload if isinstance(entry, Event) else None:
            case TurnStart():
                is_prompted = False
            case UserMessage(message=message) if message.source.get("kind") == "user":
                is_prompted = True
            case TurnEnd(reason=reason) if is_prompted or reason.kind == "blocked":
                end = outcome(reason)
                ends.append(_STOPS.get(end, end) if isinstance(end, str) else "error")
            case _:
                pass
    return {"said": said, "ends": ends}


# ---------------------------------------------------------------- logs


def _logs(scenario: Scenario, found: Bench, player: Player) -> list[Difference]:
    """The differences of the logs; where no model was asked, theirs keep only the header."""
    logs = harvest(found.state, player.met)
    differences: list[Difference] = []
    if len(scenario.logs) == 1 and len(scenario.logs[0]) == 1:
        return differences
    for number, expected in enumerate(scenario.logs):
        ours = logs[number].lines if number < len(logs) else []
        table = Normaliser(str(found.cwd), str(found.home), player.met)
        mine = _essence(_records(ours), table)
        theirs = _essence(_records(expected), Normaliser(""))
        difference = compare(log_name(number), theirs, mine)
        differences += [difference] if difference else []
    return differences


def _records(lines: Sequence[bytes]) -> Iterator[Json]:
    return unpack(jsontext.loads(line) for line in lines[1:] if line.strip())


def _essence(events: Iterable[Json], table: Normaliser) -> list[bytes]:
    """Types, order and data, without what a composition decides.

    Titles come last: they are asked for in the background.
    """
    out: list[bytes] = []
    named: list[bytes] = []
    for event in events:
        data = cast(Json, event.get("data") or {})
        kind = event["type"]
        if event.get("ignorable") or kind in _COMPOSED or _is_context(data):
            continue
        if kind in _NAMING:
            named.append(jsontext.encode({"type": kind, "data": _NAMING[kind](data)}))
            continue
        if kind == "request/header":
            data = {"reason": data["reason"]}
        elif kind == "tool/result":
            data = {key: value for key, value in data.items() if key != "meta"}
        elif kind == "llm/retry":
            data = {**data, "delayMs": 0, "policyKey": "", "maxRetries": 0}
        elif kind == "hook/result":
            data = {**data, "durationMs": 0}
        kept: Json = {"type": kind, "data": _alike(data)}
        if "surfaceOp" in event:
            kept["surfaceOp"] = "append" if event["surfaceOp"] == "append" else "replace"
        out.append(jsontext.encode(table.value(kept)))
    return out + named


def _title(data: Json) -> Json:
    source = data["source"]
    return {"title": data["title"], "kind": source["kind"], "model": source.get("model")}


_NAMING: Final[Mapping[str, Callable[[Json], Any]]] = {
    "session/title": _title,
    "session/title-llm-request": lambda data: data["route"],
}


def _alike(value: Any) -> Any:
    """Data without what only one side writes.

    That is the order of an attachment's keys, which changed over time there, and what a person
    saw instead of the text, which is recorded only here.
    """
    if isinstance(value, dict):
        found = cast(Json, value)
        if "attachmentId" in found:
            return dict(sorted(found.items()))
        if found.get("kind") == "user":
            found = {key: item for key, item in found.items() if key != "blocks"}
        return {key: _alike(item) for key, item in found.items()}
    if isinstance(value, list):
        return [_alike(item) for item in cast(list[Any], value)]
    return value


def _is_context(data: Json) -> bool:
    source = data.get("source")
    if not isinstance(source, dict):
        return False
    return cast(Json, source).get("plugin") == "@deepseek-ai/dsh-system-prompt"
