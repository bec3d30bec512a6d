"""Ends or continues a job when its children have ended, exactly once."""

from __future__ import annotations

import msgspec

from stagepost.database.statement import Statement, Statements
from stagepost.model.batch import BatchRow, Counts
from stagepost.model.children import DeferredOutcome, cause_of_children, summary_of
from stagepost.model.context import FirstRequest
from stagepost.model.job import NewJob
from stagepost.model.lifecycle import WHEN_LIMITED, Cause, JobState, next_state
from stagepost.model.limits import limit_name
from stagepost.store.attempts import write_outcomes
from stagepost.store.counting import record_moves
from stagepost.store.jobs import get
from stagepost.store.settlement import Settlement

__all__ = ["resume_parent"]


def resume_parent(batch: BatchRow, counts: Counts) -> Statements[None]:
    """End the job that waits for this batch, or queue its continuation, in the transaction that finishes the batch.

    The caller has locked the job's row, and then the batch's.
    """
    rows = yield Statement("lock_parent", {"id": batch.id})
    if not rows or rows[0][1] != JobState.WAITING or batch.on_complete is None:
        return
    attempt, _, queue_name, batch_id = rows[0]
    ending = msgspec.json.decode(batch.on_complete, type=DeferredOutcome)
    cause = cause_of_children(ending, counts, is_cancelled=batch.cancelled_at is not None)
    if cause is Cause.RESUME and ending.then is not None:
        became = yield from _continue(batch, ending.then)
        changes = [(queue_name, batch_id, JobState.WAITING, None), (ending.then.queue_name, batch_id, None, became)]
        yield from record_moves(changes)
        return
    end = Settlement(
        id=batch.id,
        attempt=attempt,
        owner="",
        state=next_state(JobState.WAITING, cause),
        result=batch.result if cause in {Cause.COMPLETE, Cause.COMPLETE_WITH_ERRORS} else None,
        error=_error(ending, counts, cause),
    )
    yield from write_outcomes([end])  # locked: its fence holds


def _continue(batch: BatchRow, then: NewJob) -> Statements[JobState]:
    job = yield from get(batch.id)
    step = (JobState.WAITING, Cause.RESUME)
    state = next_state(*step) if then.limit is None else WHEN_LIMITED[step]
    yield Statement(
        "continue_parent",
        {
            "id": batch.id,
            "state": state,
            "task_name": then.task_name,
            "queue_name": then.queue_name,
            "priority": then.priority,
            "max_attempts": then.max_attempts,
            "payload": then.payload,
            "context": FirstRequest.kept_in(job.context, task_name=job.task_name, payload=job.payload),
            "limit_key": then.limit_key,
            "limit_slots": then.limit,
            "blocked_on": None if then.limit is None or then.limit_key is None else limit_name(then.limit_key),
        },
    )
    # The continuation's children must not get the numbers of earlier children.
    yield Statement("move_cursor", {"id": batch.id, "position": batch.position + 1, "cursor_key": None})
    return state


def _error(ending: DeferredOutcome, counts: Counts, cause: Cause) -> str | None:
    if ending.state is not JobState.COMPLETED:
        return ending.error
    return "cancelled with its children" if cause is Cause.CANCEL else summary_of(counts)
