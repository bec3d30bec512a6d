"""Queries that explain why jobs, batches and runs have not ended yet, for people who wait for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from stagepost.database.statement import Statements, query
from stagepost.model.batch import BatchState, Counts, OnFailed
from stagepost.model.job import JobRow, microseconds, to_datetime
from stagepost.model.lifecycle import LIVE, JobState
from stagepost.model.limits import LIMIT, RATE, TASK
from stagepost.model.pipeline import StepState
from stagepost.store.batches import find as find_batch
from stagepost.store.counting import count_by_queue, count_items
from stagepost.store.jobs import failures_of, find
from stagepost.store.leases import next_due
from stagepost.store.listing import list_items
from stagepost.store.queues import ALL_QUEUES, queue_settings
from stagepost.store.runs import get as get_run
from stagepost.store.workers import TAKES_JOBS_WITHIN, WorkerRecord, list_workers, unknown_tasks

__all__ = ["no_worker_for", "what_is_left", "why_batch_waits", "why_job_waits", "why_run_waits"]

DEEPEST = 20
"""How many generations of children are followed to the job that the others wait for."""
ENDED = "It has ended in the meantime."


@query
def why_job_waits(job_id: str) -> Statements[str]:
    """Say what a job waits for, in a sentence or two."""
    job = yield from find(job_id)
    return ENDED if job is None else (yield from _why(job, depth=0))


@query
def why_batch_waits(key: str) -> Statements[str]:
    """Say what a batch waits for, in a sentence or two."""
    batch = yield from find_batch(key)
    if batch is None:
        return ENDED
    counts = yield from count_items(batch.id)
    if batch.state is BatchState.OPEN:
        return f"It is not sealed, so items may still be added: call `seal()` after the last one. {_progress(counts)}"
    if not counts.live and counts.failures and batch.on_failed is OnFailed.HOLD:
        return f"It waits until its {counts.failures:,} failed items are retried or waived."
    return f"{_progress(counts)}{(yield from _example(batch.id, depth=0))}"


@query
def why_run_waits(run_id: str) -> Statements[str]:
    """Say what a run waits for, in a sentence or two."""
    run = yield from get_run(run_id)
    for name, step in run.steps.items():
        if step.state is StepState.RUNNING and step.batches:
            counts = yield from count_items(step.batches[-1])
            return f"Step {name!r} runs. {_progress(counts)}{(yield from _example(step.batches[-1], depth=0))}"
    return "None of its steps is running. A worker starts the next ones: check that one is running."


@query
def what_is_left(queue_names: Collection[str]) -> Statements[list[str]]:
    """Describe the live jobs that a worker of these queues leaves behind when nothing is due, queue by queue."""
    counted = yield from count_by_queue()
    settings = yield from queue_settings(counted)
    left: list[str] = []
    for name, counts in counted.items():
        live = ", ".join(f"{counts[state]:,} {state}" for state in sorted(LIVE) if counts[state])
        is_paused = any(settings[which].paused_at is not None for which in (name, ALL_QUEUES))
        note = ", which this worker does not serve" if name not in queue_names else ", paused" if is_paused else ""
        left += [f"queue {name}{note}: {live}"] if live else []
    if (due := (yield from next_due())) is not None and left:
        left.append(f"the next scheduled job is due in {_seconds(max(0, microseconds(due)))}")
    for task in (yield from unknown_tasks(timedelta(0))) if left else ():
        left.append(f"no running worker of queue {task.queue_name} knows task {task.task_name} ({task.jobs:,} or more)")
    return left


def no_worker_for(queue_name: str, task_name: str, workers: Sequence[WorkerRecord]) -> str:
    """Say which worker is missing; empty if one that reported lately serves the queue and knows the task."""
    heard = [worker for worker in workers if worker.silent_us <= microseconds(TAKES_JOBS_WITHIN)]
    if not heard:
        last = min((worker.silent_us for worker in workers), default=None)
        since = "" if last is None else f" The last one was heard from {_seconds(last)} ago."
        return f"No worker is running.{since} Start one with `stagepost worker`."
    serving = [worker for worker in heard if queue_name in worker.queues]
    if not serving:
        served = ", ".join(sorted({queue for worker in heard for queue in worker.queues}))
        return f"No running worker serves queue {queue_name!r}; they serve {served or 'none'}."
    if not any(task_name in worker.tasks for worker in serving):
        return (
            f"No running worker of queue {queue_name!r} knows task {task_name!r}. Start one whose app imports the "
            f"module that defines it."
        )
    return ""


def _why(job: JobRow, *, depth: int) -> Statements[str]:
    match job.state:
        case JobState.RUNNING:
            return (yield from _why_running(job))
        case JobState.QUEUED:
            return (yield from _why_queued(job))
        case JobState.SCHEDULED:
            return f"It is scheduled for {_time(job.available_at)}. {(yield from _workers(job))}".strip()
        case JobState.RETRYING:
            errors = [failure.error for failure in (yield from failures_of(job.id))[-1:]]
            why = f" ({errors[0].splitlines()[0]})" if errors and errors[0] else ""
            return (
                f"Attempt {job.attempt} failed{why}; the next starts at {_time(job.available_at)}. "
                f"{(yield from _workers(job))}"
            ).strip()
        case JobState.BLOCKED:
            return (yield from _why_blocked(job))
        case JobState.WAITING:
            counts = yield from count_items(job.id)
            example = (yield from _example(job.id, depth=depth + 1)) if depth < DEEPEST else ""
            return f"It waits for its children. {_progress(counts)}{example}"
        case _:
            return ENDED


def _why_running(job: JobRow) -> Statements[str]:
    since = f"It has been running since {_time(job.started_at)} (attempt {job.attempt})."
    owner = [worker for worker in (yield from list_workers()) if worker.id == job.locked_by]
    if owner and owner[0].silent_us <= microseconds(TAKES_JOBS_WITHIN):
        return f"{since} Wait again."
    return f"{since} Its worker has not reported lately; if it died, the job runs again after {_time(job.lease_until)}."


def _why_queued(job: JobRow) -> Statements[str]:
    settings = yield from queue_settings([job.queue_name])
    for name in (ALL_QUEUES, job.queue_name):
        if settings[name].paused_at is not None:
            which = "All queues are" if name == ALL_QUEUES else f"Queue {name!r} is"
            return (
                f"{which} paused since {_time(settings[name].paused_at)}. "
                f"Resume with `stagepost queues resume {name if name != ALL_QUEUES else repr(name)}`."
            )
    if missing := (yield from _workers(job)):
        return missing
    counts = (yield from count_by_queue()).get(job.queue_name, {})
    queued, running = counts.get(JobState.QUEUED, 0), counts.get(JobState.RUNNING, 0)
    limited = " Its limits slow it down." if any(limits.is_limited for limits in settings.values()) else ""
    return f"Queue {job.queue_name!r} has {queued:,} queued and {running:,} running jobs.{limited} Wait again."


def _why_blocked(job: JobRow) -> Statements[str]:
    name = job.blocked_on or f"{LIMIT}{job.limit_key}"
    if name.startswith(TASK):
        return (yield from _workers(job)) or f"A worker that knows task {job.task_name!r} has just started. Wait again."
    if name.startswith(RATE):
        return f"It is blocked on rate limit {name.removeprefix(RATE)!r}. {(yield from _workers(job))}".strip()
    allowed = f"It is blocked on limit {name.removeprefix(LIMIT)!r}: as many jobs as allowed are running."
    return f"{allowed} {(yield from _workers(job))}".strip()


def _workers(job: JobRow) -> Statements[str]:
    return no_worker_for(job.queue_name, job.task_name, (yield from list_workers()))


def _example(batch_id: str, *, depth: int) -> Statements[str]:
    """Explain one of the jobs that have not ended, as the end of a text."""
    found = yield from list_items(batch_id, states=sorted(LIVE), most=1)
    return f" For example job {found[0].id}: {(yield from _why(found[0], depth=depth))}" if found else ""


def _progress(counts: Counts) -> str:
    live = ", ".join(f"{number:,} {state}" for state in sorted(LIVE) if (number := getattr(counts, state)))
    return f"{counts.ended:,} of {counts.total:,} jobs have ended{f'; {live}' if live else ''}."


def _time(instant: int | None) -> str:
    time = to_datetime(instant)
    return "an unknown time" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _seconds(duration_us: int) -> str:
    return f"{duration_us / 1_000_000:,.0f} s"
