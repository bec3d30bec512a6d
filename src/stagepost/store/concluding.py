"""Operations that end batches: seal them, conclude them, and resume the parent or run that waits."""

from __future__ import annotations

from typing import assert_never

from stagepost.database.statement import Statement, Statements, operation
from stagepost.model.batch import BatchKind, BatchRow, BatchState, NewBatch
from stagepost.store.batch_locks import lock_parent, locked, stored
from stagepost.store.batches import finish, open_batch
from stagepost.store.parents import resume_parent
from stagepost.store.run_steps import end_step

__all__ = ["conclude", "conclude_locked", "follow_up", "seal", "seal_key", "try_conclude"]


@operation
def conclude(batch_id: str) -> Statements[BatchRow]:
    """Mark a batch as done, once, if all its items have ended; then enqueue its completion job and open its gate.

    Workers call this after the commit that ended an item. Upkeep calls it for workers that died before they could.
    """
    yield from lock_parent((yield from stored(batch_id)))
    return (yield from conclude_locked(batch_id))


@operation
def try_conclude(batch_id: str) -> Statements[BatchRow | None]:
    """Conclude a batch as `conclude` does, or return None if another transaction holds the batch's row."""
    batch = yield from stored(batch_id)
    if batch.state is BatchState.DONE:
        return batch
    yield from lock_parent(batch)
    if not (yield Statement("try_lock_batch", {"id": batch_id})):
        return None
    return (yield from conclude_locked(batch_id))


@operation
def seal(batch_id: str) -> Statements[BatchRow]:
    """Close a batch to new items. If all its items have ended, it is done at once."""
    yield from locked(batch_id)
    yield Statement("seal_batch", {"id": batch_id})
    return (yield from conclude_locked(batch_id))


@operation
def seal_key(new: NewBatch, *, on_open: str | None = None) -> Statements[BatchRow]:
    """Seal the batch with this key. A batch that does not exist is created, and done at once because it is empty."""
    batch = yield from open_batch(new, on_open=on_open)
    return (yield from seal(batch.id))


def conclude_locked(batch_id: str) -> Statements[BatchRow]:
    """Conclude a batch whose row the caller has locked."""
    batch, counts = yield from finish(batch_id)
    if counts is None:
        return batch
    match batch.kind:
        case BatchKind.BATCH:
            pass
        case BatchKind.CHILDREN:
            yield from resume_parent(batch, counts)
        case BatchKind.STEP:
            yield from end_step(batch, counts)
        case _:
            assert_never(batch.kind)
    return (yield from locked(batch_id))


def follow_up(batch: BatchRow) -> str | None:
    """The batch to conclude next: if these were the last children of a job, the batch that the job is an item of."""
    is_over = batch.kind is BatchKind.CHILDREN and batch.state is BatchState.DONE
    return batch.owner_id if is_over else None
