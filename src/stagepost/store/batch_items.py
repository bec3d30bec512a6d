"""Operations on the items of a batch: list them, and retry, waive or cancel them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stagepost.model.batch import id_range, item_id
from stagepost.model.job import Job
from stagepost.model.lifecycle import Cause, JobState
from stagepost.store.batch_locks import locked_in_order
from stagepost.store.batches import conclude_locked
from stagepost.store.counting import record_moves
from stagepost.store.jobs import audit, restart
from stagepost.store.leases import settle
from stagepost.store.listing import list_jobs
from stagepost.store.settlement import Settlement
from stagepost.store.statement import Statement, Steps, as_json, operation, query

__all__ = ["FailedGroup", "cancel_items", "failed_groups", "list_items", "retry_failed", "waive"]


class FailedGroup(msgspec.Struct, frozen=True):
    """Failed items whose errors are alike."""

    reason: str | None
    task_name: str
    state: JobState
    items: int
    example_key: str
    last_at: int


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
    yield from locked_in_order(batch_id)
    ids = yield from _chosen(batch_id, keys, after=after, most=most)
    if ids:
        yield from restart(ids, actor=actor).start()
    return ids


@operation
def waive(
    batch_id: str, *, actor: str, why: str, keys: Sequence[str] | None = None, after: str = "", most: int = 500
) -> Steps[list[str]]:
    """Let a batch go on without failed items: those with these keys, or the next so many after an id."""
    yield from locked_in_order(batch_id)
    ids = yield from _chosen(batch_id, keys, after=after, most=most)
    rows = yield Statement("waive_jobs", {"ids": as_json(ids)})
    yield from record_moves((queue, batch, was, JobState.WAIVED) for _, queue, batch, was in rows)
    for job_id, *_ in rows:
        yield from audit(actor, Cause.WAIVE, str(job_id), detail=why).start()
    yield from conclude_locked(batch_id)
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
def cancel_items(batch_id: str, *, after: str = "", most: int = 500) -> Steps[str | None]:
    """End the next live items of a cancelled batch, ask running ones to stop; returns where to go on, or None."""
    yield from locked_in_order(batch_id)
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
    yield from conclude_locked(batch_id)
    return str(rows[-1][0]) if len(rows) == most else None


def _range(batch_id: str) -> dict[str, str]:
    first_id, last_id = id_range(batch_id)
    return {"batch_id": batch_id, "first_id": first_id, "last_id": last_id}
