"""Operations that cancel a job, a batch, or the items of a cancelled batch."""

from __future__ import annotations

from collections.abc import Iterable

from stagepost.database.statement import Statement, Statements, operation
from stagepost.errors import IllegalTransition, JobNotFound
from stagepost.model.batch import BatchRow, BatchState, id_range
from stagepost.model.lifecycle import Cause, JobState
from stagepost.store.batch_locks import locked_in_order
from stagepost.store.concluding import conclude_locked
from stagepost.store.jobs import audit, get
from stagepost.store.listing import range_of
from stagepost.store.settlement import Settlement
from stagepost.store.settling import settle

__all__ = ["cancel_batch", "cancel_items", "cancel_job", "cancel_jobs"]


@operation
def cancel_job(job_id: str, *, actor: str) -> Statements[JobState]:
    """End a job that is not running, or ask a running one to stop, and return its new state.

    Its children are cancelled too, and the job ends after them.
    """
    rows = yield Statement("lock_job", {"id": job_id})
    if not rows:
        job = yield from get(job_id)
        if job.state is JobState.CANCELLED:
            return job.state
        raise IllegalTransition(job_id, job.state, "be cancelled")
    attempt, owner, state = rows[0]
    yield from audit(actor, "cancel", job_id, detail=state)
    if state == JobState.RUNNING:
        yield Statement("request_cancel", {"id": job_id})
        yield Statement("cancel_batch", {"id": job_id})
        return JobState.RUNNING
    if state == JobState.WAITING and (yield Statement("batch_of_id", {"id": job_id})):
        yield Statement("cancel_batch", {"id": job_id})
    else:
        change = Settlement.of_state(job_id, attempt, owner, JobState.CANCELLED, error=f"cancelled by {actor}")
        yield from settle([change])
    return (yield from _cancel_children(job_id))


@operation
def cancel_jobs(job_ids: Iterable[str], *, actor: str) -> Statements[dict[str, JobState]]:
    """Cancel several jobs as `cancel_job` does, and return their new states. Skips jobs that have ended or are gone."""
    states: dict[str, JobState] = {}
    for job_id in sorted(set(job_ids)):  # locks in opposite order would deadlock
        try:
            states[job_id] = yield from cancel_job(job_id, actor=actor)
        except (IllegalTransition, JobNotFound):  # raised before anything is written
            continue
    return states


def _cancel_children(job_id: str) -> Statements[JobState]:
    """Cancel the first page of a cancelled job's children; upkeep cancels the rest."""
    if not (yield Statement("lock_job", {"id": job_id})):
        return JobState.CANCELLED
    yield from cancel_items(job_id)
    return JobState.WAITING if (yield Statement("lock_job", {"id": job_id})) else JobState.CANCELLED


@operation
def cancel_batch(batch_id: str, *, actor: str) -> Statements[BatchRow]:
    """Seal a batch and mark it as cancelled. Call `cancel_items` until it returns None to end the live items."""
    batch = yield from locked_in_order(batch_id)
    if batch.state is BatchState.DONE or batch.cancelled_at is not None:
        return batch
    yield Statement("cancel_batch", {"id": batch_id})
    yield Statement("seal_batch", {"id": batch_id})
    yield from audit(actor, Cause.CANCEL, batch.key)
    return (yield from conclude_locked(batch_id))


@operation
def cancel_items(batch_id: str, *, after: str = "", most: int = 500) -> Statements[str | None]:
    """End the next live items of a cancelled batch, and ask running ones to stop.

    Returns the `after` of the next call, or None at the end.
    """
    yield from locked_in_order(batch_id)
    yield Statement("stop_running_items", range_of(batch_id))
    yield Statement("cancel_running_trees", range_of(batch_id))
    first = after or id_range(batch_id)[0]
    rows = yield Statement("lock_live_items", {**range_of(batch_id), "after": first, "most": most})
    waiting = [str(job_id) for job_id, _, _, state in rows if state == JobState.WAITING]
    for job_id in waiting:  # these end after their children
        yield Statement("cancel_batch", {"id": job_id})
        yield Statement("seal_batch", {"id": job_id})
    changes = [
        Settlement.of_state(str(job_id), attempt, owner, JobState.CANCELLED, error="its batch was cancelled")
        for job_id, attempt, owner, state in rows
        if state != JobState.WAITING
    ]
    if changes:
        yield from settle(changes)
    yield from conclude_locked(batch_id)
    return str(rows[-1][0]) if len(rows) == most else None
