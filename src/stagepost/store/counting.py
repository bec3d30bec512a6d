"""Operations on counts: exact numbers of jobs by queue, batch and class, without a counter row to contend for.

An operation that changes the class of jobs records a move in the same transaction: a row that says how many jobs of a
scope went from one class to another. Upkeep folds moves into counts. A single statement adds a count and the moves not
folded yet, which is the exact number of jobs at that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stagepost.database.statement import Operation, Statement, Statements, as_json, operation, query
from stagepost.model.batch import Counts, id_range
from stagepost.model.lifecycle import ACTIVE, FINAL, JobState, class_of

__all__ = [
    "PARTS",
    "Change",
    "Drift",
    "batch_scope",
    "count_by_queue",
    "count_by_state",
    "count_items",
    "drop_empty",
    "find_batch_drift",
    "find_drift",
    "fold",
    "record_moves",
    "record_removals",
    "removed_scope",
    "repair",
    "repair_batch",
    "states_of",
]

Change = tuple[str, str | None, str | None, str | None]
"""A job's queue, batch, old state and new state. A state is None before the job exists or after it is deleted."""
Move = tuple[str, str | None, str | None]
"""A scope, the old class of its jobs and their new class."""


def record_moves(changes: Iterable[Change]) -> Statements[None]:
    """Record state changes in the transaction that makes them. A Counter gives the number of jobs for each change.

    Changes within a class are not recorded.
    """
    moves: Counter[Move] = Counter()
    for (queue_name, batch_id, was, became), jobs in Counter(changes).items():
        before, after = class_of(was), class_of(became)
        if before != after:
            moves[_scope(queue_name), before, after] += jobs
            if batch_id is not None:
                moves[batch_scope(batch_id), before, after] += jobs
    yield from _record(moves)


def record_removals(removed: Iterable[tuple[str, str | None, str]]) -> Statements[None]:
    """Record that rows of ended jobs are deleted, each given as the job's queue, batch and final state.

    A batch counts deleted items in a scope of their own: its totals stay, and its other counts still equal its rows.
    """
    moves: Counter[Move] = Counter()
    for (queue_name, batch_id, state), jobs in Counter(removed).items():
        moves[_scope(queue_name), state, None] += jobs
        if batch_id is not None:
            moves[batch_scope(batch_id), state, None] += jobs
            moves[removed_scope(batch_id), None, state] += jobs
    yield from _record(moves)


@operation
def fold(*, most: int = 1000) -> Statements[int]:
    """Add the oldest moves to the counts, delete them and return how many; fewer than `most` means that none are left.

    Skips moves that another process is folding.
    """
    rows = yield Statement("fold_moves", {"most": most}, is_enough=True)
    return len(rows)


@query
def count_by_queue() -> Statements[dict[str, dict[JobState, int]]]:
    """Count all jobs by queue and state, exactly and at one moment. Omits queues without jobs."""
    rows = yield Statement("count_queues")
    classes: dict[str, Counter[str]] = {}
    for queue_name, name, jobs in rows:
        classes.setdefault(queue_name, Counter())[name] += int(jobs)
    return {queue_name: states_of(counts) for queue_name, counts in sorted(classes.items()) if any(counts.values())}


@query
def count_by_state() -> Statements[dict[JobState, int]]:
    """Count all jobs of all queues by state, live and ended."""
    queues = yield from count_by_queue()
    return {state: sum(counts[state] for counts in queues.values()) for state in JobState}


@query
def count_items(batch_id: str, *, is_full: bool = True) -> Statements[Counts]:
    """Count a batch's items by state, exactly and at one moment. Deleted items count under their final state.

    With `is_full=False`, which is cheaper, running items count as queued and deleted items are missing.
    """
    asked = {"scope": batch_scope(batch_id)}
    more = {"running_of": batch_id, "removed_scope": removed_scope(batch_id)} if is_full else {}
    rows = yield Statement("count_batch", {**asked, **more})
    classes: Counter[str] = Counter()
    for name, jobs in rows:
        classes[name] += int(jobs)
    return Counts(**{state.value: number for state, number in states_of(classes).items()})


PARTS: tuple[JobState | None, ...] = (None, *sorted(FINAL))
"""The parts that a recount reads with one statement each: all live jobs (None), or the jobs of one final state."""


class Drift(msgspec.Struct, frozen=True):
    """A count that differs from the number of rows, because of a change by hand or a bug."""

    scope: str
    """`queue:<name>` or `batch:<id>`."""
    class_name: str
    counted: int
    found: int


@query
def find_drift(part: JobState | None) -> Statements[list[Drift]]:
    """Compare counts with rows at one moment. Reads every row of the part."""
    statement = Statement("find_live_drift") if part is None else Statement("find_ended_drift", {"state": part})
    rows = yield statement
    return _drifts((_scope(queue_name), *rest) for queue_name, *rest in rows)


@query
def find_batch_drift(batch_id: str) -> Statements[list[Drift]]:
    """Compare a batch's counts with its items at one moment. Reads every item."""
    first_id, last_id = id_range(batch_id)
    scope = batch_scope(batch_id)
    rows = yield Statement(
        "find_batch_drift", {"id": batch_id, "scope": scope, "first_id": first_id, "last_id": last_id}
    )
    return _drifts((scope, *row) for row in rows)


@operation
def repair(part: JobState | None) -> Statements[list[Drift]]:
    """Record moves that correct the counts, and return what was wrong."""
    return (yield from _repair(find_drift(part)))


@operation
def repair_batch(batch_id: str) -> Statements[list[Drift]]:
    """Correct the counts of one batch as `repair` does."""
    return (yield from _repair(find_batch_drift(batch_id)))


def _repair(finding: Operation[list[Drift]]) -> Statements[list[Drift]]:
    yield Statement("hold_recount")  # two concurrent repairs would both add the difference
    drifts = yield from finding
    moves: Counter[Move] = Counter()
    for drift in drifts:
        missing = drift.found - drift.counted
        pair = (None, drift.class_name) if missing > 0 else (drift.class_name, None)
        moves[drift.scope, *pair] = abs(missing)
    yield from _record(moves)
    return drifts


def _drifts(rows: Iterable[Sequence[Any]]) -> list[Drift]:
    """Add up the counts and the rows of each scope and class, and return those that differ."""
    counts: Counter[tuple[str, str]] = Counter()
    founds: Counter[tuple[str, str]] = Counter()
    for scope, name, counted, found in rows:
        counts[scope, name] += int(counted)
        founds[scope, name] += int(found)
    parts = sorted(key for key in counts if counts[key] != founds[key])
    return [Drift(*key, counted=counts[key], found=founds[key]) for key in parts]


@operation
def drop_empty() -> Statements[None]:
    """Delete counts that are zero."""
    yield Statement("drop_empty_counts")


def batch_scope(batch_id: str) -> str:
    """The scope that counts a batch's items."""
    return f"batch:{batch_id}"


def removed_scope(batch_id: str) -> str:
    """The scope that counts a batch's deleted items."""
    return f"removed:{batch_id}"


def _scope(queue_name: str) -> str:
    return f"queue:{queue_name}"


def _record(moves: Mapping[Move, int]) -> Statements[None]:
    if moves:
        rows = [
            {"scope": scope, "was": was, "became": became, "jobs": jobs}
            for (scope, was, became), jobs in sorted(moves.items(), key=str)
        ]
        yield Statement("record_moves", {"moves": as_json(rows)})


def states_of(counts: Counter[str]) -> dict[JobState, int]:
    """Separate running jobs from queued ones, which share a class because a claim records no move."""
    counts[JobState.QUEUED] = counts.pop(ACTIVE, 0) - counts.get(JobState.RUNNING, 0)
    return {state: counts.get(state, 0) for state in JobState}
