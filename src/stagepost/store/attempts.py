"""The only writer of attempts' outcomes: ends or reschedules each job, guarded by its fence.

This module knows nothing about batches, parents or pipelines. It returns what it wrote, and `settling` acts on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from stagepost.database.capacity import in_pieces
from stagepost.database.statement import Rows, Statement, Statements, as_json, query
from stagepost.model.lifecycle import JobState
from stagepost.store.counting import record_moves
from stagepost.store.settlement import Fence, Settlement

__all__ = ["Written", "ended_by", "in_order", "log_failures", "write_outcomes"]

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
        ended = yield from _end(ends, is_enough=not delays and all(change.kind is None for change in ends))
        if len(ended) < len(ends):
            unwritten += [change for change in ends if change.fence not in ended]
    return Written(rescheduled, ended, unwritten)


def _parted(changes: Iterable[Settlement]) -> tuple[list[Settlement], list[Settlement], list[Settlement]]:
    """Separate the jobs to reschedule, the jobs to end, and the jobs that continue after their children."""
    delays: list[Settlement] = []
    ends: list[Settlement] = []
    continued: list[Settlement] = []
    for change in changes:
        (delays if not change.is_final else continued if change.goes_on else ends).append(change)
    return delays, ends, continued


def _reschedule(delays: Sequence[Settlement]) -> Statements[set[Fence]]:
    # Only the failure log stores their errors.
    changes = [msgspec.structs.replace(change, error=None, traceback=None) for change in delays]
    rows: Rows = []
    for piece in (yield from in_pieces("reschedule_jobs", "changes", changes)):
        rows += yield Statement("reschedule_jobs", {"changes": piece.text})
    yield from record_moves(
        (queue_name, batch_id, JobState.RUNNING, became) for _, _, queue_name, batch_id, became in rows
    )
    return _fences(rows)


def _end(ends: Sequence[Settlement], *, is_enough: bool) -> Statements[set[Fence]]:
    """End jobs with a single statement, unless their results are too large for one."""
    rows: Rows = []
    pieces = yield from in_pieces("end_jobs", "changes", ends)
    for changes, text in pieces:
        facts = {"changes": text}
        if len(changes) == 1:
            facts["only"] = changes[0].id
        elif len({*map(HOW_IT_ENDS, changes)}) == 1:
            facts |= {"ids": as_json([change.id for change in changes]), "like": as_json(changes[0])}
        rows += yield Statement("end_jobs", facts, is_enough=is_enough and len(pieces) == 1)
    yield from record_moves((row[3], row[4], row[2], None) for row in rows if row[2:] and row[2])
    return _fences(rows)


def _fences(rows: Rows) -> set[Fence]:
    return {(str(row[0]), row[1]) for row in rows}


def log_failures(changes: Iterable[Settlement]) -> Statements[None]:
    """Add the failed attempts among these changes to the failure log."""
    failures = [change for change in changes if change.kind is not None]
    if failures:
        for piece in (yield from in_pieces("record_failures", "failures", failures)):
            yield Statement("record_failures", {"failures": piece.text})


@query
def ended_by(changes: Sequence[Settlement]) -> Statements[set[Fence]]:
    """Find the attempts that have already ended their job."""
    rows: Rows = []
    fences = [{"id": change.id, "attempt": change.attempt, "owner": change.owner} for change in changes]
    for piece in (yield from in_pieces("find_ended", "changes", fences)):
        rows += yield Statement("find_ended", {"changes": piece.text})
    return _fences(rows)
