"""Background jobs."""

import os

import anyio
from workbench import Workbench, is_gone, pid_in, text_in, until

from dsh_acp.tools import jobs


async def start(bench: Workbench, command: str) -> str:
    text = await bench.text(
        "bash", command=command, description="in the background", run_in_background=True
    )
    name = text.removeprefix("started background job ")
    assert name != text
    return name


async def finished(bench: Workbench, job: str) -> str:
    with anyio.fail_after(30):
        return await bench.text("job_output", job_id=job, wait=True, timeout_ms=9000)


async def test_a_job_is_read_piece_by_piece(bench: Workbench) -> None:
    os.mkfifo(bench.folder / "go")
    job = await start(bench, r"printf 'one \xe8\xaf'; cat go; printf '\xbb two\n'")
    text = "(no new output)"
    with anyio.fail_after(30):
        while text.startswith("(no new output)"):
            text = await bench.text("job_output", job_id=job)
    assert text == "one \n[status: running]"
    assert await bench.text("job_list") == (
        f"{job} [bash] running — printf 'one \\xe8\\xaf'; cat go; printf '\\xbb two\\n'"
    )
    async with anyio.create_task_group() as group:
        # Whoever waits already when it ends needs no notice.
        group.start_soon(anyio.to_thread.run_sync, (bench.folder / "go").write_bytes, b"")
        assert await finished(bench, job) == "读 two\n[status: completed]"
    assert await finished(bench, job) == "(no new output)\n[status: completed]"
    # The end was told in an answer, so there is no notice of it.
    assert bench.contexts == []


async def test_the_end_of_a_job_is_announced(bench: Workbench) -> None:
    job = await start(bench, "exit 3")
    await until(lambda: bench.contexts)
    text = (
        f"background job {job} (bash: exit 3) finished [status: failed, exit code: 3]. "
        "Read its output with job_output."
    )
    assert bench.contexts[0].text == text
    assert bench.contexts[0].source == {
        "kind": "plugin",
        "plugin": "tool-jobs",
        "form": "notice",
        "summary": text,
    }
    assert await bench.text("job_kill", job_id=job) == (
        f"job {job} had already finished [status: failed, exit code: 3]"
    )


async def test_a_job_is_stopped_with_all_it_started(bench: Workbench) -> None:
    job = await start(bench, "sleep 600 & echo $! >pid; setsid sleep 601 & echo $! >pid2; wait")
    files = [bench.folder / "pid", bench.folder / "pid2"]
    await until(lambda: all(pid_in(file) for file in files))
    assert await bench.text("job_kill", job_id=job, reason="enough") == (
        f"requested cancellation of job {job}"
    )
    assert (await finished(bench, job)).endswith("[status: killed]")
    await until(lambda: all(is_gone(pid_in(file)) for file in files))


async def test_jobs_are_limited_and_end_with_the_session(bench: Workbench) -> None:
    names = [await start(bench, "sleep 600") for _ in range(jobs.LIMIT)]
    assert len(set(names)) == jobs.LIMIT
    refusal = await bench.refusal("bash", command="true", description="d", run_in_background=True)
    assert refusal.code == "JOB_LIMIT"
    assert "limit 8" in str(refusal)
    with anyio.fail_after(30):
        await jobs.stop_all(bench.state)
    listed = await bench.text("job_list")
    assert listed.count(" killed — sleep 600") == jobs.LIMIT
    assert bench.contexts == []
    await jobs.stop_all({})


async def test_unknown_jobs_and_folders_are_refused(bench: Workbench) -> None:
    assert await bench.text("job_list") == "(no background jobs)"
    refusal = await bench.refusal("job_output", job_id="job-9")
    assert (refusal.code, str(refusal)) == (
        "JOB_NOT_FOUND",
        'unknown background job "job-9" (known: there are none)',
    )
    refusal = await bench.refusal(
        "bash", command="true", description="d", run_in_background=True, workdir="nowhere"
    )
    assert refusal.code == "EXEC_FAILED"


async def test_much_unread_output_is_cut_and_kept_on_disk(bench: Workbench) -> None:
    job = await start(bench, "seq 1 30000")
    text = await finished(bench, job)
    head, _, rest = text.partition("\n[output truncated; full output: ")
    assert head.endswith("\n30000\n")
    assert len(head) <= 64_000
    assert text_in(rest.partition("]")[0]).startswith("1\n2\n")


async def test_a_wait_that_is_cancelled_leaves_the_job(bench: Workbench) -> None:
    job = await start(bench, "sleep 600")
    with anyio.move_on_after(0.01):
        await bench.text("job_output", job_id=job, wait=True)
    assert await bench.text("job_output", job_id=job) == "(no new output)\n[status: running]"
    await jobs.stop_all(bench.state)
