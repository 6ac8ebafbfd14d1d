"""Terminals that live through calls."""

from collections.abc import AsyncIterator
from pathlib import Path
import sys

import anyio
import pytest
from workbench import Workbench, is_gone, pid_in, until

from dsh_acp.tools import terminals
from dsh_acp.tools.sandbox import Sandbox


@pytest.fixture
async def desk(bench: Workbench) -> AsyncIterator[Workbench]:
    yield bench
    await terminals.close_all(bench.state)


async def opened(bench: Workbench, **arguments: object) -> str:
    said = await bench.text("terminal_open", **arguments)
    return said.split()[2]


async def typed(bench: Workbench, id: str, text: str, **more: object) -> str:
    with anyio.fail_after(30):
        return await bench.text("terminal_send", sessionId=id, text=text, **more)


async def test_a_shell_keeps_what_was_done_in_it(desk: Workbench) -> None:
    (desk.folder / "sub").mkdir()
    assert await desk.text("terminal_open", name="work") == (
        f"opened terminal term-1 (work) in {desk.folder}"
    )
    await typed(desk, "term-1", "cd sub; NAME=value")
    said = await typed(desk, "term-1", 'echo "$NAME in ${PWD##*/}"; tty >/dev/null && echo tty')
    assert "value in sub\n" in said and "\ntty\n" in said
    assert said.endswith("[status: waiting at its prompt]")
    listed = await desk.text("terminal_list")
    assert listed == f"term-1 [work] in {desk.folder} [status: waiting at its prompt]"


async def test_a_program_is_talked_to(desk: Workbench) -> None:
    id = await opened(desk)
    said = await typed(desk, id, f"{sys.executable} -q -i -c 'x = 20'", timeout_ms=9000)
    assert said.endswith(">>> \n[status: busy]")
    assert "\n42\n" in await typed(desk, id, "x * 2 + 2")
    assert "waiting at its prompt" in await typed(desk, id, "exit()")


async def test_a_program_that_runs_on_is_read_and_interrupted(desk: Workbench) -> None:
    id = await opened(desk)
    said = await typed(desk, id, "echo begun; sleep 300", timeout_ms=1500)
    assert "begun" in said and said.endswith("[status: busy]")
    said = await desk.text("terminal_signal", sessionId=id, signal="SIGINT")
    assert said.endswith("[status: waiting at its prompt]")


async def test_text_is_typed_without_the_end_of_its_line(desk: Workbench) -> None:
    id = await opened(desk)
    assert "done" not in (await typed(desk, id, "printf 'd'one", submit=False)).split("$ ")[-1][:4]
    with anyio.fail_after(30):
        said = await typed(desk, id, "", run_in_background=True)
        while "\ndone" not in said:
            said += await desk.text("terminal_read", sessionId=id)


async def test_lines_that_were_read_can_be_read_again(desk: Workbench) -> None:
    id = await opened(desk)
    await typed(desk, id, "seq 5")
    again = await desk.text("terminal_read", sessionId=id, offset=2, count=3)
    assert again == "1\n2\n3\n[status: waiting at its prompt]"
    assert (await desk.text("terminal_read", sessionId=id)).startswith("(no new output)")


async def test_what_is_too_much_is_cut_at_its_beginning(desk: Workbench) -> None:
    id = await opened(desk)
    said = await typed(desk, id, "seq 100000", timeout_ms=20_000)
    assert said.startswith("[earlier output left out]\n") and "\n100000\n" in said
    assert len(said) < 70_000


async def test_an_end_is_told_and_its_name_is_not_used_again(desk: Workbench) -> None:
    id = await opened(desk)
    assert (await typed(desk, id, "exit")).endswith("[status: ended]")
    refused = await desk.refusal("terminal_send", sessionId=id, text="true")
    assert refused.code == "TERMINAL_ENDED"
    assert await desk.text("terminal_close", sessionId=id) == f"closed terminal {id}"
    assert await opened(desk) == "term-2"
    assert await desk.text("terminal_list") != "(no terminals)"


async def test_closing_ends_everything_in_it(desk: Workbench) -> None:
    id = await opened(desk)
    for number, way in enumerate(("sleep 300 &", "setsid sleep 300 &", "nohup sleep 300 &")):
        await typed(desk, id, f"{way} echo $! >pid{number}")
    pids = [desk.folder / f"pid{number}" for number in range(3)]
    await until(lambda: all(pid_in(path) for path in pids))
    await desk.text("terminal_close", sessionId=id)
    await until(lambda: all(is_gone(pid_in(path)) for path in pids))
    assert await desk.text("terminal_list") == "(no terminals)"


async def test_there_are_four_at_most(desk: Workbench) -> None:
    for _ in range(terminals.LIMIT):
        await opened(desk)
    refused = await desk.refusal("terminal_open")
    assert refused.code == "TERMINAL_LIMIT"
    assert str(refused).startswith("too many terminals (limit 4): term-1")


async def test_what_does_not_exist_is_refused_in_words(desk: Workbench) -> None:
    refused = await desk.refusal("terminal_read", sessionId="term-9")
    assert str(refused) == 'unknown terminal "term-9" (open: there are none)'
    refused = await desk.refusal("terminal_open", cwd="nowhere")
    assert "not a directory" in str(refused)


class Nothing:
    name = "nothing"
    limits = ""

    def start(self, argv, cwd, launch, writable, *, network):  # type: ignore[no-untyped-def]
        return launch(argv)


async def test_one_that_is_not_held_takes_no_input_that_only_a_sandbox_allows(
    desk: Workbench, tmp_path: Path
) -> None:
    id = await opened(desk)
    held = Sandbox((str(tmp_path),), False, Nothing())
    desk.sandbox = held
    refused = await desk.refusal("terminal_send", sessionId=id, text="touch here")
    assert refused.code == "TERMINAL_UNCONFINED"
    assert not (desk.folder / "here").exists()
    assert "touch" in await typed(desk, await opened(desk), "touch here")


def test_what_is_typed_is_judged_like_a_command(bench: Workbench) -> None:
    tool = bench.tools["terminal_send"]
    args = tool.parse('{"sessionId":"term-1","text":"rm -rf x"}')
    intent = tool.intent(args, bench.cwd)
    assert (intent.effect, intent.command) == ("execute", "rm -rf x")
    assert intent.reason is not None
    assert bench.call_card("terminal_send", sessionId="t", text="a\x1b[2K\nb").title == (
        "a\\x1b[2K\nb"
    )
