"""Plays a script against an agent process, one process per stretch between restarts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import anyio
import msgspec
from msgspec import UNSET, Struct

from dsh_acp import jsontext
from dsh_acp.snapshot import harvest, versions
from dsh_acp.snapshot.calls import AgentEnded, Call, Frame, Line, update_of
from dsh_acp.snapshot.children import Child
from dsh_acp.snapshot.client import Client
from dsh_acp.snapshot.desk import RpcError
from dsh_acp.snapshot.nursery import NURSERY
from dsh_acp.snapshot.replies import ReplyError, fill
from dsh_acp.snapshot.script import AnyStep, Input
from dsh_acp.snapshot.steps import Restart, SessionStep, Step

Json: TypeAlias = dict[str, Any]


class StepFailed(Exception):
    """A step did not go as the script says."""


class Launch(Struct, frozen=True):
    """How a process is started. `forked` are the arguments of one from the nursery instead."""

    argv: Sequence[str]
    env: Mapping[str, str]
    forked: Sequence[str] | None = None

    def start(self, cwd: Path) -> Child | None:
        """A process from the nursery, where one is wanted and there is one."""
        if self.forked is None:
            return None
        return NURSERY.start(self.forked, str(cwd), self.env)


class Started(Struct, frozen=True):
    """A prompt that was sent and not yet awaited."""

    name: str
    sid: str
    since: int
    call: Call


Move: TypeAlias = "Callable[[Player, Any], Awaitable[None]]"


class Player:
    """The state of one run of a script.

    `moves` plays a step by its type; `launch(life)` gives the command for the first, second, …
    process; `version` is that of the protocol, unless a step asks for a later one. After `run`,
    `lines` holds the conversation in wire order, `problems` what went wrong (empty when all is
    well).
    """

    def __init__(
        self,
        script: Input,
        cwd: Path,
        home: Path,
        moves: "Mapping[type[Step], Move]",
        launch: Callable[[int], Launch],
        stored: Mapping[str, str] | None = None,
        version: int = 1,
    ) -> None:
        self.script: Final = script
        self.cwd: Final = cwd
        self.home: Final = home
        self.version: Final = version
        self.lines: Final[list[Line]] = []
        self.problems: Final[list[str]] = []
        self.stderr: str = ""
        self.sessions: Final[dict[str, str]] = dict(stored or {})
        """Session ids by name."""
        self.met: Final[list[str]] = []
        """Session ids in the order in which the client met them."""
        self.current: str = ""
        self.started: Final[list[Started]] = []
        self.since: int = 0
        """The number of frames that had arrived when the last request was sent."""
        self.client: Client
        self._moves = moves
        self._launch = launch
        self._at = "the start"

    async def run(self, timeout_s: float = 60) -> None:
        """Play all steps; never raises for what the agent does."""
        desk: dict[str, list[Json]] = {
            "permissions": [_plain(answer) for answer in self.script.permission_answers],
            "elicitations": [_plain(answer) for answer in self.script.elicitation_answers],
        }
        try:
            with anyio.fail_after(timeout_s):
                for life, steps in enumerate(_lives(self.script.steps)):
                    await self._live(life, steps, desk)
                    if self.problems:
                        break
        except TimeoutError:
            self.problems.append(f"nothing more happened after {self._at} ({timeout_s:g} s)")

    async def _live(self, life: int, steps: Sequence[AnyStep], desk: dict[str, list[Json]]) -> None:
        launch = self._launch(life)
        try:
            async with Client.spawn(
                launch.argv, self.cwd, launch.env, start=lambda: launch.start(self.cwd)
            ) as client:
                self.client = client
                client.desk.script(**desk)
                try:
                    await self._steps(steps)
                    code = await client.close()
                    if code != 0 and client.process.returncode != -9:
                        self.problems.append(f"the agent ended with exit code {code}")
                finally:
                    desk["permissions"] = list(client.desk.permissions)
                    desk["elicitations"] = list(client.desk.elicitations)
                    self._collect(client)
        except OSError as exc:
            self.problems.append(f"cannot start {launch.argv[0]}: {exc.strerror}")

    async def _steps(self, steps: Sequence[AnyStep]) -> None:
        for number, step in enumerate(steps, 1):
            self._at = f"step {number} ({_op(step)})"
            try:
                await self._moves[type(step)](self, self._filled(step))
            except (StepFailed, ReplyError, AgentEnded, TimeoutError) as exc:
                self.problems.append(f"{self._at}: {exc}")
                return
            except RpcError as exc:
                self.problems.append(f"{self._at}: error {exc.code}: {exc.message}")
                return
            if self.client.desk.faults:
                self.problems.append(f"{self._at}: {self.client.desk.faults[0]}")
                return

    def _collect(self, client: Client) -> None:
        self.lines.extend(client.lines)
        self.problems.extend(f"not JSON on stdout: {line[:200]!r}" for line in client.garbage)
        words = bytes(client.stderr).decode("utf-8", "replace")
        self.stderr += words
        if "Traceback (most recent call last)" in words:
            last = words.strip().splitlines()[-1]
            self.problems.append(f"a traceback on stderr: {last}")

    def _filled(self, step: AnyStep) -> AnyStep:
        plain = msgspec.to_builtins(step)
        known = {"cwd": str(self.cwd), "home": str(self.home)}
        known |= {f"session:{name}": sid for name, sid in self.sessions.items()}
        for update in self.client.updates(kind="_pending_update")[-1:]:
            ids = [str(item["messageId"]) for item in update["pending"]]
            known |= {f"pending:{number}": id for number, id in enumerate(ids, 1)}
        filled = fill(plain, known)
        return step if filled == plain else msgspec.convert(filled, type(step))

    @property
    def answered(self) -> int:
        """The version that the agent chose; that of the script when it was not asked."""
        return self.client.version if self.client.capabilities else self.version

    @property
    def received(self) -> list[bytes]:
        """The agent's lines."""
        return [line.data for line in self.lines if not line.sent]

    # ------------------------------------------------------------ what moves use

    def path(self, path: str) -> Path:
        """A path of the workspace."""
        return self.cwd / path

    def sid(self, step: SessionStep) -> str:
        """The session that a step is about.

        Raises:
            StepFailed: there is none.
        """
        if step.session is UNSET:
            if not self.current:
                raise StepFailed("there is no session yet")
            return self.current
        if step.session not in self.sessions:
            raise StepFailed(f"there is no session named {step.session}")
        return self.sessions[step.session]

    def enter(self, sid: str, name: str | Any = UNSET) -> None:
        """Make `sid` the current session, under a name when given."""
        self.current = sid
        if name is not UNSET:
            self.sessions[name] = sid
        if sid not in self.met:
            self.met.append(sid)

    async def request(self, method: str, params: Json | Any, expect: bool | int = False) -> Any:
        """A request that must succeed, or fail when `expect` says so; `None` after an error.

        Raises:
            StepFailed: it succeeded or failed with another code.
            RpcError: it failed unexpectedly.
        """
        self.since = len(self.client.frames)
        call = self.client.start(method, None if params is UNSET else params)
        return await self.settle(call, expect)

    async def settle(
        self, call: Call, expect: bool | int = False, outcome: Awaitable[Any] | None = None
    ) -> Any:
        """Await a request's answer, or what it led to, as `request` does."""
        try:
            result = await (call.result() if outcome is None else outcome)
        except RpcError as exc:
            if expect is False:
                raise
            if expect is not True and exc.code != expect:
                raise StepFailed(f"expected error {expect}, got {exc.code}: {exc.message}") from exc
            return None
        if expect is not False:
            raise StepFailed(f"{call.method} succeeded, but an error was expected")
        return result

    async def outcome(self, prompt: Started) -> Json:
        """Version 2: how a prompt's turn ended, as version 1 answers it.

        Raises:
            RpcError: the prompt was refused, or its turn failed.
        """
        try:
            await prompt.call.result()
        except RpcError as exc:
            if exc.code == _CANCELLED:
                return {"stopReason": "cancelled"}
            found: Any = exc.data
            data = cast(Json, found) if isinstance(found, dict) else {}
            if "stopReason" in data:
                return data
            raise
        frames = self.client.frames
        receipt = next(
            at
            for at in range(prompt.since, len(frames))
            if frames[at].get("id") == prompt.call.id and "method" not in frames[at]
        )
        idle = await self.client.idle(prompt.sid, receipt)
        if idle.get("stopReason") == "error":
            raise RpcError.from_json(idle.get("error"))
        return {"stopReason": idle.get("stopReason")}

    async def until_update(self, sid: str, since: int, fields: Json) -> None:
        """Wait for an update of `sid` with these fields, received since then."""

        def is_it(frame: Frame) -> bool:
            update = update_of(frame, sid)
            return update is not None and versions.tells(update, fields, self.client.version)

        await self.client.until(is_it, since)

    async def log_until(
        self, what: str, sid: str, holds: Callable[[list[Json]], bool], timeout_ms: int
    ) -> None:
        """Wait until the log of `sid` holds something.

        Raises:
            TimeoutError: it does not come.
        """
        await harvest.until(what, lambda: harvest.find(self.home, sid), holds, timeout_ms)


_CANCELLED: Final = -32800


def _plain(value: Any) -> Json:
    return jsontext.loads(jsontext.encode(value))


def _op(step: Step) -> str:
    return str(type(step).__struct_config__.tag)


def _lives(steps: Sequence[AnyStep]) -> list[list[AnyStep]]:
    """Steps up to and including each restart."""
    lives: list[list[AnyStep]] = [[]]
    for step in steps:
        lives[-1].append(step)
        if isinstance(step, Restart):
            lives.append([])
    return lives
