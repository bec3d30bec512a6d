"""Operations that end batches: seal, conclude, and what follows for the parent or the run that waits for the batch."""

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
    """Find out whether a batch is done and, if so, say it once: enqueue its completion job, open its gate.

    Workers call this after the commit that ended an item; upkeep calls it for workers that died before they could.
    """
    yield from lock_parent((yield from stored(batch_id)))
    return (yield from conclude_locked(batch_id))


@operation
def try_conclude(batch_id: str) -> Statements[BatchRow | None]:
    """Conclude as `conclude` does, unless somebody holds the batch's row: then nothing is done, and None returned."""
    batch = yield from stored(batch_id)
    if batch.state is BatchState.DONE:
        return batch
    yield from lock_parent(batch)
    if not (yield Statement("try_lock_batch", {"id": batch_id})):
        return None
    return (yield from conclude_locked(batch_id))


@operation
def seal(batch_id: str) -> Statements[BatchRow]:
    """Say that no more items will come; a batch whose items have all ended is done at once."""
    yield from locked(batch_id)
    yield Statement("seal_batch", {"id": batch_id})
    return (yield from conclude_locked(batch_id))


@operation
def seal_key(new: NewBatch, *, on_open: str | None = None) -> Statements[BatchRow]:
    """Seal the batch with this key; one that nobody added to is made, and done at once."""
    batch = yield from open_batch(new, on_open=on_open)
    return (yield from seal(batch.id))


def conclude_locked(batch_id: str) -> Statements[BatchRow]:
    """Conclude a batch as part of an operation that has locked it."""
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
    """Name the batch to conclude next: that of the parent whose children have all ended, if it is an item itself."""
    is_over = batch.kind is BatchKind.CHILDREN and batch.state is BatchState.DONE
    return batch.owner_id if is_over else None
