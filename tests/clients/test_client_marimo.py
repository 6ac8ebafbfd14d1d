"""marimo's panel of agents in a real browser: prompts, answers, and the button that stops."""

from client_place import Node, Place
from marimo_client import panel
import pytest
import python_clients


def test_marimo_prompts_allows_denies_and_stops(node: Node, place: Place) -> None:
    try:
        with panel(node, place.project, place.env) as agents:
            agents.prompt("Please make it")
            agents.press("Allow once")
            agents.wait_for("Made.")
            assert (place.project / "made").exists()

            agents.prompt("Again")
            agents.press("Reject")
            agents.wait_for("Then not.")

            agents.prompt("Think")
            agents.wait_for("Thinking of it.")
            agents.press("Stop")

            agents.prompt("And now?")
            agents.wait_for("Still here.")
    except python_clients.UnavailableError as exc:
        pytest.skip(f"marimo cannot be had: {exc}")
    said = [prompt.partition("\n")[0] for prompt in place.prompts()]
    assert said == ["Please make it", "Again", "Think", "And now?"]
