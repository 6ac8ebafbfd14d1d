"""The public conformance kit judges the installed command as it judges every agent."""

import json
from pathlib import Path
import subprocess
import sys
from typing import Any

from e2e_agent import environment
import pytest

from dsh_acp.llm.fake import FakeLlm

COMMAND = Path(sys.executable).with_name("dsh-acp")


def judged(shared: Path, tmp_path: Path, fake: FakeLlm, *options: str) -> dict[str, Any]:
    """The kit's report."""
    if not (shared / "acptck").is_dir():
        pytest.skip("the conformance kit ../shared/acptck is not here")
    if not COMMAND.exists():
        pytest.skip("the command dsh-acp is not installed beside this interpreter")
    report = tmp_path / "report.json"
    kit = [sys.executable, "-B", "-m", "acptck", "--timeout", "4", "--report-json", str(report)]
    done = subprocess.run(
        [*kit, *options, "--", str(COMMAND)],
        cwd=shared,
        env=environment(tmp_path / "home", fake.url),
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert report.exists(), done.stdout.decode() + done.stderr.decode()
    return json.loads(report.read_bytes())


TIERS = ("MANDATORY", "CAPABILITY", "ADVISORY")


@pytest.mark.long
def test_the_kit_finds_the_agent_conformant_and_has_no_other_objection(
    shared: Path, tmp_path: Path
) -> None:
    with FakeLlm(
        [{"text": "A long explanation. " * 4, "chunk_delay_ms": 25}], repeat_last=True
    ) as fake:
        report = judged(shared, tmp_path, fake)
    rows = report["requirements"]
    assert report["verdict"]["conformant"], report["verdict"]
    assert [row["id"] for row in rows if row["tier"] in TIERS and row["status"] == "FAIL"] == []
    passed = [row for row in rows if row["tier"] in TIERS and row["status"] == "PASS"]
    assert len(passed) >= 45
    offered = {row["id"]: row["status"] for row in rows if "PROMPTCAP" in row["id"]}
    assert len(offered) == 3 and set(offered.values()) == {"PASS"}, offered
