"""The tool `lsp`: its texts with a scripted server, and its use of two real ones."""

from collections.abc import AsyncIterator, Callable
import os
from pathlib import Path
import shutil
import sys
from typing import Any

import anyio
from msgspec.structs import replace
import pytest
from workbench import Workbench

from dsh_acp.config import LspServerSettings, Settings
from dsh_acp.lsp.findings import Finding, Place, Symbol
from dsh_acp.lsp.place import Limits
from dsh_acp.lsp.servers import KNOWN
from dsh_acp.messages import text_of
from dsh_acp.tools import language_desk, language_text
from dsh_acp.tools.confine import Confinement
from dsh_acp.tools.language import Lsp
from dsh_acp.tools.tool import Intent

UNRULY = Path(__file__).parents[1] / "lsp" / "unruly_server.py"
NONE = tuple(LspServerSettings(name=known.name, enabled=False) for known in KNOWN)


def settings(bench: Workbench, **more: Any) -> Settings:
    spill = Path(bench.spill_dir)
    return Settings(home=spill, config_path=spill / "c", config_dir=spill, sandbox="off", **more)


@pytest.fixture
async def unruly(bench: Workbench) -> AsyncIterator[Callable[[str], Workbench]]:
    """A workbench whose `lsp` asks an unruly server about `.x` files."""

    def make(mode: str) -> Workbench:
        server = LspServerSettings(
            name="unruly",
            command=sys.executable,
            args=(str(UNRULY), mode),
            languages={".x": "x"},
        )
        chosen = settings(bench, lsp_servers=(server,))
        bench.tools["lsp"] = Lsp(chosen, Confinement(chosen), Limits(request_s=5, farewell_s=0.2))
        bench.put("one.x", "first\n  second\n")
        return bench

    yield make
    with anyio.fail_after(30):
        await language_desk.release(bench.state)


async def ask(bench: Workbench, operation: str, **more: Any) -> str:
    with anyio.fail_after(30):
        return await bench.text("lsp", operation=operation, file_path="one.x", **more)


async def test_places_are_relative_inside_absolute_outside_and_whole_otherwise(
    unruly: Callable[[str], Workbench],
) -> None:
    bench = unruly("elsewhere")
    found = await ask(bench, "goToDefinition", line=1, character=1)
    assert found == "one.x:2:3\n/far/away.x:2:3\njdt://a/b:2:3"


async def test_more_places_than_a_hundred_are_counted(
    unruly: Callable[[str], Workbench],
) -> None:
    bench = unruly("many")
    found = await ask(bench, "goToDefinition", line=1, character=1)
    assert found.endswith("\none.x:100:1\n… 1 more location omitted (limit 100).")
    bench.put("two.x", "x")
    found = await bench.text(
        "lsp", operation="goToDefinition", file_path="two.x", line=1, character=1
    )
    assert found.endswith("\n… 50 more locations omitted (limit 100).")


async def test_nothing_is_said_to_be_nothing(unruly: Callable[[str], Workbench]) -> None:
    bench = unruly("silent")
    assert await ask(bench, "findReferences", line=1, character=1) == "No results."
    assert await ask(bench, "hover", line=1, character=1) == "No hover information."
    assert await ask(bench, "diagnostics") == "No diagnostics."


async def test_a_long_hover_is_cut(unruly: Callable[[str], Workbench]) -> None:
    found = await ask(unruly("talks"), "hover", line=1, character=1)
    assert len(found) == 16_000
    assert found.endswith("xx\n… hover truncated (limit 16000 characters).")


async def test_a_server_that_fails_fails_the_call_in_words(
    unruly: Callable[[str], Workbench],
) -> None:
    refusal = await unruly("dies").refusal(
        "lsp", operation="goToDefinition", file_path="one.x", line=1, character=1
    )
    assert str(refusal) == (
        'the language server "unruly" failed: it exited with code 9; '
        "its last words: fatal error: out of ideas"
    )
    assert (refusal.name, refusal.code) == ("LspError", "LSP_ENDED")
    refusal = await unruly("good").refusal(
        "lsp", operation="goToImplementation", file_path="one.x", line=1, character=1
    )
    assert "it does not offer goToImplementation" in str(refusal)


async def test_what_is_missing_is_named(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings(bench, lsp_servers=NONE)
    bench.tools["lsp"] = Lsp(chosen, Confinement(chosen))
    refusal = await bench.refusal("lsp", operation="diagnostics", file_path="a.txt")
    assert str(refusal) == f'no language server is known for files like "{bench.cwd}/a.txt"'
    chosen = settings(bench)
    bench.tools["lsp"] = Lsp(chosen, Confinement(chosen))
    monkeypatch.setenv("PATH", "")
    refusal = await bench.refusal("lsp", operation="diagnostics", file_path="a.zig")
    assert refusal.code == "LSP_UNAVAILABLE"
    if not shutil.which("rust-analyzer", path=str(Path(sys.executable).parent)):
        refusal = await bench.refusal("lsp", operation="diagnostics", file_path="a.rs")
        assert "is installed; any of these would do: rust-analyzer" in str(refusal)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, 'invalid arguments: missing required property "line"'),
        ({"line": 1}, 'invalid arguments: missing required property "character"'),
        ({"line": 0, "character": 1}, "line must be a positive integer (one-based)"),
        ({"line": 1, "character": -1}, "character must be a positive integer (one-based)"),
        ({"operation": "workspaceSymbol"}, "query must be a non-empty string"),
        ({"file_path": " ", "line": 1, "character": 1}, "file_path must be a non-empty string"),
    ],
)
async def test_arguments_are_checked(bench: Workbench, more: dict[str, Any], told: str) -> None:
    refusal = await bench.refusal("lsp", **{"operation": "hover", "file_path": "a"} | more)
    assert told in str(refusal)


async def test_a_missing_file_is_told(unruly: Callable[[str], Workbench]) -> None:
    bench = unruly("good")
    refusal = await bench.refusal("lsp", operation="documentSymbol", file_path="none.x")
    assert refusal.code == "FS_NOT_FOUND"


# ---------------------------------------------------------------- after a change


async def test_a_change_is_told_with_what_a_running_server_finds(
    unruly: Callable[[str], Workbench],
) -> None:
    bench = unruly("good")
    await bench.call("read", file_path="one.x")
    edit = {"file_path": "one.x", "old_string": "first", "new_string": "bad"}
    assert await bench.text("edit", **edit) == (
        f"The file {bench.cwd}/one.x has been updated successfully."
    )
    await ask(bench, "hover", line=1, character=1)
    edit = {"file_path": "one.x", "old_string": "bad", "new_string": "bad still"}
    assert await bench.text("edit", **edit) == (
        f"The file {bench.cwd}/one.x has been updated successfully.\n\n"
        "Diagnostics of this file now:\n"
        "one.x:2:3 error bad 1 [unruly 1]\n"
        "one.x:2:3 warning bad 0 [unruly 0]"
    )
    found = await bench.text("write", file_path="one.x", content="very bad")
    assert found.endswith("one.x:2:3 error bad 1 [unruly 1]\n… 40 more omitted (limit 20).")
    assert "Diagnostics" not in await bench.text("write", file_path="one.x", content="fine")
    assert "Diagnostics" not in await bench.text("write", file_path="two.y", content="bad")


@pytest.mark.parametrize("mode", ["checks slowly", "hangs", "dies"])
async def test_a_change_never_fails_for_a_server(
    unruly: Callable[[str], Workbench], mode: str
) -> None:
    bench = unruly(mode)
    await ask(bench, "hover", line=1, character=1)
    if mode == "dies":
        await bench.refusal(
            "lsp", operation="goToDefinition", file_path="one.x", line=1, character=1
        )
    await bench.call("read", file_path="one.x")
    with anyio.fail_after(30):
        text = await bench.text(
            "edit", file_path="one.x", old_string="first", new_string="second to none"
        )
    assert text == f"The file {bench.cwd}/one.x has been updated successfully."
    assert b"second to none" in bench.bytes_of("one.x")


# ---------------------------------------------------------------- texts and policy


def test_symbols_are_listed_with_what_they_are_inside_of() -> None:
    place = Place("/p/a.py", 3, 5)
    nested = [Symbol("A", "class", place), Symbol("m", "enum member", place, depth=1)]
    assert language_text.outline(nested) == "3:5 class A\n  3:5 enum member m"
    assert language_text.outline([]) == "No results."
    found = [Symbol("m", "method", place, container="A")]
    assert language_text.symbols(found, "/p") == "a.py:3:5 method m (in A)"


def test_places_of_one_file_stand_together() -> None:
    a, b = Place("/p/a", 1, 1), Place("/p/b", 1, 1)
    assert language_text.locations([a, b, replace(a, line=2)], "/p") == "a:1:1\na:2:1\nb:1:1"


def test_the_bound_on_places_is_told() -> None:
    a, b, c = (Place(f"/p/{name}", 1, 1) for name in "abc")
    told = language_text.locations([a, b, c], "/p", 2)
    assert told == "a:1:1\nb:1:1\n… 1 more location omitted (limit 2)."


def test_an_unfinished_check_says_so() -> None:
    found = [Finding(Place("/p/a", 1, 1), "hint", "h" * 600)]
    text = language_text.diagnostics(found, "/p", ("slow",))
    assert text.startswith("a:1:1 hint hhh")
    assert text.endswith("…\n(slow has not finished checking this file.)")


def test_a_server_that_runs_a_project_is_asked_about_unless_it_is_confined(
    bench: Workbench,
) -> None:
    server = LspServerSettings(
        name="own", command=sys.executable, args=("-V",), languages={".x": "x"}
    )
    chosen = settings(bench, lsp_servers=(server,))
    call = '{"operation": "documentSymbol", "file_path": "one.x"}'

    def intent(found: Settings) -> Intent:
        tool = Lsp(found, Confinement(found))
        return tool.intent(tool.parse(call), bench.cwd)

    unconfined = intent(chosen)
    assert (unconfined.effect, unconfined.command) == ("execute", f"{sys.executable} -V")
    assert unconfined.reason == "the language server own may run code of this project"
    confined = replace(chosen, sandbox="auto")
    if Confinement(confined).means is not None:
        assert intent(confined).effect == "read"


def test_a_card_says_what_is_asked(bench: Workbench) -> None:
    place = {"file_path": "a.py", "line": 3, "character": 7}
    card = bench.call_card("lsp", operation="goToDefinition", **place)
    assert (card.title, card.kind) == ("Find the definition at a.py:3:7", "search")
    assert bench.call_card("lsp", operation="diagnostics", **place).title == "Check a.py"
    found = bench.call_card("lsp", operation="workspaceSymbol", query="Q", **place)
    assert found.title == "Find symbols like Q"
    assert bench.call_card("lsp", operation="dance", **place).title == "lsp"


# ---------------------------------------------------------------- real servers


REAL = {"a.py": "from b import helper\n\nx: int = helper('one')\nprint(unknown)\n"}


@pytest.fixture
async def python(bench: Workbench) -> AsyncIterator[Workbench]:
    bench.put("a.py", REAL["a.py"])
    bench.put("b.py", 'def helper(n: int) -> int:\n    """Helps 𝄞 a lot."""\n    return n\n')
    yield bench
    with anyio.fail_after(30):
        await language_desk.release(bench.state)


def only(bench: Workbench, name: str, program: str, sandbox: Any = "off") -> None:
    beside = Path(sys.executable).with_name(program)
    if not (beside.exists() or shutil.which(program)):
        pytest.skip(f"{program} is not installed")
    if program.startswith("pyright") and shutil.which("node") is None:
        pytest.skip("pyright needs node")
    others = tuple(each for each in NONE if each.name != name)
    chosen = replace(settings(bench, lsp_servers=others), sandbox=sandbox)
    bench.tools["lsp"] = Lsp(chosen, Confinement(chosen))


@pytest.mark.server
@pytest.mark.parametrize("sandbox", ["off", "auto"])
async def test_pyright_answers_and_checks(python: Workbench, sandbox: str) -> None:
    only(python, "pyright", "pyright-langserver", sandbox)
    at = {"file_path": "a.py", "line": 3, "character": 11}
    with anyio.fail_after(60):
        assert await python.text("lsp", operation="goToDefinition", **at) == "b.py:1:5"
        found = await python.text("lsp", operation="findReferences", **at)
        assert sorted(found.split("\n")) == ["a.py:1:15", "a.py:3:10", "b.py:1:5"]
        hover = await python.text("lsp", operation="hover", **at)
        assert "def helper(n: int) -> int" in hover
        assert "Helps 𝄞 a lot." in hover
        found = await python.text("lsp", operation="documentSymbol", file_path="b.py")
        assert found.startswith("1:5 function helper")
        found = await python.text(
            "lsp", operation="workspaceSymbol", file_path="b.py", query="helper"
        )
        assert found == "b.py:1:5 function helper"
        found = await python.text("lsp", operation="diagnostics", file_path="a.py")
        assert 'a.py:4:7 error "unknown" is not defined' in found
        assert "a.py:3:17 error" in found


@pytest.mark.server
async def test_pyright_knows_what_was_edited_and_says_what_it_breaks(python: Workbench) -> None:
    only(python, "pyright", "pyright-langserver")
    with anyio.fail_after(60):
        await python.text("lsp", operation="diagnostics", file_path="b.py")
        await python.call("read", file_path="b.py")
        await python.text("edit", file_path="b.py", old_string="return n", new_string="return m")
        found = await python.text("lsp", operation="diagnostics", file_path="b.py")
        assert 'b.py:3:12 error "m" is not defined' in found


@pytest.mark.server
@pytest.mark.parametrize("sandbox", ["off", "auto"])
async def test_ruff_checks_what_it_cannot_define(python: Workbench, sandbox: str) -> None:
    only(python, "ruff", "ruff", sandbox)
    with anyio.fail_after(60):
        found = await python.text("lsp", operation="diagnostics", file_path="a.py")
        assert "a.py:4:7 error Undefined name `unknown` [Ruff F821]" in found
        await python.call("read", file_path="b.py")
        outcome = await python.call(
            "edit", file_path="b.py", old_string="return n", new_string="return m"
        )
        assert "b.py:3:12 error Undefined name `m` [Ruff F821]" in text_of(outcome.content)
        refusal = await python.refusal(
            "lsp", operation="goToDefinition", file_path="a.py", line=1, character=1
        )
        assert "it does not offer goToDefinition" in str(refusal)


@pytest.mark.server
async def test_a_confined_server_leaves_the_project_as_it_is(python: Workbench) -> None:
    only(python, "pyright", "pyright-langserver", "auto")
    before = sorted(os.listdir(python.folder))
    with anyio.fail_after(60):
        await python.text("lsp", operation="diagnostics", file_path="a.py")
    assert sorted(os.listdir(python.folder)) == before
