"""Handlers may fail, snooze, time out, be stopped, and end their job in their own transaction."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from stagepost import App, Cancelled, JobContext, JobState, Permanent, Retryable, RetryPolicy, Snooze, Worker
from stagepost.errors import JobFailed, LeaseLost
from tests.acceptance.helpers import AT_ONCE, LIMIT, notes, work, write
from tests.conformance.bench import Colour, connect_async

SHORT = timedelta(milliseconds=50)
TOO_LONG = "TimeoutError: the attempt took longer than its timeout of 0.05 s"


def test_a_failing_job_is_retried_and_then_becomes_a_dead_letter(app: App) -> None:
    attempts: list[int] = []

    @app.task(retry=AT_ONCE)
    def fail(job: JobContext) -> None:
        attempts.append(job.attempt)
        raise OSError(f"try {job.attempt}")

    job = fail.enqueue()
    work(app)

    parked = app.client.job(job.id)
    assert attempts == [1, 2, 3]
    assert (parked.state, parked.failures, parked.error) == (JobState.DEAD_LETTER, 3, "OSError: try 3")
    failures = app.client.failures(job.id)
    assert [(failure.attempt, failure.kind) for failure in failures] == [(1, "failed"), (2, "failed"), (3, "failed")]
    assert "raise OSError" in (failures[0].traceback or "")


def test_one_job_may_ask_for_fewer_attempts(app: App) -> None:
    @app.task(retry=AT_ONCE)
    def fail() -> None:
        raise OSError("down")

    job = fail.using(max_attempts=1).enqueue()
    work(app)

    assert (app.client.job(job.id).state, app.client.job(job.id).failures) == (JobState.DEAD_LETTER, 1)


def test_a_permanent_error_is_not_tried_again(app: App) -> None:
    @app.task(retry=AT_ONCE)
    def refuse() -> None:
        raise Permanent("no such address")

    job = refuse.enqueue()
    work(app)

    assert (app.client.job(job.id).state, app.client.job(job.id).attempt) == (JobState.FAILED, 1)


def test_a_handler_that_returns_a_coroutine_fails_and_says_why(app: App) -> None:
    async def greet() -> None: ...

    @app.task(name="greet", retry=AT_ONCE)
    def undecorated() -> Any:
        return greet()

    job = undecorated.enqueue()
    work(app)

    failed = app.client.job(job.id)
    assert (failed.state, failed.attempt) == (JobState.FAILED, 1)
    assert "task greet returned a coroutine, which nothing awaits. Declare it as `async def`" in (failed.error or "")


def test_a_policy_says_which_errors_are_permanent(app: App) -> None:
    @app.task(retry=RetryPolicy(permanent_on=(LookupError,)))
    def refuse() -> None:
        raise KeyError("letter")

    job = refuse.enqueue()
    work(app)

    assert app.client.job(job.id).state is JobState.FAILED


def test_an_error_says_when_to_try_again(app: App) -> None:
    @app.task(retry=AT_ONCE)
    def busy() -> None:
        raise Retryable("too many requests", after=timedelta(minutes=7))

    job = busy.enqueue()
    work(app)

    waiting = app.client.job(job.id)
    assert (waiting.state, waiting.failures) == (JobState.RETRYING, 1)
    assert waiting.available_at - waiting.updated_at == timedelta(minutes=7)


def test_a_snoozed_job_runs_later_and_has_not_failed(app: App) -> None:
    @app.task
    def wait_for_paper(job: JobContext) -> str:
        if job.attempt < 4:
            raise Snooze(0)
        return "printed"

    @app.task
    async def wait_for_tomorrow() -> None:
        raise Snooze(timedelta(days=1))

    printed, tomorrow = wait_for_paper.using(max_attempts=1).enqueue(), wait_for_tomorrow.enqueue()
    work(app)

    assert printed.result(timeout=0) == "printed"
    assert app.client.failures(printed.id) == []
    assert app.client.job(tomorrow.id).state is JobState.SCHEDULED


@pytest.mark.parametrize(
    "error", [Cancelled("no longer wanted"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
@pytest.mark.parametrize("colour", ["plain", "async"])
def test_whatever_a_handler_raises_the_worker_goes_on(app: App, error: BaseException, colour: str) -> None:
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    @app.task
    def neighbour() -> str:
        return "fine"

    task = app.task(name="raiser", retry=AT_ONCE)(fail if colour == "plain" else fail_async)
    job, other = task.enqueue(), neighbour.enqueue()

    work(app)

    ended = JobState.CANCELLED if isinstance(error, Cancelled) else JobState.DEAD_LETTER
    assert app.client.job(job.id).state is ended
    assert other.result(timeout=0) == "fine"


def test_a_result_that_is_not_json_fails_the_job_permanently(app: App) -> None:
    @app.task(retry=AT_ONCE)
    def produce() -> Any:
        return object()

    job = produce.enqueue()
    work(app)

    with pytest.raises(JobFailed, match=r"ended as failed: PayloadError: task \S+: the result"):
        job.result(timeout=0)


def test_a_handler_that_promises_a_number_and_returns_none_fails(app: App) -> None:
    @app.task(name="count", retry=AT_ONCE)
    def count(job: JobContext, way: str) -> int:
        if way == "continue":
            return job.then(count, "end")
        if way == "transaction":
            with app.transaction() as tx:
                job.complete(tx, 3)
        return 4 if way == "end" else None  # type: ignore[return-value]

    jobs = {way: count.enqueue(way) for way in ("none", "continue", "transaction")}
    work(app)

    with pytest.raises(JobFailed, match=r"ended as failed: PayloadError: task count: the result is None.*`int`"):
        jobs["none"].result(timeout=0)
    assert jobs["continue"].result(timeout=0) == 4
    assert jobs["transaction"].result(timeout=0) == 3


def test_an_async_handler_that_takes_too_long_is_cancelled_and_its_job_fails(app: App) -> None:
    was_cancelled: list[bool] = []

    @app.task(timeout=SHORT, retry=AT_ONCE)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.append(True)
            raise

    job = hang.enqueue()
    work(app)

    assert was_cancelled == [True, True, True]
    assert app.client.job(job.id).error == TOO_LONG


def test_a_thread_that_takes_too_long_is_asked_to_stop_and_its_job_fails(app: App) -> None:
    told = threading.Event()

    @app.task(timeout=SHORT, retry=AT_ONCE)
    def hang(job: JobContext) -> None:
        while not job.is_cancelled:
            told.wait(0.01)
        told.set()

    job = hang.using(max_attempts=1).enqueue()
    work(app)

    assert told.wait(LIMIT)
    failed = app.client.job(job.id)
    assert (failed.state, failed.error) == (JobState.DEAD_LETTER, TOO_LONG)


def test_a_handler_ends_its_job_in_its_own_transaction(app: App) -> None:
    @app.task
    def pay(job: JobContext, order: int) -> str:
        with app.transaction() as tx:
            write(tx, f"paid {order}")
            job.complete(tx, f"receipt {order}")
        return "not this one"

    job = pay.enqueue(7)
    worker = work(app)

    assert job.result(timeout=0) == "receipt 7"
    assert notes(app) == ["paid 7"]
    assert (worker.parts.finisher.settled, worker.parts.finisher.lost) == (1, 0)


def test_a_handler_that_rolls_back_is_settled_by_what_it_returns(app: App) -> None:
    @app.task
    def pay(job: JobContext) -> str:
        try:
            with app.transaction() as tx:
                write(tx, "paid")
                job.complete(tx, "receipt")
                raise RuntimeError("no money")
        except RuntimeError:
            return "unpaid"

    job = pay.enqueue()
    work(app)

    assert job.result(timeout=0) == "unpaid"
    assert notes(app) == []


def test_a_handler_that_completes_and_then_raises_has_completed(app: App) -> None:
    @app.task
    def pay(job: JobContext) -> str:
        with app.transaction() as tx:
            write(tx, "paid")
            job.complete(tx, "receipt")
        raise RuntimeError("after the fact")

    job = pay.enqueue()
    work(app)

    assert job.result(timeout=0) == "receipt"
    assert app.client.failures(job.id) == []


def test_a_handler_that_never_commits_is_settled_by_what_it_returns(app: App) -> None:
    @app.task
    def pay(job: JobContext) -> str:
        store = app.open_store(pool_size=1)
        with store.pool.connection() as loan:
            loan.connection.begin()
            write(loan.connection.raw, "paid")
            job.complete(loan.connection.raw, "receipt")
        return "closed without a commit"

    job = pay.enqueue()
    work(app)

    assert job.result(timeout=0) == "closed without a commit"
    assert notes(app) == []


def test_effects_in_a_transaction_that_is_repeated_happen_once(app: App) -> None:
    @app.task
    def pay(job: JobContext) -> str:
        for _ in ("the reply to this commit is lost", "so the handler repeats it"):
            with app.transaction() as tx:
                write(tx, "paid")
                job.complete(tx, "receipt")
        return "not reached"

    job = pay.enqueue()
    worker = work(app)

    assert job.result(timeout=0) == "receipt"
    assert notes(app) == ["paid"]
    assert worker.parts.finisher.lost == 0


def test_a_handler_fails_or_snoozes_its_job_in_its_own_transaction(app: App) -> None:
    @app.task(retry=AT_ONCE)
    def fail(job: JobContext) -> None:
        with app.transaction() as tx:
            write(tx, f"tried {job.attempt}")
            job.nack(tx, "no paper", backoff=3600.0, jitter=0)

    @app.task
    def put_off(job: JobContext) -> None:
        with app.transaction() as tx:
            write(tx, "put off")
            job.snooze(tx, timedelta(hours=2))

    failed, snoozed = fail.enqueue(), put_off.enqueue()
    work(app)

    retrying, scheduled = app.client.job(failed.id), app.client.job(snoozed.id)
    assert (retrying.state, retrying.failures) == (JobState.RETRYING, 1)
    assert retrying.available_at - retrying.updated_at == timedelta(hours=1)
    assert scheduled.state is JobState.SCHEDULED
    assert notes(app) == ["put off", "tried 1"]


def test_an_async_handler_ends_its_job_in_its_own_transaction(app: App) -> None:
    @app.task
    async def pay(job: JobContext) -> str:
        connection = await connect_async(app.settings.database_url, Colour.ASYNC)
        async with connection.cursor() as cursor:
            await cursor.execute("insert into effect (note) values ('paid')")
        await job.complete_async(connection, "receipt")
        await connection.commit()
        if (closing := connection.close()) is not None:
            await closing
        return "not this one"

    job = pay.enqueue()
    work(app)

    assert job.result(timeout=0) == "receipt"
    assert notes(app) == ["paid"]


def test_a_handler_that_lost_its_lease_writes_nothing(app: App) -> None:
    """The fence itself: the job is cancelled and restarted behind the handler's back."""
    errors: list[BaseException] = []

    @app.task
    def pay(job: JobContext) -> None:
        if job.attempt == 1:
            with app.store.transaction() as connection:
                connection.execute("update stagepost_job set attempts = 2", {})
        try:
            with app.transaction() as tx:
                write(tx, f"paid by {job.attempt}")
                job.complete(tx)
        except LeaseLost as error:
            errors.append(error)
            raise

    pay.enqueue()
    worker = work(app)

    assert [type(error) for error in errors] == [LeaseLost]
    assert notes(app) == []
    assert worker.parts.finisher.settled + worker.parts.finisher.lost == 1


@pytest.mark.usefixtures("quick_renewals")
async def test_cancelling_stops_an_async_handler(app: App) -> None:
    started = asyncio.Event()

    @app.task
    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    job = hang.enqueue()
    worker = asyncio.create_task(Worker(app).run(until_idle=True))
    async with asyncio.timeout(LIMIT):
        await started.wait()
        assert await app.client.cancel_async(job.id) is JobState.RUNNING
        await worker

    with pytest.raises(JobFailed, match="ended as cancelled: cancelled on request"):
        await job.result_async(timeout=0)


@pytest.mark.usefixtures("quick_renewals")
async def test_cancelling_asks_a_handler_in_a_thread_to_stop(app: App) -> None:
    loop, started, waiting = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @app.task
    def hang(job: JobContext) -> None:
        loop.call_soon_threadsafe(started.set)
        while not job.is_cancelled:
            waiting.wait(0.01)
        job.raise_if_cancelled()

    job = hang.enqueue()
    worker = asyncio.create_task(Worker(app).run(until_idle=True))
    async with asyncio.timeout(LIMIT):
        await started.wait()
        await app.client.cancel_async(job.id)
        await worker

    with pytest.raises(JobFailed, match="ended as cancelled: cancelled on request"):
        await job.result_async(timeout=0)
