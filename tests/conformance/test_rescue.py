"""Rescuing jobs whose worker is dead, or that a worker leased without knowing it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from stagepost.model.job import LeasedJob, to_datetime
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store import cancelling, jobs, leases
from stagepost.store.leases import Rescued
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE, QUEUE, TASK, claim, enqueue, new_job, running, settle
from tests.conformance.sending import send, taking
from tests.limits import unblock

GRACE = timedelta(seconds=15)
MOMENT = timedelta(microseconds=1)


def rescue(store: Bench, *, most: int = 500) -> Rescued:
    return store.run(leases.rescue_expired(grace=GRACE, most=most))


def test_a_job_whose_lease_ended_is_queued_again_and_its_crash_counted(store: Bench) -> None:
    due = store.now - 5
    job = running(store, available_at=due)
    store.clock.advance(LEASE + GRACE + MOMENT)

    assert rescue(store) == Rescued(queued=(job.id,), buried=(), cancelled=())

    rescued = store.run(jobs.get(job.id))
    assert (rescued.state, rescued.available_at, rescued.updated_at) == (JobState.QUEUED, due, store.now)
    assert (rescued.attempt, rescued.failures, rescued.crashes) == (1, 0, 1)
    assert (rescued.lease_until, rescued.locked_by) == (None, None)
    [failure] = store.run(jobs.failures_of(job.id))
    assert (failure.attempt, failure.kind, failure.worker, failure.failed_at) == (
        1,
        "crashed",
        "worker-a",
        to_datetime(store.now),
    )
    assert failure.error == "worker worker-a died or lost its lease during attempt 1"


def test_a_lease_is_left_alone_until_the_grace_is_over(store: Bench) -> None:
    running(store)
    store.clock.advance(LEASE + GRACE)

    assert rescue(store) == Rescued(queued=(), buried=(), cancelled=())


def test_a_job_that_crashes_three_workers_becomes_a_dead_letter(store: Bench) -> None:
    job_id = enqueue(store)
    outcomes = []
    for owner in ("worker-a", "worker-b", "worker-c"):
        claim(store, owner=owner)
        store.clock.advance(LEASE + GRACE + MOMENT)
        outcomes.append(rescue(store))

    assert [bool(outcome.buried) for outcome in outcomes] == [False, False, True]
    assert outcomes[-1].buried_tasks == (store.run(jobs.get(job_id)).task_name,)
    buried = store.run(jobs.get(job_id))
    assert (buried.state, buried.attempt, buried.failures, buried.crashes) == (JobState.DEAD_LETTER, 3, 0, 3)
    assert (buried.error, buried.locked_by) == (
        "worker worker-c died or lost its lease during attempt 3",
        "worker-c",
    )
    assert [failure.kind for failure in store.run(jobs.failures_of(job_id))] == ["crashed"] * 3


def suspects(store: Bench, *, by_message: bool) -> list[LeasedJob]:
    """Lease two jobs that crashed twice, and one that crashed once."""
    messages = [(enqueue(store, priority=priority), 1) for priority in (3, 2, 1)]
    store.edit("update stagepost_job set crashes = case priority when 1 then 1 else 2 end")
    if by_message:
        assert send(store) == messages
        return sorted(store.run(taking(messages)).jobs, key=lambda job: -job.priority)
    return store.run(leases.claim(QUEUE, owner="worker-a", task_names=[TASK], slots=3, lease=LEASE))


@pytest.mark.parametrize("by_message", [False, True], ids=["claimed", "delivered"])
def test_a_job_is_charged_with_its_last_allowed_crash_only_if_it_has_started(store: Bench, by_message: bool) -> None:
    begun, waiting, other = suspects(store, by_message=by_message)
    store.run(leases.mark_started(begun))
    assert [store.run(jobs.get(job.id)).started_at for job in (begun, waiting, other)] == [store.now, None, store.now]
    store.clock.advance(LEASE + GRACE + MOMENT)

    rescued = rescue(store)

    assert (rescued.buried, set(rescued.queued)) == ((begun.id,), {waiting.id, other.id})
    assert [store.run(jobs.get(job.id)).crashes for job in (begun, waiting, other)] == [3, 2, 2]
    assert store.run(jobs.failures_of(waiting.id)) == []


def test_only_its_owner_can_mark_an_attempt_as_started(store: Bench) -> None:
    job, _, _ = suspects(store, by_message=False)
    store.run(leases.mark_started(replace(job, owner="worker-b")))
    store.run(leases.mark_started(replace(job, attempt=2)))

    assert store.run(jobs.get(job.id)).started_at is None


def test_a_job_that_was_asked_to_stop_is_cancelled_when_its_worker_is_gone(store: Bench) -> None:
    job = running(store)
    store.run(cancelling.cancel_job(job.id, actor="ada"))
    store.clock.advance(LEASE + GRACE + MOMENT)

    assert rescue(store) == Rescued(queued=(), buried=(), cancelled=(job.id,))

    cancelled = store.run(jobs.get(job.id))
    assert (cancelled.state, cancelled.crashes) == (JobState.CANCELLED, 0)
    assert cancelled.error == "cancelled; its worker had died"


def test_a_rescued_job_with_a_limit_waits_for_room_again(store: Bench) -> None:
    enqueue(store, limit_key="printer", limit=1)
    store.run(unblock())
    [job] = claim(store)
    store.clock.advance(LEASE + GRACE + MOMENT)

    rescue(store)

    assert store.run(jobs.get(job.id)).state is JobState.BLOCKED


def test_the_longest_dead_are_rescued_first(store: Bench) -> None:
    expected = []
    for _ in range(3):
        expected.append(running(store).id)
        store.clock.advance(1)
    store.clock.advance(LEASE + GRACE)

    first, rest = rescue(store, most=2), rescue(store, most=2)

    assert (first.queued, rest.queued) == (tuple(expected[:2]), (expected[2],))


def test_a_renewed_lease_is_not_rescued(store: Bench) -> None:
    job = running(store)
    store.clock.advance(LEASE)
    store.run(leases.renew([(job.id, job.attempt)], owner="worker-a", lease=LEASE))
    store.clock.advance(GRACE + MOMENT)

    assert rescue(store).queued == ()
    assert settle(store, job, Completed()) is True


def test_jobs_leased_without_the_owners_knowledge_are_released(store: Bench) -> None:
    store.run(jobs.enqueue_many([new_job() for _ in range(3)]))
    known, *strays = claim(store, slots=3)
    enqueue(store)
    others = claim(store, owner="worker-b")

    released = store.run(leases.release_unknown_leases(owner="worker-a", held=[(known.id, known.attempt)]))

    assert sorted(released) == sorted(job.id for job in strays)
    assert {store.run(jobs.get(job.id)).state for job in strays} == {JobState.QUEUED}
    assert {store.run(jobs.get(job.id)).state for job in (known, *others)} == {JobState.RUNNING}
    stray = store.run(jobs.get(strays[0].id))
    assert (stray.attempt, stray.failures, stray.crashes) == (1, 0, 0)


def test_a_known_attempt_is_not_mistaken_for_a_later_one(store: Bench) -> None:
    job = running(store)
    store.run(leases.release_unknown_leases(owner="worker-a", held=[]))
    [again] = claim(store)

    released = store.run(leases.release_unknown_leases(owner="worker-a", held=[(job.id, job.attempt)]))

    assert (again.attempt, released) == (2, [job.id])


def test_an_owner_without_strays_changes_nothing(store: Bench) -> None:
    job = running(store)

    assert store.run(leases.release_unknown_leases(owner="worker-a", held=[(job.id, job.attempt)])) == []
    assert store.run(leases.release_unknown_leases(owner="worker-b", held=[])) == []
    assert store.run(jobs.get(job.id)).state is JobState.RUNNING
