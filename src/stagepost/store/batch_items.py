"""Operations on the failed items of a batch: retry or waive them."""

from __future__ import annotations

from collections.abc import Sequence

from stagepost.database.statement import Statement, Statements, as_json, operation
from stagepost.model.batch import id_range, item_id
from stagepost.model.lifecycle import Cause, JobState
from stagepost.store.batch_locks import locked_in_order
from stagepost.store.concluding import conclude_locked
from stagepost.store.counting import record_moves
from stagepost.store.events import JobFacts, record_events
from stagepost.store.jobs import audit, restart
from stagepost.store.listing import range_of

__all__ = ["retry_failed", "waive"]


@operation
def retry_failed(
    batch_id: str, *, actor: str, keys: Sequence[str] | None = None, after: str = "", most: int = 500
) -> Statements[list[str]]:
    """Queue failed items again, either the given keys or the next `most` after an id, and return their ids."""
    yield from locked_in_order(batch_id)
    ids = yield from _chosen(batch_id, keys, after=after, most=most)
    if ids:
        yield from restart(ids, actor=actor)
    return ids


@operation
def waive(
    batch_id: str, *, actor: str, why: str, keys: Sequence[str] | None = None, after: str = "", most: int = 500
) -> Statements[list[str]]:
    """Let a batch finish without failed items, either the given keys or the next `most` after an id."""
    yield from locked_in_order(batch_id)
    ids = yield from _chosen(batch_id, keys, after=after, most=most)
    rows = yield Statement("waive_jobs", {"ids": as_json(ids)})
    yield from record_moves((queue, batch, was, JobState.WAIVED) for _, queue, batch, was, *_ in rows)
    yield from record_events(
        (JobFacts(str(job_id), JobState.WAIVED, task, queue, attempt, str(batch), reason, context), level)
        for job_id, queue, batch, _, task, attempt, reason, context, level in rows
    )
    for job_id, *_ in rows:
        yield from audit(actor, Cause.WAIVE, str(job_id), detail=why)
    yield from conclude_locked(batch_id)
    return ids


def _chosen(batch_id: str, keys: Sequence[str] | None, *, after: str, most: int) -> Statements[list[str]]:
    if keys is None:
        rows = yield Statement(
            "failed_items", {**range_of(batch_id), "after": after or id_range(batch_id)[0], "most": most}
        )
        return [str(job_id) for (job_id,) in rows]
    ids = sorted(item_id(batch_id, key) for key in keys)
    rows = yield Statement("lock_ended_jobs", {"ids": as_json(ids)})
    return [str(row[0]) for row in rows if row[1] in {JobState.FAILED, JobState.DEAD_LETTER}]
