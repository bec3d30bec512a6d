"""F42: operators cancel, delete and edit jobs while they run."""

from __future__ import annotations

import pytest

from stagepost.store.cancelling import cancel_job
from tests.depth import quickly_on
from tests.fault.arena import LASTING_LEASE, STEADY_LEASE, Arena

STOPPABLE = ("transfer_until_stopped", "transfer_until_stopped_async", "transfer_until_stopped_in_process")


@quickly_on("postgres")
def test_a_running_job_that_is_cancelled_stops_and_leaves_nothing(arena: Arena) -> None:
    jobs = [arena.enqueue(task, seconds=600)[0] for task in STOPPABLE]
    worker = arena.start_worker(lease_seconds=STEADY_LEASE)  # with every third of it cancels are noticed
    arena.wait(lambda: len(arena.notes("start")) == len(jobs), "all to start")

    for job_id in jobs:
        arena.operate(cancel_job(job_id, actor="somebody"))
    arena.wait_for_end(jobs)

    arena.verify()
    assert {(job.state, job.attempt, job.crashes) for job in arena.jobs(jobs).values()} == {("cancelled", 1, 0)}
    assert worker.status is None


@pytest.mark.parametrize("way", ["killed", "told to stop"])
@quickly_on("postgres")
def test_a_cancel_request_outlives_the_worker_it_was_meant_for(arena: Arena, way: str) -> None:
    jobs = [arena.enqueue(task, seconds=600)[0] for task in STOPPABLE[:2]]
    worker = arena.start_worker(lease_seconds=LASTING_LEASE, shutdown_timeout_seconds=0.0)
    arena.wait(lambda: len(arena.notes("start")) == len(jobs), "all to start")

    arena.pause(worker)
    for job_id in jobs:
        arena.operate(cancel_job(job_id, actor="somebody"))
    worker.kill() if way == "killed" else worker.terminate()
    worker.resume()
    worker.wait()
    if way == "killed":
        arena.end_leases(jobs)
    arena.start_worker()
    arena.wait_for_end(jobs)

    arena.verify()
    assert {job.state for job in arena.jobs(jobs).values()} == {"cancelled"}


@pytest.mark.parametrize(
    "edit",
    [
        "delete from stagepost_job",
        "update stagepost_job set attempts = attempts + 1",
        "update stagepost_job set state = 'queued', locked_by = null, lease_until = null, max_attempts = 0",
    ],
    ids=["deleted", "attempt changed", "put back by hand"],
)
def test_an_attempt_whose_row_was_edited_is_refused_and_rolled_back(arena: Arena, edit: str) -> None:
    gate = arena.folder / "gate"
    jobs = arena.enqueue("transfer_at_gate", 3, queue="edited", gate=str(gate))
    worker = arena.start_worker(queues=["edited"], concurrency=3, prefetch=0, lease_seconds=LASTING_LEASE)
    arena.wait(lambda: len(arena.notes("at gate")) == len(jobs), "all at the gate")

    arena.backend.rows(edit)
    gate.touch()
    arena.wait(lambda: len(arena.notes("lease lost")) == len(jobs), "all to be refused")

    assert worker.status is None
    assert not {note.job_id for note in arena.notes("start") if note.attempt == 1} & {
        job_id for job_id, attempt in arena.backend.rows("select job_id, attempt from ledger") if attempt == 1
    }
