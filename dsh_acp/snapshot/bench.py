"""A place for one run: working directory, private home, model script; always removed."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
import os
from pathlib import Path
import shutil
import tempfile
from typing import Any, Final, TypeAlias
import uuid

from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.log.paths import log_path
from dsh_acp.snapshot import replies
from dsh_acp.snapshot.agents import agent_argv, agent_env
from dsh_acp.snapshot.harvest import harvest
from dsh_acp.snapshot.play import Launch
from dsh_acp.snapshot.scenario import WORKSPACE, Scenario, log_name
from dsh_acp.snapshot.script import Agent

Json: TypeAlias = dict[str, Any]

PREFIX: Final = "acp-snap-"
_EPOCH: Final = 1_767_225_600
"""The first second of 2026."""
_IDS: Final = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


class Bench(Struct, frozen=True):
    """The folders of one run. `state` is where the agent keeps its sessions."""

    root: Path
    cwd: Path
    home: Path
    model: Path

    @property
    def state(self) -> Path:
        return self.home / ".dsh-acp"

    @property
    def known(self) -> dict[str, str]:
        """What `{{…}}` in scripts stands for."""
        return {"cwd": str(self.cwd), "home": str(self.home)}


@contextmanager
def bench(scenario: Scenario) -> Generator[Bench]:
    """Set one up with the scenario's workspace and stored logs.

    The path has the same length in every run, because previews are cut by length.
    """
    parent = "/tmp" if os.access("/tmp", os.W_OK) else None
    root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
    try:
        found = Bench(root, root / "cwd", root / "home", root / "model")
        for folder in (found.home, found.state, found.model):
            folder.mkdir()
        workspace = scenario.path(WORKSPACE)
        if workspace.is_dir():
            shutil.copytree(workspace, found.cwd, symlinks=True)
            _settle_times(found.cwd)
        else:
            found.cwd.mkdir()
        yield found
    finally:
        _remove(root)


def _settle_times(folder: Path) -> None:
    """Files get their times in the order of their names: some tools sort by time."""
    for at, path in enumerate(sorted(folder.rglob("*"))):
        os.utime(path, (_EPOCH + at, _EPOCH + at), follow_symlinks=False)


def _remove(root: Path) -> None:
    def unlock(function: Any, path: str, _: Any) -> None:
        # A scenario may leave a folder that forbids deletion.
        Path(path).parent.chmod(0o700)
        Path(path).chmod(0o700)
        function(path)

    shutil.rmtree(root, onerror=unlock)


def store(found: Bench, scenario: Scenario) -> dict[str, str]:
    """Write the scenario's stored logs where the agent looks; session ids by name."""
    sids: dict[str, str] = {}
    for name, lines in scenario.stored.items():
        sid = sids[name] = str(uuid.uuid5(_IDS, name))
        text = b"\n".join(numbered(lines))
        known = {"{{sessionId}}": sid, "{{cwd}}": str(found.cwd), "{{home}}": str(found.home)}
        for token, value in known.items():
            text = text.replace(token.encode(), value.encode())
        path = log_path(found.state / "sessions", str(found.cwd), sid)
        path.parent.mkdir(parents=True)
        path.write_bytes(text)
    return sids


def numbered(lines: list[bytes]) -> list[bytes]:
    """Log lines with `seq` and `time` (or `seq0` and `time0`) filled in where they lack.

    Lines that are not JSON stay as they are: a stored log may be damaged on purpose.
    """
    out: list[bytes] = []
    seq = 0
    for number, line in enumerate(lines):
        try:
            event = jsontext.loads(line) if number else None
        except jsontext.DecodeError:
            event = None
        if not isinstance(event, dict):
            out.append(line)
            continue
        found: Json = event  # pyright: ignore[reportUnknownVariableType]
        data = found.get("data", {})
        row = data.get("texts", data.get("args")) if "dt" in data else None
        if row is None:
            head = {"type": found.pop("type"), "seq": seq, "time": 0}
        else:
            head = {"type": found.pop("type"), "seq0": seq, "time0": 0}
        out.append(jsontext.encode(head | found))
        seq += 1 if row is None else len(row)
    return out


def launch(
    found: Bench,
    scenario: Scenario,
    life: int,
    agent: list[str] | None,
    live: str | None,
    *,
    forks: bool = False,
) -> Launch:
    """The command for the life-th process of a run.

    `agent` is another agent's command, which keeps this process's environment; `live` names a
    live model, which needs the keys in it. With `forks` this project's own agent may come from
    the nursery.

    Raises:
        ReplyError: the model's script cannot be used.
    """
    setup = scenario.input.agent or Agent()
    more: Mapping[str, str] = setup.env or {}
    more = replies.fill(dict(more), found.known)
    if agent is not None or setup.argv:
        argv = agent or list(replies.fill(list(setup.argv or ()), found.known))
        return Launch([*map(_from_here, argv), *setup.args], {**os.environ, **more})
    if setup.config:
        config = found.home / "config.toml"
        config.write_text(replies.fill(setup.config, found.known), "utf-8")
        more = {"DSH_ACP_CONFIG": str(config), **more}
    if setup.permission:
        more = {"DSH_ACP_PERMISSION": setup.permission, **more}
    # What can confine commands differs from system to system; scenarios ask for it by name.
    more = {"XDG_CONFIG_HOME": str(found.home / ".config"), "DSH_ACP_SANDBOX": "off", **more}
    model = live or setup.model or _model(found, scenario, life)
    env = agent_env(found.home, model)
    if "PYTHONPATH" in more and "PYTHONPATH" in env:
        more = {**more, "PYTHONPATH": os.pathsep.join((more["PYTHONPATH"], env["PYTHONPATH"]))}
    env |= more
    env = (dict(os.environ) | env) if live else env
    return Launch(agent_argv(*setup.args), env, setup.args if forks else None)


def _from_here(argument: str) -> str:
    """A relative path to a file, as it is meant here: the agent starts in another folder."""
    path = Path(argument)
    is_relative = os.sep in argument or path.suffix
    return str(path.absolute()) if is_relative and path.is_file() else argument


def _model(found: Bench, scenario: Scenario, life: int) -> str:
    """Write the model's scripts for one process; the spec that names them.

    Each session of the agent claims the next script when it first calls the model.
    """
    logs = scenario.logs
    overrides = scenario.overrides
    setup = scenario.input.agent or Agent()
    for number in range(max([1, len(logs), *(n + 1 for n in overrides)])):
        log = logs[number] if number < len(logs) else replies.synthetic((), setup.route or "")
        if number and number in overrides:
            log = replies.synthetic(replies.entries(log, overrides[number]))
        if not any(line.startswith(b'{"type":"request/header"') for line in log):
            log = [*log, *replies.synthetic((), setup.route or "")[1:]]
        text = b"\n".join([*log, b""])
        for name, value in found.known.items():
            text = text.replace(f"{{{{{name}}}}}".encode(), value.encode())
        (found.model / log_name(number)).write_bytes(text)
    spec = f"replay:{found.model / log_name(0)}"
    override = overrides.get(0)
    if override is None and life == 0:
        return spec
    if life == 0:
        document = replies.compile_override(override)
    else:
        document = replies.entries(logs[0] if logs else (), override)[used(found) :]
    path = found.model / f"override.{life}.json"
    path.write_bytes(jsontext.encode(replies.fill(document, found.known)))
    return f"{spec}?override={path}"


def used(found: Bench) -> int:
    """How many replies of the script the logs show to be used."""
    return sum(
        1
        for log in harvest(found.state)
        for seq, event in enumerate(log.events())
        if seq >= log.header.get("seedLength", 0)
        and (
            event["type"] == "request/digest"
            or (event["type"] == "compaction/summary" and event["data"].get("llmStreamCall"))
        )
    )
