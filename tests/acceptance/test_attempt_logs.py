"""What a worker logs about attempts: one record per end, with the ids of its job and the error of its handler."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from stagepost import App, FailureRecord, JobContext, Permanent, RetryPolicy, Snooze, traced
from stagepost.worker.attempt_log import ATTEMPTS
from tests.acceptance.helpers import AT_ONCE, LIMIT, work

IDS = ("job_id", "task", "attempt", "queue", "trace_id", "correlation_id", "user_id")
LATER = RetryPolicy(max_attempts=5, first_delay=timedelta(hours=1), minimum_delay=timedelta(0), jitter=0)


def ends(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records about attempts."""
    return [record for record in caplog.records if record.name == ATTEMPTS]


def end(caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    """The only record about an attempt."""
    [record] = ends(caplog)
    return record


def ids_of(record: logging.LogRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in IDS}


def frames_of(record: logging.LogRecord) -> list[str]:
    """The functions in the traceback of a record."""
    assert record.exc_info is not None
    return [frame.name for frame in traceback.extract_tb(record.exc_info[2])]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with contextlib.closing(App(f"sqlite:///{tmp_path}/stagepost.db")) as app:
        yield app


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, ATTEMPTS)


def test_a_failed_attempt_is_a_warning_with_ids_and_its_error(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="shop.mail", queue="mail", retry=LATER)
    def mail() -> None:
        raise ConnectionError("the server is down")

    with traced(trace_id="t-1", correlation_id="c-1", user_id="ada"):
        job = mail.enqueue()
    work(app)

    record = end(caplog)
    assert record.levelno == logging.WARNING
    assert ids_of(record) == {
        "job_id": job.id, "task": "shop.mail", "attempt": 1, "queue": "mail",
        "trace_id": "t-1", "correlation_id": "c-1", "user_id": "ada",
    }  # fmt: skip
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ConnectionError)
    assert frames_of(record) == ["mail"]
    message = record.getMessage()
    assert message.startswith(f"attempt 1 of job {job.id} (shop.mail) failed after 0.")
    assert message.endswith(" s, next in 3600.0 s: ConnectionError: the server is down")


def test_the_last_failure_is_an_error(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(retry=AT_ONCE)
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no such address")

    @app.task
    def refuse() -> None:
        raise Permanent("no such order")

    fail.enqueue()
    refuse.enqueue()
    work(app)

    errors = [record for record in ends(caplog) if record.levelno == logging.ERROR]
    assert sorted(record.getMessage().split("ended as ")[1] for record in errors) == [
        "dead_letter: ValueError: no such address",
        "failed: Permanent: no such order",
    ]
    assert all(record.exc_info for record in errors)


def test_every_end_is_one_line_at_info(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="complete")
    async def complete() -> None: ...

    @app.task(name="snooze")
    def snooze() -> None:
        raise Snooze(3600)

    done, snoozed = complete.enqueue(), snooze.enqueue()
    work(app)

    assert {record.levelno for record in ends(caplog)} == {logging.INFO}
    [of_done, of_snoozed] = sorted((record.getMessage() for record in ends(caplog)), key=lambda text: "snooze" in text)
    assert of_done.startswith(f"attempt 1 of job {done.id} (complete) completed after 0.")
    assert of_snoozed.startswith(f"attempt 1 of job {snoozed.id} (snooze) snoozed after 0.")
    assert of_snoozed.endswith(" s, next in 3600.0 s")


def test_completed_attempts_cost_nothing_above_info(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, ATTEMPTS)

    @app.task
    async def complete() -> None: ...

    complete.enqueue()
    work(app)

    assert ends(caplog) == []


def test_a_traceback_begins_in_the_code_of_the_user(app: App) -> None:
    def check() -> None:
        raise ValueError("too small")

    @app.task(name="plain", retry=LATER)
    def plain() -> None:
        check()

    @app.task(name="waiting", retry=LATER)
    async def waiting() -> None:
        await asyncio.sleep(0)
        check()

    @app.task(name="timed", retry=LATER, timeout=timedelta(minutes=5))
    async def timed() -> None:
        check()

    jobs = [task.enqueue().id for task in (plain, waiting, timed)]
    work(app)

    for job_id in jobs:
        [failure] = app.client.failures(job_id)
        text = traceback_of(failure)
        first, second = text.splitlines()[:2]
        assert first == "Traceback (most recent call last):"
        assert __file__ in second
        assert "stagepost/" not in text.replace(__file__, "")


def traceback_of(failure: FailureRecord) -> str:
    assert failure.traceback is not None
    return failure.traceback


def test_a_result_that_does_not_fit_has_no_frames_of_stagepost(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(retry=LATER)
    def count() -> int:
        return "seven"  # type: ignore[return-value]

    job = count.enqueue()
    work(app)

    assert frames_of(end(caplog)) == []
    [failure] = app.client.failures(job.id)
    assert "File" not in traceback_of(failure)
    assert traceback_of(failure).startswith("stagepost.errors.PayloadError: ")


def test_a_handler_that_raises_after_it_completed_its_job_is_a_warning(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="tidy", retry=RetryPolicy(max_attempts=1))
    def tidy(job: JobContext) -> None:
        with app.transaction() as tx:
            job.complete(tx, None)
        raise ValueError("the folder is gone")

    job = tidy.enqueue()
    work(app)

    record = end(caplog)
    assert app.client.job(job.id).state == "completed"
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"job {job.id} (tidy) was completed in attempt 1, then its handler raised ValueError: the folder is gone. "
        f"The job is not affected"
    )
    assert frames_of(record) == ["tidy"]


def test_a_handler_that_raises_and_rolls_back_has_failed(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(retry=LATER)
    def roll_back(job: JobContext) -> None:
        with app.transaction() as tx:
            job.complete(tx, None)
            raise ConnectionError("the bank is closed")

    job = roll_back.enqueue()
    work(app)

    assert app.client.job(job.id).state == "retrying"
    assert "failed after" in end(caplog).getMessage()


def test_a_job_that_its_handler_failed_in_a_transaction_is_logged_as_failed(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="give_up", retry=RetryPolicy(max_attempts=1))
    def give_up(job: JobContext) -> None:
        with app.transaction() as tx:
            job.fail(tx, "the file is corrupt")

    give_up.enqueue()
    work(app)

    record = end(caplog)
    assert record.levelno == logging.ERROR
    assert record.getMessage().endswith("ended as dead_letter: TaskError: the file is corrupt")


@pytest.mark.usefixtures("quick_renewals")
def test_records_about_a_job_carry_its_ids_whoever_logs_them(app: App, caplog: pytest.LogCaptureFixture) -> None:
    """The lease keeper's thread notices that somebody deleted the job, and the finisher cannot write its outcome."""

    @app.task(name="forgotten", queue="slow")
    async def forgotten() -> None:
        with app.transaction() as tx:
            tx.execute("delete from stagepost_job")
        await asyncio.sleep(LIMIT)

    with traced(user_id="ada", trace_id="t-1"):
        job = forgotten.enqueue()
    with caplog.at_level(logging.WARNING, "stagepost"):
        work(app)

    stopping = [record for record in caplog.records if record.getMessage().startswith(f"job {job.id}: ")]
    assert [record.name for record in stopping] == ["stagepost.worker.lease_keeper", "stagepost.worker.finisher"]
    for record in stopping:
        assert ids_of(record) == {
            "job_id": job.id, "task": "forgotten", "attempt": 1, "queue": "slow",
            "trace_id": "t-1", "correlation_id": None, "user_id": "ada",
        }  # fmt: skip


def test_a_handler_that_raises_after_it_failed_its_job_logs_both_errors(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="give_up", retry=LATER)
    def give_up(job: JobContext) -> None:
        with app.transaction() as tx:
            job.fail(tx, "the file is corrupt")
        raise ValueError("the folder is gone")

    give_up.enqueue()
    work(app)

    first, second = (record.getMessage() for record in ends(caplog))
    assert first.endswith("TaskError: the file is corrupt")
    assert "was failed in attempt 1, then its handler raised ValueError: the folder is gone" in second


def test_an_error_that_is_false_is_logged_all_the_same(app: App, caplog: pytest.LogCaptureFixture) -> None:
    class NoErrorsError(Exception):
        def __len__(self) -> int:
            return 0

    @app.task(retry=LATER)
    def fail() -> None:
        raise NoErrorsError

    fail.enqueue()
    work(app)

    assert frames_of(end(caplog)) == ["fail"]
