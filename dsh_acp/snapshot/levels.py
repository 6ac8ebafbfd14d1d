"""The levels of a check that need no process: `log` and `projection`.

`log` asks whether the committed logs hold together: they load, keep their relations, and every
request can be rebuilt from what precedes it. `projection` derives the transcript from the logs
alone and compares it with the committed one.
"""

from typing import Any, Final, TypeAlias

from dsh_acp.errors import DshError
from dsh_acp.log.audit import audit_log
from dsh_acp.snapshot.runner import Result
from dsh_acp.snapshot.scenario import Scenario, join, log_name

Json: TypeAlias = dict[str, Any]
SHOWN: Final = 5


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
