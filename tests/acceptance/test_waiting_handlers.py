"""A handler that waits for other work holds a slot; the worker warns before, and when, all slots wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from stagepost import App, Worker
from stagepost.errors import WaitTimeout
from tests.acceptance.broker import until
from tests.acceptance.helpers import LIMIT, work

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

WAITS = "waits inside its handler for job"
NOTHING_STARTS = "no other job can start here"


def test_a_handler_that_waits_for_a_job_causes_one_warning(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def quick() -> str:
        await until(lambda: WAITS in caplog.text)
        return "done"

    @app.task
    async def wait_for_it() -> str:
        first, second = await quick.enqueue_async(), await quick.enqueue_async()
        return await first.result_async() + await second.result_async()

    job = wait_for_it.enqueue()
    work(app, concurrency=3)

    assert job.result() == "donedone"
    [warning] = [record for record in caplog.records if WAITS in record.message]
    assert warning.message.startswith(f"job {job.id} (")
    assert "job.submit" in warning.message


def test_a_handler_that_reads_an_existing_result_causes_no_warning(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def quick() -> str:
        return "done"

    @app.task
    def read(job_id: str) -> str:
        result: str = app.job(job_id).result()
        return result

    first = quick.enqueue()
    work(app)
    job = read.enqueue(first.id)
    work(app)

    assert job.result() == "done"
    assert WAITS not in caplog.text


def test_waiting_outside_a_handler_causes_no_warning(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def quick() -> None: ...

    job = quick.enqueue()
    with pytest.raises(WaitTimeout, match=rf"job {job.id} did not end within 0.05 s"):
        job.result(timeout=0.05)

    assert WAITS not in caplog.text


async def test_slots_that_all_wait_are_reported_from_the_second_check_on(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    """Two handlers wait for jobs that need the slots which they hold; a second worker resolves it."""
    have_started = threading.Barrier(2)

    @app.task
    async def quick() -> str:
        return "done"

    @app.task
    def wait_for_it() -> str:
        have_started.wait(LIMIT)
        return quick.enqueue().result()

    jobs = [wait_for_it.enqueue() for _ in range(2)]
    stuck, other = Worker(app, concurrency=2), Worker(app, concurrency=1)
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as workers:
        workers.create_task(stuck.run())
        await until(lambda: len(waiting(stuck)) == 2)
        stuck.parts.reporter._check_waiting_slots()
        assert NOTHING_STARTS not in caplog.text
        stuck.parts.reporter._check_waiting_slots()
        assert NOTHING_STARTS in caplog.text
        stuck.parts.reporter._check_waiting_slots()
        assert caplog.text.count(NOTHING_STARTS) == 1
        workers.create_task(other.run())
        for job in jobs:
            assert await job.result_async() == "done"
        stuck.stop()
        other.stop()
    caplog.clear()
    stuck.parts.reporter._check_waiting_slots()
    stuck.parts.reporter._check_waiting_slots()

    assert NOTHING_STARTS not in caplog.text


def waiting(worker: Worker) -> list[str]:
    """What the handlers of a worker wait for."""
    running = [attempt.running for attempt in worker.parts.attempts.all()]
    return [subject for one in running if one is not None for subject in one.identity.waits_for or []]
