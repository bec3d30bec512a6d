"""Unique keys: which job holds one, for how long, and what a second request does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stagepost.model.job import Enqueued, NewJob, OnConflict, microseconds
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store import jobs, leases
from tests.conformance.bench import Bench
from tests.conformance.samples import claim, finish, new_job

HOUR = timedelta(hours=1)


def enqueue(store: Bench, job: NewJob) -> Enqueued:
    return store.run(jobs.enqueue(job))


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
