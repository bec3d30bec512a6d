"""Events: typed records of what happened to jobs, read with `app.events`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from stagepost.model.context import NOTHING, TraceContext
from stagepost.model.event_level import EventLevel
from stagepost.model.lifecycle import JobState

__all__ = [
    "EVENT_TYPES",
    "Event",
    "EventLevel",
    "JobCancelled",
    "JobCompleted",
    "JobCompletedWithErrors",
    "JobDeadLettered",
    "JobFailed",
    "JobWaived",
]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a job. Each type of event is a subclass."""

    type: ClassVar[str]
    """Name of the type, such as `job.completed`."""
    state: ClassVar[JobState]
    """The state that the job changed to."""

    number: int
    """Its place in the stream of all events. Pass the last number that you have processed as `after` to continue."""
    time: datetime
    """When it happened, in UTC."""
    job_id: str
    """Id of the job."""
    task: str
    """Name of the job's task."""
    queue: str
    """Name of the job's queue."""
    attempt: int
    """Number of the job's latest attempt; 0 if it never ran."""
    batch_id: str | None = None
    """Id of the job's batch; for a child, its parent."""
    reason: str | None = None
    """Why a job failed: its error without ids and numbers."""
    trace: TraceContext = NOTHING
    """Trace, correlation and user ids of the job."""

    @property
    def id(self) -> str:
        """A unique id, by which a receiver recognizes an event that it receives again."""
        return f"{self.job_id}.{self.number}"

    def cloud_event(self, *, source: str = "/stagepost") -> dict[str, Any]:
        """Return the event as a CloudEvents 1.0 object, ready to be encoded as JSON."""
        facts = {
            "job_id": self.job_id,
            "task": self.task,
            "queue": self.queue,
            "state": str(self.state),
            "attempt": self.attempt,
            "batch_id": self.batch_id,
            "reason": self.reason,
            "trace_id": self.trace.trace_id,
            "correlation_id": self.trace.correlation_id,
            "user_id": self.trace.user_id,
        }
        return {
            "specversion": "1.0",
            "id": self.id,
            "source": source,
            "type": self.type,
            "subject": self.job_id,
            "time": self.time.isoformat().replace("+00:00", "Z"),
            "sequence": str(self.number),
            "datacontenttype": "application/json",
            "data": {name: value for name, value in facts.items() if value is not None},
        }


class JobCompleted(Event, frozen=True, kw_only=True):
    """A job completed."""

    type = "job.completed"
    state = JobState.COMPLETED


class JobCompletedWithErrors(Event, frozen=True, kw_only=True):
    """A job completed, but some of its children did not."""

    type = "job.completed_with_errors"
    state = JobState.COMPLETED_WITH_ERRORS


class JobFailed(Event, frozen=True, kw_only=True):
    """A job failed permanently."""

    type = "job.failed"
    state = JobState.FAILED


class JobDeadLettered(Event, frozen=True, kw_only=True):
    """A job failed or crashed as often as it may."""

    type = "job.dead_lettered"
    state = JobState.DEAD_LETTER


class JobCancelled(Event, frozen=True, kw_only=True):
    """A job was cancelled."""

    type = "job.cancelled"
    state = JobState.CANCELLED


class JobWaived(Event, frozen=True, kw_only=True):
    """An operator let a batch finish without this failed job."""

    type = "job.waived"
    state = JobState.WAIVED


EVENT_TYPES: dict[JobState, type[Event]] = {
    kind.state: kind
    for kind in (JobCompleted, JobCompletedWithErrors, JobFailed, JobDeadLettered, JobCancelled, JobWaived)
}
"""The type of event that each final state has."""
