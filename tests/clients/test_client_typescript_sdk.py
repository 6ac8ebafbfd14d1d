"""The official TypeScript SDK, through a small editor that is written with it."""

import json

from client_place import COMMAND, HERE, Node, Place


def test_the_typescript_sdk_prompts_allows_denies_cancels_and_loads(
    node: Node, place: Place
) -> None:
    script, modules = str(HERE / "sdk_client.mjs"), str(node.modules)
    done = node.run(script, modules, str(COMMAND), place=place)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    told = json.loads(done.stdout)
    first, second = told["first"], told["second"]
    assert first["version"] == 1
    assert first["stops"] == ["end_turn", "end_turn", "cancelled"]
    assert first["questions"] == ["touch made", "touch made"]
    states = ["c1 pending", "c1 in_progress", "c1 completed", "c2 pending", "c2 failed"]
    assert first["statuses"] == states
    assert (place.project / "made").exists()
    said = "I make it.Made.I make it again.Then not.Thinking of it. "
    assert first["said"] == said
    assert second["listed"] == [told["sessionId"]]
    assert second["replayed"]["user"] == "make itagainthink"
    assert second["replayed"]["said"] == said
    assert [state for state in second["replayed"]["statuses"] if state.endswith("ed")] == [
        "c1 completed",
        "c2 failed",
    ]
    assert second["stops"] == ["end_turn"] and second["said"].endswith("Still here.")
    assert first["exit"] == second["exit"] == 0
