"""F8, F9, F14 to F16: handlers that block, hog, raise what they should not, and do not stop."""

from __future__ import annotations

import os

import pytest

from tests.fault.arena import LASTING_LEASE, STEADY_LEASE, Arena
from tests.fault.tasks import RAISED

on_sqlite = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
LATE = 8
LATE_TRIES = 1000
"""On a busy machine later attempts may take longer than their timeout, too."""


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)  # a held interpreter may hold SQLite's only lock, too
@pytest.mark.prove
def test_a_blocked_event_loop_keeps_its_lease_and_a_held_interpreter_loses_it_safely(arena: Arena) -> None:
    """F8."""
    pipe, gate = arena.folder / "pipe", arena.folder / "gate"
    os.mkfifo(pipe)
    [blocking] = arena.enqueue("transfer_blocking_loop", queue="loop", gate=str(gate))
    [holding] = arena.enqueue("transfer_holding_gil", queue="gil", pipe=str(pipe))
    arena.start_worker(queues=["loop"], lease_seconds=STEADY_LEASE)
    arena.start_worker(queues=["gil"], lease_seconds=STEADY_LEASE)
    arena.wait(lambda: len(arena.notes("start")) == 2, "both to start")

    arena.start_worker(queues=["loop", "gil"], lease_seconds=LASTING_LEASE)
    arena.wait_for_renewal([blocking])
    arena.wait_for_end([holding])  # the one's lease is over by now, the other's would be, too
    arena.wait_for_renewal([blocking])
    gate.touch()
    arena.wait_for_end([blocking])
    os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    arena.wait(lambda: len(arena.notes("lease lost")) == 1, "the one that held the interpreter to be refused")

    arena.verify()
    assert arena.job(blocking).attempt == 1
    assert arena.job(holding).attempt == 2


@on_sqlite
@pytest.mark.prove
def test_leases_and_results_do_not_wait_for_the_loops_default_executor(arena: Arena) -> None:
    """F9."""
    gate = arena.folder / "gate"
    [hog] = arena.enqueue("note_beside_full_executor", threads=200, gate=str(gate))
    arena.start_worker(lease_seconds=STEADY_LEASE)
    arena.wait(lambda: len(arena.notes("start")) == 1, "the executor to be full")
    others = arena.enqueue("note", 20)

    arena.wait_for_end(others)
    arena.start_worker(tasks=["transfer"])  # it would rescue
    for _ in range(2):
        arena.wait_for_renewal([hog])
    gate.touch()
    arena.wait_for_end([hog])

    arena.verify()
    assert {job.attempt for job in arena.jobs().values()} == {1}


@on_sqlite
@pytest.mark.parametrize("task", ["raise", "raise_async", "raise_in_process"])
def test_whatever_a_handler_raises_is_a_failure_of_its_job_alone(arena: Arena, task: str) -> None:
    """F14."""
    jobs = {kind: arena.enqueue(task, tries=2, kind=kind)[0] for kind in RAISED}
    worker = arena.start_worker(concurrency=3, lease_seconds=LASTING_LEASE)
    arena.wait_for_end(jobs.values())

    afterwards = arena.enqueue("note", 3)
    arena.wait_for_end(afterwards)

    assert worker.status is None
    arena.verify()
    for kind, job_id in jobs.items():
        job = arena.job(job_id)
        assert (job.state, job.failures, job.crashes) == ("dead_letter", 2, 0), kind
        assert kind in str(job.error), job.error


@on_sqlite
def test_a_handler_that_will_not_stop_holds_its_own_slot_only(arena: Arena) -> None:
    """F15."""
    gate = arena.folder / "gate"
    stubborn = arena.enqueue("ignore_timeout", tries=1, gate=str(gate))
    stubborn += arena.enqueue("ignore_timeout_async", tries=1)
    stubborn += arena.enqueue("ignore_timeout_in_process", tries=1)
    worker = arena.start_worker(concurrency=4, prefetch=4, lease_seconds=LASTING_LEASE)
    arena.wait_for_end(stubborn)

    others = arena.enqueue("note", 20)
    arena.wait_for_end(others)

    assert not arena.notes("end")
    assert worker.status is None
    gate.touch()
    arena.wait(lambda: len(arena.notes("end")) == 1, "the stubborn one to end")
    arena.wait_for_end()
    arena.verify()
    assert {arena.job(job_id).state for job_id in stubborn} == {"dead_letter"}
    assert all("timeout" in str(arena.job(job_id).error) for job_id in stubborn)


def test_a_commit_after_the_attempts_timeout_is_refused(arena: Arena) -> None:
    """F15: the timeout is on record and another attempt has its turn, or had it."""
    gate = arena.folder / "gate"
    jobs = arena.enqueue("transfer_too_late", LATE, tries=LATE_TRIES, gate=str(gate))
    arena.start_worker(concurrency=4 * LATE, lease_seconds=LASTING_LEASE)
    arena.wait(lambda: {job.failures > 0 for job in arena.jobs(jobs).values()} == {True}, "all timeouts on record")

    gate.touch()
    arena.wait(lambda: late_ones(arena) == set(jobs), "all first attempts to be refused")
    arena.wait_for_end(jobs)

    evidence = arena.verify()
    assert {job.state for job in evidence.jobs.values()} == {"completed"}
    assert min(attempt for _, attempt in evidence.ledger) > 1


def test_a_commit_at_the_moment_of_the_attempts_timeout_counts_in_full_or_not_at_all(arena: Arena) -> None:
    """F15: the handler's transaction races with the record of its timeout; either may win."""
    jobs = arena.enqueue("transfer_too_late", LATE, tries=LATE_TRIES, gate="")
    arena.start_worker(concurrency=4 * LATE, lease_seconds=LASTING_LEASE)
    arena.wait_for_end(jobs)
    arena.wait(lambda: late_ones(arena) | timely_ones(arena) == set(jobs), "all first attempts to commit or be refused")

    evidence = arena.verify()
    assert {job.state for job in evidence.jobs.values()} == {"completed"}
    assert not late_ones(arena) & timely_ones(arena)


def late_ones(arena: Arena) -> set[str]:
    """Jobs whose first attempt was refused."""
    return {note.job_id for note in arena.notes("lease lost") if note.attempt == 1}


def timely_ones(arena: Arena) -> set[str]:
    """Jobs whose first attempt has committed its effect."""
    return {str(job_id) for (job_id,) in arena.backend.rows("select job_id from ledger where attempt = 1")}


@on_sqlite
def test_a_slot_that_was_stuck_is_used_again(arena: Arena) -> None:
    """The other slot is taken all the while: a worker all of whose slots are stuck stops."""
    gate, other_gate = arena.folder / "gate", arena.folder / "other"
    stubborn = arena.enqueue("ignore_timeout", tries=1, gate=str(gate))
    arena.enqueue("note_at_gate", gate=str(other_gate))
    arena.start_worker(concurrency=2, prefetch=2, lease_seconds=LASTING_LEASE)
    arena.wait(lambda: len(arena.notes("start")) == 2, "both to start")
    arena.wait_for_end(stubborn)
    others = arena.enqueue("note", 6)
    arena.wait(lambda: any(job.state == "running" for job in arena.jobs(others).values()), "one to wait for the slot")

    gate.touch()
    arena.wait_for_end(others)
    assert not arena.notes("effect", arena.jobs().keys() - set(others))
    other_gate.touch()
    arena.wait_for_end()

    arena.verify()


def test_a_job_whose_task_no_worker_knows_waits_for_one_that_does(arena: Arena) -> None:
    """F16."""
    known, unknown = arena.enqueue("note", 5), arena.enqueue("transfer", 5)
    arena.start_worker(tasks=["note"])
    arena.wait_for_end(known)

    # After a slow claim, the worker moves jobs of unknown tasks out of its way.
    assert {(job.state, job.attempt) for job in arena.jobs(unknown).values()} <= {("queued", 0), ("blocked", 0)}
    arena.start_worker(tasks=["transfer"])
    arena.wait_for_end(unknown)

    arena.verify()
