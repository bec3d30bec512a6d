"""Operations on jobs that a broker delivers to workers: find unsent jobs, mark them as sent, claim deliveries.

A queued job whose `sent_at` is null has no message yet; the row itself is the outbox. Once marked as sent, it waits for
a worker that takes its message and claims it by id and attempt. Every statement that queues a job again sets `sent_at`
to null.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

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
from stagepost.model.limits import NO_RULES, LimitRules
from stagepost.model.outcome import SUSPECT_CRASHES
from stagepost.store.counting import count_by_queue, record_moves
from stagepost.store.leases import leased
from stagepost.store.limits import block_excess
from stagepost.store.queues import within_limits
from stagepost.store.settlement import Fence, Settlement
from stagepost.store.settling import settle

__all__ = [
    "Backlog",
    "ClaimedDeliveries",
    "PutBack",
    "Sent",
    "Unsent",
    "backlog",
    "lost_jobs",
    "mark_sent",
    "put_back",
    "put_back_lost",
    "read_clock",
    "refuse_unsent",
    "sent_jobs",
    "sent_queues",
    "take_delivered",
    "unsent",
]

ENVELOPE_BYTES = 500
"""About the size of a message's properties and envelope without its payload."""
ALWAYS = 2**62
"""Later than any time."""
UNKNOWN_TASK_DELAY = timedelta(seconds=5)
"""How long a job waits in the store after it was delivered to a worker that does not know its task."""


class Unsent(msgspec.Struct, frozen=True, gc=False):
    """A job whose message has not been published yet."""

    id: str
    task_name: str
    attempt: int
    """The number of its next attempt."""
    created_at: int
    payload: str
    context: str | None
    priority: int = 0
    read_at: int = 0
    """When this row was read, by the database's clock."""

    @property
    def size(self) -> int:
        """About how many bytes its message takes."""
        return ENVELOPE_BYTES + len(self.payload) + len(self.context or "")


@query
def unsent(queue_name: str, *, most: int) -> Statements[list[Unsent]]:
    """List a queue's queued jobs that have no message yet, in the order they should run."""
    rows = yield Statement("unsent_jobs", {"queue_name": queue_name, "most": most})
    return [Unsent(str(job_id), *facts) for job_id, *facts in rows]


class Backlog(msgspec.Struct, frozen=True):
    """The unsent jobs of a queue."""

    jobs: int
    """At most the `most` of the query."""
    waits_us: int | None
    """How long the oldest of them has waited; None if there is none."""


@query
def backlog(queue_name: str, *, most: int = 10_000) -> Statements[Backlog]:
    """Count a queue's jobs that have no message yet, up to `most`."""
    [(jobs, waits_us)] = yield Statement("count_unsent", {"queue_name": queue_name, "most": most})
    return Backlog(int(jobs), None if waits_us is None else int(waits_us))


@single_statement
def mark_sent(sent: Sequence[Fence], *, read_at: int | None = None) -> Statements[int]:
    """Record that the broker has confirmed messages for these jobs and attempts, and return how many were marked.

    Skips jobs that were claimed meanwhile, and jobs that changed after `read_at`, when they were read as unsent: a
    worker may have taken the message and put the job back, so that it needs another message.
    """
    facts = {"sent": _fences(sent), "read_at": ALWAYS if read_at is None else read_at}
    rows = yield Statement("mark_sent", facts)
    return len(rows)


@operation
def refuse_unsent(unsent_jobs: Sequence[Fence], *, error: str) -> Statements[list[str]]:
    """Fail jobs whose message can never be sent, and return those that were still waiting for it."""
    state = next_state(JobState.QUEUED, Cause.REFUSE)
    changes = []
    for job_id, attempt in sorted(unsent_jobs):
        rows = yield Statement("lock_job", {"id": job_id})
        if rows and rows[0][2] == JobState.QUEUED and rows[0][0] == attempt - 1:
            changes.append(Settlement.of_state(job_id, attempt - 1, rows[0][1], state, error=error))
    if not changes:
        return []
    held = yield from settle(changes)
    return [job_id for (job_id, _), is_held in held.items() if is_held]


class ClaimedDeliveries(msgspec.Struct, frozen=True):
    """Deliveries, by what happened to their jobs."""

    jobs: list[LeasedJob]
    put_back: list[str] = []
    """Jobs that may not start now; they are sent again later."""
    unknown: list[str] = []
    """Jobs that are not live: they have ended or never existed."""
    stale: list[str] = []
    """Jobs that are running, or that wait for something other than this message."""
    blocked_on: frozenset[str] = frozenset()
    """Names of the limits and rates that now block some of the jobs put back."""
    is_any_scheduled: bool = False
    """Whether some of them are now scheduled for their next tokens."""


@single_statement
def take_delivered(
    queue_name: str,
    deliveries: Sequence[Fence],
    *,
    owner: str,
    task_names: Sequence[str],
    lease: timedelta,
    is_limited: bool = False,
    rules: LimitRules = NO_RULES,
) -> SingleStatement[ClaimedDeliveries]:
    """Lease the jobs that messages name, by id and attempt. The messages of all other jobs can be acknowledged.

    A message may arrive twice, late, or for a job that has ended; then there is nothing to lease. A job is put back, to
    be sent again later, if its queue is paused or at its limit, or if this worker does not know its task. A job over
    the limit or rate that `rules` set for its task is blocked until it may start.
    """
    facts = {
        "queue_name": queue_name,
        "deliveries": _fences(deliveries),
        "owner": owner,
        "task_names": as_json(task_names),
        "lease_us": microseconds(lease),
        "suspect_crashes": SUSPECT_CRASHES,
    }
    if is_limited or rules.is_limited:
        return _take_within_limits(queue_name, deliveries, facts, task_names, is_limited=is_limited, rules=rules)
    rows = yield Statement("claim_delivered", {**facts, "slots": len(deliveries)})
    claimed = ClaimedDeliveries(leased(rows))
    rest = _rest(deliveries, claimed)
    return _put_back_rest(claimed, rest, task_names) if rest else claimed


@operation
def _take_within_limits(
    queue_name: str,
    deliveries: Sequence[Fence],
    facts: Mapping[str, Any],
    task_names: Sequence[str],
    *,
    is_limited: bool,
    rules: LimitRules,
) -> Statements[ClaimedDeliveries]:
    blocked: set[str] = set()
    names: set[str] = set()
    is_any_scheduled = False

    def lease_some(room: int) -> Statements[list[LeasedJob]]:
        rows = yield Statement("claim_delivered", {**facts, "slots": room})
        found = leased(rows)
        checked = yield from block_excess(found, rules)
        started = {job.id for job in checked.jobs}
        blocked.update(job.id for job in found if job.id not in started)
        names.update(checked.blocked_on)
        nonlocal is_any_scheduled
        is_any_scheduled |= checked.is_any_scheduled
        return checked.jobs

    slots = len(deliveries)
    jobs = yield from within_limits(queue_name, slots, lease_some) if is_limited else lease_some(slots)
    claimed = ClaimedDeliveries(
        jobs, put_back=sorted(blocked), blocked_on=frozenset(names), is_any_scheduled=is_any_scheduled
    )
    rest = _rest(deliveries, claimed)
    return (yield from _put_back_rest(claimed, rest, task_names)) if rest else claimed


def _rest(deliveries: Sequence[Fence], claimed: ClaimedDeliveries) -> set[Fence]:
    """Return the deliveries whose jobs were not leased, nor leased and then blocked."""
    known = {*(job.id for job in claimed.jobs), *claimed.put_back}
    return {(job_id, attempt) for job_id, attempt in deliveries if job_id not in known}


@operation
def _put_back_rest(
    claimed: ClaimedDeliveries, rest: Collection[Fence], task_names: Sequence[str]
) -> Statements[ClaimedDeliveries]:
    """Find out why these jobs were not leased, and let those that still wait be sent again."""
    named = {job_id for job_id, _ in rest}
    rows = yield Statement("find_delivered", {"ids": as_json(sorted(named))})
    waiting = {
        str(job_id): task_name
        for job_id, state, attempts, task_name in rows
        if state == JobState.QUEUED and (str(job_id), attempts + 1) in rest
    }
    known = {job_id for job_id, task_name in waiting.items() if task_name in task_names}
    yield from _put_back(sorted(known), delay_us=0)
    yield from _put_back(sorted(waiting.keys() - known), delay_us=microseconds(UNKNOWN_TASK_DELAY))
    found = {str(row[0]) for row in rows}
    return ClaimedDeliveries(
        claimed.jobs,
        put_back=sorted({*waiting, *claimed.put_back}),
        unknown=sorted(named - found),
        stale=sorted(found - waiting.keys()),
        blocked_on=claimed.blocked_on,
        is_any_scheduled=claimed.is_any_scheduled,
    )


@operation
def put_back(ids: Sequence[str]) -> Statements[list[str]]:
    """Let jobs be sent again whose message will not arrive, and return their ids. Skips jobs claimed meanwhile."""
    rows = yield from _put_back(sorted(ids), delay_us=0)
    return [str(row[0]) for row in rows]


@query
def lost_jobs(queue_name: str, *, sent_before: int, most: int) -> Statements[list[str]]:
    """List a queue's jobs whose message was sent before `sent_before` and has not been taken since."""
    rows = yield Statement("lost_jobs", {"queue_name": queue_name, "sent_before": sent_before, "most": most})
    return [str(row[0]) for row in rows]


class PutBack(msgspec.Struct, frozen=True):
    """Jobs whose message was lost, by what happened to them."""

    again: list[str] = []
    """Jobs that are sent again."""
    unanswered: list[str] = []
    """Jobs that became dead letters because their message had been sent `sends` times."""
    batches: list[str | None] = []
    """The batch of each job in `unanswered`."""


@operation
def put_back_lost(queue_name: str, *, sent_before: int, most: int, sends: int | None = None) -> Statements[PutBack]:
    """Let a queue's jobs be sent again whose message was sent before `sent_before` and has not been taken since.

    Give `sends` for a queue that an external program serves: each lost message counts as a crash, and a job becomes a
    dead letter after that many. The job is sent again under the same attempt, so a late answer is still accepted.
    """
    lost = yield from lost_jobs(queue_name, sent_before=sent_before, most=most)
    rows = yield from _put_back(sorted(lost), delay_us=0, sent_before=sent_before, crashes=0 if sends is None else 1)
    if rows:
        yield Statement("note_resent", {"queue_name": queue_name})
    spent = [row for row in rows if sends is not None and row[5] >= sends]
    if spent:
        yield from settle([_unanswered(str(row[0]), row[4], row[5]) for row in spent])
    unanswered = [str(row[0]) for row in spent]
    return PutBack(
        again=[job_id for row in rows if (job_id := str(row[0])) not in unanswered],
        unanswered=unanswered,
        batches=[row[2] and str(row[2]) for row in spent],
    )


def _unanswered(job_id: str, attempts: int, sends: int) -> Settlement:
    state = next_state(JobState.QUEUED, Cause.EXHAUST)
    times = "once" if sends == 1 else f"{sends} times"
    error = f"its request was sent {times} and never answered: no program took it, or one took it and did not answer"
    return Settlement.of_state(job_id, attempts, None, state, error=error)


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A job whose message was sent and has not been taken."""

    id: str
    attempt: int
    age_us: int
    """How long ago it was sent."""


@query
def sent_jobs(queue_name: str, *, older: timedelta, most: int) -> Statements[list[Sent]]:
    """List jobs whose message was sent more than `older` ago and has not been taken, oldest first."""
    rows = yield Statement("sent_jobs", {"queue_name": queue_name, "older_us": microseconds(older), "most": most})
    return [Sent(str(job_id), attempt, age_us) for job_id, attempt, age_us in rows]


@query
def sent_queues() -> Statements[list[str]]:
    """List the queues that have sent jobs, with one index lookup for each queue that has queued jobs."""
    counted = yield from count_by_queue()
    found = []
    for queue_name in sorted(name for name, counts in counted.items() if counts[JobState.QUEUED]):
        if (yield Statement("oldest_sent", {"queue_name": queue_name})):
            found.append(queue_name)
    return found


@query
def read_clock() -> Statements[int]:
    """Read the database's clock, in microseconds since 1970."""
    [(now,)] = yield Statement("read_clock")
    return int(now)


def _put_back(ids: Sequence[str], *, delay_us: int, sent_before: int = ALWAYS, crashes: int = 0) -> Statements[Rows]:
    if not ids:
        return []
    facts = {"ids": as_json(ids), "delay_us": delay_us, "sent_before": sent_before, "crashes": crashes}
    rows = yield Statement("put_back_jobs", facts)
    yield from record_moves((row[1], row[2], JobState.QUEUED, row[3]) for row in rows)
    return rows


def _fences(fences: Sequence[Fence]) -> str:
    # Sorted: locks in opposite order would deadlock. Each once: the join would return duplicates.
    return as_json([{"id": job_id, "attempt": attempt} for job_id, attempt in sorted(set(fences))])
