"""Handles to jobs: read their state, wait for their end, cancel and retry them, in both colours."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stagepost import App, AppTask, JobState
from stagepost.errors import ConfigurationError, IllegalTransition, JobNotFound, WaitTimeout
from stagepost.model.identity import new_id
from stagepost.testing import manual

Greet = AppTask[[str], str]


@pytest.fixture
def greet(app: App) -> Greet:
    @app.task(name="greet")
    def greet(name: str) -> str:
        return f"hello {name}"

    return greet


def test_a_handle_reads_its_jobs_state_and_waits_for_its_end(app: App, greet: Greet) -> None:
    with manual(app) as jobs:
        job = greet.enqueue("Ada")
        assert job.state() is JobState.QUEUED
        with pytest.raises(WaitTimeout):
            job.wait()

        jobs.drain()

        assert (job.wait(), job.state(), job.result()) == (JobState.COMPLETED, JobState.COMPLETED, "hello Ada")


def test_waiting_ends_at_its_timeout(app: App, greet: Greet) -> None:
    job = greet.enqueue("Ada")

    with pytest.raises(WaitTimeout, match=r"did not end within 0\.01 s"):
        job.wait(timeout=timedelta(milliseconds=10))


async def test_a_wait_that_ends_names_the_cause(app: App, greet: Greet) -> None:
    job, batch = greet.enqueue("Ada"), app.batch("letters")
    batch.add([greet.item("one", "Ada")])

    with pytest.raises(WaitTimeout, match=r"within 0 s\. No worker is running\. Start one"):
        job.result(timeout=0)
    with pytest.raises(WaitTimeout, match=r"within 0 s\. No worker is running\. Start one"):
        await job.wait_async(timeout=0)
    with pytest.raises(WaitTimeout, match=r"was not done within 0 s\. It is not sealed"):
        batch.wait(timeout=0)
    with pytest.raises(ConfigurationError, match="timeout is '5s': give seconds as a number"):
        job.wait(timeout="5s")  # type: ignore[arg-type]


def test_waiting_for_a_job_of_an_open_transaction_says_so(app: App, greet: Greet) -> None:
    open_or_not = "The transaction that enqueued it is still open or was rolled back"

    with pytest.raises(LookupError, match="rolled back"), app.transaction() as tx:  # noqa: PT012 - the block is the subject
        job = greet.using(tx).enqueue("Ada")
        with pytest.raises(JobNotFound, match=open_or_not):
            job.wait(timeout=0)
        raise LookupError("rolled back")

    with pytest.raises(JobNotFound, match=open_or_not):
        job.wait(timeout=0)


def test_a_cancelled_job_can_be_retried_through_its_handle(app: App, greet: Greet) -> None:
    job = greet.enqueue("Ada")

    assert job.cancel(actor="ada") is JobState.CANCELLED
    assert job.wait() is JobState.CANCELLED
    assert job.retry(actor="ada") is JobState.QUEUED
    with pytest.raises(IllegalTransition, match="is queued: it cannot be retried"):
        job.retry()


async def test_a_handle_does_the_same_in_async_code(app: App, greet: Greet) -> None:
    job = await greet.enqueue_async("Ada")

    assert await job.state_async() is JobState.QUEUED
    assert await job.cancel_async() is JobState.CANCELLED
    assert await job.wait_async() is JobState.CANCELLED
    assert await job.retry_async() is JobState.QUEUED
    with pytest.raises(IllegalTransition):
        await job.retry_async()


def test_a_handle_acts_in_the_callers_transaction(app: App, greet: Greet) -> None:
    job = greet.enqueue("Ada")

    def act_and_fail() -> None:
        with app.transaction() as tx:
            assert job.cancel(tx=tx) is JobState.CANCELLED
            assert job.state(tx=tx) is JobState.CANCELLED
            assert job.retry(tx=tx) is JobState.QUEUED
            job.cancel(tx=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        act_and_fail()

    assert job.state() is JobState.QUEUED


def test_a_handle_can_be_had_from_an_id(app: App, greet: Greet) -> None:
    job = app.job(greet.enqueue("Ada").id)

    assert (job.state(), job.is_new) == (JobState.QUEUED, False)
    for unknown in (app.job(new_id()).state, app.job(new_id()).wait, app.job(new_id()).retry):
        with pytest.raises(JobNotFound):
            unknown()
