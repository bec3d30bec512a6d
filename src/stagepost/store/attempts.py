"""The only writer of attempts' outcomes: ends or reschedules each job, guarded by its fence.

This module knows nothing about batches, parents or pipelines. It returns what it wrote, and `settling` acts on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from stagepost.database.statement import Rows, Statement, Statements, as_json, query
from stagepost.model.lifecycle import FINAL, JobState
from stagepost.store.counting import record_moves
from stagepost.store.events import JobFacts, record_events
from stagepost.store.settlement import Fence, Settlement

__all__ = ["Written", "end", "ended_by", "in_order", "is_plain_end", "log_failures", "write_outcomes"]

HOW_IT_ENDS = attrgetter("attempt", "owner", "state", "result", "error", "failures", "crashes", "reason")
"""Every column that ending a job takes from its attempt, except the id."""


class Written(NamedTuple):
    """Which changes were written, and how."""

    rescheduled: set[Fence]
    """Attempts whose job will run again."""
    ended: set[Fence]
    """Attempts whose job moved to history."""
    unwritten: list[Settlement]
    """Changes that were not written, because the job has to wait for its children or its fence did not hold."""


def in_order(changes: Iterable[Settlement]) -> list[Settlement]:
    """Keep the first change of each attempt, sorted by job."""
    by_fence: dict[Fence, Settlement] = {}
    for change in changes:
        by_fence.setdefault(change.fence, change)
    # Sorted: workers that settle the same jobs in opposite order would deadlock.
    return sorted(by_fence.values(), key=attrgetter("id"))


def is_plain_end(change: Settlement) -> bool:
    """Whether a change only ends its job: nothing is logged and no children have to be waited for."""
    return change.is_final and change.kind is None and not change.goes_on


def write_outcomes(changes: Sequence[Settlement]) -> Statements[Written]:
    """Reschedule or end jobs. The changes must be sorted and hold each attempt once, as `in_order` returns them.

    A job whose cancellation was requested ends as cancelled instead of being rescheduled.
    """
    delays, ends, unwritten = _parted(changes)
    rescheduled: set[Fence] = set()
    ended: set[Fence] = set()
    if delays:
        rescheduled = yield from _reschedule(delays)
        ends += [change.cancelled() for change in delays if change.fence not in rescheduled]
    if ends:
        ended = yield from end(ends)
        if len(ended) < len(ends):
            unwritten += [change for change in ends if change.fence not in ended]
    return Written(rescheduled, ended, unwritten)


def _parted(changes: Iterable[Settlement]) -> tuple[list[Settlement], list[Settlement], list[Settlement]]:
    """Separate the jobs to reschedule, the jobs to end, and the jobs that continue after their children."""
    delays: list[Settlement] = []
    ends: list[Settlement] = []
    continued: list[Settlement] = []
    for change in changes:
        if change.state not in FINAL:
            delays.append(change)
        else:
            (ends if change.ending is None or not change.goes_on else continued).append(change)
    return delays, ends, continued


def _reschedule(delays: Sequence[Settlement]) -> Statements[set[Fence]]:
    # Only the failure log stores their errors.
    changes = [msgspec.structs.replace(change, error=None, traceback=None) for change in delays]
    rows = yield Statement("reschedule_jobs", {"changes": changes}, split="changes")
    yield from record_moves(
        (queue_name, batch_id, JobState.RUNNING, became) for _, _, queue_name, batch_id, became in rows
    )
    return _fences(rows)


def end(ends: Sequence[Settlement]) -> Statements[set[Fence]]:
    """End jobs with a single statement, unless their results are too large for one."""
    facts: dict[str, Any] = {"changes": ends}
    if len(ends) == 1:
        facts["only"] = ends[0].id
    elif len({*map(HOW_IT_ENDS, ends)}) == 1:
        facts |= {"ids": as_json([change.id for change in ends]), "like": as_json(ends[0])}
    rows = yield Statement("end_jobs", facts, split="changes")
    yield from _finish_recording(ends, [row for row in rows if row[2:]])
    return _fences(rows)


def _finish_recording(ends: Sequence[Settlement], rows: Rows) -> Statements[None]:
    """Undo the counts of jobs that were in history already, and record the events of the others.

    Only dialects whose statement cannot do this return rows for it.
    """
    changes = {change.fence: change for change in ends} if rows else {}
    doubled, told = [], []
    for job_id, attempt, ended_as, queue_name, batch_id, task_name, context, level in rows:
        if ended_as:
            doubled.append((queue_name, batch_id, ended_as, None))
        else:
            change = changes[job_id, attempt]
            facts = JobFacts(
                job_id, change.state, task_name, queue_name, attempt, batch_id, reason=change.reason, context=context
            )
            told.append((facts, level))
    yield from record_moves(doubled)
    yield from record_events(told)


def _fences(rows: Rows) -> set[Fence]:
    return {(str(row[0]), row[1]) for row in rows}


def log_failures(changes: Iterable[Settlement]) -> Statements[None]:
    """Add the failed attempts among these changes to the failure log."""
    failures = [change for change in changes if change.kind is not None]
    if failures:
        yield Statement("record_failures", {"failures": failures}, split="failures")


@query
def ended_by(changes: Sequence[Settlement]) -> Statements[set[Fence]]:
    """Find the attempts that have already ended their job."""
    fences = [{"id": change.id, "attempt": change.attempt, "owner": change.owner} for change in changes]
    rows = yield Statement("find_ended", {"changes": fences}, split="changes")
    return _fences(rows)
