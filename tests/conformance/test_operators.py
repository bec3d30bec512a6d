"""Cancelling and restarting: what operators may do to a job in each state, and that it is recorded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from stagepost.errors import IllegalTransition, JobNotFound, UniqueKeyTaken
from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Abandoned, Completed, Failed, Refused
from stagepost.store import cancelling, jobs
from tests.conformance.bench import Bench
from tests.conformance.samples import claim, enqueue, lose_lease, running, settle
from tests.limits import unblock


def blocked(store: Bench) -> str:
    return enqueue(store, limit_key="printer", limit=1)


def scheduled(store: Bench) -> str:
    return enqueue(store, delay_us=1)


def retrying(store: Bench) -> str:
    job = running(store)
    settle(store, job, Failed("no paper", timedelta(seconds=5)))
    return job.id


def released(store: Bench) -> str:
    """Queued with an attempt behind it."""
    job = running(store)
    lose_lease(store)
    return job.id


def waiting(store: Bench) -> str:
    """Waiting for children, which no operation makes yet."""
    job_id = enqueue(store)
    store.edit("update stagepost_job set state = 'waiting', attempts = 3 where id = :id", id=job_id)
    return job_id


def completed(store: Bench) -> str:
    job = running(store)
    settle(store, job, Completed())
    return job.id


def failed(store: Bench) -> str:
    job = running(store)
    settle(store, job, Refused("no such letter"))
    return job.id


def dead_letter(store: Bench) -> str:
    job = running(store, max_attempts=1)
    settle(store, job, Failed("no paper", timedelta(0)))
    return job.id


def cancelled(store: Bench) -> str:
    job = running(store)
    settle(store, job, Abandoned("no longer wanted"))
    return job.id


def audit_of(store: Bench) -> list[tuple[str, str, str, str]]:
    return [tuple(row) for row in store.rows("select actor, action, subject, detail from stagepost_audit order by id")]


@pytest.mark.parametrize(
    "make", [blocked, scheduled, enqueue, retrying, released, waiting], ids=lambda make: make.__name__
)
def test_a_live_job_that_is_not_running_is_cancelled_at_once(store: Bench, make: Callable[[Bench], str]) -> None:
    job_id = make(store)
    before = store.run(jobs.get(job_id))
    store.clock.advance(1)

    state = store.run(cancelling.cancel_job(job_id, actor="ada"))

    job = store.run(jobs.get(job_id))
    assert (state, job.state) == (JobState.CANCELLED, JobState.CANCELLED)
    assert (job.error, job.finished_at) == ("cancelled by ada", store.now)
    assert (job.attempt, job.failures, job.crashes) == (before.attempt, before.failures, before.crashes)
    assert audit_of(store) == [("ada", "cancel", job_id, before.state)]
    assert store.rows("select acted_at from stagepost_audit") == [(store.now,)]


def test_a_running_job_is_asked_to_stop(store: Bench) -> None:
    job = running(store)
    store.clock.advance(1)

    state = store.run(cancelling.cancel_job(job.id, actor="ada"))

    asked = store.run(jobs.get(job.id))
    assert (state, asked.state, asked.cancel_requested_at) == (JobState.RUNNING, JobState.RUNNING, store.now)
    assert audit_of(store) == [("ada", "cancel", job.id, "running")]


def test_a_cancelled_job_stays_cancelled(store: Bench) -> None:
    job_id = cancelled(store)
    before = store.run(jobs.get(job_id))

    assert store.run(cancelling.cancel_job(job_id, actor="ada")) is JobState.CANCELLED

    assert store.run(jobs.get(job_id)) == before
    assert audit_of(store) == []


@pytest.mark.parametrize("make", [completed, failed, dead_letter], ids=lambda make: make.__name__)
def test_a_job_that_ended_otherwise_cannot_be_cancelled(store: Bench, make: Callable[[Bench], str]) -> None:
    job_id = make(store)
    before = store.run(jobs.get(job_id))

    with pytest.raises(IllegalTransition, match=f"{job_id} is {before.state}"):
        store.run(cancelling.cancel_job(job_id, actor="ada"))

    assert store.run(jobs.get(job_id)) == before
    assert audit_of(store) == []


def test_a_job_that_does_not_exist_cannot_be_cancelled(store: Bench) -> None:
    with pytest.raises(JobNotFound):
        store.run(cancelling.cancel_job(new_id(), actor="ada"))


def test_a_lost_lease_cannot_end_a_job_that_was_cancelled_meanwhile(store: Bench) -> None:
    old = running(store)
    lose_lease(store)
    store.run(cancelling.cancel_job(old.id, actor="ada"))

    assert settle(store, old, Completed()) is False
    assert store.run(jobs.get(old.id)).state is JobState.CANCELLED


@pytest.mark.parametrize("make", [completed, failed, dead_letter, cancelled], ids=lambda make: make.__name__)
def test_an_ended_job_is_queued_again(store: Bench, make: Callable[[Bench], str]) -> None:
    job_id = make(store)
    ended = store.run(jobs.get(job_id))
    store.clock.advance(1)

    assert store.run(jobs.restart([job_id], actor="ada")) == [job_id]

    job = store.run(jobs.get(job_id))
    assert (job.state, job.available_at, job.updated_at) == (JobState.QUEUED, store.now, store.now)
    assert (job.attempt, job.failures, job.crashes, job.max_attempts) == (1, 0, 0, ended.max_attempts)
    assert (job.created_at, job.priority, job.queue_name) == (ended.created_at, ended.priority, ended.queue_name)
    assert (job.payload, job.context) == (ended.payload, ended.context)
    assert (job.result, job.error, job.finished_at, job.started_at) == (None, None, None, None)
    assert store.rows("select count(*) from stagepost_job_history") == [(0,)]
    assert audit_of(store) == [("ada", "restart", job_id, ended.state)]


def test_the_attempts_of_a_restarted_job_count_on(store: Bench) -> None:
    job_id = dead_letter(store)
    store.run(jobs.restart([job_id], actor="ada"))

    [job] = claim(store)
    settle(store, job, Failed("no ink", timedelta(0)))

    assert (job.attempt, job.failures) == (2, 0)
    assert [failure.attempt for failure in store.run(jobs.failures_of(job_id))] == [1, 2]


def test_a_restarted_job_with_a_limit_waits_for_room(store: Bench) -> None:
    enqueue(store, limit_key="printer", limit=2)
    store.run(unblock())
    [job] = claim(store)
    settle(store, job, Completed())

    store.run(jobs.restart([job.id], actor="ada"))

    assert store.run(jobs.get(job.id)).state is JobState.BLOCKED
    assert store.run(unblock()) == 1


def test_only_ended_jobs_are_restarted(store: Bench) -> None:
    ended = [failed(store), dead_letter(store)]
    live = running(store)

    restarted = store.run(jobs.restart([*ended, live.id, new_id()], actor="ada"))

    assert sorted(restarted) == sorted(ended)
    assert store.run(jobs.get(live.id)).state is JobState.RUNNING
    assert sorted(subject for _, _, subject, _ in audit_of(store)) == sorted(ended)


def ended_with_key(store: Bench, key: str) -> LeasedJob:
    job = running(store, unique_key=key)
    settle(store, job, Refused("no such letter"))
    return job


def test_a_job_whose_unique_key_is_taken_makes_the_whole_restart_fail(store: Bench) -> None:
    ended, other = ended_with_key(store, "letter:1"), failed(store)
    holder = enqueue(store, unique_key="letter:1")

    with pytest.raises(UniqueKeyTaken, match="letter:1") as caught:
        store.run(jobs.restart([other, ended.id], actor="ada"))

    assert caught.value.holder == holder
    assert [store.run(jobs.get(job_id)).state for job_id in (ended.id, other)] == [JobState.FAILED] * 2
    assert audit_of(store) == []


def test_two_ended_jobs_with_the_same_unique_key_cannot_both_be_restarted(store: Bench) -> None:
    first, second = ended_with_key(store, "letter:1"), ended_with_key(store, "letter:1")

    with pytest.raises(UniqueKeyTaken):
        store.run(jobs.restart([first.id, second.id], actor="ada"))

    assert store.run(jobs.restart([second.id], actor="ada")) == [second.id]


def test_a_restart_whose_reply_was_lost_can_be_repeated(store: Bench) -> None:
    job = ended_with_key(store, "letter:1")
    restart = jobs.restart([job.id], actor="ada")
    store.run(restart)

    assert store.run(restart.repeated()) == [job.id]

    assert len(audit_of(store)) == 1
