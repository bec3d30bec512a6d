"""F5: workers are killed again and again while thousands of jobs run."""

from __future__ import annotations

import signal
import time

import pytest

from stagepost.store.jobs import restart
from tests.fault.arena import Arena
from tests.fault.nursery import WorkerProcess

WORKERS = 4
LIFE_SECONDS = (0.1, 0.5)
MIX = {"transfer": 6, "transfer_flaky": 2, "transfer_async": 1, "note": 4, "note_async": 4, "note_flaky": 2}
BACKLOG = 300


@pytest.mark.parametrize("kills", [200, pytest.param(5000, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])])
def test_kills_without_end_lose_nothing_and_double_nothing(arena: Arena, kills: int) -> None:
    with arena.sampling():
        kill_workers(arena, kills)
        arena.start_worker()
        arena.start_worker()
        arena.wait_for_end(seconds=60)

    evidence = arena.verify(grace_us=4_000_000)
    crashes = sum(job.crashes for job in evidence.jobs.values())
    assert crashes > kills, f"{kills} kills cost {crashes} attempts: they hit too little"
    complete_what_was_parked(arena)
    assert {job.state for job in arena.verify(grace_us=4_000_000).jobs.values()} == {"completed"}


def kill_workers(arena: Arena, number: int) -> None:
    """Keep some workers alive and busy, kill each after a random time."""
    workers: dict[WorkerProcess, float] = {}
    kills = 0
    while kills < number:
        keep_busy(arena)
        while len(workers) < WORKERS:
            workers[arena.start_worker()] = time.monotonic() + arena.random.uniform(*LIFE_SECONDS)
        time.sleep(max(0.0, min(workers.values()) - time.monotonic()))  # the moment is what is tried here
        for worker in [worker for worker, due in workers.items() if due <= time.monotonic()]:
            worker.kill()
            assert worker.wait() == -signal.SIGKILL, worker.logged()
            kills += 1
            del workers[worker]
    for worker in workers:
        worker.kill()


def keep_busy(arena: Arena) -> None:
    [(live,)] = arena.backend.rows("select count(*) from stagepost_job")
    if live < BACKLOG:
        for task, weight in MIX.items():
            arena.enqueue(task, BACKLOG * weight // sum(MIX.values()))


def complete_what_was_parked(arena: Arena) -> None:
    """Jobs that three kills hit are dead letters, as promised; an operator can send them on."""
    parked = [job.id for job in arena.jobs().values() if job.state == "dead_letter"]
    if parked:
        arena.operate(restart(parked, actor="the test"))
        arena.wait_for_end(parked)
