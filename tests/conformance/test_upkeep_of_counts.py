"""The upkeep loops that fold moves and compare counts with rows, on every database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stagepost.database import Store
from stagepost.database.async_store import AsyncStore
from stagepost.loops.signals import Signals
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store.counting import PARTS, Drift, count_by_queue
from stagepost.upkeep import move_compactor, recounter
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.move_compactor import LONGEST_SECONDS, SHORTEST_SECONDS, MoveCompactor
from stagepost.upkeep.recounter import Recounter
from tests.conformance.bench import Bench
from tests.conformance.samples import QUEUE, enqueue, finish

ROUND = 3 * len(PARTS)
"""Passes of the recounter until all parts of the jobs are checked; batches and gates are checked after each part."""


def move_rows(store: Bench) -> int:
    [(moves,)] = store.rows("select count(*) from stagepost_move")
    return int(moves)


def test_the_leader_folds_all_moves_and_then_looks_less_and_less_often(
    blocking_store: Bench, own_store: AsyncStore, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move_compactor, "MOST_AT_ONCE", 2)
    service = MoveCompactor(own_store, leader, clock=blocking_store.clock)
    for _ in range(5):
        enqueue(blocking_store)

    assert asyncio.run(service.run_once()) == 5
    assert move_rows(blocking_store) == 0
    assert service.interval == SHORTEST_SECONDS
    intervals = []
    for _ in range(5):
        assert asyncio.run(service.run_once()) == 0
        intervals.append(service.interval)
    assert intervals == sorted(intervals)
    assert intervals[-1] == LONGEST_SECONDS


def test_folding_that_takes_long_is_done_seldom(
    blocking_store: Bench, own_store: AsyncStore, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = MoveCompactor(own_store, leader, clock=blocking_store.clock)
    enqueue(blocking_store)
    run = own_store.run

    async def slow(*arguments: object, **options: object) -> object:
        blocking_store.clock.advance(2)
        return await run(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(own_store, "run", slow)
    asyncio.run(service.run_once())

    assert service.interval == pytest.approx(40)


def test_only_the_leader_folds_and_recounts(blocking_store: Bench, own_store: AsyncStore) -> None:
    enqueue(blocking_store)
    bystander = Leader(own_store, Signals(), owner="worker-b", clock=blocking_store.clock)

    assert asyncio.run(MoveCompactor(own_store, bystander, clock=blocking_store.clock).run_once()) == 0
    assert asyncio.run(Recounter(own_store, bystander).run_once()) == []
    assert move_rows(blocking_store) == 1


@pytest.mark.parametrize("own_connection", [True, False])
def test_drift_is_reported_and_repaired_within_one_round_of_checks(
    blocking_store: Bench,
    own_store: AsyncStore,
    leader: Leader,
    caplog: pytest.LogCaptureFixture,
    own_connection: bool,
) -> None:
    enqueue(blocking_store)
    finish(blocking_store, Completed())
    blocking_store.rows("update stagepost_move set jobs = jobs + 4 where became = 'completed'")
    service = Recounter(
        own_store, leader, open_store=(lambda: Store.at(blocking_store.url, pool_size=1)) if own_connection else None
    )

    with caplog.at_level(logging.ERROR):
        drifts = [drift for _ in range(ROUND) for drift in asyncio.run(service.run_once())]

    assert sorted(drifts, key=repr) == [
        Drift(f"queue:{QUEUE}", "active", counted=-4, found=0),
        Drift(f"queue:{QUEUE}", "completed", counted=5, found=1),
    ]
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"queue:{QUEUE} counted -4 jobs as active, and has 0; the count is corrected",
        f"queue:{QUEUE} counted 5 jobs as completed, and has 1; the count is corrected",
    ]
    assert blocking_store.run(count_by_queue())[QUEUE][JobState.COMPLETED] == 1


def test_parts_that_take_too_long_to_recount_are_skipped(
    blocking_store: Bench, own_store: AsyncStore, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recounter, "MOST_ROWS", 2)
    for _ in range(3):
        enqueue(blocking_store)
    service = Recounter(own_store, leader)
    blocking_store.rows("update stagepost_move set jobs = 2 where became = 'active'")

    assert [asyncio.run(service.run_once()) for _ in range(ROUND)] == [[]] * ROUND
    monkeypatch.setattr(recounter, "MOST_ROWS", 9)
    assert sum(len(asyncio.run(service.run_once())) for _ in range(ROUND)) == 1


def test_batches_and_gates_are_checked_in_every_third_pass_even_if_another_check_fails(
    own_store: AsyncStore, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def noting(name: str, *, fails: bool = False) -> Callable[..., Coroutine[Any, Any, list[Drift]]]:
        async def check(*_part: JobState | None) -> list[Drift]:
            checked.append(name)
            if fails:
                raise OSError("the disk is full")
            return []

        return check

    monkeypatch.setattr(Recounter, "recount_jobs", staticmethod(noting("jobs", fails=True)))
    monkeypatch.setattr(Recounter, "recount_batches", staticmethod(noting("batches")))
    monkeypatch.setattr(Recounter, "recount_gates", staticmethod(noting("gates")))
    service = Recounter(own_store, leader)

    for _ in range(6):
        with contextlib.suppress(OSError):
            asyncio.run(service.run_once())

    assert checked == ["jobs", "batches", "gates"] * 2
