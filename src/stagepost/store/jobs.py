"""Operations on jobs: enqueue, look up, restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from stagepost.database.statement import (
    SingleStatement,
    Statement,
    Statements,
    as_json,
    operation,
    query,
    single_statement,
)
from stagepost.errors import (
    ConfigurationError,
    JobNotFound,
    StoreError,
    StoreUnavailable,
    UniqueKeyTaken,
)
from stagepost.model.identity import new_id
from stagepost.model.job import Enqueued, FailureRecord, JobRow, NewJob, to_datetime
from stagepost.model.lifecycle import Cause, JobState
from stagepost.model.series import JobSeries, MixedJobs
from stagepost.store.batch_locks import lock_batches, lock_batches_of
from stagepost.store.chosen_ids import refuse_ambiguous, refuse_others
from stagepost.store.counting import record_moves
from stagepost.store.inserting import (
    EXISTED,
    LOAD_FROM,
    Insertion,
    existing_ids,
    insert_all,
    insert_one,
    load,
    look_for,
)
from stagepost.store.unique_keys import find_existing, hold_unique_key, update_existing

__all__ = ["enqueue", "enqueue_many", "failures_of", "find", "get", "restart", "retry"]

ENQUEUE_TRIES = 5
MOST_AT_ONCE = 100_000


@single_statement
def enqueue_many(
    jobs: Sequence[NewJob] | JobSeries,
    *,
    notify: bool = False,
    are_new: bool = False,
    are_derived: bool = False,
    on_taken: Callable[[], None] = lambda: None,
) -> SingleStatement[list[Enqueued]]:
    """Store jobs in one transaction. For a job whose unique key is taken by a live job, return that job instead.

    If there are enough jobs for a bulk load, the jobs of a series are made while the database reads the previous ones.

    A request with a chosen id, or one that is repeated after a lost reply, may have been made before. So it looks for
    its job, live or ended, and looks again at the end in case the job ended meanwhile. A chosen id only matches a job
    of the same task with the same arguments; otherwise `JobDiffers` is raised. Ids that `are_derived` from the purpose
    of the jobs match whatever the arguments are.

    With `notify`, a database that can notify listeners does so at commit. The notification is part of the insert, so it
    costs no extra statement and is only sent for jobs that can be claimed. With `are_new` the caller guarantees that
    none of the jobs exists. A bulk load calls `on_taken` when the driver has read the last row; what remains is the
    database's work.
    """
    is_tried = False
    if len(jobs) == 1:
        [job] = jobs
        is_tried = _is_plain(job)
        if is_tried and (yield insert_one(job, Insertion(notify=notify))):
            return [Enqueued(job.id, is_new=True)]
    return _store_all(
        jobs, notify=notify, are_new=are_new, are_derived=are_derived, on_taken=on_taken, is_tried=is_tried
    )


@enqueue_many.after_lost_reply
def _enqueue_many_again(
    jobs: Sequence[NewJob] | JobSeries,
    *,
    notify: bool = False,
    are_new: bool = False,
    are_derived: bool = False,
    on_taken: Callable[[], None] = lambda: None,
) -> Statements[list[Enqueued]]:
    return (
        yield from _store_all(
            jobs, notify=notify, are_new=are_new, are_derived=are_derived, on_taken=on_taken, is_repeated=True
        )
    )


@single_statement
def enqueue(job: NewJob, *, notify: bool = False) -> SingleStatement[Enqueued]:
    """Store one job, or return the live job that holds its unique key. `notify` is described at `enqueue_many`."""
    is_tried = _is_plain(job)
    if is_tried and (yield insert_one(job, Insertion(notify=notify))):
        return Enqueued(job.id, is_new=True)
    return _store_one(job, notify=notify, is_tried=is_tried)


@enqueue.after_lost_reply
def _enqueue_again(job: NewJob, *, notify: bool = False) -> Statements[Enqueued]:
    return (yield from _store_one(job, notify=notify, is_repeated=True))


def _is_plain(job: NewJob) -> bool:
    """Whether one insert is enough: it stores the job, or changes nothing because a live job holds its unique key."""
    return not job.has_chosen_id and job.unique_for_us is None and job.batch_id is None


@operation
def _store_one(job: NewJob, *, notify: bool, is_tried: bool = False, is_repeated: bool = False) -> Statements[Enqueued]:
    [enqueued] = yield from _store_all([job], notify=notify, is_tried=is_tried, is_repeated=is_repeated)
    return enqueued


@operation
def _store_all(
    jobs: Sequence[NewJob] | JobSeries,
    *,
    notify: bool,
    are_new: bool = False,
    are_derived: bool = False,
    on_taken: Callable[[], None] = lambda: None,
    is_tried: bool = False,
    is_repeated: bool = False,
) -> Statements[list[Enqueued]]:
    """Store jobs as `enqueue_many` describes. `is_tried` means that inserting the only job has stored nothing."""
    if len(jobs) > MOST_AT_ONCE:
        raise ConfigurationError(
            f"{len(jobs):,} jobs in one transaction: at most {MOST_AT_ONCE:,} are allowed. Use several calls."
        )
    asked = jobs if isinstance(jobs, JobSeries) else MixedJobs(jobs)
    chosen = set() if are_derived else set(asked.chosen_ids)
    if chosen:
        refuse_ambiguous(jobs)
    doubtful = asked.ids if is_repeated else asked.chosen_ids
    loaded: set[str] = set()
    if len(jobs) >= LOAD_FROM and asked.plain_ids:
        if are_new or not (yield from existing_ids(asked.plain_ids)):
            are_new, loaded = True, (yield from load(asked, on_taken))
        else:
            doubtful = asked.ids
    held: dict[str, str] = {}
    open_: list[NewJob] = []
    # Sorted: transactions that take the same unique keys in opposite order would deadlock.
    rest = {job.id: job for job in asked.without(loaded)}
    for job in sorted(rest.values(), key=lambda job: job.unique_key or ""):
        holder = (yield from hold_unique_key(job)) if job.unique_for_us is not None else job.id
        if holder == job.id:
            open_.append(job)
        else:
            held[job.id] = holder
    results = {asked: Enqueued(holder, is_new=False) for asked, holder in held.items()}
    insertion = Insertion(doubtful=frozenset(doubtful), are_new=are_new, notify=notify, is_tried=is_tried)
    results |= yield from _insert_or_find(open_, insertion)
    there = {job_id for job_id, result in results.items() if result.id == job_id and not result.is_new}
    yield from refuse_others([rest[job_id] for job_id in there & chosen])
    # Only this request can have made a job under a generated id, or, most likely, one whose reply was lost.
    results |= {job_id: Enqueued(job_id, is_new=True) for job_id in there if is_repeated or job_id not in chosen}
    yield from update_existing(rest.values(), held)  # last: the holder may be among these jobs
    if doubtful:
        yield from _refuse_doubles(doubtful)
    return [Enqueued(job_id, is_new=True) if job_id in loaded else results[job_id] for job_id in asked.ids]


def _insert_or_find(open_: list[NewJob], insertion: Insertion) -> Statements[dict[str, Enqueued]]:
    """Insert the jobs that do not exist, and find the jobs that have the id or hold the unique key of the others."""
    results: dict[str, Enqueued] = {}
    freed: set[str] = set()
    for number in range(ENQUEUE_TRIES):
        if not open_:
            return results
        is_tried = insertion.is_tried and number == 0
        rows = [] if is_tried else (yield from insert_all(open_, insertion, freed))
        results |= {str(row[0]): Enqueued(str(row[0]), is_new=row[1:] != EXISTED) for row in rows}
        open_ = [job for job in open_ if job.id not in results]
        if open_:
            existing = yield from find_existing(open_, freed)
            freed |= yield from update_existing(open_, existing)
            # A holder that ended in between is not found, so its key is free again.
            existing = {asked: holder for asked, holder in existing.items() if asked not in freed}
            results |= {asked: Enqueued(holder, is_new=False) for asked, holder in existing.items()}
            open_ = [job for job in open_ if job.id not in existing]
    if open_:
        raise StoreError(
            f"unique key {open_[0].unique_key!r} was freed and taken again {ENQUEUE_TRIES} times during this enqueue. "
            f"Enqueue the job again."
        )
    return results


def _refuse_doubles(ids: Collection[str]) -> Statements[None]:
    """Raise StoreUnavailable if one of these jobs exists both live and ended; a retry finds the ended one.

    An insert that waits while its job ends sees neither the live row nor the history row, which is newer than the
    insert's snapshot. This statement starts after the insert and sees both.
    """
    found = Counter(str(job_id) for (job_id,) in (yield from look_for(ids)))
    doubled = [job_id for job_id, times in found.items() if times > 1]
    if doubled:
        raise StoreUnavailable(
            f"job {doubled[0]} ended while it was enqueued again. Roll back your transaction and repeat it."
        )


@query
def find(job_id: str) -> Statements[JobRow | None]:
    """Look up a job, live or ended."""
    rows = yield Statement("live_job", {"id": job_id})
    if not rows:
        rows = yield Statement("ended_job", {"id": job_id})
    if not rows:  # restarted between the two
        rows = yield Statement("live_job", {"id": job_id})
    return job_of(rows[0]) if rows else None


@query
def get(job_id: str) -> Statements[JobRow]:
    """Look up a job, live or ended, or raise JobNotFound."""
    job = yield from find(job_id)
    if job is None:
        raise JobNotFound(job_id)
    return job


@query
def failures_of(job_id: str) -> Statements[list[FailureRecord]]:
    """List a job's failed attempts, oldest first."""
    rows = yield Statement("failures_of_job", {"id": job_id})
    return [
        FailureRecord(attempt, kind, error, traceback, worker, to_datetime(failed_at))
        for attempt, kind, error, traceback, worker, failed_at in rows
    ]


@operation
def restart(job_ids: Sequence[str], *, actor: str) -> Statements[list[str]]:
    """Queue ended jobs again and return their ids. Attempt numbers continue; failures start at zero.

    A batch's counts follow when one of its items is restarted. A finished batch stays done, with its completion job and
    gate unchanged. An unfinished batch waits for the item.
    """
    asked = sorted(set(job_ids))
    ids = {"ids": as_json(asked)}
    locked = yield from lock_batches_of(asked)
    rows = yield Statement("restart_jobs", ids)
    # If a caller's transaction has an old snapshot, the batches of jobs that ended since are known only now.
    yield from lock_batches({str(row[3]) for row in rows if row[3]} - locked.keys())
    # Checked after the restart: a key that was free before it may be taken by now.
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
    return [str(row[0]) for row in rows]


@restart.after_lost_reply
def _restart_again(job_ids: Sequence[str], *, actor: str) -> Statements[list[str]]:
    """Return the jobs that are live as well: the request whose reply was lost has restarted them."""
    restarted = yield from restart(job_ids, actor=actor)
    for job_id in set(job_ids) - set(restarted):
        restarted += [job_id for _ in (yield Statement("live_job", {"id": job_id}))]
    return restarted


@operation
def retry(job_ids: Sequence[str], *, actor: str) -> Statements[list[str]]:
    """Queue ended jobs again like `restart`; raises JobNotFound, and queues none, if one does not exist."""
    if unknown := set(job_ids) - (yield from existing_ids(job_ids)):
        raise JobNotFound(min(unknown))
    return (yield from restart(job_ids, actor=actor))


@retry.after_lost_reply
def _retry_again(job_ids: Sequence[str], *, actor: str) -> Statements[list[str]]:
    return (yield from _restart_again(job_ids, actor=actor))


@operation
def audit(actor: str, action: str, subject: str, *, detail: str | None = None) -> Statements[None]:
    """Record an operator's action in the transaction that performs it."""
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
