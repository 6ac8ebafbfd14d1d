"""The official TypeScript SDK's draft of version 2, through a small editor written with it."""

import json
from pathlib import Path

from client_place import COMMAND, TURNS, Node, Place

SCRIPT = Path(__file__).with_name("sdk_v2_client.mjs")
LATER = (
    {"text": "One, at length. " * 3, "chunk_delay_ms": 150},
    {"text": "Three, then."},
    {"text": "And two."},
)


def test_the_typescript_sdk_prompts_cancels_resumes_queues_and_steers(
    node: Node, place: Place
) -> None:
    turns = iter((*TURNS[:-1], *LATER))
    # Requests without tools ask for a title.
    place.fake.use(lambda asked: next(turns) if asked.json.get("tools") else {"text": "A title"})
    done = node.run(str(SCRIPT), str(node.modules), str(COMMAND), place=place)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    told = json.loads(done.stdout)
    first, second = told["first"], told["second"]

    assert first["version"] == 2
    assert first["stops"] == ["end_turn", "end_turn", "cancelled"]
    assert first["questions"] == ["Run touch made: command"] * 2
    assert first["statuses"] == [
        "c1 pending",
        "c1 in_progress",
        "c1 completed",
        "c2 pending",
        "c2 failed",
    ]
    assert first["exits"] == [{"exitCode": 0}, {}]
    assert first["states"][:4] == ["running", "requires_action", "running", "end_turn"]
    assert first["user"] == ["make it", "again", "think"]
    assert (place.project / "made").exists()

    assert second["listed"] == [told["sessionId"]]
    assert second["replayed"]["user"] == first["user"]
    assert second["replayed"]["agent"] == first["agent"]
    assert second["replayed"]["states"] == ["idle"]
    assert second["distinct"] == 3
    assert second["user"][3:] == ["one", "three", "two"]
    assert second["agent"][-2:] == ["Three, then.", "And two."]
    assert ["three", "two"] in second["waiting"] and second["waiting"][-1] == []
    assert first["exit"] == second["exit"] == 0
