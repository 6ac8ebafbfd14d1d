"""Waiting for the disk in a thread."""

import threading

import anyio
import pytest

from dsh_acp.log.disk_wait import wait_for_disk


async def test_the_loop_goes_on_while_the_disk_is_waited_for() -> None:
    turned = threading.Event()

    def job() -> None:
        turned.wait(5)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(wait_for_disk, job)
            await anyio.lowlevel.checkpoint()
            turned.set()


async def test_more_waits_than_threads_all_end() -> None:
    done: list[int] = []
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(wait_for_disk, lambda number=number: done.append(number))
    assert sorted(done) == list(range(50))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("closed")])
async def test_what_goes_wrong_is_raised_where_it_is_waited_for(error: Exception) -> None:
    def fail() -> None:
        raise error

    with anyio.fail_after(30):
        for _ in range(8):
            with pytest.raises(type(error)):
                await wait_for_disk(fail)


async def test_a_cancelled_wait_ends_with_the_disk_and_not_before() -> None:
    begun, turned = threading.Event(), threading.Event()
    ended: list[bool] = []

    def job() -> None:
        begun.set()
        turned.wait(5)
        ended.append(True)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                try:
                    await wait_for_disk(job)
                finally:
                    assert ended == [True]

            group.start_soon(wait)
            await anyio.to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
            turned.set()
    assert ended == [True]


async def test_a_failure_that_a_cancelled_wait_meets_is_raised() -> None:
    begun, answer = threading.Event(), threading.Event()
    met: list[BaseException] = []

    def job() -> None:
        begun.set()
        assert answer.wait(5)
        raise OSError(28, "No space left on device")

    async def wait() -> None:
        try:
            await wait_for_disk(job)
        except OSError as exc:
            met.append(exc)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            assert await anyio.to_thread.run_sync(begun.wait, 5)
            group.cancel_scope.cancel()
            answer.set()
    assert [str(exc) for exc in met] == ["[Errno 28] No space left on device"]


async def test_a_disk_that_never_answers_holds_nobody_for_ever() -> None:
    begun, never = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        never.wait(30)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(wait_for_disk, job, 0.01)
            assert await anyio.to_thread.run_sync(begun.wait, 5)
            group.cancel_scope.cancel()
    never.set()
