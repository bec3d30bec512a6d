"""Ids that callers choose: the same request again is the same job, another request under its id is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import msgspec
import pytest

from stagepost.database import Store
from stagepost.database.statement import Operation
from stagepost.errors import JobDiffers
from stagepost.model.job import Enqueued, NewJob, OnConflict
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store import jobs
from tests.conformance.bench import Bench, is_kept_waiting
from tests.conformance.families import claim_then, end, then
from tests.conformance.samples import claim, finish, new_job, settle
from tests.services.processes import wait_until

OTHER = '{"to":"Grace","copies":2}'
CHANGES: list[dict[str, Any]] = [{"payload": OTHER}, {"task_name": "burn_letter"}]


def chosen(**changes: Any) -> NewJob:
    return new_job(has_chosen_id=True, **changes)


def like(job: NewJob, **changes: Any) -> NewJob:
    return msgspec.structs.replace(job, **changes)


def request_for(job: NewJob, number: int) -> Operation[Any]:
    """Ask for a job alone, or with others."""
    return jobs.enqueue(job) if number == 1 else jobs.enqueue_many([job, *(chosen() for _ in range(number - 1))])


def first(result: Any) -> Enqueued:
    enqueued: Enqueued = result if isinstance(result, Enqueued) else result[0]
    return enqueued


@pytest.mark.parametrize("number", [1, 3, 150])
def test_the_same_request_again_is_the_same_job_and_not_a_new_one(store: Bench, number: int) -> None:
    job = chosen()

    made = first(store.run(request_for(job, number)))
    again = first(store.run(request_for(like(job), number)))
    finish(store, Completed())
    ended = first(store.run(request_for(like(job), number)))

    assert made == Enqueued(job.id, is_new=True)
    assert again == ended == Enqueued(job.id, is_new=False)
    assert store.run(jobs.get(job.id)).state is JobState.COMPLETED


def test_arguments_are_compared_as_values_not_as_text(store: Bench) -> None:
    job = chosen(payload='{"to":"Ada","copies":2}')
    store.run(jobs.enqueue(job))

    again = store.run(jobs.enqueue(like(job, payload='{ "copies": 2, "to": "Ada" }', priority=1, context=None)))

    assert again == Enqueued(job.id, is_new=False)


@pytest.mark.parametrize("changes", CHANGES, ids=["arguments", "task"])
@pytest.mark.parametrize("number", [1, 3, 150])
@pytest.mark.parametrize("has_ended", [False, True], ids=["live", "ended"])
def test_another_request_under_the_same_id_is_refused(
    store: Bench, changes: dict[str, Any], number: int, has_ended: bool
) -> None:
    job = chosen()
    store.run(jobs.enqueue(job))
    if has_ended:
        finish(store, Completed())
    before = store.run(jobs.get(job.id))

    with pytest.raises(JobDiffers, match=f"job {job.id} already exists") as raised:
        store.run(request_for(like(job, **changes), number))

    assert raised.value.job_id == job.id
    assert "Grace" not in str(raised.value)  # arguments may be secret
    assert store.run(jobs.get(job.id)) == before
    assert store.rows("select count(*) from stagepost_job") == [(0 if has_ended else 1,)]


def test_a_request_that_asks_for_two_jobs_under_one_id_is_refused(store: Bench) -> None:
    job = chosen()

    with pytest.raises(JobDiffers):
        store.run(jobs.enqueue_many([job, like(job, payload=OTHER)]))

    assert store.rows("select count(*) from stagepost_job") == [(0,)]


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("differs", [True, False])
def test_of_two_concurrent_requests_the_second_finds_the_job_of_the_first(
    blocking_store: Bench, number: int, differs: bool
) -> None:
    store = blocking_store
    if not store.dialect.has_row_locks:
        pytest.skip("one writer at a time")
    job = chosen()
    second = request_for(like(job, payload=OTHER if differs else job.payload), number)
    [other] = store.database.racers(1)
    with ThreadPoolExecutor(1) as threads:
        with store.transaction() as connection:
            store.database.store.drive(request_for(job, number), connection)
            asked = threads.submit(other.run, second)
            wait_until(lambda: asked.done() or is_kept_waiting(store), "a request that waits for the same", seconds=60)
            assert not asked.done()
        if differs:
            with pytest.raises(JobDiffers):
                asked.result(timeout=60)
        else:
            assert first(asked.result(timeout=60)) == Enqueued(job.id, is_new=False)

    assert store.run(jobs.get(job.id)).payload == job.payload


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("differs", [True, False])
def test_a_job_made_after_the_callers_snapshot_is_compared_too(
    blocking_store: Bench, number: int, differs: bool
) -> None:
    store = blocking_store
    if store.dialect.name != "mysql":
        pytest.skip("elsewhere a transaction with an old snapshot is refused by the database")
    job = chosen()
    with closing(Store.at(store.url, pool_size=1)) as application, application.pool.connection() as loan:
        connection = loan.connection
        for sql in ("set session transaction isolation level repeatable read", "begin"):
            connection.execute(sql, {})
        connection.execute("select count(*) from stagepost_job", {})
        store.run(jobs.enqueue(job))
        second = request_for(like(job, payload=OTHER if differs else job.payload), number)
        if differs:
            with pytest.raises(JobDiffers):
                application.drive(second, connection)
        else:
            assert first(application.drive(second, connection)) == Enqueued(job.id, is_new=False)
        connection.rollback()


@pytest.mark.parametrize("number", [1, 3])
def test_after_a_lost_reply_the_job_counts_as_made_by_this_request(store: Bench, number: int) -> None:
    job = chosen()
    request = request_for(job, number)
    store.run(request)

    assert first(store.run(request.repeated())) == Enqueued(job.id, is_new=True)


def test_a_repetition_after_a_lost_reply_is_refused_too_if_another_took_the_id(store: Bench) -> None:
    job = chosen()
    store.run(jobs.enqueue(job))

    with pytest.raises(JobDiffers):
        store.run(jobs.enqueue(like(job, payload=OTHER)).repeated())


def test_a_job_whose_arguments_were_replaced_is_still_the_one_asked_for(store: Bench) -> None:
    job = chosen(unique_key="letter:1")
    store.run(jobs.enqueue(job))
    store.run(jobs.enqueue(new_job(unique_key="letter:1", payload=OTHER, on_conflict=OnConflict.REPLACE)))

    assert store.run(jobs.enqueue(like(job))) == Enqueued(job.id, is_new=False)


def test_a_job_that_became_its_continuation_is_still_the_one_asked_for(store: Bench) -> None:
    job = chosen()
    store.run(jobs.enqueue(job))
    [leased] = claim(store)
    assert settle(store, leased, then())

    continued = store.run(jobs.enqueue(like(job)))
    [last] = claim_then(store)
    end(store, last, Completed('"bound"'))
    ended = store.run(jobs.enqueue(like(job)))

    assert continued == ended == Enqueued(job.id, is_new=False)


def test_what_exists_under_a_derived_id_is_the_job_whatever_its_arguments(store: Bench) -> None:
    """As for the completion job of a batch: to refuse it would keep the batch from ending."""
    job = chosen()
    store.run(jobs.enqueue(job))

    [found] = store.run(jobs.enqueue_many([like(job, payload=OTHER)], are_derived=True))

    assert found.id == job.id
    assert store.run(jobs.get(job.id)).payload == job.payload
