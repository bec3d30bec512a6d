"""How a worker stops: it drains, releases what it cannot finish, and speeds up when asked twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stagepost import App, JobContext, JobState, Worker
from tests.acceptance.helpers import LIMIT


@asynccontextmanager
async def running(app: App, **options: float) -> AsyncIterator[Worker]:
    """A worker that must have ended within the limit."""
    worker = Worker(app, concurrency=2, **options)  # type: ignore[arg-type]
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(LIMIT):
        yield worker
        await task


async def test_a_worker_that_is_stopped_finishes_its_jobs_and_starts_no_more(app: App) -> None:
    numbers: list[int] = []
    both_run, may_end = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow(number: int) -> int:
        numbers.append(number)
        if len(numbers) == 2:
            both_run.set()
        await may_end.wait()
        return number

    first, second, waiting = (slow.enqueue(number) for number in range(3))
    async with running(app, shutdown_timeout=10 * LIMIT) as worker:
        await both_run.wait()
        worker.stop()
        may_end.set()

    assert [await job.result_async(timeout=0) for job in (first, second)] == [0, 1]
    left = await app.client.job_async(waiting.id)
    assert (left.state, left.failures, left.crashes) == (JobState.QUEUED, 0, 0)


async def test_a_job_that_takes_longer_than_the_shutdown_is_released(app: App) -> None:
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
    async with running(app, shutdown_timeout=0.05) as worker:
        await started.wait()
        worker.stop()

    given_back = await app.client.job_async(job.id)
    assert (given_back.state, given_back.attempt) == (JobState.QUEUED, 1)
    assert (given_back.failures, given_back.crashes, given_back.worker) == (0, 0, None)
    assert reasons == ["the worker is shutting down"]


async def test_a_second_stop_releases_jobs_at_once(app: App) -> None:
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    job = endless.enqueue()
    async with running(app, shutdown_timeout=10 * LIMIT) as worker:
        await started.wait()
        worker.stop()
        worker.stop()

    assert (await app.client.job_async(job.id)).state is JobState.QUEUED


async def test_a_thread_is_notified_that_its_worker_shuts_down(app: App) -> None:
    loop, started, waiting = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    reasons: list[str | None] = []

    @app.task
    def endless(job: JobContext) -> None:
        loop.call_soon_threadsafe(started.set)
        while not job.is_cancelled:
            waiting.wait(0.01)
        reasons.append(job.stop_reason)
        waiting.set()

    job = endless.enqueue()
    async with running(app, shutdown_timeout=0) as worker:
        await started.wait()
        worker.stop()
    assert await asyncio.to_thread(waiting.wait, LIMIT)

    given_back = await app.client.job_async(job.id)
    assert (given_back.state, given_back.failures, given_back.crashes) == (JobState.QUEUED, 0, 0)
    assert reasons == ["the worker is shutting down"]


async def test_a_handler_that_would_not_stop_is_left_behind_and_fenced(app: App) -> None:
    loop, started, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @app.task
    def deaf() -> str:
        loop.call_soon_threadsafe(started.set)
        may_end.wait(LIMIT)
        return "too late"

    job = deaf.enqueue()
    async with running(app, shutdown_timeout=0) as worker:
        await started.wait()
        worker.stop()
    may_end.set()

    assert (await app.client.job_async(job.id)).state is JobState.QUEUED


async def test_a_worker_stopped_before_it_started_does_nothing(app: App) -> None:
    @app.task
    async def never() -> None: ...

    job = never.enqueue()
    worker = Worker(app)
    worker.stop()
    async with asyncio.timeout(LIMIT):
        await worker.run()

    assert (await app.client.job_async(job.id)).state is JobState.QUEUED
