"""Counts that differ from the rows are found, reported and repaired, concurrently and while jobs move."""

from __future__ import annotations

from typing import Any

from stagepost.database.statement import Operation
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store import settling
from stagepost.store.counting import PARTS, Drift, find_drift, fold, repair
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.counts import counted, kept
from tests.conformance.samples import QUEUE, claim, enqueue, finish, running


def plant_drift(store: Bench) -> None:
    """A queue has a job too many, another one too few, and a third counts jobs it never had."""
    for queue_name in (QUEUE, "fax"):
        enqueue(store, queue_name=queue_name)
        enqueue(store, queue_name=queue_name, delay_us=5)
    finish(store, Completed())
    store.run(fold())
    store.rows(
        "update stagepost_count set jobs = jobs + 2 where scope = :mail and class = 'completed'", mail=f"queue:{QUEUE}"
    )
    store.rows("delete from stagepost_count where scope = :fax and class = 'active'", fax="queue:fax")
    store.rows("insert into stagepost_count (scope, class, jobs) values (:scope, 'blocked', 3)", scope="queue:pigeon")


def recount(store: Bench) -> list[Drift]:
    return [drift for part in PARTS for drift in store.run(repair(part))]


def test_planted_drift_is_found_and_repaired(store: Bench) -> None:
    plant_drift(store)
    expected = [
        Drift("queue:fax", "active", counted=0, found=1),
        Drift("queue:pigeon", "blocked", counted=3, found=0),
        Drift(f"queue:{QUEUE}", "completed", counted=3, found=1),
    ]

    assert [drift for part in PARTS for drift in store.run(find_drift(part))] == expected
    assert recount(store) == expected
    assert recount(store) == []
    assert kept(store) == counted(store)


def test_moves_that_are_not_folded_are_no_drift(store: Bench) -> None:
    enqueue(store)
    running(store, queue_name=QUEUE, priority=99)
    finish(store, Completed())

    assert recount(store) == []


def test_drift_found_by_several_at_once_is_repaired_once(blocking_store: Bench) -> None:
    plant_drift(blocking_store)

    found = blocking_store.race(*(repair(None) for _ in range(4)))

    assert sorted(len(drifts) for drifts in found) == [0, 0, 0, 2]
    assert recount(blocking_store) == [Drift(f"queue:{QUEUE}", "completed", counted=3, found=1)]


def test_a_recount_while_jobs_move_finds_nothing_wrong(blocking_store: Bench) -> None:
    store = blocking_store
    for _ in range(12):
        enqueue(store)
        [job] = claim(store)

        operations: list[Operation[Any]] = [
            find_drift(None),
            find_drift(JobState.COMPLETED),
            settling.settle([Settlement.of(job, Completed())]),
            fold(),
        ]

        assert store.race(*operations)[:2] == [[], []]
