"""Operations on ended jobs: read results, list and discard dead letters, prune old rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from stagepost.database.statement import Rows, Statement, Statements, as_json, operation, query
from stagepost.errors import JobNotFound
from stagepost.model.batch import BatchKind, BatchRow, BatchState
from stagepost.model.job import JobRow, microseconds
from stagepost.model.lifecycle import FINAL, JobState
from stagepost.store.batch_locks import lock_batches, lock_batches_of
from stagepost.store.counting import record_removals
from stagepost.store.jobs import audit, job_of

__all__ = [
    "DEAD",
    "LAST_ID",
    "LAST_INSTANT",
    "DeadLetterGroup",
    "Discarded",
    "JobResult",
    "dead_letter_groups",
    "dead_letters",
    "discard",
    "prune",
    "result_of",
]

DEAD = (JobState.DEAD_LETTER, JobState.FAILED)
"""Final states that need an operator's attention."""
LAST_INSTANT = 2**62
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class JobResult(msgspec.Struct, frozen=True):
    """A job's state, with its result or error if it has ended."""

    state: JobState
    result: str | None
    error: str | None

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL


@query
def result_of(job_id: str) -> Statements[JobResult]:
    """Read a job's state and result without its arguments."""
    rows = yield Statement("result_of_job", {"id": job_id})
    if not rows:
        raise JobNotFound(job_id)
    state, result, error = rows[0]
    return JobResult(JobState(state), result, error)


@query
def dead_letters(
    *,
    task_name: str | None = None,
    queue_name: str | None = None,
    reason: str | None = None,
    before: tuple[int, str] | None = None,
    most: int = 50,
) -> Statements[list[JobRow]]:
    """List failed jobs and dead letters, last ended first; `before` is the previous page's last (finished_at, id)."""
    before_at, before_id = before or (LAST_INSTANT, LAST_ID)
    filters = {"task_name": task_name, "queue_name": queue_name, "reason": reason}
    page = {"before_at": before_at, "before_id": before_id, "most": most}
    page |= {name: value for name, value in filters.items() if value is not None}
    found: list[JobRow] = []
    for state in DEAD:  # one state at a time, so that an index gives the order and only a page is read
        rows = yield Statement("list_dead_letters", {**page, "state": state})
        found += [job_of(row) for row in rows]
    return sorted(found, key=lambda job: (job.finished_at or 0, job.id), reverse=True)[:most]


class DeadLetterGroup(msgspec.Struct, frozen=True):
    """Failed jobs and dead letters of one task whose errors differ only in ids and numbers."""

    task_name: str
    reason: str
    jobs: int
    first_at: int
    last_at: int


@query
def dead_letter_groups(*, most: int = 100) -> Statements[list[DeadLetterGroup]]:
    """Group failed jobs and dead letters by task and reason, largest group first."""
    rows = yield Statement("group_dead_letters", {"most": most})
    return [DeadLetterGroup(*row) for row in rows]


class Discarded(msgspec.Struct, frozen=True):
    """Which jobs were discarded and which were kept. Jobs that are live or do not exist are in neither."""

    ids: list[str]
    kept: dict[str, str]
    """Why each kept job is still needed, by a batch, a parent or a run."""


@operation
def discard(job_ids: Sequence[str], *, actor: str) -> Statements[Discarded]:
    """Delete ended jobs permanently, except those that an unfinished batch, parent or run still needs.

    The counts, outcome and gate of a finished batch do not change.
    """
    # Lock first: otherwise a batch could be reopened, or its run could go on, before the jobs are deleted.
    batches = yield from lock_batches_of(job_ids)
    found = yield Statement("lock_ended_jobs", {"ids": as_json(sorted(set(job_ids)))})
    batches |= yield from lock_batches({str(row[4]) for row in found if row[4]} - batches.keys())
    reasons = yield from _why_needed(batches.values())
    kept = {str(row[0]): reasons[str(row[4])] for row in found if str(row[4]) in reasons}
    rows = [row for row in found if str(row[0]) not in kept]
    yield from _delete(rows)
    yield from record_removals((queue_name, batch_id, state) for _, state, _, queue_name, batch_id in rows)
    for job_id, state, task_name, *_ in rows:
        yield from audit(actor, "discard", str(job_id), detail=f"{task_name}, {state}")
    return Discarded([str(row[0]) for row in rows], kept)


def _why_needed(batches: Iterable[BatchRow]) -> Statements[dict[str, str]]:
    """For each batch whose items are still needed: by what, and what to do about it."""
    reasons: dict[str, str] = {}
    for batch in batches:
        if batch.kind is BatchKind.STEP:
            yield Statement("lock_run", {"id": batch.owner_id})
        waiting = yield Statement("waits_for_batch", {"id": batch.id, "owner_id": batch.owner_id})
        if batch.state is not BatchState.DONE or waiting:
            reasons[batch.id] = _reason(batch)
    return reasons


def _reason(batch: BatchRow) -> str:
    if batch.kind is BatchKind.STEP:
        return f"Run {batch.owner_id} has not ended. The jobs of its steps can be discarded once it has."
    if batch.kind is BatchKind.CHILDREN:
        return f"Job {batch.id} has not ended. Its children can be discarded once it has."
    return (
        f"Batch {batch.key!r} is not done. Its items can be discarded once it is. Until then, retry failed items with "
        f"`stagepost batches retry`, or let the batch finish without them with `stagepost batches waive`."
    )


@operation
def prune(older_than: timedelta, *, states: Iterable[JobState] = FINAL, most: int = 1000) -> Statements[int]:
    """Delete rows older than `older_than`, up to `most` of each kind, and return how many; 0 means none are left.

    Deletes ended jobs in `states` with their failure logs, except those that a batch, a parent or a run still needs.
    Also deletes old runs of schedules, old dead messages, and unique keys whose period is over.
    """
    older_us, removed = microseconds(older_than), 0
    gone: list[tuple[str, str | None, str]] = []
    for state in sorted(states):
        if (room := most - removed) > 0:
            rows = yield Statement("lock_prunable_jobs", {"state": state, "older_us": older_us, "most": room})
            yield from _delete(rows)
            gone += [(queue_name, batch_id, state) for _, queue_name, batch_id in rows]
            removed += len(rows)
    yield from record_removals(gone)
    removed += yield from _prune_until("prunable_runs", "prune_runs", older_us=older_us, most=most)
    removed += yield from _prune_until("prunable_dead_messages", "prune_dead_messages", older_us=older_us, most=most)
    removed += yield from _prune_until("prunable_unique_keys", "prune_unique_keys", older_us=KEPT_US, most=most)
    return removed


KEPT_US = microseconds(timedelta(minutes=1))
"""How long unique keys outlive their period: an enqueue that found a key taken reads its holder next."""


def _prune_until(find: str, delete: str, *, older_us: int, most: int) -> Statements[int]:
    """Find the time up to which about `most` rows are too old, and delete up to it, without a list of keys."""
    rows = yield Statement(find, {"older_us": older_us, "most": most})
    if rows:
        yield Statement(delete, {"until": rows[-1][0]})
    return len(rows)


def _delete(rows: Rows) -> Statements[None]:
    if rows:
        yield Statement("delete_ended_jobs", {"ids": as_json([str(row[0]) for row in rows])})
