"""Toad, as a person uses it in a terminal: prompts, answers, and the key that cancels."""

from client_place import COMMAND, Place
import pytest
import python_clients
from toad_client import Toad


def test_toad_prompts_allows_denies_and_cancels(place: Place) -> None:
    try:
        argv = python_clients.toad()
    except python_clients.UnavailableError as exc:
        pytest.skip(f"Toad cannot be had: {exc}")
    with Toad([*argv, "acp", str(COMMAND), "."], place.project, place.env) as toad:
        toad.wait_for("connected")
        toad.prompt("Please make it")
        toad.wait_for("Allow once")
        toad.answer("a")
        toad.wait_for("Made.")
        assert (place.project / "made").exists()

        toad.prompt("Again")
        toad.wait_for("Reject")
        toad.answer("r")
        toad.wait_for("Then not.")

        toad.prompt("Think")
        toad.wait_for("Thinking of it.")
        toad.type("\x1b")
        toad.wait_for("again to cancel")
        toad.type("\x1b")
        toad.wait_for("Turn cancelled")

        toad.prompt("And now?")
        toad.wait_for("Still here.")
        frames = toad.frames()
    ends = [frame["result"] for frame in frames if "stopReason" in frame.get("result", {})]
    reasons = [end["stopReason"] for end in ends]
    assert reasons == ["end_turn", "end_turn", "cancelled", "end_turn"]
    assert place.prompts() == ["Please make it", "Again", "Think", "And now?"]
