"""F5: workers are killed again and again while thousands of jobs run, with limits and without."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from stagepost.store.jobs import restart
from stagepost.store.queues import set_limits
from tests.depth import sized
from tests.fault.arena import LASTING_LEASE, Arena
from tests.fault.nursery import WorkerProcess
from tests.fault.observations import LIMITS

WORKERS = 4
LIFE_SECONDS = (0.1, 0.5)
MIX = {"transfer": 6, "transfer_flaky": 2, "transfer_async": 1, "note": 4, "note_async": 4, "note_flaky": 2}
BACKLOG = 300
IDLE_US, GRACE_US = 60_000_000, 15_000_000
"""How long a job may be queued, or run without a lease, after the last kill; before, few live long enough to help."""
KILLS, KILLS_UNDER_LIMITS = sized(12, 200, 5000), sized(8, 25, 1000)
CRASH_COUNTS = 500
"""How often crashes are counted before the last kill, at most: each time the database reads every job."""
LIMITED_QUEUE, MOST_RUNNING = "limited", 4
TRANSFERS = ("transfer_two_at_once", "transfer_three_at_once")
"""Tasks under limits whose jobs last long enough to be seen in a sample."""


@pytest.mark.timeout(7200)
def test_endless_kills_lose_nothing_and_duplicate_nothing(arena: Arena) -> None:
    began = time.monotonic()
    with arena.sampling():
        kill_workers(arena, KILLS, keep_busy, hits=KILLS)
        stormed_us = round((time.monotonic() - began) * 1_000_000)
        arena.start_worker(lease_seconds=LASTING_LEASE)
        arena.start_worker(lease_seconds=LASTING_LEASE)
        arena.wait_for_end(seconds=120)

    limits = {"idle_us": stormed_us + IDLE_US, "grace_us": stormed_us + GRACE_US}
    arena.verify(**limits)
    complete_what_was_parked(arena)
    assert {job.state for job in arena.verify(**limits).jobs.values()} == {"completed"}


@pytest.mark.timeout(7200)
def test_no_limit_is_exceeded_while_workers_are_killed(arena: Arena) -> None:
    """A dead worker's jobs count until they are rescued, and not for longer."""
    queues = ["default", LIMITED_QUEUE]
    arena.operate(set_limits(LIMITED_QUEUE, max_running=MOST_RUNNING, rate=None, actor="the test"))
    began = time.monotonic()
    with arena.sampling(seconds=0.02):
        kill_workers(arena, KILLS_UNDER_LIMITS, keep_limits_busy, hits=KILLS_UNDER_LIMITS // 4, queues=queues)
        stormed_us = round((time.monotonic() - began) * 1_000_000)
        arena.start_worker(queues=queues, lease_seconds=LASTING_LEASE)
        arena.start_worker(queues=queues, lease_seconds=LASTING_LEASE)
        arena.wait_for_end(seconds=120)

    evidence = arena.verify(idle_us=stormed_us + IDLE_US, grace_us=stormed_us + GRACE_US)
    holding = {key: most.number for key, most in evidence.observed.holding.items()}
    assert holding == {task: LIMITS[task] for task in TRANSFERS}
    assert evidence.observed.running[LIMITED_QUEUE].number == MOST_RUNNING


def keep_limits_busy(arena: Arena) -> None:
    """More jobs than the limits let through, but not so many that they take long once the killing is over."""
    [(live,)] = arena.backend.rows("select count(*) from stagepost_job")
    if live < 40:
        arena.enqueue("transfer", 10, queue=LIMITED_QUEUE, seconds=0.05)
        for task in TRANSFERS:
            arena.enqueue(task, 10, seconds=0.05)


def kill_workers(arena: Arena, number: int, produce: Callable[[Arena], None], *, hits: int, **options: Any) -> None:
    """Keep some workers alive and busy, kill each after a random time; on until the kills have cost enough attempts.

    On a busy machine most would not live to see a job: they live longer while the kills hit too little.
    """
    workers: dict[WorkerProcess, float] = {}
    kills = crashes = counted_at = 0
    while kills < number or crashes < hits:
        produce(arena)
        longer = min(5.0, max(1.0, counted_at * hits / number - crashes))
        while len(workers) < WORKERS:
            workers[arena.start_worker(**options)] = time.monotonic() + arena.random.uniform(*LIFE_SECONDS) * longer
        time.sleep(max(0.0, min(workers.values()) - time.monotonic()))  # the moment is what is tried here
        for worker in [worker for worker, due in workers.items() if due <= time.monotonic()]:
            worker.kill()
            assert worker.wait() == -signal.SIGKILL, worker.logged()
            kills += 1
            del workers[worker]
        if kills >= number or kills >= counted_at + number // CRASH_COUNTS:
            crashes, counted_at = arena.crashes(), kills
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
