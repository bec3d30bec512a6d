"""Operations on children: submit them under their parent's lease, and let the parent wait for them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stagepost.database.statement import Statement, Statements, operation
from stagepost.errors import Cancelled, ChildDiffers, LeaseLost
from stagepost.model.batch import BatchKind, BatchRow, BatchState, Item, NewBatch
from stagepost.model.children import DeferredOutcome, NewChild, batch_key, child_key
from stagepost.model.context import FirstRequest
from stagepost.model.job import Enqueued, JobRow, LeasedJob, NewJob
from stagepost.model.lifecycle import FINAL, Cause, JobState, next_state
from stagepost.store.batches import open_batch
from stagepost.store.counting import record_moves, removed_scope
from stagepost.store.inserting import existing_ids
from stagepost.store.jobs import enqueue_many, get, restart
from stagepost.store.settlement import Settlement

__all__ = ["submit_children", "wait_for_children"]

RUN_AGAIN = FINAL - {JobState.COMPLETED, JobState.WAIVED}


@operation
def submit_children(
    parent: LeasedJob, children: Sequence[NewChild], *, notify: bool = False
) -> Statements[list[Enqueued]]:
    """Store children of a running job, in order, except those that an earlier attempt has already submitted.

    Nothing is written unless the attempt holds its lease. If an operator restarted the parent after it had ended, the
    children that had not completed are restarted when the handler submits them again.
    """
    fence = {"id": parent.id, "attempt": parent.attempt, "owner": parent.owner}
    rows = yield Statement("lock_attempt", fence)
    if not rows:
        raise LeaseLost(parent.id, parent.attempt)
    _, has_children, is_asked_to_stop, _, batch_id = rows[0]
    if is_asked_to_stop:
        raise Cancelled("cancelled while it ran, so it cannot submit children")
    batch = yield from _opened(parent.id, batch_id and str(batch_id), has_children=bool(has_children))
    items = [Item(child_key(child, batch.position), child.job).in_batch(batch.id) for child in children]
    known = yield from existing_ids([item.id for item in items])
    for child, item in zip(children, items, strict=True):
        if item.id in known:
            yield from _find_again(batch, child, item)
    new = {item.id: item for item in items if item.id not in known}
    made = yield from enqueue_many(list(new.values()), notify=notify, are_new=True)
    is_new = {enqueued.id: enqueued.is_new for enqueued in made}
    return [Enqueued(item.id, is_new.get(item.id, False)) for item in items]


def _opened(job_id: str, batch_id: str | None, *, has_children: bool) -> Statements[BatchRow]:
    """Open or reopen the batch of a job's children. The job's row is locked, so nobody else creates or ends it."""
    new = NewBatch(id=job_id, key=batch_key(job_id), kind=BatchKind.CHILDREN, owner_id=batch_id)
    batch = yield from open_batch(new)
    if batch.state is BatchState.DONE:
        yield Statement("reopen_batch", {"id": job_id, "removed_scope": removed_scope(job_id)})
    if not has_children:
        yield Statement("mark_parent", {"id": job_id})
    return batch


def _find_again(batch: BatchRow, child: NewChild, item: NewJob) -> Statements[None]:
    found: JobRow = yield from get(item.id)
    first = FirstRequest.decode(found.context)
    task_name = first.first_task or found.task_name
    payload = found.payload if first.first_task is None else bytes(first.first_arguments).decode()
    if child.key is None and (task_name, payload) != (item.task_name, item.payload):
        raise ChildDiffers(batch.id, item.item_key or "", task_name)
    was_before = batch.done_at is not None and found.finished_at is not None and found.finished_at <= batch.done_at
    if found.state in RUN_AGAIN and was_before:
        yield from restart([found.id], actor=f"job {batch.id}")


def wait_for_children(change: Settlement) -> Statements[bool]:
    """Let a job with children or a continuation wait instead of ending, if its fence holds; returns whether it waits.

    The caller must conclude the children's batch, which this seals: they may all have ended. A job that failed or was
    cancelled cancels its children and ends after them.
    """
    rows = yield Statement("lock_attempt", {"id": change.id, "attempt": change.attempt, "owner": change.owner})
    if not rows or not (rows[0][1] or change.goes_on):
        return False
    state, has_children, is_asked_to_stop, queue_name, batch_id = rows[0]
    yield from _opened(change.id, batch_id and str(batch_id), has_children=bool(has_children))
    counted = {"failures": change.failures, "crashes": change.crashes}
    yield Statement("wait_for_children", {"id": change.id, "attempt": change.attempt, **counted})
    yield from record_moves([(queue_name, batch_id, state, next_state(JobState(state), Cause.WAIT))])
    yield from _seal(change, _ending(change, is_asked_to_stop=bool(is_asked_to_stop)))
    return True


def _ending(change: Settlement, *, is_asked_to_stop: bool) -> DeferredOutcome:
    if change.state is not JobState.COMPLETED:
        return DeferredOutcome(state=change.state, error=change.error)
    if is_asked_to_stop:
        return DeferredOutcome(state=JobState.CANCELLED, error="cancelled while it ran")
    return change.ending or DeferredOutcome()


def _seal(change: Settlement, ending: DeferredOutcome) -> Statements[None]:
    of_batch = {"id": change.id}
    yield Statement("hold_ending", {**of_batch, "result": change.result, "ending": _encoded(ending)})
    if ending.state is not JobState.COMPLETED:
        yield Statement("cancel_batch", of_batch)
    yield Statement("seal_batch", of_batch)


def _encoded(ending: DeferredOutcome) -> str:
    return msgspec.json.encode(ending).decode()
