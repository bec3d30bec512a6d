"""Locks batch rows. Every operation locks in the same order: a job, the batch of its children, the children."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stagepost.database.statement import Statement, Statements, as_json
from stagepost.errors import BatchNotFound
from stagepost.model.batch import BatchKind, BatchRow, BatchState, OnFailed
from stagepost.model.lifecycle import JobState

__all__ = ["batch_of", "lock_batches", "lock_batches_of", "lock_parent", "locked", "locked_in_order", "stored"]


def stored(batch_id: str) -> Statements[BatchRow]:
    """Read a batch without a lock, or raise BatchNotFound."""
    rows = yield Statement("batch_of_id", {"id": batch_id})
    if not rows:
        raise BatchNotFound(batch_id)
    return batch_of(rows[0])


def locked(batch_id: str) -> Statements[BatchRow]:
    """Lock and read a batch's row, or raise BatchNotFound."""
    rows = yield Statement("lock_batch", {"id": batch_id})
    if not rows:
        raise BatchNotFound(batch_id)
    return batch_of(rows[0])


def locked_in_order(batch_id: str) -> Statements[BatchRow]:
    """Lock a batch's row after the row of the job that waits for it."""
    yield from lock_parent((yield from stored(batch_id)))
    return (yield from locked(batch_id))


def lock_parent(batch: BatchRow) -> Statements[None]:
    """Lock the job that waits for a batch of children before the batch itself, as settling or cancelling it does.

    A running job is not locked: its handler's transaction may hold the row for as long as it runs.
    """
    if batch.kind is BatchKind.CHILDREN and batch.state is BatchState.SEALED:
        yield Statement("lock_job", {"id": batch.id})


def lock_batches_of(job_ids: Sequence[str]) -> Statements[dict[str, BatchRow]]:
    """Lock the batches of ended jobs before the jobs are restarted or deleted, and return the batches by id.

    The lock keeps a batch from becoming done in between: it either was done before, or waits for the restarted jobs.
    """
    rows = yield Statement("batches_of_ended_jobs", {"ids": as_json(job_ids)})
    return (yield from lock_batches(str(batch_id) for (batch_id,) in rows))


def lock_batches(batch_ids: Iterable[str]) -> Statements[dict[str, BatchRow]]:
    """Lock batches in the order of their ids, to prevent deadlocks, and return the existing ones by id."""
    batches: dict[str, BatchRow] = {}
    for batch_id in sorted(batch_ids):
        rows = yield Statement("batch_of_id", {"id": batch_id})
        if rows:
            yield from lock_parent(batch_of(rows[0]))
        # Lock it even if the read found nothing: the batch may be newer than the snapshot of a caller's transaction.
        for row in (yield Statement("lock_batch", {"id": batch_id})):
            batches[batch_id] = batch_of(row)
    return batches


def batch_of(row: tuple[Any, ...]) -> BatchRow:
    """Build a batch from the columns that every batch statement selects."""
    values = dict(zip(BatchRow.__struct_fields__, row, strict=True))
    values["id"], values["owner_id"] = str(values["id"]), values["owner_id"] and str(values["owner_id"])
    values["kind"], values["state"] = BatchKind(values["kind"]), BatchState(values["state"])
    values["on_failed"] = OnFailed(values["on_failed"])
    values["outcome"] = values["outcome"] and JobState(values["outcome"])
    return BatchRow(**values)
