"""The only writer of what attempts gave: ends their jobs or reschedules them, each under its fence.

It knows nothing of batches, parents or pipelines. It returns facts; `settling` decides what follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from stagepost.database.capacity import in_pieces
from stagepost.database.statement import Rows, Statement, Statements, as_json, query
from stagepost.model.lifecycle import FINAL, JobState
from stagepost.store.counting import record_moves
from stagepost.store.settlement import Fence, Settlement

__all__ = ["Written", "ended_by", "in_order", "log_failures", "write_outcomes"]

HOW_IT_ENDS = attrgetter("attempt", "owner", "state", "result", "error", "failures", "crashes", "reason")
"""All that the end of a job takes from an attempt but its id."""


class Written(NamedTuple):
    """What became of the jobs of some attempts."""

    rescheduled: set[Fence]
    """Attempts whose job will run again."""
    ended: set[Fence]
    """Attempts whose job is in history now."""
    unwritten: list[Settlement]
    """Changes that were not made: the job has to wait for its children, or the fence did not hold."""


def in_order(changes: Iterable[Settlement]) -> list[Settlement]:
    """Keep the first change of each attempt, sorted by job."""
    by_fence: dict[Fence, Settlement] = {}
    for change in changes:
        by_fence.setdefault(change.fence, change)
    # Sorted: two workers that settle the same jobs in opposite order would deadlock.
    return sorted(by_fence.values(), key=attrgetter("id"))


def write_outcomes(changes: Sequence[Settlement]) -> Statements[Written]:
    """Reschedule or end the jobs of attempts, which are given in order and once each.

    A job that was asked to stop is not run again: it ends as cancelled instead of being rescheduled.
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
    """Separate the jobs to reschedule, those to end, and those that continue when their children have ended."""
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
    # Their errors are for the failure log.
    changes = [msgspec.structs.replace(change, error=None, traceback=None) for change in delays]
    rows: Rows = []
    for piece in (yield from in_pieces("reschedule_jobs", "changes", changes)):
        rows += yield Statement("reschedule_jobs", {"changes": piece.text})
    yield from record_moves(
        (queue_name, batch_id, JobState.RUNNING, became) for _, _, queue_name, batch_id, became in rows
    )
    return _fences(rows)


def _end(ends: Sequence[Settlement], *, is_enough: bool) -> Statements[set[Fence]]:
    """End jobs, with one statement unless what they gave is too much for that."""
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
    """Add the attempts that failed, of those given, to the failure log."""
    failures = [change for change in changes if change.kind is not None]
    if failures:
        for piece in (yield from in_pieces("record_failures", "failures", failures)):
            yield Statement("record_failures", {"failures": piece.text})


@query
def ended_by(changes: Sequence[Settlement]) -> Statements[set[Fence]]:
    """Tell which of these attempts have ended their job already."""
    rows: Rows = []
    fences = [{"id": change.id, "attempt": change.attempt, "owner": change.owner} for change in changes]
    for piece in (yield from in_pieces("find_ended", "changes", fences)):
        rows += yield Statement("find_ended", {"changes": piece.text})
    return _fences(rows)
