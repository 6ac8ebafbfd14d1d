"""Recorded sessions of the harness whose format we keep: our tools give the same results."""

from collections.abc import Iterator
import json
from pathlib import Path
import shutil
from typing import Any

import pytest
from workbench import Workbench

from dsh_acp.errors import ToolError
from dsh_acp.messages import ImageRef, encode_blocks
from dsh_acp.tools.images import ReadImage
from dsh_acp.tools.tool import Outcome

# What lies outside the tools: policy, hooks, another working set, a cap that is configured there.
_SCENARIOS = (
    "bash-tool-turn",
    "fs-edit",
    "fs-policy-reject",
    "fs-read",
    "fs-write",
    "fs-write-overwrite-bounded",
    "parallel-tool-calls",
    "read-image",
    "subagent-max-tokens-partial",
    "todo-write",
)


def calls(log: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    waiting: dict[str, dict[str, Any]] = {}
    for line in log.read_text("utf-8").splitlines():
        event = json.loads(line)
        if event["type"] == "tool/call":
            waiting[event["data"]["callId"]] = event["data"]
        elif event["type"] == "tool/result":
            data = event["data"]
            yield waiting[data["message"]["source"]["callId"]], data


@pytest.mark.parametrize("scenario", _SCENARIOS)
async def test_recorded_results_are_ours(scenario: str, shared: Path, bench: Workbench) -> None:
    folder = shared / "dsh-sessions" / scenario
    if (folder / "workspace").is_dir():
        shutil.copytree(folder / "workspace", bench.folder, dirs_exist_ok=True)

    async def put(data: bytes, media_type: str, name: str) -> ImageRef:
        recorded = [
            block["attachment"]
            for _, result in calls(folder / "session.jsonl")
            for block in result["message"]["content"][0]["content"]
            if block["type"] == "image"
        ]
        assert (recorded[0]["mediaType"], recorded[0]["name"]) == (media_type, name)
        ref = recorded[0]
        return ImageRef(
            ref["attachmentId"], media_type, len(data), ref["width"], ref["height"], name
        )

    tools = {**bench.tools, "read_image": ReadImage(put)}
    del tools["subagent"]  # needs a session
    seen = 0
    for log in sorted(folder.glob("session*.jsonl")):
        for call, recorded in calls(log):
            if (tool := tools.get(call["name"])) is None:
                continue
            outcome: Outcome | None = None
            error: ToolError | None = None
            try:
                outcome = await tool.run(tool.parse(call["arguments"]), bench)
            except ToolError as exc:
                error = exc
            block = recorded["message"]["content"][0]
            wanted = json.dumps(block["content"]).replace("{{cwd}}", bench.cwd)
            if error is not None:
                assert block["isError"]
                assert json.loads(wanted) == [{"type": "text", "text": f"Error: {error}"}]
                assert recorded["error"] == {"name": error.name, "code": error.code}
            else:
                assert outcome is not None
                assert json.loads(encode_blocks(outcome.content)) == json.loads(wanted)
                meta = json.loads(json.dumps(recorded.get("meta")).replace("{{cwd}}", bench.cwd))
                # There a bound of 64 bytes is configured for recorded diffs.
                if scenario != "fs-write-overwrite-bounded" or call["name"] != "write":
                    assert outcome.meta == meta
            seen += 1
    assert seen
