"""F11, F12: workers are asked to stop at bad times, with too little time, and twice."""

from __future__ import annotations

import signal
import time

import pytest

from tests.depth import sized
from tests.fault.arena import LASTING_LEASE, Arena

STARTUP_SECONDS = 0.5
HANDLER_SECONDS = 600
ENDED_SECONDS = 120
"""A deadline, not an expectation: far less than the handlers take, and enough for a busy machine."""
ROUNDS = sized(3, 8)


def test_jobs_that_outlast_the_shutdown_are_released_and_not_failed(arena: Arena) -> None:
    """F11: then SIGKILL for good measure."""
    gate = arena.folder / "gate"
    jobs = arena.enqueue("transfer_until_stopped", 3, seconds=HANDLER_SECONDS)
    jobs += arena.enqueue("transfer_until_stopped_async", 3, seconds=HANDLER_SECONDS)
    stubborn = arena.enqueue("transfer_at_gate", 2, gate=str(gate))
    worker = arena.start_worker(shutdown_timeout_seconds=0.3, lease_seconds=LASTING_LEASE)
    arena.wait(lambda: len(arena.notes("start")) == len(jobs) + len(stubborn), "all to start")

    worker.terminate()
    assert worker.wait(ENDED_SECONDS) == 0

    left = arena.jobs()
    assert {(job.state, job.failures, job.crashes, job.owner) for job in left.values()} == {("queued", 0, 0, None)}
    arena.start_worker(tasks=["transfer_at_gate"], lease_seconds=LASTING_LEASE)
    arena.wait_for_end(stubborn)
    assert {job.attempt for job in arena.jobs(stubborn).values()} == {2}


def test_a_second_signal_speeds_up_the_shutdown(arena: Arena) -> None:
    jobs = arena.enqueue("transfer_until_stopped_async", 3, seconds=HANDLER_SECONDS)
    worker = arena.start_worker(shutdown_timeout_seconds=HANDLER_SECONDS, lease_seconds=LASTING_LEASE)
    arena.wait(lambda: len(arena.notes("start")) == len(jobs), "all to start")
    worker.terminate()
    arena.wait(lambda: "stopping" in worker.logged(), "the worker to notice")

    worker.terminate()

    assert worker.wait(ENDED_SECONDS) == 0
    assert {job.state for job in arena.jobs().values()} == {"queued"}


def test_a_worker_may_be_asked_to_stop_at_any_moment_of_its_start(arena: Arena) -> None:
    """F12: during start-up, during its first claim, once or twice; it ends in time and keeps nothing."""
    jobs = arena.enqueue("transfer", 400) + arena.enqueue("note", 400)
    workers = []
    for number in range(ROUNDS):
        worker = arena.start_worker(shutdown_timeout_seconds=60, lease_seconds=LASTING_LEASE)
        workers.append(worker)
        time.sleep(arena.random.uniform(0, STARTUP_SECONDS))  # the moment is what is tried here
        worker.terminate()
        if number % 2:
            worker.terminate()
    fates = {worker.wait(ENDED_SECONDS) for worker in workers}

    # A signal before its handler is installed ends the process at once, which is fine, too.
    assert fates <= {0, -signal.SIGTERM}
    assert not [job for job in arena.jobs().values() if job.state == "running"]
    arena.start_worker(lease_seconds=LASTING_LEASE)
    arena.wait_for_end(jobs)
    evidence = arena.verify()
    assert {job.crashes for job in evidence.jobs.values()} == {0}


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_worker_that_is_killed_while_it_stops_loses_nothing(arena: Arena) -> None:
    gate = arena.folder / "gate"
    jobs = arena.enqueue("transfer_at_gate", 3, gate=str(gate))
    worker = arena.start_worker(shutdown_timeout_seconds=HANDLER_SECONDS, lease_seconds=LASTING_LEASE)
    arena.wait(lambda: len(arena.notes("at gate")) == len(jobs), "all at the gate")
    worker.terminate()
    arena.wait(lambda: "stopping" in worker.logged(), "the worker to notice")

    worker.kill()
    worker.wait()
    arena.end_leases(jobs)
    arena.start_worker(lease_seconds=LASTING_LEASE)
    arena.wait_for_end(jobs)

    evidence = arena.verify()
    assert {(job.state, job.crashes) for job in evidence.jobs.values()} == {("completed", 1)}
