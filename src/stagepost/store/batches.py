"""Operations on batches: add items, seal, count, conclude; retry, waive and cancel items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from stagepost.errors import BatchClosed, BatchNotFound, ConfigurationError
from stagepost.model.batch import (
    Batch,
    BatchKind,
    BatchState,
    Counts,
    Cursor,
    Item,
    NewBatch,
    OnFailed,
    id_range,
    is_finished,
    item_id,
    outcome_of,
)
from stagepost.model.job import Job, NewJob, microseconds
from stagepost.model.lifecycle import Cause, JobState
from stagepost.store.counting import batch_scope, record_moves, states_of
from stagepost.store.gates import close_gate, count_begun, open_gate
from stagepost.store.jobs import audit, enqueue_many, restart
from stagepost.store.leases import settle
from stagepost.store.listing import list_jobs
from stagepost.store.parents import resume_parent
from stagepost.store.settlement import Settlement
from stagepost.store.statement import Statement, Steps, as_json, operation, query

__all__ = [
    "Added",
    "FailedGroup",
    "add_items",
    "add_jobs",
    "add_to",
    "cancel",
    "cancel_items",
    "cancelled_batches",
    "conclude",
    "count",
    "failed_groups",
    "find",
    "follow_up",
    "get",
    "idle_batches",
    "list_batches",
    "list_items",
    "open_batch",
    "prune_batches",
    "retry_failed",
    "seal",
    "seal_key",
    "try_conclude",
    "unfinished_ids",
    "waive",
]

COMPLETION_KEY = "\0done"
"""No item has it: keys are not empty and have no NUL."""
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class Added(msgspec.Struct, frozen=True):
    """What became of a chunk of items: how many were new, and how far the batch's cursor is now."""

    new: int
    cursor: Cursor


class FailedGroup(msgspec.Struct, frozen=True):
    """Failed items whose errors are alike."""

    reason: str | None
    task_name: str
    state: JobState
    items: int
    example_key: str
    last_at: int


@operation
def open_batch(new: NewBatch, *, on_open: str | None = None) -> Steps[Batch]:
    """Make a batch, or find the one that has its key; under a gate, close that, to enqueue `on_open` when it opens."""
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
        # A locking read: in a caller's transaction another would not show what was committed since that began.
        rows = yield Statement("lock_batch_of_key", {"batch_key": new.key})
        if new.gate is not None and str(rows[0][0]) == new.id:
            yield from count_begun(new.gate)
    batch = batch_of(rows[0])
    if batch.gate != new.gate and new.gate is not None:
        raise ConfigurationError(
            f"batch {new.key!r} is under gate {batch.gate!r}, not {new.gate!r}. Use the gate it was made with."
        )
    return batch


@query
def find(key: str) -> Steps[Batch | None]:
    """Look a batch up by its key."""
    rows = yield Statement("batch_of_key", {"batch_key": key})
    return batch_of(rows[0]) if rows else None


@query
def get(batch_id: str) -> Steps[Batch]:
    """Look a batch up by its id; there must be one."""
    rows = yield Statement("batch_of_id", {"id": batch_id})
    if not rows:
        raise BatchNotFound(batch_id)
    return batch_of(rows[0])


@query
def list_batches(
    *, state: BatchState | None = None, kind: BatchKind = BatchKind.BATCH, before: str | None = None, most: int = 50
) -> Steps[list[Batch]]:
    """List batches newest first; `before` is the last id of the page before this one."""
    filters: dict[str, Any] = {"kind": kind, "before": before or LAST_ID, "most": most}
    rows = yield Statement("list_batches", filters if state is None else {**filters, "state": state})
    return [batch_of(row) for row in rows]


@operation
def add_items(
    batch_id: str, items: Sequence[Item], *, cursor: Cursor | None = None, tell: bool = False
) -> Steps[Added]:
    """Add a chunk of items, those that are not in yet, and move the cursor, as `add_jobs` does."""
    jobs = [item.in_batch(batch_id) for item in items]
    return (yield from add_jobs(batch_id, jobs, cursor=cursor, tell=tell).start())


@operation
def add_jobs(
    batch_id: str, items: Sequence[NewJob], *, cursor: Cursor | None = None, tell: bool = False
) -> Steps[Added]:
    """Add a chunk of items, as `Item.in_batch` makes them, those that are not in yet, and move the cursor.

    The batch's row is locked first: of two producers that add the same items one waits, and then finds them in.
    Without a cursor of the caller's it moves by as many as were new. A batch that is closed refuses new items, but
    not those that it has: a producer that is repeated from the start finds all well.
    """
    batch = yield from _locked(batch_id)
    jobs = yield from _missing(items)
    if not jobs:
        return Added(0, (yield from _moved(batch, items, cursor, new=0)))
    if batch.state is not BatchState.OPEN or batch.cancelled_at is not None:
        raise BatchClosed(batch.key, "cancelled" if batch.cancelled_at is not None else batch.state)
    yield from enqueue_many(jobs, tell=tell, are_new=True).start()
    return Added(len(jobs), (yield from _moved(batch, items, cursor, new=len(jobs))))


def _missing(items: Sequence[NewJob]) -> Steps[list[NewJob]]:
    """Leave out items that are in, live or ended.

    In the order of their ids: then rows that lie together in the table are also claimed together.
    """
    jobs = {job.id: job for job in items}
    ids = sorted(jobs)
    known = yield Statement("known_jobs", {"ids": as_json(ids)})
    if known:
        out = {str(job_id) for (job_id,) in known}
        ids = [job_id for job_id in ids if job_id not in out]
    return [jobs[job_id] for job_id in ids]


def _moved(batch: Batch, items: Sequence[NewJob], cursor: Cursor | None, *, new: int) -> Steps[Cursor]:
    """Move the cursor on, never back."""
    if cursor is None:
        cursor = Cursor(batch.position + new, items[-1].item_key if new else None)
    if cursor.position <= batch.position:
        return batch.cursor
    yield Statement("move_cursor", {"id": batch.id, "position": cursor.position, "cursor_key": cursor.key})
    return cursor


@operation
def seal(batch_id: str) -> Steps[Batch]:
    """Say that no more items will come; a batch whose items have all ended is done at once."""
    yield from _locked(batch_id)
    yield Statement("seal_batch", {"id": batch_id})
    return (yield from _conclude(batch_id))


@operation
def add_to(new: NewBatch, items: Sequence[Item], *, on_open: str | None = None, tell: bool = False) -> Steps[Added]:
    """Add items to the batch with this key; the first make it."""
    batch = yield from open_batch(new, on_open=on_open).start()
    return (yield from add_items(batch.id, items, tell=tell).start())


@operation
def seal_key(new: NewBatch, *, on_open: str | None = None) -> Steps[Batch]:
    """Seal the batch with this key; one that nobody added to is made, and done at once."""
    batch = yield from open_batch(new, on_open=on_open).start()
    return (yield from seal(batch.id).start())


@operation
def try_conclude(batch_id: str) -> Steps[Batch | None]:
    """Conclude as `conclude` does, unless somebody holds the batch's row: then nothing is done, and None returned."""
    batch = yield from get(batch_id).start()
    if batch.state is BatchState.DONE:
        return batch
    yield from _lock_parent(batch)
    if not (yield Statement("try_lock_batch", {"id": batch_id})):
        return None
    return (yield from _conclude(batch_id))


@operation
def conclude(batch_id: str) -> Steps[Batch]:
    """Find out whether a batch is done and, if so, say it once: enqueue its completion job, open its gate.

    Whoever ends an item calls this after its commit; upkeep does for those who could not.
    """
    yield from _lock_parent((yield from get(batch_id).start()))
    return (yield from _conclude(batch_id))


def _conclude(batch_id: str) -> Steps[Batch]:
    batch = yield from _locked(batch_id)
    if batch.state is not BatchState.SEALED:
        return batch
    counts = yield from _count(batch_id)
    is_cancelled = batch.cancelled_at is not None
    if not is_finished(batch.state, counts, batch.on_failed, is_cancelled=is_cancelled):
        return batch
    yield Statement("finish_batch", {"id": batch_id, "outcome": outcome_of(counts, is_cancelled=is_cancelled)})
    if batch.on_complete is not None and batch.kind is not BatchKind.CHILDREN:
        yield from enqueue_later(batch.on_complete, item_id(batch_id, COMPLETION_KEY))
    if batch.gate is not None:
        yield from open_gate(batch.gate)
    yield from _tell_owner(batch, counts)
    return (yield from _locked(batch_id))


def _tell_owner(batch: Batch, counts: Counts) -> Steps[None]:
    """Let whoever waits for the items go on, in the transaction that ends the batch."""
    if batch.kind is BatchKind.CHILDREN:
        yield from resume_parent(batch, counts)
    if batch.kind is BatchKind.STEP:
        from stagepost.store.runs import end_step  # noqa: PLC0415 - the two know each other

        yield from end_step(batch, counts)


def follow_up(batch: Batch) -> str | None:
    """Name the batch to conclude next: that of the parent whose children have all ended, if it is an item itself."""
    is_over = batch.kind is BatchKind.CHILDREN and batch.state is BatchState.DONE
    return batch.owner_id if is_over else None


def enqueue_later(template: str, job_id: str) -> Steps[None]:
    """Enqueue a job that was encoded before, under an id that makes it once."""
    job = msgspec.json.decode(template, type=NewJob)
    yield from enqueue_many([msgspec.structs.replace(job, id=job_id)], tell=True).start()


@query
def count(batch_id: str) -> Steps[Counts]:
    """Count a batch's items by state, exactly as they are at one moment."""
    return (yield from _count(batch_id))


def _count(batch_id: str) -> Steps[Counts]:
    rows = yield Statement("count_batch", {"scope": batch_scope(batch_id), "id": batch_id})
    classes: Counter[str] = Counter()
    for name, jobs in rows:
        classes[name] += int(jobs)
    return Counts(**{state.value: number for state, number in states_of(classes).items()})


@query
def list_items(
    batch_id: str, *, states: Sequence[JobState] = (), before: str | None = None, most: int = 50
) -> Steps[list[Job]]:
    """List a page of items; `before` is the last id of the page before this one."""
    return (yield from list_jobs(states=states, batch_id=batch_id, before=before, most=most).start())


@query
def failed_groups(batch_id: str, *, most: int = 100) -> Steps[list[FailedGroup]]:
    """Group failed items by their reason, the most frequent first."""
    rows = yield Statement("group_failed_items", {**_range(batch_id), "most": most})
    return [FailedGroup(reason, task, JobState(state), *rest) for reason, task, state, *rest in rows]


@operation
def retry_failed(
    batch_id: str, *, actor: str, keys: Sequence[str] | None = None, after: str = "", most: int = 500
) -> Steps[list[str]]:
    """Queue failed items again: those with these keys, or the next so many after an id; returns their ids."""
    yield from _locked_in_order(batch_id)
    ids = yield from _chosen(batch_id, keys, after=after, most=most)
    if ids:
        yield from restart(ids, actor=actor).start()
    return ids


@operation
def waive(
    batch_id: str, *, actor: str, why: str, keys: Sequence[str] | None = None, after: str = "", most: int = 500
) -> Steps[list[str]]:
    """Let a batch go on without failed items: those with these keys, or the next so many after an id."""
    yield from _locked_in_order(batch_id)
    ids = yield from _chosen(batch_id, keys, after=after, most=most)
    rows = yield Statement("waive_jobs", {"ids": as_json(ids)})
    yield from record_moves((queue, batch, was, JobState.WAIVED) for _, queue, batch, was in rows)
    for job_id, *_ in rows:
        yield from audit(actor, Cause.WAIVE, str(job_id), detail=why).start()
    yield from _conclude(batch_id)
    return ids


def _chosen(batch_id: str, keys: Sequence[str] | None, *, after: str, most: int) -> Steps[list[str]]:
    if keys is None:
        rows = yield Statement(
            "failed_items", {**_range(batch_id), "after": after or id_range(batch_id)[0], "most": most}
        )
        return [str(job_id) for (job_id,) in rows]
    ids = sorted(item_id(batch_id, key) for key in keys)
    rows = yield Statement("lock_ended_jobs", {"ids": as_json(ids)})
    return [str(row[0]) for row in rows if row[1] in {JobState.FAILED, JobState.DEAD_LETTER}]


@operation
def cancel(batch_id: str, *, actor: str) -> Steps[Batch]:
    """Take no more items and end those there are; `cancel_items` goes on until none lives."""
    batch = yield from _locked_in_order(batch_id)
    if batch.state is BatchState.DONE or batch.cancelled_at is not None:
        return batch
    yield Statement("cancel_batch", {"id": batch_id})
    yield Statement("seal_batch", {"id": batch_id})
    yield from audit(actor, Cause.CANCEL, batch.key).start()
    return (yield from _conclude(batch_id))


@operation
def cancel_items(batch_id: str, *, after: str = "", most: int = 500) -> Steps[str | None]:
    """End the next live items of a cancelled batch, ask running ones to stop; returns where to go on, or None."""
    yield from _locked_in_order(batch_id)
    yield Statement("stop_running_items", _range(batch_id))
    yield Statement("cancel_running_trees", _range(batch_id))
    first = after or id_range(batch_id)[0]
    rows = yield Statement("lock_live_items", {**_range(batch_id), "after": first, "most": most})
    waiting = [str(job_id) for job_id, _, _, state in rows if state == JobState.WAITING]
    for job_id in waiting:  # they end when their children have
        yield Statement("cancel_batch", {"id": job_id})
        yield Statement("seal_batch", {"id": job_id})
    changes = [
        Settlement.of_state(str(job_id), attempt, owner, JobState.CANCELLED, error="its batch was cancelled")
        for job_id, attempt, owner, state in rows
        if state != JobState.WAITING
    ]
    if changes:
        yield from settle(changes).start()
    yield from _conclude(batch_id)
    return str(rows[-1][0]) if len(rows) == most else None


@query
def idle_batches(*, after: str = "", most: int = 100) -> Steps[list[str]]:
    """List sealed batches of which no item lives: somebody must conclude them."""
    rows = yield Statement("idle_batches", {"after": after or NO_ID, "most": most})
    return [str(batch_id) for (batch_id,) in rows]


@query
def unfinished_ids(*, after: str = "", most: int = 100) -> Steps[list[str]]:
    """List batches that are open or sealed; `after` is the last id of the page before this one."""
    rows = yield Statement("unfinished_ids", {"after": after or NO_ID, "most": most})
    return [str(batch_id) for (batch_id,) in rows]


@query
def cancelled_batches(*, most: int = 100) -> Steps[list[str]]:
    """List cancelled batches that are not done: items may be left."""
    rows = yield Statement("cancelled_batches", {"most": most})
    return [str(batch_id) for (batch_id,) in rows]


@operation
def prune_batches(older_than: timedelta, *, most: int = 100) -> Steps[int]:
    """Delete batches that were done more than `older_than` ago and whose items are gone; returns how many."""
    rows = yield Statement("lock_prunable_batches", {"older_us": microseconds(older_than), "most": most})
    for (batch_id,) in rows:
        # Moves before counts, as whoever folds them does.
        yield Statement("delete_batch", {"id": batch_id, "scope": batch_scope(str(batch_id))})
    return len(rows)


NO_ID = "00000000-0000-0000-0000-000000000000"


def batch_of(row: tuple[Any, ...]) -> Batch:
    """Build a batch from the columns that all statements on batches share."""
    values = dict(zip(Batch.__struct_fields__, row, strict=True))
    values["id"], values["owner_id"] = str(values["id"]), values["owner_id"] and str(values["owner_id"])
    values["kind"], values["state"] = BatchKind(values["kind"]), BatchState(values["state"])
    values["on_failed"] = OnFailed(values["on_failed"])
    values["outcome"] = values["outcome"] and JobState(values["outcome"])
    return Batch(**values)


def _locked(batch_id: str) -> Steps[Batch]:
    rows = yield Statement("lock_batch", {"id": batch_id})
    if not rows:
        raise BatchNotFound(batch_id)
    return batch_of(rows[0])


def _locked_in_order(batch_id: str) -> Steps[Batch]:
    yield from _lock_parent((yield from get(batch_id).start()))
    return (yield from _locked(batch_id))


def _lock_parent(batch: Batch) -> Steps[None]:
    """Lock the job that waits for these children before their batch, as whoever settles or cancels that job does.

    One that runs is left alone: its handler may have it locked for as long as it likes.
    """
    if batch.kind is BatchKind.CHILDREN and batch.state is BatchState.SEALED:
        yield Statement("lock_job", {"id": batch.id})


def _range(batch_id: str) -> dict[str, str]:
    first_id, last_id = id_range(batch_id)
    return {"batch_id": batch_id, "first_id": first_id, "last_id": last_id}
