"""Enqueueing: what is stored, repeats, unique keys, delays, limits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stagepost.database.statement import Operation
from stagepost.model.job import Enqueued, JobRow, NewJob, OnConflict, microseconds
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


def test_a_live_jobs_unique_key_keeps_others_out(store: Bench) -> None:
    first = new_job(unique_key="letter:1", payload='{"copy":1}')
    enqueue(store, first)

    second = enqueue(store, new_job(unique_key="letter:1", payload='{"copy":2}'))

    assert second == Enqueued(first.id, is_new=False)
    assert store.run(jobs.get(first.id)).payload == '{"copy":1}'


def test_unique_keys_that_differ_only_in_case_or_accents_are_different(store: Bench) -> None:
    for key in ("Müller", "müller", "Muller"):
        assert enqueue(store, new_job(unique_key=key)).is_new


def test_an_ended_jobs_unique_key_is_free_again(store: Bench) -> None:
    enqueue(store, new_job(unique_key="letter:1"))
    finish(store, Completed())

    assert enqueue(store, new_job(unique_key="letter:1")).is_new


def test_in_one_call_only_the_first_request_with_a_unique_key_is_stored(store: Bench) -> None:
    first, second = new_job(unique_key="letter:1"), new_job(unique_key="letter:1")

    enqueued = store.run(jobs.enqueue_many([first, second]))

    assert enqueued == [Enqueued(first.id, is_new=True), Enqueued(first.id, is_new=False)]


def test_a_key_for_a_period_outlives_its_job(store: Bench) -> None:
    first = new_job(unique_key="letter:1", unique_for_us=microseconds(HOUR))
    enqueue(store, first)
    finish(store, Completed())
    store.clock.advance(HOUR - timedelta(microseconds=1))

    second = enqueue(store, new_job(unique_key="letter:1", unique_for_us=microseconds(HOUR)))

    assert second == Enqueued(first.id, is_new=False)
    assert store.rows("select count(*) from stagepost_job") == [(0,)]


def test_a_key_for_a_period_is_free_when_that_is_over(store: Bench) -> None:
    enqueue(store, new_job(unique_key="letter:1", unique_for_us=microseconds(HOUR)))
    store.clock.advance(HOUR)
    second = new_job(unique_key="letter:1", unique_for_us=microseconds(2 * HOUR))

    assert enqueue(store, second) == Enqueued(second.id, is_new=True)
    held = store.rows("select unique_key, job_id, held_until from stagepost_unique_key")
    assert held == [("letter:1", second.id, store.now + microseconds(2 * HOUR))]


def test_a_repeated_request_with_a_key_for_a_period_finds_itself(store: Bench) -> None:
    job = new_job(unique_key="letter:1", unique_for_us=microseconds(HOUR))
    enqueue(store, job)

    assert store.run(jobs.enqueue(job)) == Enqueued(job.id, is_new=True)


@pytest.mark.parametrize("unique_for", [None, HOUR], ids=["while-alive", "for-a-period"])
def test_replace_gives_the_waiting_job_new_arguments(store: Bench, unique_for: timedelta | None) -> None:
    key = {"unique_key": "letter:1", "unique_for_us": unique_for and microseconds(unique_for)}
    first = new_job(**key)
    enqueue(store, first)
    store.clock.advance(3)

    second = enqueue(
        store, new_job(**key, payload='{"new":1}', context='{"c":2}', delay_us=9, on_conflict=OnConflict.REPLACE)
    )

    assert second == Enqueued(first.id, is_new=False)
    replaced = store.run(jobs.get(first.id))
    assert (replaced.payload, replaced.context) == ('{"new":1}', '{"c":2}')
    assert (replaced.state, replaced.available_at) == (JobState.QUEUED, store.now - 3_000_000)
    assert (replaced.created_at, replaced.updated_at) == (store.now - 3_000_000, store.now)


@pytest.mark.parametrize("on_conflict", [OnConflict.REPLACE, OnConflict.DEBOUNCE])
def test_a_running_job_keeps_its_arguments(store: Bench, on_conflict: OnConflict) -> None:
    first = new_job(unique_key="letter:1")
    enqueue(store, first)
    claim(store)

    enqueue(store, new_job(unique_key="letter:1", payload='{"new":1}', delay_us=5, on_conflict=on_conflict))

    running = store.run(jobs.get(first.id))
    assert (running.payload, running.state, running.available_at) == (first.payload, JobState.RUNNING, store.now)


@pytest.mark.parametrize("delay", [timedelta(seconds=1), timedelta(days=40)])
def test_debounce_restarts_the_delay(store: Bench, delay: timedelta) -> None:
    first = new_job(unique_key="letter:1", delay_us=microseconds(delay))
    enqueue(store, first)
    store.clock.advance(0.4)

    enqueue(
        store,
        new_job(
            unique_key="letter:1",
            payload='{"new":1}',
            delay_us=microseconds(delay),
            on_conflict=OnConflict.DEBOUNCE,
        ),
    )

    debounced = store.run(jobs.get(first.id))
    assert (debounced.state, debounced.payload) == (JobState.SCHEDULED, '{"new":1}')
    assert debounced.available_at == store.now + microseconds(delay)


@pytest.mark.parametrize(("longest", "most"), [(None, 10), (timedelta(seconds=3), 3)], ids=["by default", "as asked"])
def test_debounce_postpones_no_longer_than_the_longest_wait(store: Bench, longest: timedelta | None, most: int) -> None:
    again = {"unique_key": "letter:1", "delay_us": 1_000_000, "on_conflict": OnConflict.DEBOUNCE}
    if longest is not None:
        again["longest_wait_us"] = microseconds(longest)
    first = new_job(**again)
    began = store.now
    enqueue(store, first)
    for _ in range(20):
        store.clock.advance(0.9)
        enqueue(store, new_job(**again))

    assert store.run(jobs.get(first.id)).available_at == began + most * 1_000_000
    store.run(leases.promote_due())
    assert [job.id for job in claim(store)] == [first.id]


def test_debounce_delays_a_queued_job(store: Bench) -> None:
    first = new_job(unique_key="letter:1")
    enqueue(store, first)

    enqueue(store, new_job(unique_key="letter:1", delay_us=5, on_conflict=OnConflict.DEBOUNCE))

    assert store.run(jobs.get(first.id)).state is JobState.SCHEDULED
    assert claim(store) == []


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
