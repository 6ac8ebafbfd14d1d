"""Third-party packages take part through one object."""

from importlib import metadata
from pathlib import Path
import subprocess
import sys
import textwrap

from agent_bench import Bench, text
import pytest

from dsh_acp.agent.hooks import Enter, Hooks, PreStep, Proceed, Reject, through


async def test_middleware_is_an_onion_in_list_order() -> None:
    seen: list[str] = []

    def layer(name: str):
        async def middleware(payload: str, proceed: Proceed[str]) -> str:
            seen.append(f"{name} before")
            answer = await proceed()
            seen.append(f"{name} after")
            return f"{name}({answer})"

        return middleware

    async def innermost() -> str:
        return "x"

    assert await through([layer("a"), layer("b")], "p", innermost) == "a(b(x))"
    assert seen == ["a before", "b before", "b after", "a after"]


async def test_middleware_may_answer_without_the_rest() -> None:
    async def short(payload: int, proceed: Proceed[int]) -> int:
        return payload * 2

    async def never() -> int:
        raise AssertionError

    assert await through([short], 21, never) == 42


def install(root: Path, body: str) -> None:
    """A distribution with an entry point, as an installer leaves it."""
    (root / "guest.py").write_text(textwrap.dedent(body), encoding="utf-8")
    info = root / "guest-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(
        "[dsh_acp.plugins]\nguest = guest:install\n", encoding="utf-8"
    )


async def test_an_installed_package_adds_its_hooks_at_the_first_turn(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "site"
    root.mkdir()
    install(
        root,
        """
        from dsh_acp.agent.hooks import Reject

        async def refuse(step, proceed):
            return Reject("guest")

        def install(hooks):
            hooks.pre_step.append(refuse)
        """,
    )
    monkeypatch.syspath_prepend(str(root))
    bench.hooks.plugins = True
    async with bench.running() as session:
        assert bench.hooks.pre_step == []
        await bench.prompt(session)
        assert len(bench.hooks.pre_step) == 1
        assert list(session.log.events())[-1].payload.reason.kind == "blocked"
    sys.modules.pop("guest", None)


def test_a_package_that_fails_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, "raise RuntimeError('no')")
    monkeypatch.syspath_prepend(str(tmp_path))
    hooks = Hooks(plugins=True)
    hooks.load_plugins()
    assert hooks.pre_step == []
    assert "the plugin guest could not be loaded" in caplog.text
    hooks.load_plugins()
    assert metadata.version("guest") == "1.0"


async def test_a_hook_may_inject_and_steer(bench: Bench) -> None:
    from dsh_acp.messages import Message, Text

    async def remark(step: PreStep, proceed: Proceed[Enter | Reject]) -> Enter | Reject:
        if step.step == 1:
            step.session.inject(Message.user((Text("remember this"),)))
        return await proceed()

    bench.hooks.pre_step.append(remark)
    bench.say(text("one"), text("two"))
    async with bench.running() as session:
        await bench.prompt(session)
        assert [m.text for m in bench.model.requests[-1].messages][-1] == "remember this"


def test_importing_the_session_is_cheap() -> None:
    code = "import sys, dsh_acp.agent.session; print('\\n'.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
        encoding="utf-8",
    ).stdout.split()
    heavy = {"pydantic", "httpx", "pygls", "mcp", "rich", "importlib.metadata"}
    assert not heavy & set(loaded)
