"""A worker dies between a claim and what follows it under limits: every job still ends, and no limit is exceeded."""

from __future__ import annotations

import signal

import pytest

from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.model.outcome import CRASHES_ALLOWED
from stagepost.store.jobs import enqueue
from tests.depth import quickly_on
from tests.fault.arena import LASTING_LEASE, Arena, jobs_of
from tests.fault.trapped import HANDLER, KillPoint, Moment, Step

LIMITED = ("transfer_two_at_once", "note_two_at_once")
MORE_JOBS = 20
POINTS = [
    KillPoint("hold_jobs", Step.COMMIT, Moment.BEFORE),  # the claim that holds jobs is rolled back
    KillPoint("hold_jobs", Step.COMMIT, Moment.AFTER),  # that claim is committed, and the front is not cleared
    KillPoint("hold_jobs", Step.COMMIT, Moment.AFTER, nth=2),  # the front is cleared, and nobody was let through
    KillPoint(HANDLER, Step.COMMIT, Moment.AFTER),  # a handler has ended its job, and the next is not let through
    KillPoint("let_through_jobs", Step.COMMIT, Moment.BEFORE),
    KillPoint("let_through_jobs", Step.COMMIT, Moment.AFTER),
    # Last, so that the worker that survives may find all jobs blocked and none running: only a sweep lets them go on.
    KillPoint("end_jobs", Step.COMMIT, Moment.AFTER),
]


def test_a_worker_that_dies_between_a_claim_and_what_follows_under_a_limit_holds_nobody_up(arena: Arena) -> None:
    jobs: list[str] = []
    with arena.sampling(seconds=0.1):
        for point in POINTS:
            jobs += arena.submit([job for task in LIMITED for job in jobs_of(task, MORE_JOBS)])
            doomed = arena.start_worker(kill_point=point, lease_seconds=LASTING_LEASE)
            assert doomed.wait() == -signal.SIGKILL, f"{point} was not reached"
            arena.end_leases()
        arena.start_worker(lease_seconds=LASTING_LEASE)
        arena.wait_for_end(jobs)

    # On a slow machine a job can run in three workers that are killed. It becomes a dead letter, as it should.
    ends = {(job.state, job.crashes >= CRASHES_ALLOWED) for job in arena.verify().jobs.values()}
    assert ends - {("dead_letter", True)} == {("completed", False)}


@quickly_on("mariadb")
@pytest.mark.parametrize("moment", Moment)
def test_a_worker_that_dies_while_it_frees_stale_keys_leaves_them_to_the_next(arena: Arena, moment: Moment) -> None:
    kept, deleted = unique_job("kept"), unique_job("deleted")
    jobs = arena.submit([kept])
    arena.operate(enqueue(deleted))
    arena.backend.rows("delete from stagepost_job where id = :id", id=deleted.id)  # by hand: its key stays on MariaDB

    point = KillPoint("free_stale_keys", Step.COMMIT, moment)
    doomed = arena.start_worker(kill_point=point, queues=["other"], lease_seconds=LASTING_LEASE)
    assert doomed.wait() == -signal.SIGKILL
    arena.start_worker(lease_seconds=LASTING_LEASE)
    arena.wait(lambda: "deleted" not in held_keys(arena), "the key to be free")
    jobs += arena.submit([unique_job("deleted")])
    arena.wait_for_end(jobs)

    assert {job.state for job in arena.jobs(jobs).values()} == {"completed"}


def unique_job(key: str) -> NewJob:
    return NewJob(id=new_id(), task_name="note", payload="{}", unique_key=key)


def held_keys(arena: Arena) -> set[str]:
    if arena.backend.name != "mariadb":
        return set()
    return {str(key) for (key,) in arena.backend.rows("select unique_key from stagepost_live_key")}
