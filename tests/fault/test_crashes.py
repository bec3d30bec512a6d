"""F13, F17: handlers that take their whole process with them, and workers that come back at once."""

from __future__ import annotations

from functools import partial

import pytest

from stagepost.model.outcome import CRASHES_ALLOWED
from tests.fault.arena import LASTING_LEASE, Arena


def test_jobs_that_kill_their_worker_become_dead_letters_and_their_neighbours_continue(arena: Arena) -> None:
    """F13: one dies in a thread, one on the loop; jobs leased together with them crash twice."""
    poison = arena.enqueue("die", how="segfault") + arena.enqueue("die_async", how="exit")
    neighbours = arena.enqueue("note", 20) + arena.enqueue("transfer", 5, seconds=0.1)

    deaths = arena.supervise(
        lambda: arena.have_ended([*poison, *neighbours]), concurrency=20, prefetch=20, lease_seconds=LASTING_LEASE
    )

    arena.verify()
    assert {(job.state, job.crashes) for job in arena.jobs(poison).values()} == {("dead_letter", CRASHES_ALLOWED)}
    assert deaths > CRASHES_ALLOWED
    assert [job.state for job in arena.jobs(neighbours).values()] == ["completed"] * len(neighbours)


def test_a_new_crashing_job_does_not_take_down_jobs_that_crashed_twice(arena: Arena) -> None:
    """Each of its first two crashes takes down at most the suspect whose turn it is; then it waits in line itself."""
    poison = arena.enqueue("die_async", how="exit")
    suspects = arena.enqueue("note", 20)
    for job_id in suspects:
        arena.backend.rows("update stagepost_job set crashes = :crashes where id = :id", id=job_id, crashes=2)

    arena.supervise(
        lambda: arena.have_ended([*poison, *suspects]), concurrency=30, prefetch=20, lease_seconds=LASTING_LEASE
    )

    assert [(job.state, job.crashes) for job in arena.jobs(poison).values()] == [("dead_letter", CRASHES_ALLOWED)]
    assert [job.state for job in arena.jobs(suspects).values()].count("completed") >= len(suspects) - 2


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_crash_in_a_process_of_its_own_costs_only_that_job_an_attempt(arena: Arena) -> None:
    poison = [arena.enqueue("die_in_process", how=how)[0] for how in ("segfault", "exit", "kill")]
    [hungry] = arena.enqueue("die_in_process", how="memory", tries=1)
    neighbours = arena.enqueue("note", 30) + arena.enqueue("note_in_process", 3)
    worker = arena.start_worker(lease_seconds=LASTING_LEASE)
    arena.wait_for_end([*poison, hungry, *neighbours])

    assert worker.status is None
    arena.verify()
    assert {(job.state, job.crashes) for job in arena.jobs(poison).values()} == {("dead_letter", CRASHES_ALLOWED)}
    assert "MemoryError" in str(arena.job(hungry).error)
    assert {(job.state, job.crashes) for job in arena.jobs(neighbours).values()} == {("completed", 0)}


def test_a_worker_that_restarts_at_once_is_not_mistaken_for_the_one_that_died(arena: Arena) -> None:
    """F17."""
    gate = arena.folder / "gate"
    jobs = arena.enqueue("transfer_at_gate", 20, gate=str(gate))  # so that there is something left for each to start
    for _ in range(4):
        started = len(arena.notes("start"))
        worker = arena.start_worker(concurrency=5, prefetch=0)
        arena.wait(partial(has_started_more_than, arena, started), "a start")
        worker.kill()
    gate.touch()
    arena.start_worker(concurrency=20)
    arena.wait_for_end(jobs)

    arena.verify()
    owners = {note.owner for note in arena.notes("start")}
    assert len(owners) == len({note.pid for note in arena.notes("start")})


def has_started_more_than(arena: Arena, number: int) -> bool:
    return len(arena.notes("start")) > number
