"""Batches of sample jobs."""

from __future__ import annotations

from typing import Any

import msgspec

from stagepost.model.batch import BatchRow, Item, NewBatch, item_id
from stagepost.model.identity import new_id
from stagepost.model.outcome import Completed, Outcome
from stagepost.store import batches, listing, settling
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.samples import claim, new_job

REFUSED = "no sound in file 7"
TOLD = msgspec.json.encode(new_job(queue_name="told")).decode()
"""A job to enqueue when a batch is done or a gate opens."""


def new_batch(key: str = "upload:42", **changes: Any) -> NewBatch:
    """A batch as code declares it."""
    return NewBatch(**({"id": new_id(), "key": key} | changes))


def opened(store: Bench, key: str = "upload:42", **changes: Any) -> BatchRow:
    """Store an empty batch."""
    return store.run(batches.open_batch(new_batch(key, **changes)))


def items(number: int, *, first: int = 0, **changes: Any) -> list[Item]:
    """Items with the keys f0, f1 and so on."""
    return [Item(f"f{at}", new_job(**changes)) for at in range(first, first + number)]


def filled(store: Bench, number: int, key: str = "upload:42", **changes: Any) -> BatchRow:
    """Store a batch with items."""
    batch = opened(store, key, **changes)
    store.run(batches.add_items(batch.id, items(number)))
    return batch


def end(store: Bench, number: int, outcome: Outcome | None = None) -> list[str]:
    """Run the next jobs, all with one outcome; returns the ids of their batches, which the caller concludes."""
    jobs = claim(store, slots=number)
    assert len(jobs) == number
    held = store.run(settling.settle([Settlement.of(job, outcome or Completed()) for job in jobs]))
    assert all(held.values())
    return [job.batch_id or "" for job in jobs]


def item_ids(batch: BatchRow, *keys: str) -> list[str]:
    """The ids of the items' jobs, sorted as operations return them."""
    return sorted(item_id(batch.id, key) for key in keys)


def told(store: Bench) -> int:
    """How many jobs that announce a completion or an opening were enqueued, live or ended."""
    return len(store.run(listing.list_jobs(queue_name="told", most=1000)))
