"""Scenarios as pytest items.

Any folder that holds `input.json` and a transcript (or `wire.jsonl`) and lies in what pytest
collects is one test, of every protocol version in which it has a place. `--acp-refresh` rewrites
the expectations instead of comparing them, `--acp-agent 'CMD …'` plays against another agent. Each
item works in its own temporary folders, so pytest-xdist may run them in any number of processes.

Loaded with every pytest of an environment that has this package, so nothing is imported before a
scenario is collected.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dsh_acp.snapshot.runner import Result

_EXPECTATIONS = ("stdout.expected.jsonl", "stdout.v2.expected.jsonl", "wire.jsonl")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("acp", "ACP snapshot scenarios")
    group.addoption(
        "--acp-refresh", action="store_true", help="rewrite the expectations of scenarios"
    )
    group.addoption("--acp-agent", default=None, metavar="'CMD …'", help="play another agent")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """Collect `input.json` where an expectation lies beside it."""
    if file_path.name != "input.json":
        return None
    refreshes = parent.config.getoption("--acp-refresh")
    known = _EXPECTATIONS if not refreshes else (*_EXPECTATIONS, "replay.override.json")
    if not any((file_path.parent / name).exists() for name in known):
        return None
    return ScenarioFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType]


class ScenarioFile(pytest.File):
    """One `input.json`."""

    def collect(self) -> Iterator[pytest.Item]:
        """The one item: the scenario, by its folder's name."""
        yield ScenarioItem.from_parent(self, name=self.path.parent.name)  # pyright: ignore[reportUnknownMemberType]


class ScenarioFailure(Exception):
    """What is wrong, in words."""


class ScenarioItem(pytest.Item):
    """One scenario."""

    def runtest(self) -> None:
        """Play it.

        Raises:
            ScenarioFailure: something is not as committed.
        """
        result = self._play()
        if result.skipped:
            pytest.skip(result.skipped)
        if not result.ok:
            words = [*result.problems, *result.strangers, *map(str, result.differences)]
            raise ScenarioFailure("\n".join(words))
        if result.written:
            self.add_report_section("call", "acp", f"wrote {', '.join(result.written)}")

    def _play(self) -> "Result":
        import shlex

        import anyio

        from dsh_acp.snapshot.runner import default_options, run
        from dsh_acp.snapshot.scenario import Scenario

        folder = self.path.parent
        agent = self.config.getoption("--acp-agent")
        options = default_options(
            folder,
            mode="refresh" if self.config.getoption("--acp-refresh") else "check",
            agent=None if agent is None else tuple(shlex.split(agent)),
        )
        return anyio.run(run, Scenario(folder), options)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The differences alone; a traceback only for a fault of the kit."""
        if isinstance(excinfo.value, ScenarioFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the scenario lies."""
        return self.path, 0, f"scenario {self.name}"
