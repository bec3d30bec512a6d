"""Operations on batches: open, add items, finish when all items have ended, list, prune."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from stagepost.database.statement import Statement, Statements, as_json, operation, query
from stagepost.errors import BatchClosed, ConfigurationError
from stagepost.model.batch import (
    BatchKind,
    BatchRow,
    BatchState,
    Counts,
    Cursor,
    Item,
    NewBatch,
    id_range,
    is_finished,
    item_id,
    outcome_of,
)
from stagepost.model.job import NewJob, microseconds
from stagepost.store.batch_locks import batch_of, locked, stored
from stagepost.store.counting import batch_scope, count_items, removed_scope
from stagepost.store.gates import close_gate, count_started, open_gate
from stagepost.store.inserting import existing_ids
from stagepost.store.jobs import enqueue_many

__all__ = [
    "MOST_COUNTED",
    "Added",
    "add_items",
    "add_jobs",
    "add_to",
    "cancelled_batches",
    "count_unfinished_batches",
    "delete_batch",
    "find",
    "finish",
    "get",
    "idle_batches",
    "list_batches",
    "open_batch",
    "prune_batches",
    "unfinished_ids",
]

COMPLETION_KEY = "\0done"
"""Cannot collide with an item's key, which contains no NUL."""
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
MOST_COUNTED = 10_000
"""Unfinished batches of all kinds together are counted up to this number."""


class Added(msgspec.Struct, frozen=True):
    """How many items of a chunk were new, and where the batch's cursor is now."""

    new: int
    cursor: Cursor


@operation
def open_batch(new: NewBatch, *, on_open: str | None = None) -> Statements[BatchRow]:
    """Create a batch, or find the one that has its key. A new batch closes its gate, which enqueues `on_open` later."""
    rows = yield Statement("batch_of_key", {"batch_key": new.key})
    if not rows:
        if new.gate is not None:
            yield from close_gate(new.gate, on_open=on_open)
        first_id, last_id = id_range(new.id)
        yield Statement(
            "add_batch",
            {
                "id": new.id,
                "batch_key": new.key,
                "kind": new.kind,
                "gate": new.gate,
                "on_failed": new.on_failed,
                "owner_id": new.owner_id,
                "first_id": first_id,
                "last_id": last_id,
                "on_complete": new.on_complete,
            },
        )
        # Look by id first: a look by key would also lock the gap beside it on MariaDB.
        rows = yield Statement("lock_batch", {"id": new.id})
        if not rows:
            # A locking read: a plain one would miss what was committed after a caller's transaction took its snapshot.
            rows = yield Statement("lock_batch_of_key", {"batch_key": new.key})
        if new.gate is not None and str(rows[0][0]) == new.id:
            yield from count_started(new.gate)
    batch = batch_of(rows[0])
    if batch.gate != new.gate and new.gate is not None:
        raise ConfigurationError(
            f"batch {new.key!r} is under gate {batch.gate!r}, not {new.gate!r}. Use the gate it was made with."
        )
    return batch


@query
def find(key: str) -> Statements[BatchRow | None]:
    """Look up a batch by its key."""
    rows = yield Statement("batch_of_key", {"batch_key": key})
    return batch_of(rows[0]) if rows else None


@query
def get(batch_id: str) -> Statements[BatchRow]:
    """Look up a batch by its id, or raise BatchNotFound."""
    return (yield from stored(batch_id))


@query
def count_unfinished_batches() -> Statements[dict[BatchKind, int]]:
    """Count the batches that are not done, by kind, up to `MOST_COUNTED` of all kinds together."""
    rows = yield Statement("count_unfinished_batches", {"most": MOST_COUNTED})
    return {BatchKind(kind): number for kind, number in rows}


@query
def list_batches(
    *, state: BatchState | None = None, kind: BatchKind = BatchKind.BATCH, before: str | None = None, most: int = 50
) -> Statements[list[BatchRow]]:
    """List batches, newest first; `before` is the last id of the previous page."""
    filters: dict[str, Any] = {"kind": kind, "before": before or LAST_ID, "most": most}
    rows = yield Statement("list_batches", filters if state is None else {**filters, "state": state})
    return [batch_of(row) for row in rows]


@operation
def add_items(
    batch_id: str, items: Sequence[Item], *, cursor: Cursor | None = None, notify: bool = False
) -> Statements[Added]:
    """Add the items of a chunk that the batch does not have yet, as `add_jobs` does."""
    jobs = [item.in_batch(batch_id) for item in items]
    return (yield from add_jobs(batch_id, jobs, cursor=cursor, notify=notify))


@operation
def add_jobs(
    batch_id: str,
    items: Sequence[NewJob],
    *,
    cursor: Cursor | None = None,
    notify: bool = False,
    on_taken: Callable[[], None] = lambda: None,
) -> Statements[Added]:
    """Add the items of a chunk, made by `Item.in_batch`, that the batch does not have yet, and advance the cursor.

    The batch's row is locked first, so of two producers that add the same items one waits and then finds them added.
    Without `cursor` the position advances by the number of new items. A closed batch refuses new items but accepts the
    ones it has, so a producer can be run again from the start. `on_taken` is described at `enqueue_many`.
    """
    batch = yield from locked(batch_id)
    jobs = yield from _missing(items, sees_all=(yield from _sees_all_items(batch)))
    if not jobs:
        return Added(0, (yield from _moved(batch, items, cursor, new=0)))
    if batch.state is not BatchState.OPEN or batch.cancelled_at is not None:
        raise BatchClosed(batch.key, "cancelled" if batch.cancelled_at is not None else batch.state)
    yield from enqueue_many(jobs, notify=notify, are_new=True, on_taken=on_taken)
    return Added(len(jobs), (yield from _moved(batch, items, cursor, new=len(jobs))))


def _sees_all_items(batch: BatchRow) -> Statements[bool]:
    """Whether this transaction's snapshot, if it has one, includes the last chunk added.

    `batch` was read with a lock and is current. A read without a lock shows the snapshot's version.
    """
    rows = yield Statement("batch_of_id", {"id": batch.id})
    return bool(rows) and batch_of(rows[0]).position == batch.position


def _missing(items: Sequence[NewJob], *, sees_all: bool) -> Statements[list[NewJob]]:
    """Leave out items that the batch has, live or ended.

    Sorts the others by id, so that rows stored together are also claimed together.
    """
    jobs = {job.id: job for job in items}
    ids = sorted(jobs.keys() - (yield from existing_ids(jobs.keys())))
    if not sees_all and ids:
        ids = yield from _missing_now(ids)
    return [jobs[job_id] for job_id in ids]


def _missing_now(job_ids: Sequence[str]) -> Statements[list[str]]:
    """Look again with locking reads, which see commits newer than the snapshot of a caller's transaction."""
    ended = {str(row[0]) for row in (yield Statement("lock_ended_jobs", {"ids": as_json(job_ids)}))}
    missing = []
    for job_id in job_ids:
        if job_id not in ended and not (yield Statement("lock_job", {"id": job_id})):
            missing.append(job_id)
    return missing


def _moved(batch: BatchRow, items: Sequence[NewJob], cursor: Cursor | None, *, new: int) -> Statements[Cursor]:
    """Advance the cursor; it never moves back."""
    if cursor is None:
        cursor = Cursor(batch.position + new, items[-1].item_key if new else None)
    if cursor.position <= batch.position:
        return batch.cursor
    yield Statement("move_cursor", {"id": batch.id, "position": cursor.position, "cursor_key": cursor.key})
    return cursor


@operation
def add_to(
    new: NewBatch, items: Sequence[Item], *, on_open: str | None = None, notify: bool = False
) -> Statements[Added]:
    """Add items to the batch with this key, and create it if necessary."""
    batch = yield from open_batch(new, on_open=on_open)
    return (yield from add_items(batch.id, items, notify=notify))


class Finished(NamedTuple):
    """The result of `finish`."""

    batch: BatchRow
    """The batch before the change."""
    counts: Counts | None
    """How its items ended; None unless this transaction made the batch done."""


def finish(batch_id: str) -> Statements[Finished]:
    """Mark a sealed batch as done, once, if its items have ended; then enqueue its completion job and open its gate.

    The caller has locked the batch, and resumes the parent or run that waits for it.
    """
    batch = yield from locked(batch_id)
    if batch.state is not BatchState.SEALED:
        return Finished(batch, None)
    counts = yield from count_items(batch_id, is_full=False)
    is_cancelled = batch.cancelled_at is not None
    if not is_finished(batch.state, counts, batch.on_failed, is_cancelled=is_cancelled):
        return Finished(batch, None)
    yield Statement("finish_batch", {"id": batch_id, "outcome": outcome_of(counts, is_cancelled=is_cancelled)})
    if batch.on_complete is not None and batch.kind is not BatchKind.CHILDREN:
        yield from enqueue_later(batch.on_complete, item_id(batch_id, COMPLETION_KEY))
    if batch.gate is not None:
        yield from open_gate(batch.gate)
    return Finished(batch, counts)


def enqueue_later(template: str, job_id: str) -> Statements[None]:
    """Enqueue a job from its encoded template, under an id that makes a repeated call do nothing."""
    job = msgspec.json.decode(template, type=NewJob)
    job = msgspec.structs.replace(job, id=job_id, has_chosen_id=True)
    yield from enqueue_many([job], notify=True, are_derived=True)


@query
def idle_batches(*, after: str = "", most: int = 100) -> Statements[list[str]]:
    """List sealed batches without live items, which are ready to be concluded."""
    rows = yield Statement("idle_batches", {"after": after or NO_ID, "most": most})
    return [str(batch_id) for (batch_id,) in rows]


@query
def unfinished_ids(*, after: str = "", most: int = 100) -> Statements[list[str]]:
    """List open and sealed batches; `after` is the last id of the previous page."""
    rows = yield Statement("unfinished_ids", {"after": after or NO_ID, "most": most})
    return [str(batch_id) for (batch_id,) in rows]


@query
def cancelled_batches(*, after: str = "", most: int = 100) -> Statements[list[str]]:
    """List cancelled batches that may still have live items; `after` is the last id of the previous page."""
    rows = yield Statement("cancelled_batches", {"after": after or NO_ID, "most": most})
    return [str(batch_id) for (batch_id,) in rows]


@operation
def prune_batches(older_than: timedelta, *, most: int = 100) -> Statements[int]:
    """Delete batches done more than `older_than` ago whose items have been deleted, and return how many."""
    rows = yield Statement("lock_prunable_batches", {"older_us": microseconds(older_than), "most": most})
    for (batch_id,) in rows:
        yield from delete_batch(str(batch_id))
    return len(rows)


def delete_batch(batch_id: str) -> Statements[None]:
    """Delete a batch whose items have been deleted, with its counts."""
    # Moves before counts, the order in which folding locks them, to prevent deadlocks.
    scopes = {"scope": batch_scope(batch_id), "removed_scope": removed_scope(batch_id)}
    yield Statement("delete_batch", {"id": batch_id, **scopes})


NO_ID = "00000000-0000-0000-0000-000000000000"
