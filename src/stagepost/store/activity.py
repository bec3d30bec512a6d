"""Operations that report recent activity, and the removal of a benchmark's jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from stagepost.database.statement import Statement, Statements, operation, query
from stagepost.model.job import microseconds
from stagepost.model.lifecycle import FINAL, JobState
from stagepost.model.timeline import Action
from stagepost.store.counting import record_moves

__all__ = ["actions_on", "ended_within", "purge_queue"]


@query
def ended_within(window: timedelta) -> Statements[Mapping[JobState, int]]:
    """Count the jobs that ended in the last `window`, by state."""
    counts: dict[JobState, int] = {}
    for state in sorted(FINAL):  # one state at a time, so that the database reads only the end of an index
        rows = yield Statement("count_ended_within", {"state": state, "window_us": microseconds(window)})
        counts[state] = rows[0][0]
    return counts


@query
def actions_on(subject: str) -> Statements[list[Action]]:
    """List what operators did to a job, queue or schedule, oldest first."""
    rows = yield Statement("list_actions", {"subject": subject})
    return [Action(*row) for row in rows]


@operation
def purge_queue(queue_name: str, *, first_id: str, last_id: str) -> Statements[None]:
    """Delete a queue's jobs in a range of ids, live or ended, without an audit record. Items of batches are kept.

    Only safe if the caller created the queue and all its jobs: a worker that runs one of them loses its lease.
    """
    which = {"queue_name": queue_name, "first_id": first_id, "last_id": last_id}
    # Lock live jobs first: otherwise a job could end between the two statements and be missed by both.
    live = yield Statement("lock_purged_jobs", which)
    ended = yield Statement("lock_purged_history", which)
    yield Statement("purge_queue", which)
    yield from record_moves((name, None, state, None) for name, state in live + ended)
