"""A worker notices a cancelled job long before it renews its leases, and what that costs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from stagepost import App, JobContext, JobState, Worker
from stagepost.client.running import RunningAttempt
from stagepost.database import Store
from stagepost.database.deadline import Deadlines
from stagepost.database.statement import Operation
from stagepost.store.leases import claim
from stagepost.worker import lease_keeper
from stagepost.worker.lease_keeper import LeaseKeeper
from stagepost.worker.leased_attempts import LeasedAttempt, LeasedAttempts
from tests.acceptance.conftest import quick_settings
from tests.acceptance.helpers import LIMIT

NEVER = 3600.0
"""Seconds after which nothing happens within a test."""


@pytest.fixture
def app(app: App) -> App:
    app.settings = quick_settings(app.settings.database_url, lease=3 * NEVER)
    return app


@pytest.fixture
def elsewhere(app: App) -> Iterator[App]:
    """The same app as if in another process: nothing that it does is heard here."""
    with contextlib.closing(App(settings=app.settings)) as elsewhere:
        yield elsewhere


async def ends_cancelled(app: App, cancel: Callable[[str], object]) -> None:
    """Run a job that does not end, cancel it, and wait for its end."""
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    job = endless.enqueue()
    async with asyncio.timeout(LIMIT):
        run = asyncio.create_task(Worker(app).run(until_idle=True))
        await started.wait()
        await asyncio.to_thread(cancel, job.id)
        await run
    assert (await app.client.job_async(job.id)).state is JobState.CANCELLED


async def test_a_cancel_in_another_process_is_noticed_between_renewals(app: App, elsewhere: App) -> None:
    await ends_cancelled(app, elsewhere.client.cancel)


async def test_a_handler_in_a_thread_is_asked_to_stop_between_renewals(app: App, elsewhere: App) -> None:
    loop, started, waiting = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @app.task
    def endless(job: JobContext) -> None:
        loop.call_soon_threadsafe(started.set)
        while not job.is_cancelled:
            waiting.wait(0.01)
        job.raise_if_cancelled()

    job = endless.enqueue()
    async with asyncio.timeout(LIMIT):
        run = asyncio.create_task(Worker(app).run(until_idle=True))
        await started.wait()
        await elsewhere.client.cancel_async(job.id)
        await run
    assert (await app.client.job_async(job.id)).state is JobState.CANCELLED


async def test_a_cancel_in_the_same_process_is_noticed_at_once(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_keeper, "REPORT_SECONDS", NEVER)

    await ends_cancelled(app, app.client.cancel)


async def test_a_cancel_in_a_transaction_is_noticed_once_it_commits(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_keeper, "REPORT_SECONDS", NEVER)

    def cancel(job_id: str) -> None:
        with app.transaction() as tx:
            app.client.cancel(job_id, tx=tx)

    await ends_cancelled(app, cancel)


class CountingStore(Store):
    """Counts what is asked of the database."""

    calls = 0

    def _run_once(self, operation: Operation[Any], deadlines: Deadlines) -> Any:
        self.calls += 1
        return super()._run_once(operation, deadlines)


async def test_one_look_finds_a_cancelled_job_and_looks_cost_nothing_while_no_handler_runs(app: App) -> None:
    @app.task
    async def endless() -> None: ...

    lease, handler = timedelta(seconds=30), asyncio.create_task(asyncio.Event().wait())
    jobs = [endless.enqueue() for _ in range(3)]
    leased = app.store.run(claim("default", owner="worker-a", task_names=[endless.name], slots=3, lease=lease))
    attempts = LeasedAttempts()
    attempts.add(
        [LeasedAttempt(job, lease_ends=float("inf"), running=RunningAttempt(job, endless, app.clock)) for job in leased]
    )
    app.client.cancel(jobs[0].id)
    with contextlib.closing(CountingStore(app.store.database, pool_size=1)) as store:
        keeper = LeaseKeeper(
            store, attempts, owner="worker-a", lease=lease, clock=app.clock, loop=asyncio.get_running_loop()
        )
        keeper.check_once()
        assert store.calls == 0  # none has started

        for attempt in attempts.all():
            attempt.waits_in = handler  # type: ignore[assignment]
        assert keeper.stop_cancelled_once() == {(jobs[0].id, 1)}
        assert store.calls == 1

        await asyncio.sleep(0)
        [asked] = [
            attempt for attempt in attempts.all() if attempt.running is not None and attempt.running.is_cancelled
        ]
        assert asked.job.id == jobs[0].id
        assert keeper.stop_cancelled_once() == set()
        assert store.calls == 2

        for attempt in attempts.all():
            attempt.has_outcome = True
        keeper.check_once()
        assert store.calls == 2
    handler.cancel()
