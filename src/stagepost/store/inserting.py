"""Inserts jobs: one, several, or many at once through the bulk load of the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stagepost.database.statement import Load, Row, Rows, Statement, Statements
from stagepost.errors import StoreUnavailable
from stagepost.model.groups import groups_of
from stagepost.model.job import NewJob
from stagepost.model.limits import limit_name
from stagepost.model.series import JobSeries, MixedJobs, PatternedJob
from stagepost.store.counting import Change, record_moves
from stagepost.store.unique_keys import live_key

__all__ = ["EXISTED", "LOAD_FROM", "Insertion", "existing_ids", "insert_all", "insert_one", "load", "look_for"]

LOAD_FROM = 100
"""The number of jobs from which a bulk load is faster than inserts."""
FEW_BETWEEN = 500
"""How many existing ids a range of new ids may hold before each id is looked up by itself."""
ROWS_PER_STATEMENT = 5_000
ROWS_TO_LOOK_FOR = 1_000
"""Most rows for an insert that looks for existing jobs, because MariaDB compares each row with all rows found."""
EXISTED = ("there",)
"""What some databases return beside the id of a job that existed before the insert."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """What is known about a request before its jobs are inserted."""

    doubtful: frozenset[str] = frozenset()
    """Ids that another request may have used before, or may be using now."""
    are_new: bool = False
    notify: bool = False
    is_tried: bool = False
    """The first insert has been tried, and inserted nothing."""


def insert_all(jobs: Sequence[NewJob], insertion: Insertion, freed: Collection[str]) -> Statements[Rows]:
    """Insert the jobs that do not exist yet, in as few statements as possible."""
    if len(jobs) == 1 and jobs[0].batch_id is None:
        return (yield insert_one(jobs[0], insertion, freed))
    rows: Rows = []
    most = ROWS_PER_STATEMENT if insertion.are_new else ROWS_TO_LOOK_FOR
    for group in groups_of(jobs, size=_payload_size, most=most):
        new = [_row(job, freed) for job in group]
        facts = _facts(new, insertion)
        if not insertion.are_new or "keyed" in facts or "marked" in facts:
            facts["looks"] = 1
        rows += yield Statement("insert_jobs", {"jobs": new, **facts}, split="jobs")
    return rows


def _payload_size(job: NewJob) -> int:
    return len(job.payload)


def insert_one(job: NewJob, insertion: Insertion, freed: Collection[str] = ()) -> Statement:
    """Insert a job that is in no batch. The statement either creates the job or changes nothing."""
    row = _row(job, freed)
    return Statement("insert_job", row | _facts([row], insertion))


def _row(job: NewJob, freed: Collection[str]) -> dict[str, Any]:
    """A job's parameters for an insert. Jobs in `freed` ignore a holder that an old snapshot still shows as live."""
    unique_key = live_key(job)
    return {
        "id": job.id,
        "queue_name": job.queue_name,
        "task_name": job.task_name,
        "priority": job.priority,
        "available_at": job.available_at,
        "delay_us": job.delay_us,
        "max_attempts": job.max_attempts,
        "unique_key": unique_key,
        "limit_key": job.limit_key,
        "limit_slots": job.limit,
        "batch_id": job.batch_id,
        "item_key": job.item_key,
        "payload": job.payload,
        "context": job.context,
        "kept_key": None if job.id in freed else unique_key,
    }


def _facts(rows: Sequence[dict[str, Any]], insertion: Insertion) -> dict[str, Any]:
    """The parameters that select which parts of an insert statement are needed."""
    facts: dict[str, Any] = {"notify": int(insertion.notify)}
    if any(row["unique_key"] is not None for row in rows):
        facts["keyed"] = 1
    if any(row["available_at"] is not None or row["id"] in insertion.doubtful for row in rows):
        facts["marked"] = 1
    return facts


def load(asked: JobSeries | MixedJobs, on_taken: Callable[[], None]) -> Statements[set[str]]:
    """Bulk-load new jobs that have no unique key.

    One claimable job of each queue is left to an ordinary insert, which also notifies listeners.
    """
    [(now,)] = yield Statement("read_clock")
    loaded: set[str] = set()
    moves: Counter[Change] = Counter()
    rows = _rows_of(asked.plain(), now, loaded, moves, on_taken)
    [(put,)] = (yield Load("load_jobs", rows)) or [(0,)]
    if put != len(loaded):
        raise StoreUnavailable(
            f"{len(loaded) - put} of {len(loaded)} jobs were enqueued by another request at the same time. "
            f"Roll back your transaction and repeat it."
        )
    yield from record_moves(moves)
    return loaded


def _rows_of(
    jobs: Iterable[PatternedJob], now: int, loaded: set[str], moves: Counter[Change], on_taken: Callable[[], None]
) -> Iterator[Row]:
    """Yield rows while the database reads the previous ones; adds to `loaded` and `moves` as it goes."""
    told: set[str] = set()
    pattern, queue_name, state = None, "", ""
    shared: tuple[Any, ...] = ()
    for job, job_id, payload in jobs:
        if job is not pattern:
            pattern, queue_name = job, job.queue_name
            available_at = now + job.delay_us if job.available_at is None else job.available_at
            state = "scheduled" if available_at > now else "queued" if job.limit is None else "blocked"
            blocked_on = limit_name(job.limit_key or "") if state == "blocked" else None
            its = (
                queue_name, job.task_name, state, job.priority, available_at, 0, 0, 0,
                job.max_attempts, job.limit_key, job.limit, blocked_on, job.batch_id, job.context, now, now,
            )  # fmt: skip
            shared = shared if shared == its else its
        if state == "queued" and queue_name not in told:
            told.add(queue_name)
        elif job_id not in loaded:
            loaded.add(job_id)
            moves[queue_name, job.batch_id, None, state] += 1
            yield (job_id, payload, job.item_key), shared
    on_taken()


def existing_ids(ids: Collection[str]) -> Statements[set[str]]:
    """Find out which of these jobs exist, live or ended.

    New ids are close together, usually with few others between them. Then one range scan replaces the lookups.
    """
    if len(ids) >= LOAD_FROM:
        between = {"first_id": min(ids), "last_id": max(ids), "most": FEW_BETWEEN}
        found = yield Statement("jobs_between", between)
        if len(found) < FEW_BETWEEN:
            return {str(job_id) for (job_id,) in found} & set(ids)
    return {str(job_id) for (job_id,) in (yield from look_for(ids))}


def look_for(ids: Collection[str]) -> Statements[Rows]:
    """Read the ids of these jobs as often as they exist: live, in history, or both."""
    return (yield Statement("known_jobs", {"ids": sorted(set(ids))}, split="ids"))
