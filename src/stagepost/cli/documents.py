"""The JSON documents that `--json` prints; scripts depend on their keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from stagepost.client.records import Batch, Job
from stagepost.errors import StagepostError
from stagepost.model.batch import Progress
from stagepost.model.dead_letter import to_text
from stagepost.model.job import FailureRecord, to_datetime
from stagepost.model.timeline import Moment
from stagepost.operations import DeadMessage, Queue, RegisteredWorker, RunSummary, Schedule
from stagepost.store.run_views import RunView, StepView

__all__ = [
    "batch_document",
    "dead_message_document",
    "failure_document",
    "instant",
    "job_document",
    "moment_document",
    "queue_document",
    "run_document",
    "run_view_document",
    "schedule_document",
    "value_of",
    "worker_document",
]


def instant(time: datetime | int | None) -> str | None:
    """Format a datetime in UTC, or microseconds since 1970, as ISO 8601."""
    if isinstance(time, int):
        time = to_datetime(time)
    return None if time is None else time.isoformat().replace("+00:00", "Z")


def value_of(text: str | None) -> Any:
    """Decode stored JSON; text that is not JSON is returned unchanged."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def job_document(job: Job) -> dict[str, Any]:
    """Convert a job, with all its fields."""
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "state": str(job.state),
        "priority": job.priority,
        "attempt": job.attempt,
        "failures": job.failures,
        "crashes": job.crashes,
        "max_attempts": job.max_attempts,
        "unique_key": job.unique_key,
        "limit_key": job.limit_key,
        "blocked_on": job.blocked_on,
        "batch_id": job.batch_id,
        "item_key": job.item_key,
        "arguments": _decoded(job, "arguments"),
        "first_task": job.first_task,
        "first_arguments": _decoded(job, "first_arguments"),
        "trace": _trace(job),
        "progress": _decoded(job, "progress"),
        "result": _decoded(job, "result"),
        "error": job.error,
        "worker": job.worker,
        "created_at": instant(job.created_at),
        "available_at": instant(job.available_at),
        "started_at": instant(job.started_at),
        "lease_until": instant(job.lease_until),
        "cancel_requested_at": instant(job.cancel_requested_at),
        "updated_at": instant(job.updated_at),
        "finished_at": instant(job.finished_at),
    }


def _decoded(job: Job, name: str) -> Any:
    """Read what is stored as JSON; one job that was damaged by hand must not hide the others."""
    try:
        return getattr(job, name)
    except StagepostError as error:
        return f"cannot be read: {error}"


def _trace(job: Job) -> dict[str, Any] | None:
    trace = {name: getattr(job.trace, name) for name in job.trace.__struct_fields__}
    facts = {**trace, "schedule": job.schedule, "due_at": instant(job.due_at)}
    return {name: value for name, value in facts.items() if value is not None} or None


def failure_document(failure: FailureRecord) -> dict[str, Any]:
    """Convert the record of an attempt that did not complete its job."""
    return {
        "attempt": failure.attempt,
        "kind": failure.kind,
        "error": failure.error,
        "traceback": failure.traceback,
        "worker": failure.worker,
        "failed_at": instant(failure.failed_at),
    }


def dead_message_document(message: DeadMessage) -> dict[str, Any]:
    """Convert a message that could not be processed."""
    encoding, text = to_text(message.body)
    return {
        "kind": "message",
        "id": message.id,
        "queue": message.queue or None,
        "routing_key": message.routing_key or None,
        "message_id": message.message_id,
        "correlation_id": message.correlation_id,
        "error": message.error,
        "headers": dict(message.headers),
        "body": value_of(text) if encoding == "text" else text,
        "encoding": encoding,
        "received_at": instant(message.received_at),
    }


def moment_document(moment: Moment) -> dict[str, Any]:
    """Convert one event of a job's timeline."""
    return {"at": instant(moment.at), "what": moment.what, "detail": moment.detail}


def queue_document(queue: Queue) -> dict[str, Any]:
    """Convert a queue's counts and settings."""
    return {
        "name": queue.name,
        "jobs": {str(state): number for state, number in queue.jobs.items()},
        "lag_seconds": None if queue.lag is None else queue.lag.total_seconds(),
        "paused_at": instant(queue.paused_at),
        "max_running": queue.max_running,
        "per_second": queue.per_second,
        "burst": queue.burst,
    }


def batch_document(batch: Batch, progress: Progress) -> dict[str, Any]:
    """Convert a batch and its progress."""
    counts = progress.counts
    return {
        "key": batch.key,
        "id": batch.id,
        "state": str(batch.state),
        "outcome": batch.outcome and str(batch.outcome),
        "gate": batch.gate,
        "on_failed": str(batch.on_failed),
        "items": {name: getattr(counts, name) for name in counts.__struct_fields__},
        "total": counts.total,
        "ended": counts.ended,
        "fraction": round(progress.fraction, 6),
        "per_second": round(progress.per_second, 3),
        "eta_seconds": None if progress.eta is None else round(progress.eta.total_seconds(), 3),
        "cursor": {"position": batch.cursor.position, "key": batch.cursor.key},
        "created_at": instant(batch.created_at),
        "sealed_at": instant(batch.sealed_at),
        "done_at": instant(batch.done_at),
        "cancelled_at": instant(batch.cancelled_at),
    }


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Convert a schedule, with its next and last due times."""
    return {
        "name": schedule.name,
        "task": schedule.task,
        "rule": schedule.rule,
        "time_zone": schedule.time_zone,
        "catch_up": str(schedule.catch_up),
        "next_due_at": instant(schedule.next_due_at),
        "last_due_at": instant(schedule.last_due_at),
        "orphaned_at": instant(schedule.orphaned_at),
        "paused_at": instant(schedule.paused_at),
        "held_until": instant(schedule.held_until),
        "error": schedule.error,
    }


def worker_document(worker: RegisteredWorker) -> dict[str, Any]:
    """Convert a worker's last report about itself."""
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "queues": list(worker.queues),
        "tasks": list(worker.tasks),
        "slots": worker.slots,
        "running": worker.running,
        "started_at": instant(worker.started_at),
        "seen_at": instant(worker.seen_at),
        "looked_at": instant(worker.looked_at),
        "silent_seconds": worker.silent.total_seconds(),
    }


def run_document(run: RunSummary | RunView) -> dict[str, Any]:
    """Convert a run of a pipeline, with the state of each step."""
    states = {step.name: step.state for step in run.steps} if isinstance(run, RunView) else run.steps
    return {**_run_facts(run), "steps": {name: str(state) for name, state in states.items()}}


def run_view_document(view: RunView) -> dict[str, Any]:
    """Convert a run of a pipeline, with the counts and errors of each step."""
    return {**_run_facts(view), "steps": [_step_document(step) for step in view.steps]}


def _run_facts(run: RunSummary | RunView) -> dict[str, Any]:
    return {
        "id": run.id,
        "pipeline": run.pipeline,
        "key": run.key,
        "state": str(run.state),
        "starts": run.starts,
        "error": run.error,
        "cancelled_at": instant(run.cancelled_at),
        "created_at": instant(run.created_at),
        "ended_at": instant(run.ended_at),
    }


def _step_document(step: StepView) -> dict[str, Any]:
    return {
        "name": step.name,
        "task": step.task,
        "state": str(step.state),
        "after": list(step.parents),
        "is_list": step.is_list,
        "on_failed": str(step.on_failed),
        "items": step.items,
        "starts": step.starts,
        "jobs": {name: getattr(step.counts, name) for name in step.counts.__struct_fields__},
        "error": step.error,
        "started_at": instant(step.started_at),
        "ended_at": instant(step.ended_at),
    }
