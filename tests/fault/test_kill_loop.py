"""F5: workers are killed again and again while thousands of jobs run."""

from __future__ import annotations

import signal
import time

from tests.fault.arena import Arena
from tests.fault.nursery import WorkerProcess

KILLS = 200
WORKERS = 4
MIX = {"transfer": 6, "transfer_flaky": 2, "transfer_async": 1, "note": 4, "note_async": 4, "note_flaky": 2}


def test_two_hundred_kills_lose_nothing_and_double_nothing(arena: Arena) -> None:
    asked = enqueue_mix(arena, 2000)

    with arena.sampling():
        kills = kill_workers(arena, KILLS)
        arena.start_worker()
        arena.start_worker()
        arena.wait_for_end(asked, seconds=60)

    assert kills == KILLS
    arena.verify(grace_us=3_000_000)


def enqueue_mix(arena: Arena, number: int) -> list[str]:
    tasks = arena.random.choices(list(MIX), weights=list(MIX.values()), k=number)
    return [job_id for task in MIX for job_id in arena.enqueue(task, tasks.count(task))]


def kill_workers(arena: Arena, number: int) -> int:
    """Keep some workers alive, kill each after a random time."""
    workers: dict[WorkerProcess, float] = {}
    kills = 0
    while kills < number:
        now = time.monotonic()
        for worker, due in list(workers.items()):
            if due <= now:
                worker.kill()
                assert worker.wait() == -signal.SIGKILL, worker.logged()
                kills += 1
                del workers[worker]
        while len(workers) < WORKERS:
            workers[arena.start_worker()] = time.monotonic() + arena.random.uniform(0.1, 0.5)
        time.sleep(max(0.0, min(workers.values()) - time.monotonic()))
    for worker in workers:
        worker.kill()
    return kills
