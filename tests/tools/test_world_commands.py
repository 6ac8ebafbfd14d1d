"""Commands on the local world: what they may see, and that nothing of them stays."""

import os
from pathlib import Path
import signal
import subprocess
import sys

import anyio
import pytest
from workbench import Workbench, is_gone, pid_in, text_in, until

from dsh_acp.errors import ToolError
from dsh_acp.tools import process, reaper
from dsh_acp.tools.tool import CommandEnd
from dsh_acp.tools.world import LocalWorld


async def run(bench: Workbench, command: str, timeout_ms: int = 10_000) -> CommandEnd:
    with anyio.fail_after(30):
        return await LocalWorld().run(
            command, cwd=bench.cwd, timeout_ms=timeout_ms, spill_dir=bench.spill_dir
        )


async def test_streams_and_the_exit_code_are_kept_apart(bench: Workbench) -> None:
    ended = await run(bench, "echo out; echo err >&2; pwd; exit 7")
    assert ended.stdout.decode() == f"out\n{bench.cwd}\n"
    assert (ended.stderr, ended.exit_code, ended.signal) == (b"err\n", 7, None)
    assert (await run(bench, "kill -KILL $$")).signal == "SIGKILL"


async def test_a_command_has_no_input_no_terminal_and_no_descriptor_of_ours(
    bench: Workbench,
) -> None:
    ours = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(ours, True)
    try:
        ended = await run(
            bench, "cat; ls /proc/$$/fd | tr '\\n' ' '; (: </dev/tty) 2>/dev/null || echo no tty"
        )
    finally:
        os.close(ours)
    fds, _, rest = ended.stdout.decode().partition("no tty")
    # bash itself keeps a private descriptor at 255 now and then.
    assert set(fds.split()) <= {"0", "1", "2", "3", "255"}
    assert str(ours) not in fds.split() or ours <= 3
    assert rest == "\n"


async def test_secrets_stay_out_of_the_environment(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "gh_token", "Db_Password", "CLIENT_SECRET", "AWS_CREDENTIALS"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("HARMLESS", "shown")
    ended = await LocalWorld({"MINE": "yes"}).run(
        "env", cwd=bench.cwd, timeout_ms=5000, env={"EXTRA": "too"}
    )
    shown = ended.stdout.decode()
    assert "hunter2" not in shown
    for line in ("HARMLESS=shown", "NO_COLOR=1", "TERM=dumb", "PAGER=cat", "GIT_PAGER=cat"):
        assert f"\n{line}\n" in f"\n{shown}"
    assert "MINE=yes\n" in shown
    assert "EXTRA=too\n" in shown


async def test_a_time_limit_keeps_the_output_so_far(bench: Workbench) -> None:
    text = await bench.text(
        "bash",
        command="for i in 1 2 3; do echo $i; done; sleep 600",
        description="count",
        timeoutMs=300,
    )
    assert text == "1\n2\n3\n[timed out after 300ms]\n[killed by signal: SIGTERM]"


async def test_what_ignores_the_stop_is_killed(bench: Workbench) -> None:
    child = process.Child(
        ("bash", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"), bench.cwd, os.environ
    )
    out, _ = child.streams
    with anyio.fail_after(30):
        await anyio.wait_readable(out)
        assert await child.stop(grace_s=0.05)
    child.close()
    assert child.outcome() == (None, "SIGKILL")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("echo $$ >pid; sleep 600", id="the shell"),
        pytest.param("(echo $BASHPID >pid; exec sleep 600)", id="a child"),
        pytest.param("setsid bash -c 'echo $$ >pid; exec sleep 600'", id="a session of its own"),
        pytest.param(
            "setsid bash -c 'echo $$ >pid; exec sleep 600 >/dev/null 2>&1' & sleep 600",
            id="a daemon",
        ),
    ],
)
async def test_cancellation_reaps_the_whole_tree(bench: Workbench, command: str) -> None:
    pid = bench.folder / "pid"
    async with anyio.create_task_group() as group:

        async def call() -> None:
            await run(bench, command, 600_000)

        group.start_soon(call)
        await until(lambda: pid_in(pid))
        group.cancel_scope.cancel()
    await until(lambda: is_gone(pid_in(pid)))


async def test_what_a_command_leaves_running_is_stopped_and_told(bench: Workbench) -> None:
    text = await bench.text(
        "bash", command="sleep 600 & echo $! >pid; echo started", description="leave"
    )
    assert text == (
        "started\n[processes that this command left running were stopped; "
        "use run_in_background for one that must go on]"
    )
    await until(lambda: is_gone(pid_in(bench.folder / "pid")))


async def test_output_past_the_cap_is_on_disk_and_named(bench: Workbench) -> None:
    text = await bench.text(
        "bash", command="seq 1 20000; seq 1 3 >&2", description="count", timeoutMs=10_000
    )
    whole = "".join(f"{n}\n" for n in range(1, 20_001))
    kept, _, note = text.partition("\n[output truncated; full output: ")
    assert whole.endswith(kept)
    assert 63_000 < len(kept) <= 64_000
    file, _, rest = note.partition("]")
    assert text_in(file) == whole
    assert file.startswith(f"{bench.spill_dir}/")
    assert rest == "\n[stderr]\n1\n2\n3\n"


async def test_live_output_arrives_before_the_end_in_whole_characters(bench: Workbench) -> None:
    both = bench.folder / "go"
    os.mkfifo(both)
    async with anyio.create_task_group() as group:

        async def call() -> None:
            command = r"printf 'first \xe8\xaf'; cat go; printf '\xbb last'"
            await bench.call("bash", command=command, description="slow")

        group.start_soon(call)
        await until(lambda: bench.live)
        assert bench.live == ["first "]
        await anyio.to_thread.run_sync(both.write_bytes, b"")
    assert "".join(bench.live) == "first 读 last"


async def test_terminal_control_is_live_but_not_in_the_result(bench: Workbench) -> None:
    text = await bench.text(
        "bash",
        command=r"printf '\033[31mred\033[0m\r10%%\r100%%\n'",
        description="colours",
    )
    assert text == "red\n100%\n"
    assert "".join(bench.live) == "\x1b[31mred\x1b[0m\r10%\r100%\n"


async def test_a_command_longer_than_an_argument_may_be_runs(bench: Workbench) -> None:
    text = "x" * 300_000
    ended = await run(bench, f"cat <<'END' >big\n{text}\nEND\necho done $#")
    assert ended.stdout == b"done 0\n"
    assert bench.bytes_of("big") == text.encode() + b"\n"


@pytest.mark.parametrize("folder", ["missing", "file"])
async def test_a_folder_that_cannot_be_used_is_told(bench: Workbench, folder: str) -> None:
    bench.put("file", "x")
    refusal = await bench.refusal("bash", command="true", description="d", workdir=folder)
    assert refusal.code == "EXEC_FAILED"
    assert f"{bench.cwd}/{folder}" in str(refusal)


async def test_a_command_that_cannot_be_passed_on_is_told(bench: Workbench) -> None:
    refusal = await bench.refusal("bash", command="a\0b", description="d")
    assert refusal.code == "EXEC_FAILED"


async def test_commands_run_where_they_are_told(bench: Workbench) -> None:
    (bench.folder / "sub dir").mkdir()
    text = await bench.text("bash", command="pwd", description="d", workdir="sub dir")
    assert text == f"{bench.cwd}/sub dir\n"


async def test_many_commands_at_once_stay_apart(bench: Workbench) -> None:
    found: dict[int, bytes] = {}

    async def one(number: int) -> None:
        found[number] = (await run(bench, f"echo {number}")).stdout

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(one, number)
    assert found == {number: f"{number}\n".encode() for number in range(12)}
    assert len(os.listdir("/proc/self/fd")) < 64


async def test_cancelled_commands_leave_no_descriptor(bench: Workbench) -> None:
    await run(bench, "true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with anyio.move_on_after(0.01):
            await run(bench, "sleep 600")
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_missing_program_is_told(bench: Workbench) -> None:
    with pytest.raises(ToolError, match="cannot run") as caught:
        process.Child(("/no/such/program",), bench.cwd, {})
    assert caught.value.code == "EXEC_FAILED"


def test_a_killed_agent_takes_its_commands_along(bench: Workbench) -> None:
    script = (
        "import anyio, os, signal, sys\n"
        "from dsh_acp.tools.world import LocalWorld\n"
        "def die(data):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "async def main():\n"
        "    await LocalWorld().run('echo $$ >pid; echo; exec sleep 600', cwd=sys.argv[1],"
        " timeout_ms=600000, output=die)\n"
        "anyio.run(main)\n"
    )
    root = Path(reaper.__file__).parents[2]
    agent = subprocess.run([sys.executable, "-c", script, bench.cwd], cwd=root, check=False)
    assert agent.returncode == -signal.SIGKILL
    pid = pid_in(bench.folder / "pid")
    assert pid
    anyio.run(until, lambda: is_gone(pid))
