"""Enqueueing: what is stored, repeats, unique keys, delays, limits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stagepost.database.statement import Operation
from stagepost.model.job import Enqueued, JobRow, NewJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store import jobs, leases, settling
from stagepost.store.counting import count_by_state
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench, is_kept_waiting
from tests.conformance.samples import claim, finish, new_job, settle
from tests.services.processes import wait_until

HOUR = timedelta(hours=1)
YEAR_US = 365 * 86_400 * 1_000_000


def enqueue(store: Bench, job: NewJob) -> Enqueued:
    return store.run(jobs.enqueue(job))


def test_every_column_of_a_new_job_is_as_requested(store: Bench) -> None:
    job = new_job(unique_key="letter:1", limit_key="printer", limit=3)

    enqueued = enqueue(store, job)

    assert enqueued == Enqueued(job.id, is_new=True)
    assert store.run(jobs.get(job.id)) == JobRow(
        id=job.id,
        task_name="send_letter",
        queue_name="mail",
        state=JobState.BLOCKED,
        priority=7,
        attempt=0,
        failures=0,
        crashes=0,
        max_attempts=4,
        unique_key="letter:1",
        limit_key="printer",
        blocked_on="limit:printer",
        batch_id=None,
        item_key=None,
        payload=job.payload,
        context=job.context,
        available_at=store.now,
        lease_until=None,
        locked_by=None,
        cancel_requested_at=None,
        created_at=store.now,
        updated_at=store.now,
        started_at=None,
        finished_at=None,
        result=None,
        error=None,
        progress=None,
    )
    assert store.rows("select limit_slots from stagepost_job") == [(3,)]


@pytest.mark.parametrize(
    "text", ["plain", "Grüße, 世界 🚚", "quotes \" and ' and \\ and %s and :now", "line\nbreak\ttab", "\u2028 \x7f"]
)
def test_text_comes_back_as_it_went_in(store: Bench, text: str) -> None:
    payload = msgspec.json.encode({"text": text}).decode()
    job = new_job(payload=payload, context=payload, queue_name=text, task_name=text, unique_key=text)

    enqueue(store, job)

    stored = store.run(jobs.get(job.id))
    assert (stored.payload, stored.context) == (payload, payload)
    assert (stored.queue_name, stored.task_name, stored.unique_key) == (text, text, text)


def test_many_jobs_are_answered_in_the_order_they_were_given(store: Bench) -> None:
    wanted = [new_job(unique_key=key) for key in ("c", "a", None, "b")]

    enqueued = store.run(jobs.enqueue_many(wanted))

    assert enqueued == [Enqueued(job.id, is_new=True) for job in wanted]


def test_a_thousand_jobs_go_in_at_once(store: Bench) -> None:
    wanted = [new_job(priority=number % 7, payload=f'{{"number":{number}}}') for number in range(1000)]

    enqueued = store.run(jobs.enqueue_many(wanted))

    assert all(one.is_new for one in enqueued)
    assert store.rows("select count(*) from stagepost_job") == [(1000,)]


def test_enqueuing_no_jobs_is_allowed(store: Bench) -> None:
    assert store.run(jobs.enqueue_many([])) == []


def test_the_same_request_twice_makes_one_job(store: Bench) -> None:
    job = new_job()
    enqueue(store, job)

    again = enqueue(store, job)

    assert again == Enqueued(job.id, is_new=True)
    assert store.rows("select count(*) from stagepost_job") == [(1,)]


@pytest.mark.parametrize("unique_key", [None, "letter:1"])
@pytest.mark.parametrize("number", [1, 3])
def test_the_same_request_on_two_connections_at_once_makes_and_counts_one_job(
    blocking_store: Bench, number: int, unique_key: str | None
) -> None:
    """As when a reply is lost, and the request is made again while the first is still under way."""
    store = blocking_store
    if not store.dialect.has_row_locks:
        pytest.skip("one writer at a time")
    asked = [new_job(unique_key=unique_key), *(new_job() for _ in range(number - 1))]
    request: Operation[Any] = jobs.enqueue(asked[0]) if number == 1 else jobs.enqueue_many(asked)
    [other] = store.database.racers(1)
    with ThreadPoolExecutor(1) as threads:
        with store.transaction() as connection:
            store.database.store.drive(request, connection)
            second = threads.submit(other.run, request)
            wait_until(lambda: second.done() or is_kept_waiting(store), "a request that waits for the same", seconds=60)
            assert not second.done()
        second.result(timeout=60)

    assert store.rows("select count(*) from stagepost_job") == [(number,)]
    assert store.run(count_by_state())[JobState.QUEUED] == number  # as `check` finds for every test


def test_many_equal_requests_at_once_make_and_count_one_job(blocking_store: Bench) -> None:
    for _ in range(5):
        job = new_job()
        made = blocking_store.race(*[jobs.enqueue(job)] * 4)
        assert {one.id for one in made} == {job.id}

    assert blocking_store.rows("select count(*) from stagepost_job") == [(5,)]
    assert blocking_store.run(count_by_state())[JobState.QUEUED] == 5


@pytest.mark.parametrize("number", [2, 150])
def test_an_id_that_was_chosen_twice_in_one_request_makes_one_job(store: Bench, number: int) -> None:
    job = new_job(has_chosen_id=True)

    enqueued = store.run(jobs.enqueue_many([job] * number))

    assert enqueued == [Enqueued(job.id, is_new=True)] * number
    assert store.rows("select count(*) from stagepost_job") == [(1,)]


def test_a_job_with_a_chosen_id_whose_unique_key_is_taken_is_not_made(store: Bench) -> None:
    first = new_job(unique_key="letter:1")
    enqueue(store, first)

    second = enqueue(store, new_job(unique_key="letter:1", has_chosen_id=True))

    assert second == Enqueued(first.id, is_new=False)


def test_a_repeated_request_does_not_run_a_job_again_that_has_ended(store: Bench) -> None:
    job = new_job()
    enqueue(store, job)
    finish(store, Completed())

    again = store.run(jobs.enqueue(job).repeated())

    assert again == Enqueued(job.id, is_new=True)
    assert store.rows("select count(*) from stagepost_job") == [(0,)]
    assert store.run(jobs.get(job.id)).state is JobState.COMPLETED


@pytest.mark.parametrize("number", [1, 3, 150])
@pytest.mark.parametrize("has_chosen_id", [True, False])
def test_a_repeated_request_does_not_recreate_a_job_that_ends_concurrently(
    blocking_store: Bench, has_chosen_id: bool, number: int
) -> None:
    store = blocking_store
    if not store.dialect.has_row_locks:
        pytest.skip("one writer at a time: nobody asks for it meanwhile")
    asked = [new_job(has_chosen_id=has_chosen_id) for _ in range(number)]
    request: Operation[Any] = jobs.enqueue(asked[0]) if number == 1 else jobs.enqueue_many(asked)
    store.run(request)
    [job] = claim(store)
    [other] = store.database.racers(1)
    with ThreadPoolExecutor(1) as threads:
        with store.transaction() as connection:
            store.database.store.drive(settling.settle([Settlement.of(job, Completed())]), connection)
            enqueued = threads.submit(other.run, request if has_chosen_id else request.repeated())
            wait_until(
                lambda: enqueued.done() or is_kept_waiting(store), "a request that waits for its job's end", seconds=60
            )
            assert not enqueued.done() or store.dialect.name == "mysql"  # where a plain read finds the job
        enqueued.result(timeout=60)

    assert store.run(jobs.get(job.id)).state is JobState.COMPLETED
    assert store.rows("select count(*) from stagepost_job") == [(number - 1,)]


def test_a_repeated_request_that_was_never_stored_is_stored(store: Bench) -> None:
    job = new_job(unique_key="letter:1")

    enqueued = store.run(jobs.enqueue(job))

    assert enqueued == Enqueued(job.id, is_new=True)
    assert store.run(jobs.get(job.id)).state is JobState.QUEUED


@dataclass(frozen=True)
class Timing:
    delay_us: int
    offset_us: int | None
    state: JobState
    available_in_us: int


@pytest.mark.parametrize(
    "timing",
    [
        Timing(delay_us=0, offset_us=None, state=JobState.QUEUED, available_in_us=0),
        Timing(delay_us=1, offset_us=None, state=JobState.SCHEDULED, available_in_us=1),
        Timing(delay_us=YEAR_US, offset_us=None, state=JobState.SCHEDULED, available_in_us=YEAR_US),
        Timing(delay_us=0, offset_us=5, state=JobState.SCHEDULED, available_in_us=5),
        Timing(delay_us=0, offset_us=0, state=JobState.QUEUED, available_in_us=0),
        Timing(delay_us=0, offset_us=-7, state=JobState.QUEUED, available_in_us=-7),
    ],
    ids=lambda timing: f"delay={timing.delay_us},at={timing.offset_us}",
)
def test_delays_and_instants_say_when_a_job_may_run(store: Bench, timing: Timing) -> None:
    at = None if timing.offset_us is None else store.now + timing.offset_us
    job = new_job(delay_us=timing.delay_us, available_at=at)

    enqueue(store, job)

    stored = store.run(jobs.get(job.id))
    assert (stored.state, stored.available_at) == (timing.state, store.now + timing.available_in_us)


def test_a_delayed_job_with_a_limit_is_scheduled_first_and_blocked_when_due(store: Bench) -> None:
    job = new_job(limit_key="printer", limit=1, delay_us=10)
    enqueue(store, job)
    assert store.run(jobs.get(job.id)).state is JobState.SCHEDULED
    store.clock.advance(1)

    store.run(leases.promote_due())

    assert store.run(jobs.get(job.id)).state is JobState.BLOCKED


def test_a_request_repeated_after_its_job_ended_creates_no_second_job(store: Bench) -> None:
    job = new_job()
    store.run(jobs.enqueue(job))
    [leased] = claim(store)
    settle(store, leased, Completed())

    again = store.run(jobs.enqueue_many([job, new_job(queue_name="other")]).repeated())

    assert again[0] == Enqueued(job.id, is_new=True)
    assert claim(store) == []
