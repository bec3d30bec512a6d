"""Jobs that a worker leased ahead do not wait behind its long ones while another worker has free slots."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from stagepost import App, JobState, Worker
from tests.acceptance.broker import until
from tests.acceptance.helpers import LIMIT

QUICK_JOBS = 40


async def test_another_worker_runs_jobs_that_wait_behind_long_ones(app: App) -> None:
    """The first worker leases most of the jobs, and its slots are held until every quick job has run elsewhere."""
    app.settings = msgspec.structs.replace(app.settings, prefetch=QUICK_JOBS)
    may_end, have_started = asyncio.Event(), asyncio.Barrier(3)
    ran: list[int] = []

    @app.task
    async def hold() -> None:
        await have_started.wait()
        await may_end.wait()

    @app.task
    async def quick(number: int) -> None:
        ran.append(number)

    held = [hold.using(priority=1).enqueue() for _ in range(2)]
    quick_jobs = [quick.enqueue(number) for number in range(QUICK_JOBS)]
    first, second = Worker(app, concurrency=2), Worker(app, concurrency=2)
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as workers:
        workers.create_task(first.run())
        await have_started.wait()
        # Its first claims may be small, because it does not know yet how large the jobs are.
        await until(lambda: first.executor.ready > QUICK_JOBS // 2)
        leased_ahead = first.executor.ready
        workers.create_task(second.run())
        for job in quick_jobs:
            await job.result_async()
        may_end.set()
        for job in held:
            await job.result_async()
        first.stop()
        second.stop()

    assert sorted(ran) == list(range(QUICK_JOBS))  # each ran once
    assert first.leased_ahead.given_back == leased_ahead  # and none was leased again by the worker without a free slot
    assert {app.client.job(job.id).state for job in [*held, *quick_jobs]} == {JobState.COMPLETED}
    assert {app.client.job(job.id).failures for job in quick_jobs} == {0}


async def test_jobs_that_are_not_late_stay_where_they_are(app: App) -> None:
    app.settings = msgspec.structs.replace(app.settings, prefetch=QUICK_JOBS)

    @app.task
    async def quick() -> None:
        await asyncio.sleep(0)

    jobs = [quick.enqueue() for _ in range(QUICK_JOBS)]
    worker = Worker(app, concurrency=2)
    async with asyncio.timeout(LIMIT):
        await worker.run(until_idle=True)
    attempts = [app.client.job(job.id).attempt for job in jobs]

    # A machine that stops for half a second at the wrong moment may have some of them claimed twice, never more.
    assert sum(attempts) == QUICK_JOBS + worker.leased_ahead.given_back


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_process_that_was_paused_releases_nothing_at_its_first_check(app: App) -> None:
    """What waited while the whole process stood still gets its turn before anything is given back."""

    @app.task
    async def wait() -> None: ...

    wait.enqueue_many([()] * 3)
    worker = Worker(app, concurrency=3)
    worker.executor.concurrency = 0  # so that no slot comes free
    await worker.claimer.run_once()
    for attempt in worker.attempts.all():
        attempt.waits_since -= 10
    await Worker(app).reporter.run_once()

    assert await worker.leased_ahead.run_once() == 0
    assert await worker.leased_ahead.run_once() == worker.finisher.pending == 3
    assert await worker.leased_ahead.run_once() == 0


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_worker_that_is_alone_keeps_what_it_leased(app: App) -> None:
    @app.task
    async def wait() -> None: ...

    wait.enqueue_many([()] * 3)
    worker = Worker(app, concurrency=3)
    worker.executor.concurrency = 0  # so that no slot comes free
    await worker.reporter.run_once()
    await worker.claimer.run_once()
    for attempt in worker.attempts.all():
        attempt.waits_since -= 10

    assert [await worker.leased_ahead.run_once() for _ in range(3)] == [0, 0, 0]
    assert worker.executor.ready == 3
