"""Operations on ended jobs: results, dead letters, and removing what is old."""

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
"""How jobs end that somebody should look at."""
LAST_INSTANT = 2**62
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class JobResult(msgspec.Struct, frozen=True):
    """A job's state, and what it ended with, if it has."""

    state: JobState
    result: str | None
    error: str | None

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL


@query
def result_of(job_id: str) -> Statements[JobResult]:
    """Look up how far a job is, without its arguments."""
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
    """List jobs that failed for good, last ended first; `before` is (finished_at, id) of the page's last job."""
    before_at, before_id = before or (LAST_INSTANT, LAST_ID)
    filters = {"task_name": task_name, "queue_name": queue_name, "reason": reason}
    page = {"before_at": before_at, "before_id": before_id, "most": most}
    page |= {name: value for name, value in filters.items() if value is not None}
    found: list[JobRow] = []
    for state in DEAD:  # one state at a time: then an index gives the order, and only a page is read
        rows = yield Statement("list_dead_letters", {**page, "state": state})
        found += [job_of(row) for row in rows]
    return sorted(found, key=lambda job: (job.finished_at or 0, job.id), reverse=True)[:most]


class DeadLetterGroup(msgspec.Struct, frozen=True):
    """Failed jobs and dead letters of one task with errors alike in all but ids and numbers."""

    task_name: str
    reason: str
    jobs: int
    first_at: int
    last_at: int


@query
def dead_letter_groups(*, most: int = 100) -> Statements[list[DeadLetterGroup]]:
    """Group what failed for good by task and reason, the largest group first."""
    rows = yield Statement("group_dead_letters", {"most": most})
    return [DeadLetterGroup(*row) for row in rows]


class Discarded(msgspec.Struct, frozen=True):
    """What became of jobs that were to be discarded; those that live, or are not there, are in neither."""

    ids: list[str]
    kept: dict[str, str]
    """Jobs that a batch, a parent or a run still needs, each with the reason."""


@operation
def discard(job_ids: Sequence[str], *, actor: str) -> Statements[Discarded]:
    """Delete ended jobs for good, except those that something unfinished still needs.

    The numbers, outcome and gate of a batch that is done stay as they are.
    """
    # Locked first: a batch that is found done stays so, and no run goes on, until the jobs are deleted.
    batches = yield from lock_batches_of(job_ids)
    found = yield Statement("lock_ended_jobs", {"ids": as_json(sorted(set(job_ids)))})
    batches |= yield from lock_batches({str(row[4]) for row in found if row[4]} - batches.keys())
    reasons = yield from _why_needed(batches.values())
    kept = {str(row[0]): reasons[str(row[4])] for row in found if str(row[4]) in reasons}
    rows = [row for row in found if str(row[0]) not in kept]
    yield from _delete(rows)
    yield from record_removals((queue_name, batch_id, state) for _, state, _, queue_name, batch_id in rows)
    for job_id, state, task_name, *_ in rows:
        yield from audit(actor, "discard", str(job_id), detail=f"{task_name}, {state}").start()
    return Discarded([str(row[0]) for row in rows], kept)


def _why_needed(batches: Iterable[BatchRow]) -> Statements[dict[str, str]]:
    """Say of batches whose items something unfinished needs what that is, and what to do about it."""
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
        return f"Run {batch.owner_id} has not ended. The jobs of its steps can be discarded when it has."
    if batch.kind is BatchKind.CHILDREN:
        return f"Job {batch.id} has not ended. Its children can be discarded when it has."
    return (
        f"Batch {batch.key!r} is not done. Its items can be discarded when it is. Until then retry what failed with "
        f"`stagepost batches retry`, or let the batch go on without it with `stagepost batches waive`."
    )


@operation
def prune(older_than: timedelta, *, states: Iterable[JobState] = FINAL, most: int = 1000) -> Statements[int]:
    """Delete what ended more than `older_than` ago, up to `most` rows of each kind; returns how many, 0 at the end.

    Jobs in `states` go with their failure log, unless a batch, a parent or a run still needs them; so do runs of
    schedules and dead messages that old, and unique keys held no more.
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
"""An enqueue that just found a unique key held reads its holder next; keys stay this much longer."""


def _prune_until(find: str, delete: str, *, older_us: int, most: int) -> Statements[int]:
    """Find the instant up to which about `most` rows are too old, then delete up to it: no list of keys needed."""
    rows = yield Statement(find, {"older_us": older_us, "most": most})
    if rows:
        yield Statement(delete, {"until": rows[-1][0]})
    return len(rows)


def _delete(rows: Rows) -> Statements[None]:
    if rows:
        yield Statement("delete_ended_jobs", {"ids": as_json([str(row[0]) for row in rows])})
