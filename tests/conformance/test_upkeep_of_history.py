"""The upkeep loop that deletes old history, on every database."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from stagepost.database.async_store import AsyncStore
from stagepost.loops.signals import Signals
from stagepost.model.outcome import Completed
from stagepost.model.rate import RateLimit
from stagepost.store.events import read_events, stream
from stagepost.store.rates import take_tokens
from stagepost.upkeep import pruner
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.pruner import Pruner
from tests.conformance.bench import Bench
from tests.conformance.samples import enqueue, finish

DAY = timedelta(days=1)


def fill(store: Bench) -> list[str]:
    """End three jobs and take of three buckets, let two days pass, and end one more job; returns its id."""
    for number in range(3):
        enqueue(store)
        finish(store, Completed("1"))
        store.run(take_tokens(RateLimit(f"provider-{number}", per_second=1), 1))
    store.clock.advance(2 * DAY)
    enqueue(store)
    return [finish(store, Completed("2")).id]


def kept_jobs(store: Bench) -> list[str]:
    return [str(job_id) for (job_id,) in store.rows("select id from stagepost_job_history")]


def prune(store: AsyncStore, leader: Leader, *, history_days: float) -> int:
    """One pass of one that leads still."""

    async def run() -> int:
        assert await leader.run_once()
        return await Pruner(store, leader, history_days=history_days).run_once()

    return asyncio.run(run())


def test_the_leader_deletes_history_older_than_the_retention_until_none_is_left(
    blocking_store: Bench, own_store: AsyncStore, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruner, "MOST_AT_ONCE", 2)
    new = fill(blocking_store)

    assert prune(own_store, leader, history_days=1) == 3
    assert kept_jobs(blocking_store) == new
    assert blocking_store.rows("select name from stagepost_rate") == []


def test_history_that_is_kept_for_ever_is_not_pruned(
    blocking_store: Bench, own_store: AsyncStore, leader: Leader
) -> None:
    fill(blocking_store)

    assert prune(own_store, leader, history_days=0) == 0
    assert len(kept_jobs(blocking_store)) == 4


def test_only_the_leader_deletes_history(blocking_store: Bench, own_store: AsyncStore) -> None:
    fill(blocking_store)
    follower = Leader(own_store, Signals(), owner="worker-b", clock=blocking_store.clock)

    assert asyncio.run(Pruner(own_store, follower, history_days=1).run_once()) == 0
    assert len(kept_jobs(blocking_store)) == 4
    assert len(blocking_store.rows("select name from stagepost_rate")) == 3


def test_jobs_that_no_worker_knows_are_reported(
    blocking_store: Bench, own_store: AsyncStore, leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    enqueue(blocking_store, task_name="send_telegram")
    blocking_store.clock.advance(timedelta(minutes=6))

    with caplog.at_level(logging.ERROR):
        prune(own_store, leader, history_days=1)

    assert "task 'send_telegram' wait in queue 'mail', and no running worker knows that task" in caplog.text


def test_the_leader_numbers_and_deletes_old_events(
    blocking_store: Bench, own_store: AsyncStore, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruner, "MOST_AT_ONCE", 2)
    new = fill(blocking_store)

    async def run(events_days: float) -> None:
        assert await leader.run_once()
        await Pruner(own_store, leader, history_days=0, events_days=events_days).run_once()

    asyncio.run(run(0))
    assert blocking_store.run(stream()) == (4, 0, False)
    asyncio.run(run(1))

    assert blocking_store.run(stream()) == (4, 3, False)
    assert [event.job_id for event in blocking_store.run(read_events())] == new


def test_the_leader_keeps_a_limited_number_of_events(
    blocking_store: Bench, own_store: AsyncStore, leader: Leader
) -> None:
    fill(blocking_store)

    async def run() -> None:
        assert await leader.run_once()
        await Pruner(own_store, leader, history_days=0, events_limit=2).run_once()

    asyncio.run(run())

    assert blocking_store.run(stream()) == (4, 2, False)
