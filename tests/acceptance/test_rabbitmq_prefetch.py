"""How many messages a worker holds: more than its slots for short jobs, and none that another worker could run."""

from __future__ import annotations

import asyncio

import msgspec

from stagepost import App, JobState
from tests.acceptance.broker import carried, listening, until, working
from tests.acceptance.helpers import LIMIT
from tests.conformance.bench import DatabaseOnBench

SLOTS = 2
QUICK_JOBS = 40
ROUND = 500


def ahead(app: App, messages: int) -> App:
    """Hold as many messages beyond the slots as the pace of short jobs would allow."""
    app.settings = msgspec.structs.replace(app.settings, prefetch=messages)
    return app


async def test_by_default_a_worker_holds_more_messages_than_slots_while_jobs_are_short(
    on_postgres: DatabaseOnBench, broker_url: str
) -> None:
    app = carried(on_postgres.url, broker_url, prefetch=None)
    most_held = 0

    @app.task
    async def quick() -> None:
        nonlocal most_held
        most_held = max(most_held, len(worker.parts.attempts))

    with listening(app):
        async with asyncio.timeout(LIMIT), working(app, concurrency=SLOTS) as worker:
            while most_held <= SLOTS:
                for job in await quick.enqueue_many_async([()] * ROUND):
                    await job.result_async()
    app.close()


async def test_a_prefetch_that_is_set_is_never_exceeded(on_postgres: DatabaseOnBench, broker_url: str) -> None:
    app = ahead(carried(on_postgres.url, broker_url, prefetch=1), QUICK_JOBS)
    most_held = 0

    @app.task
    async def quick() -> None:
        nonlocal most_held
        most_held = max(most_held, len(worker.parts.attempts))

    jobs = [quick.enqueue() for _ in range(QUICK_JOBS)]
    with listening(app):
        async with asyncio.timeout(LIMIT), working(app, concurrency=SLOTS) as worker:
            for job in jobs:
                await job.result_async()
    app.close()

    assert most_held == 1


async def test_another_worker_runs_delivered_jobs_that_wait_behind_long_ones(
    on_postgres: DatabaseOnBench, broker_url: str
) -> None:
    """Jobs of two queues wait for the slots of the first worker: some in its memory, the others at the broker."""
    app = ahead(carried(on_postgres.url, broker_url, prefetch=None), QUICK_JOBS // 2)
    have_started, may_end = asyncio.Barrier(SLOTS + 1), asyncio.Event()
    together = asyncio.Barrier(SLOTS)

    @app.task
    async def hold() -> None:
        await have_started.wait()
        await may_end.wait()

    @app.task
    async def quick() -> None: ...

    @app.task(queue="other")
    async def other() -> None: ...

    @app.task
    async def meet() -> None:
        await together.wait()

    @app.task(queue="other")
    async def meet_other() -> None:
        await together.wait()

    with listening(app):
        async with asyncio.timeout(LIMIT), working(app, concurrency=SLOTS) as first:
            held = [hold.enqueue() for _ in range(SLOTS)]
            await have_started.wait()
            jobs = [task.enqueue() for _ in range(QUICK_JOBS // 2) for task in (quick, other)]
            await until(lambda: first.parts.executor.ready >= QUICK_JOBS // 4)
            leased_ahead = first.parts.executor.ready
            async with working(app, concurrency=SLOTS):
                for job in jobs:
                    await job.result_async()
                may_end.set()
                for job in held:
                    await job.result_async()
            assert first.parts.leased_ahead.given_back >= leased_ahead
            # Its slots are free, so the broker delivers as many jobs as before.
            for job in [task.enqueue() for _ in range(SLOTS) for task in (meet, meet_other)]:
                await job.result_async()

    assert {app.client.job(job.id).state for job in [*held, *jobs]} == {JobState.COMPLETED}
    assert {app.client.job(job.id).failures for job in jobs} == {0}
    app.close()
