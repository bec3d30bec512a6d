"""Moves jobs to state `blocked` and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stagepost.database.statement import Statement, Statements, as_json
from stagepost.model.lifecycle import JobState
from stagepost.store.counting import record_moves

__all__ = ["JobToBlock", "block", "unblock"]


class JobToBlock(NamedTuple):
    """A job to block, if it is still at that attempt."""

    id: str
    attempt: int
    blocked_on: str
    limit_key: str | None


def block(jobs: Sequence[JobToBlock], *, was: JobState, owner: str) -> Statements[int]:
    """Block jobs that are queued, or that `owner` has just claimed; returns how many."""
    if not jobs:
        return 0
    rows = [job._asdict() for job in sorted(jobs)]
    found = yield Statement("hold_jobs", {"jobs": as_json(rows), "owner": owner})
    yield from record_moves((queue_name, batch_id, was, JobState.BLOCKED) for _, queue_name, batch_id in found)
    return len(found)


def unblock(ids: Sequence[str], *, dues: Sequence[int] = (), forgets: bool = False) -> Statements[int]:
    """Queue blocked jobs, or schedule them for the instants in `dues`; returns how many.

    With `forgets`, what they were blocked on is cleared: they no longer hold a place under that limit or rate.
    """
    if not ids:
        return 0
    moments: Sequence[int | None] = dues or [None] * len(ids)
    due_at = dict(zip(ids, moments, strict=False))
    jobs = as_json([{"id": job_id, "due_at": due_at[job_id]} for job_id in sorted(due_at)])
    found = yield Statement("let_through_jobs", {"jobs": jobs, "forgets": int(forgets)})
    yield from record_moves((queue_name, batch_id, JobState.BLOCKED, state) for _, queue_name, batch_id, state in found)
    return len(found)
