"""Unique keys that outlive their job because its row was deleted by hand: upkeep frees exactly those."""

from __future__ import annotations

import asyncio
import logging

import pytest

from stagepost.database.async_store import AsyncStore
from stagepost.model.job import Enqueued
from stagepost.model.lifecycle import JobState
from stagepost.model.outcome import Completed
from stagepost.store import jobs
from stagepost.store.unique_keys import free_stale_keys
from stagepost.upkeep import pruner
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.pruner import Pruner
from tests.conformance.bench import Bench
from tests.conformance.samples import enqueue, finish, new_job


def delete_by_hand(store: Bench, *job_ids: str) -> None:
    for job_id in job_ids:
        store.edit("delete from stagepost_job where id = :id", id=job_id)


def free_all(store: Bench, *, most: int = 1000) -> int:
    """Page through all keys; returns how many were freed."""
    freed, after = 0, ""
    while (page := store.run(free_stale_keys(after=after, most=most))).until is not None:
        freed, after = freed + page.freed, page.until
    return freed


def test_the_key_of_a_job_deleted_by_hand_can_be_used_again(store: Bench) -> None:
    gone = [enqueue(store, unique_key=f"letter:{number}") for number in (1, 3, 4)]
    kept = [enqueue(store, unique_key=f"letter:{number}") for number in (2, 5)]
    delete_by_hand(store, *gone)

    freed = free_all(store, most=2)

    assert freed == (3 if store.dialect.name == "mysql" else 0)  # elsewhere a key is part of its job's row
    for number in (1, 3, 4):
        assert store.run(jobs.enqueue(new_job(unique_key=f"letter:{number}"))).is_new
    for number, holder in zip((2, 5), kept, strict=True):
        again = store.run(jobs.enqueue(new_job(unique_key=f"letter:{number}")))
        assert again == Enqueued(holder, is_new=False)


def test_keys_of_jobs_that_live_or_have_ended_are_left_as_they_are(store: Bench) -> None:
    enqueue(store, unique_key="ended")
    finish(store, Completed())
    ended = store.run(jobs.enqueue(new_job(unique_key="ended")))
    scheduled = enqueue(store, unique_key="scheduled", delay_us=10**9)

    assert free_all(store) == 0
    assert store.run(jobs.get(ended.id)).state is JobState.QUEUED
    assert not store.run(jobs.enqueue(new_job(unique_key="ended"))).is_new
    assert store.run(jobs.enqueue(new_job(unique_key="scheduled"))).id == scheduled


@pytest.mark.parametrize("number", [1, 3])
def test_the_key_of_a_transaction_that_is_still_open_is_not_freed(blocking_store: Bench, number: int) -> None:
    """Its job may not be inserted yet, and is seen by nobody else."""
    store = blocking_store
    if not store.dialect.has_row_locks:
        pytest.skip("one writer at a time")
    asked = [new_job(unique_key=f"letter:{place}") for place in range(number)]
    [other] = store.database.racers(1)
    with store.transaction() as connection:
        store.database.store.drive(jobs.enqueue_many(asked), connection)
        other.run(free_stale_keys())
    assert [store.run(jobs.enqueue(new_job(unique_key=job.unique_key))) for job in asked] == [
        Enqueued(job.id, is_new=False) for job in asked
    ]


def test_a_key_that_a_restart_is_taking_is_not_freed(blocking_store: Bench) -> None:
    """The restart has found the key under its own id and holds its row; the job is not committed yet."""
    store = blocking_store
    if store.dialect.name != "mysql":
        pytest.skip("elsewhere a key is part of its job's row")
    job_id = enqueue(store, unique_key="letter:1")
    finish(store, Completed())
    store.rows("insert into stagepost_live_key (unique_key, job_id) values ('letter:1', :id)", id=job_id)
    [other] = store.database.racers(1)
    with store.transaction() as connection:
        store.database.store.drive(jobs.restart([job_id], actor="ada"), connection)
        assert other.run(free_stale_keys()).freed == 0

    assert store.run(jobs.enqueue(new_job(unique_key="letter:1"))) == Enqueued(job_id, is_new=False)


def test_upkeep_frees_them_a_few_pages_at_a_time_and_says_so(
    blocking_store: Bench,
    own_store: AsyncStore,
    leader: Leader,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = blocking_store
    monkeypatch.setattr(pruner, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(pruner, "KEY_PAGES", 2)
    gone = [enqueue(store, unique_key=f"letter:{number}") for number in range(9)]
    delete_by_hand(store, *gone)
    upkeep = Pruner(own_store, leader, history_days=1)

    async def run() -> None:
        for _ in range(3):
            assert await leader.run_once()
            await upkeep.run_once()

    with caplog.at_level(logging.WARNING, "stagepost"):
        asyncio.run(run())

    told = [record.args for record in caplog.records if "unique keys" in record.msg]
    assert told == ([(4,), (4,), (1,)] if store.dialect.name == "mysql" else [])
    assert all(store.run(jobs.enqueue(new_job(unique_key=f"letter:{number}"))).is_new for number in range(9))
