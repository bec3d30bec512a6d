"""Applications that cancel `Worker.run()` or close its event loop: it stops cleanly and charges no job."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from stagepost import App, JobContext, JobState, Worker
from tests.acceptance.helpers import LIMIT


@asynccontextmanager
async def working(app: App, *, shutdown_timeout: float) -> AsyncIterator[tuple[asyncio.Task[None], Worker]]:
    """A worker and its run, which must end within the limit by a cancel."""
    worker = Worker(app, concurrency=2, shutdown_timeout=shutdown_timeout)
    run = asyncio.create_task(worker.run())
    async with asyncio.timeout(LIMIT):
        yield run, worker
        with pytest.raises(asyncio.CancelledError):
            await run
    assert run.cancelled()


async def state_of(app: App, job_id: str) -> tuple[JobState, int, int, str | None]:
    job = await app.client.job_async(job_id)
    return job.state, job.failures, job.crashes, job.worker


MANY_TURNS = 50
"""Turns of the loop in which a worker that does not let its jobs finish would have cancelled them."""
GIVEN_BACK = (JobState.QUEUED, 0, 0, None)


async def test_a_cancelled_worker_finishes_its_jobs_and_starts_no_more(app: App) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow(number: int) -> int:
        started.set()
        await may_end.wait()
        return number

    jobs = [slow.enqueue(number) for number in range(3)]
    async with working(app, shutdown_timeout=10 * LIMIT) as (run, worker):
        await started.wait()
        run.cancel()
        while not worker.parts.claimer.is_stopping:  # noqa: ASYNC110 - the shutdown gives no signal
            await asyncio.sleep(0)
        for _ in range(MANY_TURNS):
            await asyncio.sleep(0)
        may_end.set()

    assert await jobs[0].result_async(timeout=0) == 0
    assert await state_of(app, jobs[2].id) == GIVEN_BACK


async def test_a_cancelled_worker_releases_jobs_that_outlast_its_shutdown_timeout(app: App) -> None:
    started, reasons = asyncio.Event(), []

    @app.task
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            reasons.append(str(error))
            raise

    job = endless.enqueue()
    async with working(app, shutdown_timeout=0) as (run, _):
        await started.wait()
        run.cancel()

    assert await state_of(app, job.id) == GIVEN_BACK
    assert reasons == ["the worker is shutting down"]


async def test_a_second_cancel_speeds_up_the_shutdown(app: App) -> None:
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    job = endless.enqueue()
    async with working(app, shutdown_timeout=10 * LIMIT) as (run, _):
        await started.wait()
        run.cancel()
        await asyncio.sleep(0)
        run.cancel()

    assert await state_of(app, job.id) == GIVEN_BACK


async def test_a_timeout_around_a_worker_raises_timeout_error_after_the_shutdown(app: App) -> None:
    @app.task
    async def endless() -> None:
        deadline.reschedule(0)
        await asyncio.Event().wait()

    job = endless.enqueue()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(LIMIT) as deadline:
            await Worker(app, shutdown_timeout=0).run()

    assert await state_of(app, job.id) == GIVEN_BACK


async def test_a_task_group_that_fails_stops_its_worker_in_order(app: App) -> None:
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async def fail() -> None:
        await started.wait()
        raise RuntimeError("something else went wrong")

    async def work_and_fail() -> None:
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
            group.create_task(Worker(app, shutdown_timeout=0).run())
            group.create_task(fail())

    job = endless.enqueue()
    with pytest.raises(ExceptionGroup):
        await work_and_fail()

    assert await state_of(app, job.id) == GIVEN_BACK


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13])
async def test_a_worker_may_be_cancelled_at_any_moment_of_its_start(app: App, turns: int) -> None:
    @app.task
    async def quick() -> None: ...

    job = quick.enqueue()
    run = asyncio.create_task(Worker(app, shutdown_timeout=LIMIT).run())
    for _ in range(turns):
        await asyncio.sleep(0)
    run.cancel()
    async with asyncio.timeout(LIMIT):
        with pytest.raises(asyncio.CancelledError):
            await run

    state, failures, crashes, owner = await state_of(app, job.id)
    assert (failures, crashes, owner) == (0, 0, None)
    assert state in {JobState.QUEUED, JobState.COMPLETED}


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_worker_whose_database_hangs_at_its_start_need_not_wait_for_it(app: App, how: str) -> None:
    @app.task
    async def never() -> None: ...

    worker, is_asked, may_answer = Worker(app), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hang() -> None:
        loop.call_soon_threadsafe(is_asked.set)
        may_answer.wait(LIMIT)

    worker._check_store = hang  # type: ignore[method-assign]
    run = asyncio.create_task(worker.run())
    async with asyncio.timeout(LIMIT):
        await is_asked.wait()
        if how == "stop":
            worker.stop()
            await run
        else:
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
    assert not may_answer.is_set()
    may_answer.set()


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
def test_a_loop_that_closes_cancels_every_task_and_no_job_is_charged(app: App, kind: str) -> None:
    """As after a second Ctrl-C, or when a program ends without having waited for its worker."""
    started, reasons = threading.Event(), []

    @app.task
    async def coroutine() -> None:
        started.set()
        await asyncio.Event().wait()

    @app.task
    def thread(job: JobContext) -> None:
        started.set()
        while not job.is_cancelled:
            threading.Event().wait(0.01)
        reasons.append(job.stop_reason)
        stopped.set()

    stopped = threading.Event()
    task = coroutine if kind == "coroutine" else thread
    jobs = [task.enqueue() for _ in range(5)]

    async def main() -> None:
        run = asyncio.create_task(Worker(app, concurrency=2, shutdown_timeout=10 * LIMIT).run())
        assert await asyncio.to_thread(started.wait, LIMIT)
        assert not run.done()

    asyncio.run(main())

    for job in jobs:
        found = app.client.job(job.id)
        assert (found.state, found.failures, found.crashes, found.worker) == GIVEN_BACK
    if kind == "thread":
        assert stopped.wait(LIMIT)
        assert reasons[0] == "the worker is shutting down"


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Handle SIGINT as Python does by default: a shell starts its background processes with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_in_your_own_program_lets_jobs_finish(app: App) -> None:
    """`asyncio.run` turns the first SIGINT into a cancel of its main task."""
    effects: list[str] = []

    @app.task
    async def slow() -> str:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        effects.append("done")
        return "done"

    job = slow.enqueue()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(Worker(app, shutdown_timeout=10 * LIMIT).run())

    assert effects == ["done"]
    assert app.client.job(job.id).state is JobState.COMPLETED
