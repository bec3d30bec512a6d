"""What a process counts for its metrics equals what it did, on each database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stagepost import App, JobContext, Permanent, Snooze, Worker
from stagepost.loops.signals import Signals
from stagepost.model.outcome import CRASHES_ALLOWED
from stagepost.store.leases import claim, mark_started
from stagepost.upkeep.rescuer import Rescuer
from tests.acceptance.helpers import AT_ONCE, work


def attempts_of(app: App) -> dict[tuple[str, str], int]:
    """Number of attempts by task and status."""
    return {key: sum(durations.numbers) for key, durations in app.counts.attempts.items()}


def fail_after(_handle: object) -> None:
    """Roll back the transaction in which something was enqueued."""
    raise ZeroDivisionError


def test_counts_equal_what_ran(app: App) -> None:
    @app.task(name="mail")
    def mail(number: int) -> None:
        return None

    @app.task(name="fail", retry=AT_ONCE)
    async def fail() -> None:
        raise ValueError("always")

    @app.task(name="refuse")
    def refuse() -> None:
        raise Permanent("never")

    @app.task(name="wait")
    def wait(job: JobContext) -> None:
        if job.attempt == 1:
            raise Snooze(0)

    mail.enqueue_many([(number,) for number in range(10)])
    app.enqueue_many([fail.job(), refuse.job()])
    wait.enqueue()

    work(app)

    assert app.counts.submitted == {"mail": 10, "fail": 1, "refuse": 1, "wait": 1}
    assert attempts_of(app) == {
        ("mail", "completed"): 10,
        ("fail", "retrying"): 2,
        ("fail", "dead_letter"): 1,
        ("refuse", "failed"): 1,
        ("wait", "snoozed"): 1,
        ("wait", "completed"): 1,
    }
    assert app.counts.retries == {"fail": 2}
    assert app.counts.dead_letters == {"fail": 1, "refuse": 1}
    assert app.counts.writes["enqueue_many"] == 2
    assert app.counts.writes["settle"] >= 1


def test_a_job_that_was_there_already_is_not_counted_again(app: App) -> None:
    @app.task(name="mail")
    def mail(number: int) -> None:
        return None

    for _ in range(3):
        mail.using(unique_key="the only one").enqueue(1)

    assert app.counts.submitted == {"mail": 1}


def test_items_of_a_batch_are_counted_once(app: App) -> None:
    @app.task(name="mail")
    def mail(number: int) -> None:
        return None

    for _ in range(2):
        app.batch("letters").add(mail.item(str(number), number) for number in range(5))

    assert app.counts.submitted == {"mail": 5}


def test_an_enqueue_in_a_transaction_counts_when_it_commits(app: App) -> None:
    @app.task(name="mail")
    def mail(number: int) -> None:
        return None

    with app.transaction() as tx:
        mail.using(tx).enqueue(1)
        assert app.counts.submitted == {}
    with pytest.raises(ZeroDivisionError), app.transaction() as tx:
        fail_after(mail.using(tx).enqueue(2))

    assert app.counts.submitted == {"mail": 1}


def test_an_outcome_in_the_handlers_transaction_counts_as_what_it_wrote(app: App) -> None:
    @app.task(name="fail", retry=AT_ONCE)
    def fail(job: JobContext) -> None:
        with app.transaction() as tx:
            job.fail(tx, "no")

    fail.enqueue()

    work(app)

    assert attempts_of(app) == {("fail", "retrying"): 2, ("fail", "dead_letter"): 1}
    assert app.counts.retries == {"fail": 2}
    assert app.counts.dead_letters == {"fail": 1}


async def test_rescues_and_the_dead_letters_they_lead_to_are_counted(app: App) -> None:
    @app.task(name="mail")
    def mail() -> None:
        return None

    await mail.enqueue_async()
    worker = Worker(app)
    rescuer = Rescuer(worker.parts.alerts, Signals(), margin=timedelta(0))
    store = worker.parts.store
    lease = timedelta(microseconds=1)

    for _ in range(CRASHES_ALLOWED):
        [job] = await store.run(claim("default", owner="dead", task_names=["mail"], slots=1, lease=lease))
        await store.run(mark_started(job))
        while not (await rescuer.run_once()).number:  # SQLite's clock ticks in milliseconds
            pass

    assert rescuer.rescued == CRASHES_ALLOWED
    assert app.counts.dead_letters == {"mail": 1}
    store.close()
