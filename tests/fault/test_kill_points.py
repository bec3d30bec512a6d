"""F1 to F4: a worker dies at the worst moments, immediately before or after a transaction takes effect."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping

import pytest

from stagepost.database import Store
from stagepost.database.connection import database_at
from stagepost.store.jobs import enqueue_many
from tests.depth import quickly_on, sized
from tests.fault.arena import LASTING_LEASE, STEADY_LEASE, Arena, jobs_of
from tests.fault.injection import Blow, Injection, Injector, Killed
from tests.fault.nursery import WorkerProcess
from tests.fault.trapped import HANDLER, KillPoint, Moment, Step, TrappedDatabase

RENEWAL = "renew_leases"
POINTS = [
    KillPoint(statement, Step.COMMIT, moment)
    for statement in (
        "claim_jobs",  # F1
        HANDLER,  # F3, F4
        "end_jobs",
        "reschedule_jobs",
        RENEWAL,
        "promote_due_jobs",
    )[: sized(3, 6)]
    for moment in Moment
]
FEED_SECONDS = 5.0


def test_a_worker_that_dies_around_a_commit_costs_an_attempt_and_nothing_else(arena: Arena) -> None:
    queues = [f"{point.statement}-{point.moment}" for point in POINTS]
    gate = arena.folder / "gate"
    jobs = [job for queue in queues for job in enqueue_every_kind(arena, queue)]
    for point, queue in zip(POINTS, queues, strict=True):
        if point.statement == RENEWAL:
            jobs += arena.enqueue("transfer_at_gate", queue=queue, gate=str(gate))  # so long that it is renewed

    doomed = {
        queue: arena.start_worker(kill_point=point, queues=[queue], lease_seconds=lease_at(point))
        for point, queue in zip(POINTS, queues, strict=True)
    }
    jobs += feed_until_dead(arena, doomed)
    arena.end_leases()
    arena.start_worker(queues=queues, lease_seconds=LASTING_LEASE)
    arena.wait_for_end(jobs)

    assert [worker.wait() for worker in doomed.values()] == [-signal.SIGKILL] * len(POINTS)
    evidence = arena.verify()
    assert {job.state for job in evidence.jobs.values()} == {"completed"}


def lease_at(point: KillPoint) -> float:
    return STEADY_LEASE if point.statement == RENEWAL else LASTING_LEASE


def feed_until_dead(arena: Arena, doomed: Mapping[str, WorkerProcess]) -> list[str]:
    """Give more to workers that live on: what was due may have been promoted by another, who led before them."""
    fed: list[str] = []
    feeds_at = time.monotonic() + FEED_SECONDS

    def are_dead() -> bool:
        nonlocal feeds_at
        alive = [queue for queue, worker in doomed.items() if worker.status is None]
        if alive and time.monotonic() > feeds_at:
            fed.extend(job for queue in alive for job in enqueue_every_kind(arena, queue))
            feeds_at = time.monotonic() + FEED_SECONDS
        return not alive

    arena.wait(are_dead, "workers to die", seconds=200)
    return fed


def enqueue_every_kind(arena: Arena, queue: str) -> list[str]:
    kinds = ("transfer", "transfer_flaky", "note", "note_flaky")
    slow = jobs_of("transfer", queue=queue, seconds=2.0)
    return arena.submit([*slow, *(job for task in kinds for job in jobs_of(task, 2, queue=queue))])


@quickly_on("postgres")
def test_a_worker_that_dies_after_an_effect_outside_repeats_it_under_the_same_key(arena: Arena) -> None:
    """F2."""
    jobs = arena.enqueue("note_then_die", 2, queue="fatal")
    for _ in jobs:
        doomed = arena.start_worker(queues=["fatal"], concurrency=1, prefetch=0, lease_seconds=LASTING_LEASE)
        assert doomed.wait() == -signal.SIGKILL
        arena.end_leases(jobs)

    arena.start_worker(queues=["fatal"], lease_seconds=LASTING_LEASE)
    arena.wait_for_end(jobs)

    arena.verify()
    effects = [(note.job_id, note.attempt) for note in arena.notes("effect")]
    assert sorted(effects) == sorted((job, attempt) for job in jobs for attempt in (1, 2))


@pytest.mark.parametrize("moment", Moment)
def test_a_producer_that_dies_around_its_commit_can_repeat_its_request(arena: Arena, moment: Moment) -> None:
    """The producer's journal says `maybe`; asking again under the same ids settles it, exactly once."""
    asked = jobs_of("transfer", 10)
    commit = {"sqlite": 5, "postgres": 4, "mariadb": 8}[arena.backend.name]
    injector = Injector(Injection(commit, moment, Blow.DEATH), arena.backend.dialect.name)
    dying = Store(TrappedDatabase(database_at(arena.url), injector))
    arena.journal.ask(job.id for job in asked)
    with pytest.raises(Killed):
        dying.run(enqueue_many(asked))
    assert injector.calls[-1].step is Step.COMMIT

    jobs = arena.submit(asked)
    arena.start_worker()
    arena.wait_for_end(jobs)

    evidence = arena.verify()
    assert sorted(evidence.jobs) == sorted(jobs)
