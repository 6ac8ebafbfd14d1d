"""Results that are too long: both ends, a note, and a file with everything."""

from pathlib import Path
import re
from typing import Any

from agent_bench import Bench, calls, results, text
import anyio
from hypothesis import given, strategies as st
import pytest

from dsh_acp.agent.results import bounded
from dsh_acp.messages import Image, ImageRef, Text
from dsh_acp.tools.tool import Outcome

LONG = "start " + "é" * 2000 + " end"


async def long(*_: Any) -> Outcome:
    return Outcome(content=(Text(LONG),))


async def test_a_long_result_keeps_both_ends_and_the_rest_is_in_a_file(bench: Bench) -> None:
    bench.settings["max_result_bytes"] = 1000
    bench.tool("look", long)
    bench.say(calls(("1", "look")), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        (said,) = results(session).values()
    assert len(said.encode()) <= 1000
    assert said.startswith("start é") and "é end\n\n(Omitted " in said
    stored = re.search(r"stored at: (\S+-look\.txt)\. Use read", said)
    assert stored is not None
    assert await anyio.Path(stored[1]).read_text("utf-8") == LONG
    kept = said.partition("\n\n(Omitted ")[0]
    assert f"(Omitted {len(LONG.encode()) - len(kept.encode())} bytes." in said


async def test_without_a_bound_results_are_whole(bench: Bench) -> None:
    bench.tool("look", long)
    bench.say(calls(("1", "look")), text("Done."))
    async with bench.running() as session:
        await bench.prompt(session)
        assert results(session) == {"1": LONG}


async def test_pages_pictures_and_what_cannot_be_kept_stay_as_they_are(tmp_path: Path) -> None:
    long, picture = Text(LONG), Image(ImageRef("sha256:00", "image/png", 1, 1, 1))
    assert await bounded((long,), 500, "read", str(tmp_path)) == (long,)
    assert await bounded((long, picture), 500, "look", str(tmp_path)) == (long, picture)
    (tmp_path / "file").touch()
    assert await bounded((long,), 500, "look", str(tmp_path / "file")) == (long,)
    assert await bounded((Text("short"),), 500, "look", str(tmp_path)) == (Text("short"),)


@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=900), max_size=3),
    st.integers(500, 1500),
)
async def test_whatever_the_text_the_bound_holds_and_nothing_is_broken(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("output")
    content = tuple(Text(each) for each in texts)
    found = await bounded(content, limit, "look", str(folder))
    whole = "".join(texts)
    if len(whole.encode()) <= limit:
        assert found == content
        return
    (block,) = found
    assert isinstance(block, Text)
    assert len(block.text.encode()) <= limit
    head, _, _ = block.text.partition("\n\n(Omitted ")
    assert "\ufffd" not in head or "\ufffd" in whole
