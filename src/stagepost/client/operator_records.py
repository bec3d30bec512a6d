"""What operators read about queues, schedules, workers, dead letters and gates, and what an action on many jobs did."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

import msgspec

from stagepost.client.records import Job
from stagepost.model.dead_letter import DeadMessage as StoredMessage
from stagepost.model.job import microseconds, to_datetime
from stagepost.model.lifecycle import JobState
from stagepost.model.pipeline import Run as StoredRun
from stagepost.model.pipeline import RunState, StepState
from stagepost.model.schedule import CatchUp
from stagepost.store import dead_messages, gates, history, queues, schedules, workers

__all__ = [
    "BulkResult",
    "DeadLetterGroup",
    "DeadMessage",
    "GateStatus",
    "JobPage",
    "Queue",
    "RegisteredWorker",
    "RunSummary",
    "Schedule",
    "ScheduleRun",
    "dead_message_of",
    "gate_status_of",
    "group_of",
    "queue_of",
    "run_summary_of",
    "schedule_of",
    "worker_of",
]


class JobPage(msgspec.Struct, frozen=True):
    """A page of jobs, newest first, and where the next page starts."""

    jobs: list[Job]
    """The jobs."""
    next_before: str | None
    """Pass it as `before` to continue; None at the end. A page that is not full need not be the last one."""


class BulkResult(msgspec.Struct, frozen=True):
    """How many jobs or messages an action on many of them changed, and how many it skipped."""

    done: int = 0
    """Number that were changed."""
    skipped: int = 0
    """Number that were not changed, because their state did not allow it any more or something depends on them."""
    reasons: Mapping[str, str] = {}
    """Why they were skipped, by id; of the first 10,000."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's counts, lag and settings when it was read."""

    name: str
    """Its name; `*` stands for all queues together."""
    jobs: Mapping[JobState, int]
    """Live jobs by state."""
    lag: timedelta | None
    """How long the oldest queued job has been ready to run; None if no job is queued."""
    paused_at: datetime | None
    """When it was paused; None if it is running."""
    max_running: int | None
    """Maximum number of jobs that run at once; None sets no limit."""
    per_second: float | None
    """Maximum number of jobs that start per second; None sets no limit."""
    burst: int | None
    """Maximum number of jobs that start at once after an idle period."""


def queue_of(stored: queues.Queue) -> Queue:
    """Build the public record of a queue."""
    settings = stored.settings
    return Queue(
        name=stored.name,
        jobs=stored.counts,
        lag=None if stored.lag_us is None else timedelta(microseconds=stored.lag_us),
        paused_at=to_datetime(settings.paused_at),
        max_running=settings.max_running,
        per_second=None if settings.rate is None else settings.rate.per_second,
        burst=None if settings.rate is None else settings.rate.burst,
    )


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule when it was read. Times are aware datetimes in UTC."""

    name: str
    """Its name."""
    task: str
    """Name of the task whose job it enqueues."""
    rule: str
    """Its cron rule or interval."""
    time_zone: str
    """The time zone of the rule."""
    catch_up: CatchUp
    """What happens to due times that were missed."""
    next_due_at: datetime | None
    """Its next due time; None if the rule has none left."""
    last_due_at: datetime | None
    """Its latest due time that enqueued a job."""
    paused_at: datetime | None
    """When it was paused."""
    orphaned_at: datetime | None
    """When it stopped because no running worker declares it."""
    held_until: datetime | None
    """When a schedule that failed to fire is tried again."""
    error: str | None
    """Why it failed to fire."""


def schedule_of(stored: schedules.Schedule) -> Schedule:
    """Build the public record of a schedule."""
    return Schedule(
        name=stored.name,
        task=stored.task_name,
        rule=stored.rule,
        time_zone=stored.time_zone,
        catch_up=CatchUp(stored.catch_up),
        next_due_at=None if stored.next_due_at >= schedules.NEVER else to_datetime(stored.next_due_at),
        last_due_at=to_datetime(stored.last_due_at),
        paused_at=to_datetime(stored.paused_at),
        orphaned_at=to_datetime(stored.orphaned_at),
        held_until=to_datetime(stored.held_until),
        error=stored.error,
    )


class ScheduleRun(msgspec.Struct, frozen=True):
    """One due time of a schedule, and its job."""

    due_at: datetime
    """The due time."""
    job_id: str
    """The job that was enqueued for it, or that already held its unique key."""
    fired_at: datetime
    """When the job was enqueued."""


class RegisteredWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it last described itself."""

    id: str
    """Its id, which jobs name as their `worker`."""
    host: str
    """The machine it runs on."""
    pid: int
    """Its process."""
    queues: tuple[str, ...]
    """The queues it takes jobs from."""
    tasks: tuple[str, ...]
    """The tasks it knows."""
    slots: int
    """Number of jobs that it can run at once."""
    running: int
    """Number of jobs that it runs."""
    started_at: datetime
    """When it started."""
    seen_at: datetime
    """When it last reported."""
    looked_at: datetime
    """When it last looked for jobs."""
    silent: timedelta
    """How long ago it last reported."""
    is_alive: bool
    """Whether it reported within the last minute."""
    loops: tuple[str, ...]
    """Names of its loops, as `stagepost workers list --loops` describes them."""
    leads: tuple[str, ...]
    """Names of the leaderships that it holds: `upkeep`, `broker` or none."""


def worker_of(stored: workers.WorkerRecord, leads: tuple[str, ...]) -> RegisteredWorker:
    """Build the public record of a worker."""
    return RegisteredWorker(
        id=stored.id,
        host=stored.host,
        pid=stored.pid,
        queues=stored.queues,
        tasks=stored.tasks,
        slots=stored.slots,
        running=stored.running,
        started_at=to_datetime(stored.started_at),
        seen_at=to_datetime(stored.seen_at),
        looked_at=to_datetime(stored.looked_at),
        silent=timedelta(microseconds=stored.silent_us),
        is_alive=stored.silent_us <= microseconds(workers.ALIVE_WITHIN),
        loops=stored.loops,
        leads=leads,
    )


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters with the same reason: jobs of one task, or messages of one broker queue."""

    id: str
    """A short name, which depends only on the reason and the task or queue."""
    kind: Literal["jobs", "messages"]
    """Whether they are jobs or messages of the broker that belong to no job."""
    task: str | None
    """The task of the jobs."""
    queue: str | None
    """The broker's queue of the messages."""
    reason: str
    """Their error, without the parts that differ."""
    number: int
    """Number of jobs or messages."""
    first_at: datetime
    """When the first of them ended or was received."""
    last_at: datetime
    """When the latest of them ended or was received."""


def group_of(stored: history.DeadLetterGroup | dead_messages.DeadMessageGroup) -> DeadLetterGroup:
    """Build the public record of a group."""
    is_job = isinstance(stored, history.DeadLetterGroup)
    scope = stored.task_name if isinstance(stored, history.DeadLetterGroup) else f"\0{stored.queue}"
    return DeadLetterGroup(
        id=sha256(f"{scope}\0{stored.reason}".encode()).hexdigest()[:8],
        kind="jobs" if is_job else "messages",
        task=stored.task_name if isinstance(stored, history.DeadLetterGroup) else None,
        queue=None if isinstance(stored, history.DeadLetterGroup) else stored.queue,
        reason=stored.reason,
        number=stored.jobs if isinstance(stored, history.DeadLetterGroup) else stored.messages,
        first_at=to_datetime(stored.first_at),
        last_at=to_datetime(stored.last_at),
    )


class DeadMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message from the broker's dead-letter queue that belongs to no job."""

    id: str
    """Its id, which follows from its content."""
    queue: str
    """The broker's queue in which it failed; empty if unknown."""
    routing_key: str
    """The routing key for sending it again; empty if unknown."""
    message_id: str
    """The id that its sender gave it."""
    correlation_id: str | None
    """The correlation id that its sender gave it."""
    error: str
    """Why it could not be processed."""
    headers: Mapping[str, Any]
    """Its headers."""
    body: bytes
    """Its body."""
    received_at: datetime
    """When it was taken from the dead-letter queue."""


def dead_message_of(stored: StoredMessage) -> DeadMessage:
    """Build the public record of a dead message."""
    facts = {name: getattr(stored, name) for name in DeadMessage.__struct_fields__ if name != "received_at"}
    return DeadMessage(**facts, received_at=to_datetime(stored.received_at))


class GateStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A gate when it was read."""

    name: str
    """Its name."""
    is_open: bool
    """Whether it is open."""
    unfinished: int
    """Number of batches that keep it closed."""
    openings: int
    """How often it has opened."""
    opened_at: datetime | None
    """When it last opened."""
    batches: Mapping[str, str] = {}
    """The first batches that keep it closed, by key, each with a summary of its items; only from `get`."""


def gate_status_of(stored: gates.StoredGate, batches: Mapping[str, str]) -> GateStatus:
    """Build the public record of a gate."""
    return GateStatus(
        name=stored.name,
        is_open=stored.unfinished == 0,
        unfinished=stored.unfinished,
        openings=stored.openings,
        opened_at=to_datetime(stored.opened_at),
        batches=batches,
    )


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a pipeline when it was read, with the state of each step."""

    id: str
    """Its id, a UUID."""
    pipeline: str
    """Name of its pipeline."""
    key: str
    """Its key; its id if none was given."""
    state: RunState
    """Its state."""
    steps: Mapping[str, StepState]
    """The state of each step."""
    starts: int
    """Number of starts: one, plus one for each retry."""
    error: str | None
    """Why it failed."""
    cancelled_at: datetime | None
    """When it was cancelled."""
    created_at: datetime
    """When it was started."""
    ended_at: datetime | None
    """When it ended."""


def run_summary_of(stored: StoredRun) -> RunSummary:
    """Build the public record of a run."""
    return RunSummary(
        id=stored.id,
        pipeline=stored.pipeline,
        key=stored.key,
        state=stored.state,
        steps={name: step.state for name, step in stored.steps.items()},
        starts=stored.starts,
        error=stored.error,
        cancelled_at=to_datetime(stored.cancelled_at),
        created_at=to_datetime(stored.created_at),
        ended_at=to_datetime(stored.ended_at),
    )
