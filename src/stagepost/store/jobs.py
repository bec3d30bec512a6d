"""Operations on jobs: enqueue, look at, restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stagepost.database.capacity import in_pieces
from stagepost.database.statement import Load, Row, Rows, Statement, Statements, as_json, operation, query
from stagepost.errors import (
    ConfigurationError,
    JobNotFound,
    StoreError,
    StoreUnavailable,
    UniqueKeyTaken,
)
from stagepost.model.groups import groups_of
from stagepost.model.identity import new_id
from stagepost.model.job import Enqueued, FailureRecord, JobRow, NewJob, to_datetime
from stagepost.model.lifecycle import Cause, JobState
from stagepost.model.limits import limit_name
from stagepost.model.series import JobSeries, Likeness, Singles
from stagepost.store.batch_locks import lock_batches, lock_batches_of
from stagepost.store.chosen_ids import refuse_ambiguous, refuse_others
from stagepost.store.counting import Change, record_moves
from stagepost.store.unique_keys import find_existing, hold_unique_key, live_key, update_existing

__all__ = ["enqueue", "enqueue_many", "failures_of", "find", "get", "known_of", "restart"]

ENQUEUE_TRIES = 5
MOST_AT_ONCE = 100_000
LOAD_FROM = 100
"""From how many jobs on it pays to load them instead of inserting them."""
FEW_BETWEEN = 500
"""Up to how many other jobs among new ids are read rather than looked for one by one."""
ROWS_PER_STATEMENT = 5_000
ROWS_TO_LOOK_FOR = 1_000
"""How many rows at most where a statement compares each with those found: MariaDB looks through all of them."""
THERE = ("there",)
"""What some databases say beside the id of a job that was there before the insert."""


@operation
def enqueue_many(
    jobs: Sequence[NewJob] | JobSeries,
    *,
    tell: bool = False,
    are_new: bool = False,
    are_derived: bool = False,
    on_taken: Callable[[], None] = lambda: None,
    repeated: bool = False,
) -> Statements[list[Enqueued]]:
    """Store jobs in one transaction; where a live job holds a unique key, return that job instead.

    Those of a series are made while the database takes in the ones before, if there are enough to load.

    A request whose id was chosen, or that is known to be `repeated`, after a lost reply for instance, may have been
    made before: it looks whether its job is there, live or ended, and afterwards whether that ended meanwhile. Under a
    chosen id only the same task with the same arguments is found; all else is a `JobDiffers`. Ids that `are_derived`
    from what the jobs are for are not compared: what exists under one is the job, whatever its arguments are.

    With `tell`, a database that can tell listeners does so when the transaction commits. That is part of the insert
    of the one that can: it takes no statement of its own and follows the state that the insert chose, and the others
    need not know of it. With `are_new` the caller has made sure that none of them is there. Where many are loaded,
    `on_taken` is called when the driver has the last row: from there on it is the database that works.
    """
    if len(jobs) > MOST_AT_ONCE:
        raise ConfigurationError(
            f"{len(jobs):,} jobs in one transaction: {MOST_AT_ONCE:,} are possible. Enqueue them in several calls."
        )
    asked = jobs if isinstance(jobs, JobSeries) else Singles(jobs)
    chosen = set() if are_derived else set(asked.chosen_ids)
    if chosen:
        refuse_ambiguous(jobs)
    doubtful = asked.ids if repeated else asked.chosen_ids
    loaded: set[str] = set()
    if len(jobs) >= LOAD_FROM and asked.plain_ids:
        if are_new or not (yield from known_of(asked.plain_ids)):
            are_new, loaded = True, (yield from _load(asked, on_taken))
        else:
            doubtful = asked.ids
    held: dict[str, str] = {}
    open_: list[NewJob] = []
    # Sorted: two transactions that take the same unique keys in opposite order would deadlock.
    rest = {job.id: job for job in asked.without(loaded)}
    for job in sorted(rest.values(), key=lambda job: job.unique_key or ""):
        holder = (yield from hold_unique_key(job)) if job.unique_for_us is not None else job.id
        if holder == job.id:
            open_.append(job)
        else:
            held[job.id] = holder
    results = {asked: Enqueued(holder, is_new=False) for asked, holder in held.items()}
    is_enough = len(jobs) == 1 and not doubtful
    insertion = Insertion(doubtful=frozenset(doubtful), are_new=are_new, tell=tell, is_enough=is_enough)
    results |= yield from _insert_or_find(open_, insertion)
    there = {job_id for job_id, result in results.items() if result.id == job_id and not result.is_new}
    yield from refuse_others([rest[job_id] for job_id in there & chosen])
    # An id that was not chosen is this request's own; so is, in all likelihood, what a lost reply had made.
    results |= {job_id: Enqueued(job_id, is_new=True) for job_id in there if repeated or job_id not in chosen}
    yield from update_existing(rest.values(), held)  # last: the holder may be among these jobs
    if doubtful:
        yield from _refuse_doubles(doubtful)
    return [Enqueued(job_id, is_new=True) if job_id in loaded else results[job_id] for job_id in asked.ids]


@operation
def enqueue(job: NewJob, *, tell: bool = False, repeated: bool = False) -> Statements[Enqueued]:
    """Store one job, or return the live one that holds its unique key; `tell` as in `enqueue_many`."""
    is_doubtful = repeated or job.has_chosen_id
    if not is_doubtful and job.unique_for_us is None and (yield _insert_one(job, Insertion(tell=tell, is_enough=True))):
        return Enqueued(job.id, is_new=True)
    [enqueued] = yield from enqueue_many([job], tell=tell, repeated=repeated)
    return enqueued


@dataclass(frozen=True, slots=True)
class Insertion:
    """What is known of a request for jobs before it is tried."""

    doubtful: frozenset[str] = frozenset()
    """The ids that another may have asked for, or asks for at this moment."""
    are_new: bool = False
    tell: bool = False
    is_enough: bool = False


def _insert_or_find(open_: list[NewJob], insertion: Insertion) -> Statements[dict[str, Enqueued]]:
    """Store those that are not there; for the others find who has their id or holds their unique key."""
    results: dict[str, Enqueued] = {}
    freed: set[str] = set()
    for _ in range(ENQUEUE_TRIES):
        if not open_:
            return results
        rows = yield from _insert_all(open_, insertion, freed)
        results |= {str(row[0]): Enqueued(str(row[0]), is_new=row[1:] != THERE) for row in rows}
        open_ = [job for job in open_ if job.id not in results]
        if open_:
            existing = yield from find_existing(open_, freed)
            freed |= yield from update_existing(open_, existing)
            # A holder that ended in between is not found: then its key is free again.
            existing = {asked: holder for asked, holder in existing.items() if asked not in freed}
            results |= {asked: Enqueued(holder, is_new=False) for asked, holder in existing.items()}
            open_ = [job for job in open_ if job.id not in existing]
    if open_:
        raise StoreError(f"unique key {open_[0].unique_key!r} changed hands too often; enqueue the job again.")
    return results


def _refuse_doubles(ids: Collection[str]) -> Statements[None]:
    """Give up if one of these jobs is there twice, live and ended; made again, the request finds the ended one.

    An insert that waits for the very end of its job finds neither the job nor, having begun before, its history. This
    statement begins after it.
    """
    found = Counter(str(job_id) for (job_id,) in (yield from _look_for(ids)))
    doubled = [job_id for job_id, times in found.items() if times > 1]
    if doubled:
        raise StoreUnavailable(
            f"job {doubled[0]} ended while it was enqueued once more. Roll your transaction back and make it again."
        )


def _load(asked: JobSeries | Singles, on_taken: Callable[[], None]) -> Statements[set[str]]:
    """Put many new jobs without unique keys into their table the quick way.

    Left to the ordinary way is one claimable job of each queue: its insert also tells listeners.
    """
    [(now,)] = yield Statement("read_clock")
    loaded: set[str] = set()
    moves: Counter[Change] = Counter()
    rows = _rows_of(asked.plain(), now, loaded, moves, on_taken)
    [(put,)] = (yield Load("load_jobs", rows)) or [(0,)]
    if put != len(loaded):
        raise StoreUnavailable(f"{len(loaded) - put} of {len(loaded)} jobs were enqueued by another request meanwhile")
    yield from record_moves(moves)
    return loaded


def _rows_of(
    jobs: Iterable[Likeness], now: int, loaded: set[str], moves: Counter[Change], on_taken: Callable[[], None]
) -> Iterator[Row]:
    """Make rows one by one, while the database takes in those before; notes which, and what that changes."""
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


def known_of(ids: Collection[str]) -> Statements[set[str]]:
    """Tell which of these jobs are there, live or ended.

    New ids lie close together, mostly with few others between them: then there is no need to look for each.
    """
    if len(ids) >= LOAD_FROM:
        between = {"first_id": min(ids), "last_id": max(ids), "most": FEW_BETWEEN}
        found = yield Statement("jobs_between", between)
        if len(found) < FEW_BETWEEN:
            return {str(job_id) for (job_id,) in found} & set(ids)
    return {str(job_id) for (job_id,) in (yield from _look_for(ids))}


def _look_for(ids: Collection[str]) -> Statements[Rows]:
    rows: Rows = []
    for piece in (yield from in_pieces("known_jobs", "ids", sorted(set(ids)))):
        rows += yield Statement("known_jobs", {"ids": piece.text})
    return rows


@query
def find(job_id: str) -> Statements[JobRow | None]:
    """Look a job up, live or ended."""
    rows = yield Statement("live_job", {"id": job_id})
    if not rows:
        rows = yield Statement("ended_job", {"id": job_id})
    if not rows:  # restarted between the two
        rows = yield Statement("live_job", {"id": job_id})
    return job_of(rows[0]) if rows else None


@query
def get(job_id: str) -> Statements[JobRow]:
    """Look a job up; there must be one."""
    job = yield from find(job_id)
    if job is None:
        raise JobNotFound(job_id)
    return job


@query
def failures_of(job_id: str) -> Statements[list[FailureRecord]]:
    """List the attempts that did not complete a job, oldest first."""
    rows = yield Statement("failures_of_job", {"id": job_id})
    return [
        FailureRecord(attempt, kind, error, traceback, worker, to_datetime(failed_at))
        for attempt, kind, error, traceback, worker, failed_at in rows
    ]


@operation
def restart(job_ids: Sequence[str], *, actor: str, repeated: bool = False) -> Statements[list[str]]:
    """Queue ended jobs again with their attempts counted on and their failures forgotten; returns those restarted.

    The numbers of a batch follow when an item of it is restarted. A batch that is done stays so, and its completion
    job and its gate with it; one that is not done will wait for the item.
    """
    asked = sorted(set(job_ids))
    ids = {"ids": as_json(asked)}
    locked = yield from lock_batches_of(asked)
    rows = yield Statement("restart_jobs", ids)
    # In a caller's transaction with an old snapshot the batches of those that ended since are known only now.
    yield from lock_batches({str(row[3]) for row in rows if row[3]} - locked.keys())
    # Asked afterwards: a key that was free before may be taken by the time the job is restarted.
    found = as_json([str(row[0]) for row in rows])
    taken = yield Statement("taken_unique_keys", {**ids, "found": found})
    stuck = {job_id for _, _, job_id in taken}
    rows = [row for row in rows if row[0] not in stuck]
    yield from record_moves((queue_name, batch_id, was, became) for _, was, queue_name, batch_id, became in rows)
    for job_id, state, *_ in rows:
        yield from audit(actor, Cause.RESTART, str(job_id), detail=state)
    if taken:
        unique_key, holder, _ = taken[0]
        raise UniqueKeyTaken(unique_key, str(holder))
    restarted = [str(row[0]) for row in rows]
    if repeated:
        for job_id in set(job_ids) - set(restarted):
            restarted += [job_id for _ in (yield Statement("live_job", {"id": job_id}))]
    return restarted


@operation
def audit(actor: str, action: str, subject: str, *, detail: str | None = None) -> Statements[None]:
    """Record what an operator did, in the transaction that does it."""
    yield Statement(
        "record_audit",
        {"id": new_id(), "actor": actor, "action": action, "subject": subject, "detail": detail},
    )


def job_of(row: tuple[Any, ...]) -> JobRow:
    """Build a job from the columns that the `*_job` and `list_*_jobs` statements share."""
    values = dict(zip(JobRow.__struct_fields__, row, strict=True))
    values["id"], values["state"] = str(values["id"]), JobState(values["state"])
    values["batch_id"] = values["batch_id"] and str(values["batch_id"])
    return JobRow(**values)


def _insert_all(jobs: Sequence[NewJob], insertion: Insertion, freed: Collection[str]) -> Statements[Rows]:
    """Insert the jobs that do not exist yet, in as few statements as possible."""
    if len(jobs) == 1 and jobs[0].batch_id is None:
        return (yield _insert_one(jobs[0], insertion, freed))
    rows: Rows = []
    most = ROWS_PER_STATEMENT if insertion.are_new else ROWS_TO_LOOK_FOR
    for group in groups_of(jobs, size=_payload_size, most=most):
        for piece in (yield from in_pieces("insert_jobs", "jobs", [_row(job, freed) for job in group])):
            facts = _facts(piece.rows, insertion)
            if not insertion.are_new or "keyed" in facts or "marked" in facts:
                facts["looks"] = 1
            rows += yield Statement("insert_jobs", {"jobs": piece.text, **facts})
    return rows


def _payload_size(job: NewJob) -> int:
    return len(job.payload)


def _insert_one(job: NewJob, insertion: Insertion, freed: Collection[str] = ()) -> Statement:
    """Insert a job that is in no batch: either this statement makes it, or it changes nothing."""
    row = _row(job, freed)
    return Statement("insert_job", row | _facts([row], insertion), is_enough=insertion.is_enough)


def _row(job: NewJob, freed: Collection[str]) -> dict[str, Any]:
    """What a statement takes of a job. The keys of those whose holder has ended are `freed`, whatever is seen."""
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
    """Tell databases what to look for that look before they insert, and afterwards whether it was they who did."""
    facts: dict[str, Any] = {"tell": int(insertion.tell)}
    if any(row["unique_key"] is not None for row in rows):
        facts["keyed"] = 1
    if any(row["available_at"] is not None or row["id"] in insertion.doubtful for row in rows):
        facts["marked"] = 1
    return facts
