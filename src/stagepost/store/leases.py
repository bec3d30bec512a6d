"""Operations on leases: claim, renew, rescue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from stagepost.database.statement import (
    Rows,
    SingleStatement,
    Statement,
    Statements,
    as_json,
    operation,
    query,
    single_statement,
)
from stagepost.model.job import LeasedJob, microseconds
from stagepost.model.lifecycle import Cause, JobState, next_state
from stagepost.model.outcome import SUSPECT_CRASHES, Crashed, cause_of
from stagepost.store.counting import record_moves
from stagepost.store.settlement import Fence, Settlement
from stagepost.store.settling import settle

__all__ = [
    "Renewed",
    "Rescued",
    "claim",
    "leased",
    "mark_started",
    "next_due",
    "promote_due",
    "release_unknown_leases",
    "renew",
    "rescue_expired",
]

NO_REPORTS: Mapping[Fence, str] = {}


@single_statement
def claim(
    queue_name: str,
    *,
    owner: str,
    task_names: Sequence[str],
    slots: int,
    lease: timedelta,
    marks: Mapping[int, int] | None = None,
) -> SingleStatement[list[LeasedJob]]:
    """Lease up to `slots` jobs of a queue, the largest priority and then the longest due first.

    With `marks` only jobs of the priorities it names are looked at, and only those due at its instants or later:
    where a database must keep the rows of jobs long ended, the claim need not walk over them again.

    A job whose next crash would be its last does not count as started until `mark_started` runs: if its worker dies
    before that, the job is not charged with a crash.
    """
    facts = {
        "queue_name": queue_name,
        "owner": owner,
        "task_names": as_json(task_names),
        "lease_us": microseconds(lease),
        "suspect_crashes": SUSPECT_CRASHES,
    }
    if marks is not None and len(marks) != 1:
        return _claim_by_priority(facts, marks, slots)
    for priority, after in (marks or {}).items():
        facts |= {"priority": priority, "after": after}
    rows = yield Statement("claim_jobs", {**facts, "slots": slots})
    return _in_order(rows)


@operation
def _claim_by_priority(facts: Mapping[str, Any], marks: Mapping[int, int], slots: int) -> Statements[list[LeasedJob]]:
    rows: Rows = []
    for priority in sorted(marks, reverse=True):
        if (left := slots - len(rows)) > 0:
            at = {"slots": left, "priority": priority, "after": marks[priority]}
            rows += yield Statement("claim_jobs", {**facts, **at})
    return _in_order(rows)


def _in_order(rows: Rows) -> list[LeasedJob]:
    return sorted(leased(rows), key=lambda job: (-job.priority, job.available_at, job.id))


def leased(rows: Rows) -> list[LeasedJob]:
    """Build jobs from the columns that the `claim_*` statements share."""
    if rows and not isinstance(rows[0][0], str):  # a driver that makes objects of ids
        rows = [(str(row[0]), *row[1:-3], row[-3] and str(row[-3]), *row[-2:]) for row in rows]
    return [LeasedJob(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class Renewed:
    """Which attempts still hold their lease, and which of those are asked to stop."""

    held: frozenset[Fence]
    asked_to_stop: frozenset[Fence]
    passed_over: frozenset[Fence] = frozenset()
    """Attempts whose row was locked, so that nothing was written; they count as held."""


@operation
def renew(
    leases: Sequence[Fence], *, owner: str, lease: timedelta, reports: Mapping[Fence, str] = NO_REPORTS
) -> Statements[Renewed]:
    """Extend the leases of attempts, given as (job id, attempt), from now on, and write the progress they reported.

    An attempt whose row is locked is skipped and counts as held until its lease ends: it is being settled, or its
    handler is ending it. After that, the lock may belong to a rescue.
    """
    listed = [{"id": fence[0], "attempt": fence[1], "progress": reports.get(fence)} for fence in sorted(leases)]
    facts = {"owner": owner, "lease_us": microseconds(lease)} | ({"reporting": 1} if reports else {})
    rows = yield Statement("renew_leases", {"leases": listed, **facts}, split="leases")
    held = {(str(job_id), attempt) for job_id, attempt, _ in rows}
    locked: set[Fence] = set()
    if missing := sorted(set(leases) - held):
        listed = [{"id": fence[0], "attempt": fence[1]} for fence in missing]
        found = yield Statement("find_held", {"leases": listed, "owner": owner}, split="leases")
        locked = {(str(job_id), attempt) for job_id, attempt in found}
    return Renewed(
        held=frozenset(held | locked),
        asked_to_stop=frozenset((str(job_id), attempt) for job_id, attempt, asked in rows if asked),
        passed_over=frozenset(locked),
    )


@query
def asked_to_stop(leases: Sequence[Fence], *, owner: str) -> Statements[set[Fence]]:
    """Return the attempts, given as (job id, attempt), that are asked to stop; waits for no lock."""
    listed = as_json([{"id": job_id, "attempt": attempt} for job_id, attempt in sorted(leases)])
    rows = yield Statement("find_stop_requests", {"leases": listed, "owner": owner})
    return {(str(job_id), attempt) for job_id, attempt in rows}


@dataclass(frozen=True, slots=True)
class Rescued:
    """Jobs of dead workers, by what happened to them."""

    queued: tuple[str, ...]
    buried: tuple[str, ...]
    cancelled: tuple[str, ...]
    batches: frozenset[str] = frozenset()
    """The batches of all these jobs."""
    limit_keys: frozenset[str] = frozenset()
    """The limit keys of all these jobs, under which slots have become free."""
    buried_tasks: tuple[str, ...] = ()
    """The tasks of the buried jobs, in the same order."""

    @property
    def number(self) -> int:
        """Number of all these jobs."""
        return len(self.queued) + len(self.buried) + len(self.cancelled)


@operation
def rescue_expired(*, grace: timedelta, most: int = 500) -> Statements[Rescued]:
    """Take back jobs whose lease ended more than `grace` ago; those that crashed too often become dead letters."""
    rows = yield Statement("lock_expired_leases", {"grace_us": microseconds(grace), "most": most})
    changes = [_rescue(*row[:6]) for row in rows]
    if changes:
        yield from settle(changes)
    return Rescued(
        batches=frozenset(str(row[6]) for row in rows if row[6] is not None),
        limit_keys=frozenset(row[7] for row in rows if row[7] is not None),
        queued=tuple(change.id for change in changes if not change.is_final),
        buried=tuple(change.id for change in changes if change.state is JobState.DEAD_LETTER),
        cancelled=tuple(change.id for change in changes if change.state is JobState.CANCELLED),
        buried_tasks=tuple(
            row[8] for row, change in zip(rows, changes, strict=True) if change.state is JobState.DEAD_LETTER
        ),
    )


@operation
def mark_started(job: LeasedJob) -> Statements[None]:
    """Set the start of a leased job whose claim did not set it, because one more crash would be its last."""
    yield Statement("begin_job", {"id": job.id, "attempt": job.attempt, "owner": job.owner})


@operation
def release_unknown_leases(*, owner: str, held: Sequence[Fence]) -> Statements[list[str]]:
    """Return jobs to their queues that this owner leased without knowing it, because the reply to a claim was lost."""
    rows = yield Statement("lock_owned_jobs", {"owner": owner})
    known = set(held)
    strays = [(str(job_id), attempt) for job_id, attempt in rows if (str(job_id), attempt) not in known]
    released = next_state(JobState.RUNNING, Cause.RELEASE)
    changes = [Settlement.of_state(job_id, attempt, owner, released) for job_id, attempt in strays]
    if changes:
        yield from settle(changes)
    return [job_id for job_id, _ in strays]


@operation
def promote_due(*, most: int = 1000) -> Statements[int]:
    """Queue scheduled and retrying jobs whose time has come; returns how many."""
    rows = yield Statement("promote_due_jobs", {"most": most})
    yield from record_moves(row[1:] for row in rows)
    return len(rows)


@query
def next_due() -> Statements[timedelta | None]:
    """Return the time until the next scheduled or retrying job is due; None if there is none."""
    rows = yield Statement("next_due")
    return None if rows[0][0] is None else timedelta(microseconds=int(rows[0][0]))


def _rescue(job_id: str, attempt: int, crashes: int, owner: str, asked_to_stop: bool, has_begun: bool) -> Settlement:
    if asked_to_stop:
        return Settlement.of_state(
            str(job_id), attempt, owner, JobState.CANCELLED, error="cancelled; its worker had died"
        )
    if not has_begun:
        return Settlement.of_state(str(job_id), attempt, owner, next_state(JobState.RUNNING, Cause.RELEASE))
    outcome = Crashed(f"worker {owner} died or lost its lease during attempt {attempt}")
    cause = cause_of(outcome, failures=0, crashes=crashes + 1, max_attempts=1)
    return Settlement(
        id=str(job_id),
        attempt=attempt,
        owner=owner,
        state=next_state(JobState.RUNNING, cause),
        crashes=1,
        error=outcome.error,
        kind="crashed",
    )
