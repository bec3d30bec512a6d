"""F6, F7: a worker freezes beyond its lease, another takes over, and the first wakes up and continues."""

from __future__ import annotations

import json

from stagepost.store.jobs import get
from tests.depth import sized
from tests.fault.arena import LASTING_LEASE, Arena

ZOMBIES = sized(4, 25)
WORKERS = 2
LEASE_OF_SLEEPER = 9.0
"""Not so short that a busy machine alone could cost a worker its lease, before it is made to sleep."""


def test_nothing_is_accepted_from_a_worker_that_overslept_its_lease(arena: Arena) -> None:
    gate = arena.folder / "gate"
    jobs = arena.enqueue("transfer_at_gate", ZOMBIES * WORKERS, gate=str(gate))
    sleepers = [
        arena.start_worker(concurrency=ZOMBIES, prefetch=0, lease_seconds=LASTING_LEASE) for _ in range(WORKERS)
    ]
    arena.wait(lambda: len(arena.notes("at gate")) == len(jobs), "all attempts at the gate")

    for worker in sleepers:
        arena.pause(worker)
    arena.end_leases(jobs)
    arena.start_worker(concurrency=ZOMBIES, lease_seconds=LASTING_LEASE)
    arena.wait_for_end(jobs)
    gate.touch()
    for worker in sleepers:
        worker.resume()
    arena.wait(lambda: len(arena.notes("lease lost")) == len(jobs), "all zombies to be refused")

    evidence = arena.verify()
    assert {job.attempt for job in evidence.jobs.values()} == {2}
    assert {note.attempt for note in arena.notes("lease lost")} == {1}
    arena.wait(lambda: all("lost its lease" in worker.logged() for worker in sleepers), "each to say so")


def reporting(arena: Arena, jobs: list[str]) -> set[int | None]:
    """The attempts whose progress is stored."""
    found = [arena.operate(get(job_id)).progress for job_id in jobs]
    return {None if progress is None else json.loads(progress)["attempt"] for progress in found}


def test_a_zombies_renewal_does_not_take_the_lease_from_the_attempt_that_is_running(arena: Arena) -> None:
    """F7: the first wakes up while the second is at work; both report progress all the time."""
    gate, second_gate = arena.folder / "gate", arena.folder / "second"
    jobs = arena.enqueue("transfer_at_two_gates", 10, first=str(gate), second=str(second_gate))
    sleeper = arena.start_worker(concurrency=10, prefetch=0, lease_seconds=LASTING_LEASE)
    arena.wait(lambda: len(arena.notes("at gate")) == len(jobs), "all first attempts at the gate")

    arena.pause(sleeper)
    arena.end_leases(jobs)
    arena.start_worker(concurrency=10, prefetch=0, lease_seconds=LASTING_LEASE)
    arena.wait(lambda: len(arena.notes("at gate")) == 2 * len(jobs), "all second attempts at the gate")
    owners = {job.id: job.owner for job in arena.jobs().values()}
    arena.wait(lambda: reporting(arena, jobs) == {2}, "progress of all second attempts")
    sleeper.resume()
    arena.wait(lambda: "stopping attempt" in sleeper.logged(), "a renewal of the zombie's")
    gate.touch()
    arena.wait(lambda: len(arena.notes("lease lost")) == len(jobs), "all zombies to be refused")
    assert {job.id: job.owner for job in arena.jobs().values()} == owners
    assert reporting(arena, jobs) == {2}
    second_gate.touch()
    arena.wait_for_end(jobs)

    evidence = arena.verify()
    assert {job.attempt for job in evidence.jobs.values()} == {2}
    assert {job.id: job.owner for job in evidence.jobs.values()} == owners


def test_a_worker_frozen_inside_its_transaction_commits_all_of_it_or_nothing(arena: Arena) -> None:
    """The job's row is locked by that transaction: others cannot take it, or wait; either way it counts once."""
    gate = arena.folder / "gate"
    jobs = arena.enqueue("transfer_at_gate", 1, gate=str(gate), inside=True)
    sleeper = arena.start_worker(concurrency=1, prefetch=0, lease_seconds=LEASE_OF_SLEEPER)
    arena.wait(lambda: len(arena.notes("at gate")) == 1, "the attempt before its commit")

    sleeper.pause()
    if arena.backend.name != "sqlite":  # where that transaction locks everything, not a row
        others = arena.enqueue("transfer", 5)
        arena.start_worker()
        arena.wait_for_end(others)
        arena.wait(lambda: arena.lease_left(jobs[0]) < -1, "the end of the lease")
    gate.touch()
    sleeper.resume()
    arena.wait_for_end(jobs)

    arena.verify(grace_us=20_000_000)
