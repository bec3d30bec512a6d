"""Operations that tell what happened lately, and remove what a benchmark left behind."""

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
    """Count the jobs that ended in the last so much time, by state."""
    counts: dict[JobState, int] = {}
    for state in sorted(FINAL):  # one state at a time: then only the index is read, and only its end
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
    """Delete every trace of a queue's jobs from one id to another, live or ended, unrecorded; items of batches stay.

    Only for one who made the queue and all its jobs: a worker that runs one of them loses its lease.
    """
    which = {"queue_name": queue_name, "first_id": first_id, "last_id": last_id}
    # The live ones first: locked, they cannot end and be missed among those that have.
    live = yield Statement("lock_purged_jobs", which)
    ended = yield Statement("lock_purged_history", which)
    yield Statement("purge_queue", which)
    yield from record_moves((name, None, state, None) for name, state in live + ended)
