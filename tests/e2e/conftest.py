"""Agents over real pipes, and a model's endpoint. Whatever an agent prints is judged at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from e2e_agent import Agent
import pytest

from dsh_acp.llm.fake import FakeLlm


@pytest.fixture
def fake() -> Iterator[FakeLlm]:
    with FakeLlm(["success"], repeat_last=True) as server:
        yield server


@pytest.fixture
def start(tmp_path: Path, fake: FakeLlm) -> Iterator[Callable[..., Agent]]:
    """Starts agents in `tmp_path/home`, all on the same endpoint and the same state."""
    home = tmp_path / "home"
    agents: list[Agent] = []

    def begin(**options: Any) -> Agent:
        agents.append(Agent(home, options.pop("fake", fake), **options))
        return agents[-1]

    yield begin
    for agent in agents:
        agent.stop()
    assert [fault for agent in agents for fault in agent.faults()] == []


@pytest.fixture
def agent(start: Callable[..., Agent]) -> Agent:
    return start()
