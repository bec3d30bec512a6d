"""Claiming and renewing: order, what is passed over, and what a lease holds."""

from __future__ import annotations

from datetime import timedelta

from stagepost.model.identity import new_id
from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Failed
from stagepost.store import cancelling, jobs, leases
from stagepost.store.leases import Renewed
from tests.conformance.bench import Bench
from tests.conformance.samples import LEASE, QUEUE, TASK, claim, enqueue, lose_lease, new_job, running, settle
from tests.limits import unblock


def test_a_claim_leases_the_job_and_returns_all_a_worker_needs(store: Bench) -> None:
    created = store.now
    job = new_job(limit_key="printer", limit=2, available_at=created - 5)
    store.run(jobs.enqueue(job))
    store.run(unblock())
    store.clock.advance(2)

    [leased] = claim(store, owner="worker-a")

    assert leased == LeasedJob(
        id=job.id,
        task_name=TASK,
        queue_name=QUEUE,
        attempt=1,
        failures=0,
        crashes=0,
        max_attempts=4,
        priority=7,
        created_at=created,
        available_at=created - 5,
        payload=job.payload,
        context=job.context,
        limit_key="printer",
        batch_id=None,
        owner="worker-a",
        blocked_on="limit:printer",
    )
    stored = store.run(jobs.get(job.id))
    assert (stored.state, stored.attempt, stored.locked_by) == (JobState.RUNNING, 1, "worker-a")
    assert (stored.started_at, stored.updated_at) == (store.now, store.now)
    assert stored.lease_until == store.now + 30_000_000
    assert stored.created_at == created


def test_the_larger_priority_goes_first_then_the_longer_due_then_the_smaller_id(store: Bench) -> None:
    earlier, later = new_id(), new_id()
    expected = [
        enqueue(store, priority=9, available_at=store.now - 10),
        enqueue(store, priority=5, available_at=store.now - 30),
        enqueue(store, priority=5, available_at=store.now - 20, id=earlier),
        enqueue(store, priority=5, available_at=store.now - 20, id=later),
        enqueue(store, priority=-1, available_at=store.now - 90),
    ]

    first, rest = claim(store, slots=2), claim(store, slots=10)

    assert [job.id for job in first] == expected[:2]
    assert [job.id for job in rest] == expected[2:]


def test_a_claim_takes_no_more_than_its_slots(store: Bench) -> None:
    store.run(jobs.enqueue_many([new_job() for _ in range(5)]))

    assert len(claim(store, slots=3)) == 3
    assert len(claim(store, slots=3)) == 2
    assert claim(store, slots=3) == []


def test_jobs_of_other_queues_and_of_unknown_tasks_are_skipped(store: Bench) -> None:
    enqueue(store, queue_name="other")
    enqueue(store, task_name="unknown_here", priority=100)
    wanted = enqueue(store)

    assert [job.id for job in claim(store, slots=10)] == [wanted]


def test_a_worker_without_tasks_gets_nothing(store: Bench) -> None:
    enqueue(store)

    assert store.run(leases.claim(QUEUE, owner="worker-a", task_names=[], slots=5, lease=LEASE)) == []


def test_only_queued_jobs_are_claimed(store: Bench) -> None:
    enqueue(store, delay_us=1)
    enqueue(store, limit_key="printer", limit=1)
    retrying = running(store)
    settle(store, retrying, Failed("no paper", timedelta(seconds=1)))
    running(store)

    assert claim(store, slots=10, owner="worker-b") == []


def test_the_number_of_the_attempt_grows_with_every_claim(store: Bench) -> None:
    first = running(store)
    lose_lease(store)

    [second] = claim(store, owner="worker-b")

    assert (first.attempt, second.attempt) == (1, 2)
    assert (second.crashes, second.failures) == (1, 0)


def test_renewing_extends_the_lease_from_now(store: Bench) -> None:
    job = running(store)
    store.clock.advance(20)

    renewed = store.run(leases.renew([(job.id, 1)], owner="worker-a", lease=timedelta(seconds=45)))

    assert renewed == Renewed(held=frozenset({(job.id, 1)}), asked_to_stop=frozenset())
    assert store.run(jobs.get(job.id)).lease_until == store.now + 45_000_000


def test_renewing_many_returns_which_are_held_and_which_are_asked_to_stop(store: Bench) -> None:
    held, stopped, ended = running(store), running(store), running(store)
    store.run(cancelling.cancel_job(stopped.id, actor="ada"))
    settle(store, ended, Completed())

    renewed = store.run(
        leases.renew([(job.id, job.attempt) for job in (ended, stopped, held)], owner="worker-a", lease=LEASE)
    )

    assert renewed.held == {(held.id, 1), (stopped.id, 1)}
    assert renewed.asked_to_stop == {(stopped.id, 1)}


def test_only_running_attempts_of_this_owner_that_were_cancelled_are_asked_to_stop(store: Bench) -> None:
    going_on, stopped, ended = (running(store) for _ in range(3))
    store.run(cancelling.cancel_job(stopped.id, actor="tester"))
    store.run(cancelling.cancel_job(ended.id, actor="tester"))
    settle(store, ended, Completed(None))
    fences = [(job.id, job.attempt) for job in (going_on, stopped, ended)]

    assert store.run(leases.asked_to_stop(fences, owner="worker-a")) == {(stopped.id, 1)}
    assert store.run(leases.asked_to_stop(fences, owner="worker-b")) == set()
    assert store.run(leases.asked_to_stop([(stopped.id, 2)], owner="worker-a")) == set()


def test_a_lost_lease_cannot_be_renewed(store: Bench) -> None:
    job = running(store)
    lose_lease(store)
    [again] = claim(store, owner="worker-b")
    until = store.run(jobs.get(job.id)).lease_until
    store.clock.advance(1)

    old_attempt = store.run(leases.renew([(job.id, job.attempt)], owner="worker-b", lease=LEASE))
    other_owner = store.run(leases.renew([(job.id, again.attempt)], owner="worker-a", lease=LEASE))

    assert (old_attempt.held, other_owner.held) == (frozenset(), frozenset())
    assert store.run(jobs.get(job.id)).lease_until == until


def test_renewing_no_leases_is_allowed(store: Bench) -> None:
    assert store.run(leases.renew([], owner="worker-a", lease=LEASE)).held == frozenset()


def test_a_claim_from_marks_starts_at_them_and_leaves_other_priorities_alone(store: Bench) -> None:
    late = enqueue(store, priority=3)
    store.clock.advance(10)
    mark = store.now
    first, second = enqueue(store, priority=3), enqueue(store, priority=-2)
    enqueue(store, priority=7)

    claimed = store.run(
        leases.claim(QUEUE, owner="worker-a", task_names=[TASK], slots=5, lease=LEASE, marks={-2: mark, 3: mark})
    )

    assert [job.id for job in claimed] == [first, second]
    assert late not in {job.id for job in claimed}


def test_a_claim_from_the_beginning_finds_jobs_before_the_marks(store: Bench) -> None:
    late = enqueue(store, priority=3)
    store.clock.advance(10)

    marks = {3: store.now}
    passed = store.run(leases.claim(QUEUE, owner="a", task_names=[TASK], slots=5, lease=LEASE, marks=marks))
    found = claim(store, slots=5)

    assert passed == []
    assert [job.id for job in found] == [late]
