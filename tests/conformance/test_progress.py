"""Progress of jobs: written with the lease of the attempt that reports it, and gone with that attempt."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from stagepost.model.job import LeasedJob
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed, Failed, Outcome, Released, Snoozed
from stagepost.store import jobs, leases
from stagepost.store.leases import Renewed
from stagepost.store.listing import list_jobs
from stagepost.store.settlement import Fence
from tests.conformance.bench import Bench
from tests.conformance.families import submit
from tests.conformance.samples import LEASE, claim, fence, held_by_another, lose_lease, running, settle


def renew(store: Bench, *held: LeasedJob, reports: Mapping[Fence, str], owner: str = "worker-a") -> Renewed:
    return store.run(leases.renew([fence(job) for job in held], owner=owner, lease=LEASE, reports=reports))


def progress(store: Bench, job: LeasedJob) -> str | None:
    return store.run(jobs.get(job.id)).progress


def test_progress_is_written_with_the_lease(store: Bench) -> None:
    first, second, silent = (running(store) for _ in range(3))
    store.clock.advance(20)

    renewed = renew(store, first, second, silent, reports={fence(first): '{"done":3}', fence(second): '"über 10 %"'})

    assert renewed.held == {fence(first), fence(second), fence(silent)}
    assert [progress(store, job) for job in (first, second, silent)] == ['{"done":3}', '"über 10 %"', None]
    assert {store.run(jobs.get(job.id)).lease_until for job in (first, second, silent)} == {store.now + 30_000_000}


def test_progress_stays_until_there_is_newer(store: Bench) -> None:
    job, other = running(store), running(store)
    renew(store, job, other, reports={fence(job): "1", fence(other): "10"})

    renew(store, job, other, reports={})
    assert (progress(store, job), progress(store, other)) == ("1", "10")

    renew(store, job, other, reports={fence(job): "2"})
    assert (progress(store, job), progress(store, other)) == ("2", "10")


def test_progress_is_in_pages_of_jobs(store: Bench) -> None:
    job = running(store)
    renew(store, job, reports={fence(job): "[1,2]"})

    assert [found.progress for found in store.run(list_jobs())] == ["[1,2]"]
    assert [found.progress for found in store.run(list_jobs(states=[JobState.RUNNING]))] == ["[1,2]"]


def test_no_progress_is_written_for_an_attempt_that_was_superseded(store: Bench) -> None:
    old = running(store)
    lose_lease(store)
    [new] = claim(store, owner="worker-b")
    renew(store, new, reports={fence(new): '"new"'}, owner="worker-b")

    renewed = renew(store, old, reports={fence(old): '"old"'})

    assert not renewed.held
    assert progress(store, new) == '"new"'


def test_no_progress_is_written_for_an_attempt_that_the_same_worker_superseded(store: Bench) -> None:
    old = running(store)
    lose_lease(store)
    [new] = claim(store)

    renewed = renew(store, old, new, reports={fence(old): '"old"'})

    assert renewed.held == {fence(new)}
    assert progress(store, new) is None


def test_nothing_is_written_by_another_owner(store: Bench) -> None:
    job = running(store)

    renew(store, job, reports={fence(job): '"mine?"'}, owner="worker-b")

    assert progress(store, job) is None


@pytest.mark.parametrize(
    "outcome",
    [Failed("no paper", timedelta(0)), Snoozed(timedelta(0)), Released()],
    ids=lambda outcome: type(outcome).__name__,
)
def test_a_new_attempt_begins_without_progress(store: Bench, outcome: Outcome) -> None:
    job = running(store)
    renew(store, job, reports={fence(job): "0.9"})

    settle(store, job, outcome)

    assert progress(store, job) is None
    store.run(leases.promote_due())
    [again] = claim(store)
    assert (again.id, again.attempt, progress(store, again)) == (job.id, 2, None)


def test_a_rescued_job_has_no_progress(store: Bench) -> None:
    job = running(store)
    renew(store, job, reports={fence(job): "0.9"})

    lose_lease(store)

    assert (store.run(jobs.get(job.id)).state, progress(store, job)) == (JobState.QUEUED, None)


def test_a_job_that_has_ended_has_no_progress(store: Bench) -> None:
    job = running(store)
    renew(store, job, reports={fence(job): "1.0"})

    settle(store, job, Completed(None))
    assert progress(store, job) is None

    store.run(jobs.restart([job.id], actor="ada"))
    assert progress(store, job) is None


def test_a_parent_that_waits_for_its_children_has_no_progress(store: Bench) -> None:
    job = running(store)
    submit(store, job)
    renew(store, job, reports={fence(job): '"submitted"'})

    settle(store, job, Completed(None))

    assert (store.run(jobs.get(job.id)).state, progress(store, job)) == (JobState.WAITING, None)


def test_a_locked_row_is_skipped(blocking_store: Bench) -> None:
    store = blocking_store
    locked, free = running(store), running(store)
    with held_by_another(store, locked.id):
        renewed = renew(store, locked, free, reports={fence(locked): "1", fence(free): "2"})

    assert renewed.held == {fence(locked), fence(free)}
    assert renewed.passed_over == {fence(locked)}
    assert (progress(store, locked), progress(store, free)) == (None, "2")
