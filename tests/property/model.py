"""The job store in plain Python, small enough to be trusted: what every operation must do to every row."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from stagepost.errors import IllegalTransition, JobNotFound, UniqueKeyTaken
from stagepost.model.job import LeasedJob, NewJob, OnConflict, microseconds
from stagepost.model.outcome import (
    Abandoned,
    Completed,
    Crashed,
    Failed,
    Outcome,
    Refused,
    Released,
    Snoozed,
)
from stagepost.model.reason import reason_of
from stagepost.store.unique_keys import DEBOUNCED_TIMES

ALL_QUEUES = "*"
CRASHES_ALLOWED = 3
SUSPECT_CRASHES = 2
UNIQUE_KEYS_KEPT_US = 60_000_000
Fence = tuple[str, int]


@dataclass
class ModelJob:
    """One row, live or ended; attributes are called as the columns are."""

    id: str
    task_name: str
    queue_name: str
    payload: str
    context: str | None
    priority: int
    max_attempts: int
    unique_key: str | None
    limit_key: str | None
    limit_slots: int | None
    available_at: int
    created_at: int
    updated_at: int
    state: str = "queued"
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    lease_until: int | None = None
    locked_by: str | None = None
    started_at: int | None = None
    cancel_requested_at: int | None = None
    finished_at: int | None = None
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    batch_id: str | None = None
    item_key: str | None = None
    blocked_on: str | None = None

    def enter(self, state: str) -> None:
        """Wait for a worker, or in front of a limit that is stored with the job; otherwise for something else."""
        is_blocked = state == "queued" and self.limit_slots is not None
        self.state = "blocked" if is_blocked else state
        self.blocked_on = f"limit:{self.limit_key}" if is_blocked else None

    @property
    def processed_by(self) -> str | None:
        return self.locked_by

    @property
    def claim_order(self) -> tuple[int, int, str]:
        return -self.priority, self.available_at, self.id


@dataclass
class ModelQueue:
    """What operators set on a queue; the one named * stands for all of them together."""

    paused_at: int | None = None
    max_running: int | None = None


@dataclass
class Model:
    """Dictionaries for tables, and a number for the clock."""

    now: int
    live: dict[str, ModelJob] = field(default_factory=dict)
    ended: dict[str, ModelJob] = field(default_factory=dict)
    held: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Unique keys held for a period: by which job, until when."""
    queues: dict[str, ModelQueue] = field(default_factory=dict)
    failures: dict[Fence, tuple[str, str]] = field(default_factory=dict)
    audit: list[tuple[str, str, str, str | None]] = field(default_factory=list)
    ledger: list[Fence] = field(default_factory=list)
    """What handlers wrote in the transactions in which they completed their jobs."""
    born: list[str] = field(default_factory=list)
    """Every job that was stored, as often as it was: one that was pruned may be asked for again."""
    ends: list[str] = field(default_factory=list)
    """Every job that ended, as often as it did."""

    def counts(self) -> dict[tuple[str, str], int]:
        """How many jobs there are, by queue and state."""
        return dict(Counter((job.queue_name, job.state) for job in (*self.live.values(), *self.ended.values())))

    # ---- asking for jobs

    def enqueue(self, jobs: Sequence[NewJob]) -> list[tuple[str, bool]]:
        """An id that was seen before is the same job; a unique key that is held gives its holder."""
        found: dict[str, str] = {}
        for job in jobs:
            found[job.id] = self._period_holder(job) if job.unique_for_us is not None else job.id
        for job in jobs:
            if found[job.id] == job.id and job.id not in self.live and job.id not in self.ended:
                found[job.id] = self._live_holder(job) or self._insert(job)
        for job in jobs:
            if found[job.id] != job.id:
                self._replace(self.live.get(found[job.id]), job)
        return [(found[job.id], found[job.id] == job.id) for job in jobs]

    def _period_holder(self, job: NewJob) -> str:
        assert job.unique_key is not None
        assert job.unique_for_us is not None
        holder, until = self.held.get(job.unique_key, (job.id, 0))
        if until > self.now and holder != job.id:
            return holder
        self.held[job.unique_key] = (job.id, self.now + job.unique_for_us)
        return job.id

    def _live_holder(self, job: NewJob) -> str | None:
        if job.unique_key is None or job.unique_for_us is not None:
            return None
        return next((known.id for known in self.live.values() if known.unique_key == job.unique_key), None)

    def _insert(self, job: NewJob) -> str:
        due = self.now + job.delay_us if job.available_at is None else job.available_at
        self.live[job.id] = ModelJob(
            id=job.id,
            task_name=job.task_name,
            queue_name=job.queue_name,
            payload=job.payload,
            context=job.context,
            priority=job.priority,
            max_attempts=job.max_attempts,
            unique_key=None if job.unique_for_us is not None else job.unique_key,
            limit_key=job.limit_key,
            limit_slots=job.limit,
            available_at=due,
            created_at=self.now,
            updated_at=self.now,
            batch_id=job.batch_id,
            item_key=job.item_key,
        )
        self.live[job.id].enter("scheduled" if due > self.now else "queued")
        self.born.append(job.id)
        return job.id

    def _replace(self, holder: ModelJob | None, job: NewJob) -> None:
        if holder is None or holder.state == "running" or job.on_conflict is OnConflict.KEEP:
            return
        holder.payload, holder.context, holder.updated_at = job.payload, job.context, self.now
        if job.on_conflict is OnConflict.DEBOUNCE and job.delay_us:
            latest = holder.created_at + DEBOUNCED_TIMES * job.delay_us
            holder.enter("scheduled")
            holder.available_at = min(self.now + job.delay_us, latest)

    # ---- attempts

    def claim(
        self,
        queue_name: str,
        *,
        owner: str,
        task_names: Sequence[str],
        slots: int,
        lease_us: int,
        marks: Mapping[int, int] | None = None,
    ) -> list[str]:
        """Where there are `marks`, only the priorities they name, and of these only what is due then or later."""
        if self.queues.get(queue_name, ModelQueue()).paused_at is not None:
            return []
        claimable = [
            job
            for job in self.live.values()
            if job.state == "queued" and job.queue_name == queue_name and job.task_name in task_names
            if marks is None or job.available_at >= marks.get(job.priority, math.inf)
        ]
        claimed = sorted(claimable, key=attrgetter("claim_order"))[:slots]
        for job in claimed:
            self.lease(job, owner, lease_us)
        return [job.id for job in claimed]

    def lease(self, job: ModelJob, owner: str, lease_us: int) -> None:
        job.state, job.attempts, job.locked_by = "running", job.attempts + 1, owner
        job.lease_until, job.updated_at = self.now + lease_us, self.now
        job.started_at = self.now if job.crashes < SUSPECT_CRASHES else None

    def begin(self, lease: LeasedJob) -> None:
        if self.holds(lease):
            job = self.live[lease.id]
            job.started_at = job.updated_at = self.now

    def room(self, queue_name: str, slots: int) -> int:
        """How many of `slots` the limits of the queue, and of all queues together, leave."""
        for name in {queue_name, ALL_QUEUES} & self.queues.keys():
            queue = self.queues[name]
            running = [
                job for job in self.live.values() if job.state == "running" and name in {job.queue_name, ALL_QUEUES}
            ]
            if queue.max_running is not None:
                slots = min(slots, queue.max_running - len(running))
            if queue.paused_at is not None:
                slots = 0
        return max(0, slots)

    def renew(self, leases: Iterable[LeasedJob], *, owner: str, lease_us: int) -> tuple[set[Fence], set[Fence]]:
        held = [lease for lease in leases if self.holds(lease) and lease.owner == owner]
        for lease in held:
            self.live[lease.id].lease_until = self.now + lease_us
        asked = [lease for lease in held if self.live[lease.id].cancel_requested_at is not None]
        return {(lease.id, lease.attempt) for lease in held}, {(lease.id, lease.attempt) for lease in asked}

    def holds(self, lease: LeasedJob) -> bool:
        """Whether this attempt is the one that counts."""
        job = self.live.get(lease.id)
        return job is not None and (job.attempts, job.locked_by) == (lease.attempt, lease.owner)

    def settle(self, endings: Iterable[tuple[LeasedJob, Outcome]]) -> dict[Fence, bool]:
        """The first outcome of an attempt counts; one that ended its job already is told that it did."""
        verdicts: dict[Fence, bool] = {}
        for lease, outcome in endings:
            if (lease.id, lease.attempt) not in verdicts:
                verdicts[lease.id, lease.attempt] = self._settle(lease, outcome)
        return verdicts

    def _settle(self, lease: LeasedJob, outcome: Outcome) -> bool:
        if self.holds(lease):
            self._apply(self.live[lease.id], outcome)
            return True
        ended = self.ended.get(lease.id)
        return ended is not None and (ended.attempts, ended.locked_by) == (lease.attempt, lease.owner)

    def _apply(self, job: ModelJob, outcome: Outcome) -> None:
        self._count(job, outcome)
        match outcome:
            case Completed(result):
                self._end(job, "completed", result=result)
            case Refused(error):
                self._end(job, "failed", error=error)
            case Abandoned(reason):
                self._end(job, "cancelled", error=reason)
            case Failed(error) if job.failures >= job.max_attempts:
                self._end(job, "dead_letter", error=error)
            case Crashed(error) if job.crashes >= CRASHES_ALLOWED:
                self._end(job, "dead_letter", error=error)
            case _ if job.cancel_requested_at is not None:
                self._end(job, "cancelled", error=getattr(outcome, "error", None) or "cancelled while it ran")
            case Failed(_, delay):
                self._put_back(job, "retrying", self.now + microseconds(delay))
            case Snoozed(delay):
                self._put_back(job, "scheduled", self.now + microseconds(delay))
            case Released() | Crashed():
                self._put_back(job, "queued", job.available_at)

    def _count(self, job: ModelJob, outcome: Outcome) -> None:
        match outcome:
            case Failed(error) | Refused(error):
                job.failures += 1
                self.failures[job.id, job.attempts] = ("failed" if isinstance(outcome, Failed) else "refused", error)
            case Crashed(error):
                job.crashes += 1
                self.failures[job.id, job.attempts] = ("crashed", error)
            case _:
                pass

    def _put_back(self, job: ModelJob, state: str, available_at: int) -> None:
        job.enter(state)
        job.available_at, job.updated_at = available_at, self.now
        job.lease_until = job.locked_by = None

    def _end(self, job: ModelJob, state: str, *, result: str | None = None, error: str | None = None) -> None:
        job.state, job.result, job.error, job.finished_at = state, result, error, self.now
        job.reason = reason_of(error) if state in {"failed", "dead_letter"} else None
        self.ended[job.id] = self.live.pop(job.id)
        self.ends.append(job.id)

    # ---- upkeep

    def rescue(self, grace_us: int) -> set[tuple[str, str]]:
        """Returns what became of each job whose lease ended longer ago than `grace_us`."""
        expired = [job for job in self.live.values() if (job.lease_until or self.now) < self.now - grace_us]
        for job in expired:
            if job.cancel_requested_at is not None:
                self._end(job, "cancelled", error="cancelled; its worker had died")
            elif job.started_at is None:
                self._apply(job, Released())
            else:
                error = f"worker {job.locked_by} died or lost its lease during attempt {job.attempts}"
                self._apply(job, Crashed(error))
        return {(job.id, job.state if job.id in self.ended else "queued") for job in expired}

    def release_unknown_leases(self, owner: str, held: set[Fence]) -> set[str]:
        strays = [job for job in self.live.values() if job.locked_by == owner and (job.id, job.attempts) not in held]
        for job in strays:
            self._apply(job, Released())
        return {job.id for job in strays}

    def promote(self) -> int:
        due = [
            job for job in self.live.values() if job.state in {"retrying", "scheduled"} and job.available_at <= self.now
        ]
        for job in due:
            job.enter("queued")
            job.updated_at = self.now
        return len(due)

    def unblock(self) -> int:
        """Let blocked jobs through in order while each one's own limit leaves room."""
        through = 0
        blocked = [job for job in self.live.values() if job.state == "blocked"]
        for limit_key in {job.limit_key for job in blocked if job.limit_key is not None}:
            for job in sorted((job for job in blocked if job.limit_key == limit_key), key=attrgetter("claim_order")):
                if self.usage(limit_key) >= (job.limit_slots or 1):
                    break
                job.state, job.updated_at = "queued", self.now
                through += 1
        return through

    def usage(self, limit_key: str) -> int:
        """How many jobs count against a limit: running jobs, and jobs let through to run."""
        through = [job for job in self.live.values() if job.blocked_on == f"limit:{limit_key}"]
        running = [job for job in self.live.values() if job.state == "running" and job.limit_key == limit_key]
        return len(running) + sum(job.state in {"queued", "scheduled"} for job in through)

    def prune(self, older_us: int) -> int:
        old = [
            job.id
            for job in self.ended.values()
            if (job.finished_at or 0) < self.now - older_us and self.is_prunable(job)
        ]
        unheld = [key for key, (_, until) in self.held.items() if until < self.now - UNIQUE_KEYS_KEPT_US]
        self._forget(old)
        for key in unheld:
            del self.held[key]
        return len(old) + len(unheld)

    def is_prunable(self, job: ModelJob) -> bool:
        """Whether an ended job may go: nothing unfinished needs it."""
        return job.batch_id is None

    def _forget(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            del self.ended[job_id]
        self.failures = {
            fence: what for fence, what in self.failures.items() if fence[0] in self.live or fence[0] in self.ended
        }

    # ---- operators

    def cancel(self, job_id: str, actor: str) -> str:
        if job_id in self.ended and self.ended[job_id].state == "cancelled":
            return "cancelled"
        if job_id in self.ended:
            raise IllegalTransition(job_id, self.ended[job_id].state, "be cancelled")
        if job_id not in self.live:
            raise JobNotFound(job_id)
        job = self.live[job_id]
        self.audit.append((actor, "cancel", job_id, job.state))
        if job.state == "running":
            job.cancel_requested_at = self.now
            return "running"
        self._end(job, "cancelled", error=f"cancelled by {actor}")
        return "cancelled"

    def restart(self, job_ids: Iterable[str], actor: str) -> set[str]:
        """Either all that have ended, or, if two live jobs would have one unique key, none."""
        again = {job_id for job_id in job_ids if job_id in self.ended}
        keys = [job.unique_key for job in self.live.values()] + [self.ended[job_id].unique_key for job_id in again]
        taken = [key for key in keys if key is not None]
        if len(taken) > len(set(taken)):
            raise UniqueKeyTaken(taken[0], "one of them")
        for job_id in again:
            job = self.ended.pop(job_id)
            self.audit.append((actor, "restart", job_id, job.state))
            changes: dict[str, Any] = dict.fromkeys(FORGOTTEN_AT_RESTART) | {"failures": 0, "crashes": 0}
            self.live[job_id] = replace(job, available_at=self.now, updated_at=self.now, **changes)
            self.live[job_id].enter("queued")
        return again

    def discard(self, job_ids: Iterable[str], actor: str) -> set[str]:
        there = {job_id for job_id in job_ids if job_id in self.ended and self.is_prunable(self.ended[job_id])}
        for job_id in there:
            job = self.ended[job_id]
            self.audit.append((actor, "discard", job_id, f"{job.task_name}, {job.state}"))
        self._forget(there)
        return there

    def pause(self, queue_name: str, actor: str) -> None:
        queue = self.queues.setdefault(queue_name, ModelQueue())
        queue.paused_at = queue.paused_at or self.now
        self.audit.append((actor, "pause_queue", queue_name, None))

    def resume(self, queue_name: str, actor: str) -> None:
        if queue_name in self.queues:
            self.queues[queue_name].paused_at = None
        self.audit.append((actor, "resume_queue", queue_name, None))

    def limit(self, queue_name: str, max_running: int | None, actor: str) -> None:
        self.queues.setdefault(queue_name, ModelQueue()).max_running = max_running
        detail = {"max_running": max_running, "rate": None, "burst": None}
        self.audit.append((actor, "limit_queue", queue_name, json.dumps(detail, separators=(",", ":"))))


FORGOTTEN_AT_RESTART = (
    "lease_until", "locked_by", "started_at", "cancel_requested_at", "finished_at", "result", "error", "reason",
)  # fmt: skip
