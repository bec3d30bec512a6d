"""Locks on rows of batches, taken in one order by all: a job, the batch of its children, the jobs in that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stagepost.database.statement import Statement, Statements, as_json
from stagepost.errors import BatchNotFound
from stagepost.model.batch import BatchKind, BatchRow, BatchState, OnFailed
from stagepost.model.lifecycle import JobState

__all__ = ["batch_of", "lock_batches", "lock_batches_of", "lock_parent", "locked", "locked_in_order", "stored"]


def stored(batch_id: str) -> Statements[BatchRow]:
    """Read a batch without a lock; there must be one."""
    rows = yield Statement("batch_of_id", {"id": batch_id})
    if not rows:
        raise BatchNotFound(batch_id)
    return batch_of(rows[0])


def locked(batch_id: str) -> Statements[BatchRow]:
    """Lock a batch's row; there must be one."""
    rows = yield Statement("lock_batch", {"id": batch_id})
    if not rows:
        raise BatchNotFound(batch_id)
    return batch_of(rows[0])


def locked_in_order(batch_id: str) -> Statements[BatchRow]:
    """Lock a batch's row, after that of the job that waits for it."""
    yield from lock_parent((yield from stored(batch_id)))
    return (yield from locked(batch_id))


def lock_parent(batch: BatchRow) -> Statements[None]:
    """Lock the job that waits for these children before their batch, as whoever settles or cancels that job does.

    One that runs is left alone: its handler may have it locked for as long as it likes.
    """
    if batch.kind is BatchKind.CHILDREN and batch.state is BatchState.SEALED:
        yield Statement("lock_job", {"id": batch.id})


def lock_batches_of(job_ids: Sequence[str]) -> Statements[dict[str, BatchRow]]:
    """Lock the batches of ended jobs before these are queued again or deleted; returns them by their ids.

    Then such a batch is done before that or stays unfinished until they have ended again, never done meanwhile.
    """
    rows = yield Statement("batches_of_ended_jobs", {"ids": as_json(job_ids)})
    return (yield from lock_batches(str(batch_id) for (batch_id,) in rows))


def lock_batches(batch_ids: Iterable[str]) -> Statements[dict[str, BatchRow]]:
    """Lock these batches, all who lock several in the same order; returns those there are, by their ids."""
    batches: dict[str, BatchRow] = {}
    for batch_id in sorted(batch_ids):
        rows = yield Statement("batch_of_id", {"id": batch_id})
        if rows:
            yield from lock_parent(batch_of(rows[0]))
        # Not read does not mean that it is gone: it may have been made after the snapshot of a caller's transaction.
        for row in (yield Statement("lock_batch", {"id": batch_id})):
            batches[batch_id] = batch_of(row)
    return batches


def batch_of(row: tuple[Any, ...]) -> BatchRow:
    """Build a batch from the columns that all statements on batches share."""
    values = dict(zip(BatchRow.__struct_fields__, row, strict=True))
    values["id"], values["owner_id"] = str(values["id"]), values["owner_id"] and str(values["owner_id"])
    values["kind"], values["state"] = BatchKind(values["kind"]), BatchState(values["state"])
    values["on_failed"] = OnFailed(values["on_failed"])
    values["outcome"] = values["outcome"] and JobState(values["outcome"])
    return BatchRow(**values)
