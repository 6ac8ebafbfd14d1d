"""What single recordings of the other harness were composed with, and do not hold themselves.

A bound on results, a model that names sessions, a language server: each is set up here for our
process the way that it would be by a user.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
import json
from pathlib import Path
import re
import shutil
import sys
from typing import Any, Final, TypeAlias
import uuid

from dsh_acp import jsontext
from dsh_acp.llm.fake import FakeLlm
from dsh_acp.snapshot import stub_server
from dsh_acp.snapshot.bench import Bench
from dsh_acp.snapshot.scenario import Scenario

Json: TypeAlias = dict[str, Any]

_STORED: Final = re.compile(r"stored at: (\S+-bash\.txt)\. ")
_THEIR_BOUND: Final = 800
_TITLE_REQUEST: Final = b'{"type":"session/title-llm-request"'
_LSP_CALL: Final = b'"name":"lsp","arguments"'


def missing(scenario: Scenario) -> str:
    """The program that a scenario needs and this machine lacks; `""` when it has all."""
    needs_node = any(b"node -e" in line for log in scenario.logs for line in log)
    return "needs Node.js" if needs_node and shutil.which("node") is None else ""


def names_sessions(scenario: Scenario) -> bool:
    """Whether a model of its own gave a title; an override is that model's script then."""
    return any(_TITLE_REQUEST in line for log in scenario.logs for line in log)


@contextmanager
def composed(scenario: Scenario, found: Bench) -> Generator[str]:
    """The text of our configuration; what it names is there inside the block."""
    events = [jsontext.loads(line) for line in (scenario.logs or [[]])[0]]
    # They take the hooks of a project as they are.
    config = f"project_hooks = true\n{_bound(events, found)}{_server(scenario, found)}"
    titles = list(_titles(events))
    if not names_sessions(scenario):
        yield config
        return
    with FakeLlm([{"behavior": "success", "text": title} for title in titles]) as llm:
        route = next(e for e in events if e["type"] == "session/title-llm-request")["data"]["route"]
        name = route["provider"]
        yield (
            f'title_model = "{name}/{route["model"]}"\n{config}'
            f'[providers.{name}]\nbase_url = "{llm.url}"\n'
        )


def _bound(events: list[Json], found: Bench) -> str:
    """Their bound on results. What is left of one depends on how long the path of its file is."""
    stored = _STORED.search(json.dumps(events))
    if stored is None:
        return ""
    ours = found.state / "output" / str(uuid.UUID(int=0)) / f"{'0' * 12}-bash.txt"
    return f"max_result_bytes = {_THEIR_BOUND + len(str(ours)) - len(stored[1])}\n"


def _server(scenario: Scenario, found: Bench) -> str:
    """Their stub of a language server, with one file for it, and their bound on its answers."""
    if not any(_LSP_CALL in line for log in scenario.logs for line in log):
        return ""
    (found.cwd / "subject.ts").write_text("const subject = 1;\nsubject;\n", "utf-8")
    argv = json.dumps([str(Path(stub_server.__file__))])
    return (
        f"lsp_max_places = 1\n[lsp.stub]\ncommand = {json.dumps(sys.executable)}\nargs = {argv}\n"
        'languages = {".ts" = "typescript"}\n'
    )


def _titles(events: list[Json]) -> Iterator[str]:
    """The titles that a model gave."""
    for event in events:
        if event["type"] == "session/title" and event["data"]["source"]["kind"] == "provider":
            yield event["data"]["title"]
