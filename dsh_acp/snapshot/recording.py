"""`wire.jsonl`: both directions of a conversation, and its replay against a later agent.

Each line is `{"from": "client" | "agent", "frame": …}`, or `"text"` for a line that is not JSON.
Placeholders are those of `normalise`; besides, values under `toolCallId` and `messageId` are ids
whatever they look like. The client's request ids stay as they were; the agent's are counted from
0 on their own, so that a later version may count differently.

On replay the client's frames are sent in the recorded order, each as soon as every agent frame
before it has come; placeholders in them stand for what the live agent said in that place.
"""

from pathlib import Path
import re
from typing import Any, Final, TypeAlias, cast

import anyio
from msgspec import Struct
from msgspec.structs import replace

from dsh_acp import jsontext
from dsh_acp.snapshot.calls import AgentEnded
from dsh_acp.snapshot.client import Client
from dsh_acp.snapshot.compare import Difference, compare
from dsh_acp.snapshot.normalise import Normaliser
from dsh_acp.snapshot.scenario import WIRE, read_lines

Json: TypeAlias = dict[str, Any]
_TOKEN: Final = re.compile(r"\{\{[A-Za-z]+(?:\.\d+)?\}\}")


class Record(Struct, frozen=True, omit_defaults=True):
    """One recorded line."""

    sender: str
    frame: Any = None
    text: str = ""

    def encode(self) -> bytes:
        """The line of `wire.jsonl`."""
        head: Json = {"from": self.sender}
        return jsontext.encode(head | ({"text": self.text} if self.text else {"frame": self.frame}))


class Table:
    """Normalises both directions of one conversation and remembers what stands for what."""

    def __init__(self) -> None:
        self._normaliser: Final = Normaliser("", keys=("toolCallId", "messageId"))
        self._agent_ids: Final[dict[str, int]] = {}
        self._live_ids: Final[list[Any]] = []

    def record(self, sender: str, line: bytes) -> Record:
        """A line as it is written down."""
        try:
            frame = jsontext.loads(line)
        except jsontext.DecodeError:
            return Record(sender, text=line.decode("utf-8", "replace"))
        if isinstance(frame, dict):
            frame = self._frame(sender, cast(Json, frame))
        return Record(sender, frame)

    def _frame(self, sender: str, frame: Json) -> Json:
        params = frame.get("params")
        if sender == "client" and isinstance(params, dict) and "cwd" in params:
            self.place(str(cast(Json, params)["cwd"]))
        id = frame.get("id")
        out = self._normaliser.frame({**frame, "id": None} if "id" in frame else frame)
        asks = "method" in frame
        if id is not None and asks == (sender == "agent"):
            id = self._agent_id(id, asks)
        if "id" in frame:
            out["id"] = id
        return out

    def _agent_id(self, id: Any, asks: bool) -> Any:
        key = repr(id)
        if asks and key not in self._agent_ids:
            self._agent_ids[key] = len(self._live_ids)
            self._live_ids.append(id)
        return self._agent_ids.get(key, id)

    def place(self, cwd: str) -> None:
        """From now on `{{cwd}}` stands for this folder; only the first one counts."""
        if "{{cwd}}" not in self._normaliser.live:
            self._normaliser.add_path(cwd, "{{cwd}}")

    def expand(self, frame: Any) -> Any:
        """A recorded client frame for the live agent."""
        found = self._fill(frame)
        if isinstance(found, dict) and "method" not in found and isinstance(found.get("id"), int):  # pyright: ignore[reportUnknownMemberType]
            answer = cast(Json, found)
            if answer["id"] < len(self._live_ids):
                answer["id"] = self._live_ids[answer["id"]]
            return answer
        return found  # pyright: ignore[reportUnknownVariableType]

    def _fill(self, value: Any) -> Any:
        if isinstance(value, str):
            live = self._normaliser.live
            return _TOKEN.sub(lambda match: live.get(match[0], match[0]), value)
        if isinstance(value, dict):
            return {key: self._fill(item) for key, item in cast(Json, value).items()}
        if isinstance(value, list):
            return [self._fill(item) for item in cast(list[Any], value)]
        return value


async def replay(
    folder: Path, argv: list[str], cwd: Path, env: dict[str, str], silence_s: float = 10
) -> tuple[list[str], Difference | None]:
    """Play the client of `wire.jsonl` against `argv`; problems and the first differing frame.

    Its line is that of the file.
    An agent that says nothing for `silence_s` while a frame is owed has failed.
    """
    lines = read_lines(folder / WIRE) or []
    records = [jsontext.loads(line) for line in lines]
    expected = [line for line, r in zip(lines, records, strict=True) if r["from"] == "agent"]
    got: list[bytes] = []
    table = Table()
    table.place(str(cwd))
    problems: list[str] = []
    async with Client.spawn(argv, cwd, env, answers=False) as client:
        for record in records:
            if record["from"] == "client":
                if "text" in record:
                    client.send_raw(record["text"].encode())
                else:
                    client.send(table.expand(record["frame"]))
                    table.record("client", client.lines[-1].data)
                continue
            try:
                with anyio.fail_after(silence_s):
                    line = await client.until_line(len(got))
            except AgentEnded as exc:
                problems.append(str(exc))
                break
            except TimeoutError:
                problems.append(f"the agent said nothing for {silence_s:g} s")
                break
            got.append(table.record("agent", line).encode())
            if got[-1] != expected[len(got) - 1]:
                return problems, _difference(records, expected[: len(got)], got)
        await client.close()
    received = [line.data for line in client.lines if not line.sent]
    got += [table.record("agent", line).encode() for line in received[len(got) :]]
    return problems, _difference(records, expected, got)


def _difference(records: list[Json], expected: list[bytes], got: list[bytes]) -> Difference | None:
    found = compare(WIRE, expected, got)
    if found is None:
        return None
    lines = [number for number, r in enumerate(records, 1) if r["from"] == "agent"]
    lines.append(len(records) + 1)
    return replace(found, line=lines[found.line - 1])
