"""F67 and counting in general: the numbers that are kept equal the rows at every moment, whoever dies."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from stagepost.database import Store
from stagepost.model.identity import new_id
from stagepost.model.job import NewJob
from stagepost.store.counting import PARTS, find_drift, fold
from stagepost.store.jobs import enqueue_many
from tests.depth import sized
from tests.fault.arena import Arena
from tests.fault.backends import SERVERS, Backend

TASKS = ("transfer", "transfer_flaky", "note_flaky")
RACERS, ROUNDS = 4, sized(3, 10)


def test_counts_are_exact_at_every_moment_while_workers_are_killed(arena: Arena) -> None:
    ids = [job_id for task in TASKS for job_id in arena.enqueue(task, 60)]
    with arena.sampling(seconds=0.05):
        arena.wait(lambda: arena.observed.samples > 0, "a sample before all work")
        for ended in (20, 60, 100):
            worker = arena.start_worker()
            arena.wait(partial(has_come_to, arena, ended, arena.observed.samples + 2), "some jobs to end")
            worker.kill()
        arena.start_worker()
        arena.wait_for_end(ids, seconds=120)
        arena.wait(lambda: not arena.backend.rows("select id from stagepost_move"), "all moves to be folded")
    arena.stop_workers()

    evidence = arena.verify()

    assert evidence.observed.samples > 5
    assert evidence.observed.stored > {0, len(ids)}


def has_come_to(arena: Arena, ended: int, samples: int) -> bool:
    return count_ended(arena) >= ended and arena.observed.samples >= samples


def count_ended(arena: Arena) -> int:
    [(ended,)] = arena.backend.rows("select count(*) from stagepost_job_history")
    return int(ended)


def test_concurrent_folding_loses_and_duplicates_nothing(backend: Backend) -> None:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(RACERS) as threads:
        stores = [stack.enter_context(contextlib.closing(Store.at(backend.url, pool_size=1))) for _ in range(RACERS)]
        for _ in range(ROUNDS):
            for number in range(30):
                stores[0].run(
                    enqueue_many([NewJob(id=new_id(), task_name="t", payload="{}", queue_name=f"queue-{number % 3}")])
                )
            barrier = threading.Barrier(RACERS)

            def race(store: Store, barrier: threading.Barrier = barrier) -> int:
                barrier.wait(timeout=60)
                return store.run(fold(most=20))

            folded = list(threads.map(race, stores))

            assert sum(folded) + count_moves(backend) >= 30
            assert [store.run(find_drift(part)) for store, part in zip(stores, PARTS, strict=False)] == [[]] * RACERS


@pytest.mark.parametrize("backend", SERVERS, indirect=True)
def test_folding_skips_moves_that_another_process_is_folding(backend: Backend) -> None:
    with contextlib.closing(Store.at(backend.url, pool_size=2)) as store:
        for number in range(4):
            job = NewJob(id=new_id(), task_name="t", payload="{}", queue_name=f"queue-{number}")
            store.run(enqueue_many([job]))

        with store.transaction() as connection:
            folded = [store.drive(fold(most=2), connection), store.run(fold(most=4), patience_seconds=0)]

        assert folded == [2, 2]
        assert count_moves(backend) == 0
        assert store.run(find_drift(None)) == []


def count_moves(backend: Backend) -> int:
    [(moves,)] = backend.rows("select count(*) from stagepost_move")
    return int(moves)
